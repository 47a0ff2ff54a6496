"""Ledgers on real bookies lie where a broker's groups of bookies say, also after a bookie has died."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from magnetar.ledger.bookie_racks import BookieInfo, BookiePlacement, Groups, change_racks
from magnetar.metadata import MemoryStore
from tests.cluster.servers import Cluster, bookie, class_path
from tests.turns import until

class_path()  # skips the module where BookKeeper cannot be run

from magnetar.ledger.bookkeeper import jars  # noqa: E402
from magnetar.ledger.bookkeeper.bookies import Bookies, BookieWriter, Quorums  # noqa: E402
from magnetar.ledger.bookkeeper.engine import BookKeeperEngine  # noqa: E402
from magnetar.ledger.errors import LedgerError  # noqa: E402


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return three bookies, each on a host of its own."""
    directory = tmp_path_factory.mktemp("hosts")
    cluster = Cluster(directory, 0)
    cluster.bookies = [
        bookie(directory / f"bookie-{number}", cluster.zookeeper, address=f"127.0.0.{number + 1}")
        for number in range(3)
    ]
    cluster.start()
    yield cluster
    cluster.kill()


def ids(cluster: Cluster) -> list[str]:
    return [f"127.0.0.{number}:{each.port}" for number, each in enumerate(cluster.bookies, 1)]


def on(writer: BookieWriter) -> set[str]:
    """Return the bookies that a ledger begins on."""
    ensembles = writer._handle.getLedgerMetadata().getAllEnsembles()
    return {str(each) for each in ensembles.firstEntry().getValue()}


async def kept(writer: BookieWriter) -> None:
    """Write an entry, and see that it is kept."""
    answer: asyncio.Future[LedgerError | None] = asyncio.get_running_loop().create_future()
    writer.send([b"an entry"], answer.set_result)
    assert await answer is None


async def test_ledgers_are_on_bookies_of_the_brokers_groups(hosts: Cluster) -> None:
    first, second, third = ids(hosts)
    place = BookiePlacement(isolation_groups=["mine"], secondary_groups=["help"])
    bookies = Bookies(hosts.hosts, "", jars.installed(), quorums=Quorums(2, 2, 2), placement=place)
    store = MemoryStore()

    async def grouped(**groups: list[str]) -> None:
        said: Groups = {name: {each: BookieInfo("/r") for each in given} for name, given in groups.items()}
        await change_racks(store, lambda _: said)

    await grouped(mine=[first, second], other=[third])
    engine = BookKeeperEngine(bookies, store)
    await engine.start()
    try:
        assert await engine.bookie_ids() == sorted([first, second, third])
        for _ in range(4):
            assert on(await bookies.create()) == {first, second}
        await grouped(mine=[second, third], help=[first])
        await until(lambda: bookies._groups.get("help") is not None)
        written = await bookies.create()
        assert on(written) == {second, third}
        await kept(written)
        hosts.bookies[2].kill()

        async def made() -> set[str]:
            try:
                return on(await bookies.create())
            except LedgerError:  # it is known for as long as its session
                return set()

        while await made() != {first, second}:
            pass
        await kept(written)  # on the second bookie, and on one in the place of the third
        assert bookies.health.ensemble_changes == 0
        await written.close()
        assert bookies.health.ensemble_changes == 1
    finally:
        await engine.close()
