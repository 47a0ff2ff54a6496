"""Ledgers of real bookies in tiered storage: read as before by whoever has the log, whole after a crash anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from magnetar.ledger.errors import LedgerCorrupt, LedgerError, LedgerFenced, TierFailed
from magnetar.ledger.formats.info import decode_info, encode_info, path_of
from magnetar.ledger.port import LedgerPolicy, ManagedLedger
from magnetar.ledger.tiers.deletions import ROOT
from magnetar.ledger.tiers.place import TierPlace
from magnetar.ledger.tiers.tiers import Tiers, TierSettings
from magnetar.metadata import ANY, Put
from tests.cluster.servers import Cluster, class_path
from tests.ledger.entries import append, read_all
from tests.offload.conftest import aws_keys, place, s3  # noqa: F401 - fixtures
from tests.offload.house import NAME, SMALL, filled, sealed
from tests.offload.promises import (
    Steps,
    check_compaction,
    check_goes,
    check_overtaken,
    check_readers_meanwhile,
    check_reads,
    objects,
    offloaded,
    plain,
)

class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow]

from magnetar.ledger.bookkeeper.bookies import Bookies  # noqa: E402
from magnetar.ledger.bookkeeper.engine import BookKeeperEngine  # noqa: E402
from magnetar.ledger.bookkeeper.tiering import GRACE_MS, LEAVING, EntryFeed  # noqa: E402
from magnetar.ledger.tiers.tiering import LogTiering  # noqa: E402
from tests.cluster.test_bookkeeper_engine import BookKeeperHouse  # noqa: E402


class TieredBookieHouse(BookKeeperHouse):
    """An engine on bookies; what its memory has of the newest entries is next to nothing, so that it reads."""

    def __init__(self, cluster: Cluster, root: str = "", settings: TierSettings = SMALL) -> None:
        super().__init__(cluster, root)
        self.settings = settings

    def make_engine(self, bookies: Bookies) -> BookKeeperEngine:
        return BookKeeperEngine(
            bookies,
            self.metadata,
            clock=lambda: self.now_ms,
            tail_bytes=1,
            make_tiers=lambda: Tiers(self.settings),
        )

    async def log(self, **policy: object) -> ManagedLedger:
        policy = {"max_ledger_entries": 200, "retention_ms": -1, **policy}
        return await self.engine.open(NAME, LedgerPolicy(**policy))  # type: ignore[arg-type]

    async def on_bookies(self) -> set[int]:
        """Return which of the log's ledgers bookies still have."""
        while self.engine._tasks:
            await asyncio.wait(list(self.engine._tasks))
        found = {int("".join(path.split("/")[-2:]).replace("L", "")) for path in await self._ids()}
        stored = await self.metadata.get(path_of(NAME))
        assert stored is not None
        return found & {each.ledger_id for each in decode_info(stored.value).ledgers}


@pytest.fixture
async def house(cluster: Cluster) -> AsyncIterator[TieredBookieHouse]:
    house = TieredBookieHouse(cluster)
    await house.begin()
    yield house
    await house.end()


async def other_house(house: TieredBookieHouse) -> TieredBookieHouse:
    """Return another broker of the same cluster."""
    other = TieredBookieHouse(house.cluster, house.root, house.settings)
    await other.begin()
    return other


async def test_everything_is_read_as_before_by_whoever_has_the_log(
    house: TieredBookieHouse,
    place: TierPlace,  # noqa: F811
) -> None:
    log = await house.log()
    await filled(log, 1000)
    before = await read_all(log)
    ids = sealed(log)
    for ledger_id in ids:
        await log.offload(ledger_id, place)
    assert await house.on_bookies() >= set(ids), "until somebody says otherwise they are here as well"
    await log.delete_local(ids)
    assert not await house.on_bookies() & set(ids)
    assert house.engine.tiers.bytes_read == 0
    other = await other_house(house)
    for now in (house, other):
        log = await now.log()
        assert all(each.offloaded for each in log.ledgers() if each.ledger_id in ids)
        await check_reads(log, before)
        assert now.engine.tiers.bytes_read > 100_000
        assert 0 < now.engine.tiers.cache.size <= SMALL.cache_bytes
    await other.end()


async def test_readers_that_come_while_bookies_let_go_see_all(
    house: TieredBookieHouse,
    place: TierPlace,  # noqa: F811
) -> None:
    await check_readers_meanwhile(house, place, house.on_bookies)


@pytest.mark.parametrize("how", ["read", "entry", "find_by_time"])
async def test_a_ledger_that_goes_within_a_read_is_read_there(
    house: TieredBookieHouse,
    tmp_path: Path,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = TierPlace("filesystem", path=str(tmp_path / "tiers"))
    await filled(await house.log(), 200)
    await house.reopen()  # whoever wrote it reads by what it wrote it with
    log = await house.log()
    (first,) = sealed(log)
    found = plain(await read_all(log))
    await log.offload(first, there)
    bookies, original, overtaken = house.engine.bookies, house.engine.bookies.read, []

    async def late(ledger_id: int, low: int, high: int) -> list[bytes]:
        if ledger_id == first and not overtaken:
            overtaken.append(ledger_id)
            await log.delete_local([first])
            await house.on_bookies()
        return await original(ledger_id, low, high)

    monkeypatch.setattr(bookies, "read", late)
    await check_overtaken(log, how, first, found)
    assert overtaken


async def test_compaction_reads_what_lies_there_and_its_objects_go(
    house: TieredBookieHouse,
    place: TierPlace,  # noqa: F811
) -> None:
    await check_compaction(house, place)


@pytest.mark.parametrize("how", ["retention", "trim", "delete", "delete closed"])
async def test_objects_go_with_what_they_are_of(house: TieredBookieHouse, tmp_path: Path, how: str) -> None:
    await check_goes(house, TierPlace("filesystem", path=str(tmp_path / "tiers")), how)


class Crashed(Exception):
    """What a broker that is not there any more does."""


class Mortal(Steps):
    """A broker that takes no step from the fatal one on."""

    @property
    def is_dead(self) -> bool:
        return self.taken >= self.fatal

    def step(self) -> None:
        if self.is_dead:
            raise Crashed
        self.taken += 1


async def test_a_crash_at_every_step_loses_nothing_and_leaves_nothing(
    house: TieredBookieHouse, tmp_path: Path
) -> None:
    there = TierPlace("filesystem", path=str(tmp_path / "tiers"))
    await filled(await house.log(), 400)
    found = plain(await read_all(await house.log()))
    crashed: list[TieredBookieHouse] = [house]
    steps = 0
    while True:
        steps += 1
        now = await other_house(house)
        log = await now.log()  # which takes it from the one that crashed
        assert plain(await read_all(log)) == found
        mortal, store = Mortal(steps), now.engine.tiers.store(there)
        for name in ("put", "size", "delete"):
            setattr(store, name, mortal.around(getattr(store, name)))
        now.metadata.commit = mortal.around_async(now.metadata.commit)  # type: ignore[method-assign]
        now.engine.bookies.delete = mortal.around_async(now.engine.bookies.delete)  # type: ignore[method-assign]
        try:
            for ledger_id in sealed(log):
                await log.offload(ledger_id, there)
            await log.delete_local(sealed(log))
            await now.on_bookies()
        except Crashed:
            pass
        finally:
            del now.metadata.commit, now.engine.bookies.delete
        crashed.append(now)
        if not mortal.is_dead:
            break
    assert steps > 10
    mortal.fatal = 1 << 30
    assert plain(await read_all(log)) == found
    ids = set(sealed(log))
    assert not await now.on_bookies() & ids
    now.now_ms += GRACE_MS + 1
    await now.engine.delete_doomed()
    assert len(objects(there)) == 2 * len(ids), "nothing is left of attempts that crashed"
    assert await now.metadata.children(ROOT) == []
    for each in crashed[1:]:
        await each.end()


async def test_what_bookies_could_not_let_go_of_they_do_later(
    house: TieredBookieHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = TierPlace("filesystem", path=str(tmp_path / "tiers"))
    log = await house.log()
    await filled(log, 200)

    async def fails(ledger_id: int) -> None:
        raise LedgerError("bookies are away")

    monkeypatch.setattr(house.engine.bookies, "delete", fails)
    await offloaded(log, there)
    (first,) = sealed(log)
    assert first in await house.on_bookies()
    other = await other_house(house)
    await other.log()
    assert first not in await other.on_bookies()
    await other.end()


async def test_an_owner_that_is_late_completes_nothing_and_what_it_wrote_goes(
    house: TieredBookieHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = TierPlace("filesystem", path=str(tmp_path / "tiers"))
    log = await house.log()
    await filled(log, 200)
    found = plain(await read_all(log))
    (first,) = sealed(log)
    others: list[TieredBookieHouse] = []
    original = LogTiering._complete

    async def overtaken(tiering: LogTiering, *given: Any) -> None:
        monkeypatch.setattr(LogTiering, "_complete", original)
        others.append(await other_house(house))
        taken = await others[0].log()
        await taken.offload(first, there)
        others[0].now_ms += GRACE_MS + 1
        await others[0].engine.delete_doomed()
        assert len(objects(there)) == 2, "the late one's were deleted"
        others[0].now_ms = house.now_ms
        await original(tiering, *given)

    monkeypatch.setattr(LogTiering, "_complete", overtaken)
    with pytest.raises(LedgerFenced):
        await log.offload(first, there)
    (other,) = others
    assert len(await other.metadata.children(ROOT)) == 1, "it is noted once more"
    await other.engine.delete_doomed()
    assert len(await other.metadata.children(ROOT)) == 1, "for as long as somebody may be late"
    other.now_ms += GRACE_MS + 1
    await other.engine.delete_doomed()
    assert await other.metadata.children(ROOT) == []
    assert plain(await read_all(await other.log())) == found
    await other.end()


async def test_what_is_damaged_there_is_refused_and_bookies_keep_what_could_not_be_read(
    house: TieredBookieHouse, tmp_path: Path
) -> None:
    tiers = tmp_path / "tiers"
    there = TierPlace("filesystem", path=str(tiers))
    log = await house.log()
    await filled(log, 200)
    found = plain(await read_all(log))
    (first,) = sealed(log)
    await log.offload(first, there)
    (index,) = tiers.glob("*-index")
    whole = index.read_bytes()
    size = int.from_bytes(whole[4:8], "big")
    index.write_bytes(whole[:size])  # as a broker of Pulsar's writes it
    await log.delete_local([first])
    assert not log.ledgers()[0].offloaded
    index.write_bytes(whole)
    await log.delete_local([first])
    assert log.ledgers()[0].offloaded
    data = next(path for path in tiers.iterdir() if path.name.endswith(f"-ledger-{first}"))
    good = data.read_bytes()
    refused = 0
    for at in range(200, len(good), len(good) // 30):
        data.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        house.engine.tiers.cache.forget(first)
        try:
            assert plain(await read_all(log)) == found
        except LedgerCorrupt as error:
            refused += "-ledger-" in str(error)
    assert refused > 25
    data.write_bytes(good)
    house.engine.tiers.cache.forget(first)
    assert plain(await read_all(log)) == found


async def test_a_log_of_which_a_broker_of_pulsars_alone_knows_what_lies_there_is_refused(
    house: TieredBookieHouse, tmp_path: Path
) -> None:
    there = TierPlace("filesystem", path=str(tmp_path / "tiers"))
    await filled(await house.log(), 200)
    await offloaded(await house.log(), there)
    await house.engine.release(NAME)
    stored = await house.metadata.get(path_of(NAME))
    assert stored is not None
    info = decode_info(stored.value)
    info.ledgers[0].sealed = False  # then nothing is written of offsets, as Pulsar writes nothing
    await house.metadata.commit([Put(path_of(NAME), encode_info(info), ANY)])
    with pytest.raises(LedgerCorrupt, match=r"was offloaded by a broker of Pulsar's"):
        await house.log()
    assert len(objects(there)) == 2


async def test_what_the_metadata_know_otherwise_is_not_offloaded(
    house: TieredBookieHouse, tmp_path: Path
) -> None:
    there = TierPlace("filesystem", path=str(tmp_path / "tiers"))
    await filled(await house.log(), 200)
    await house.reopen()
    stored = await house.metadata.get(path_of(NAME))
    assert stored is not None
    info = decode_info(stored.value)
    info.ledgers[0].size += 1
    await house.metadata.commit([Put(path_of(NAME), encode_info(info), ANY)])
    log = await house.log()
    with pytest.raises(LedgerCorrupt, match="it is not offloaded"):
        await log.offload(sealed(log)[0], there)
    assert not objects(there)
    assert LEAVING not in info.properties


async def test_a_thread_that_writes_is_let_go_when_nobody_reads_for_it_any_more(
    house: TieredBookieHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = TierPlace("filesystem", path=str(tmp_path / "tiers"))
    log = await house.log()
    await filled(log, 200)
    (first,) = sealed(log)
    asked, ended = asyncio.Event(), asyncio.Event()
    bookies, loop = house.engine.bookies, asyncio.get_running_loop()
    original = EntryFeed.chunks

    async def never(*_: Any) -> list[bytes]:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    def told(feed: EntryFeed) -> Any:
        try:
            yield from original(feed)
        finally:
            loop.call_soon_threadsafe(ended.set)

    monkeypatch.setattr(bookies, "read", never)
    monkeypatch.setattr(EntryFeed, "chunks", told)
    log.readers.clear()  # type: ignore[attr-defined]
    work = asyncio.ensure_future(log.offload(first, there))
    await asked.wait()
    work.cancel()
    await ended.wait()
    for _ in range(600):  # what it had begun to write it takes away itself
        with suppress(TierFailed):  # it goes while it is looked at
            if not objects(there):
                break
        await asyncio.sleep(0.1)
    assert not objects(there)
    monkeypatch.undo()
    pending = append(log, b"goes on")
    await pending.settled()
