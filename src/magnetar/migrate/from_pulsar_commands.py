"""Commands on a Pulsar cluster that is served in place: look at it, take it over, and return it to Pulsar brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from magnetar.admin.errors import AdminError, Declined, Invalid, Unreachable
from magnetar.base.errors import BrokerError
from magnetar.doctor.ledgers_cluster import ClusterPlace
from magnetar.ledger.bookkeeper.bookies import Bookies, Quorums
from magnetar.ledger.bookkeeper.jars import JarsError, installed
from magnetar.ledger.bookkeeper.jvm import quiet_jvm
from magnetar.ledger.errors import LedgerError
from magnetar.logs.storage.cluster import bookies_address, zookeeper_address
from magnetar.metadata import MetadataError
from magnetar.metadata.zookeeper import ZooKeeperStore
from magnetar.metadata.zookeeper_security import InvalidZooKeeperConfig, ZooKeeperSecurity
from magnetar.migrate.from_pulsar import (
    PulsarCluster,
)
from magnetar.migrate.from_pulsar_moves import Moves, Progress
from magnetar.migrate.takeover import Takeover

_SESSION_S = 10


def check(place: ClusterPlace, progress: Progress) -> Takeover:
    """Return what there is and what stands in the way; nothing is changed. Raises `AdminError`."""

    async def looked(cluster: PulsarCluster) -> Takeover:
        return cluster.report(place.metadata)

    return _run(place, looked)


def take(place: ClusterPlace, progress: Progress) -> Takeover:
    """Have all topics be served in place; nothing is changed if something stands in the way. Raises `AdminError`."""

    async def taken(cluster: PulsarCluster) -> Takeover:
        living = [name for name, is_ours in cluster.brokers.items() if not is_ours]
        if living:
            raise Declined(
                f"brokers of Pulsar's live: {', '.join(living)}", "End them first: a topic is served by one."
            )
        if cluster.report(place.metadata).is_possible:
            await cluster.read_system_topics(fences=True)  # nobody writes them any more
        found = cluster.report(place.metadata)
        if not found.is_possible:
            return found
        return await Moves(cluster, progress).take(place.metadata)

    return _run(place, taken)


def back(place: ClusterPlace, progress: Progress) -> Takeover:
    """Have Pulsar's brokers be able to open all topics again; raise `AdminError`."""

    async def given(cluster: PulsarCluster) -> Takeover:
        living = [name for name, is_ours in cluster.brokers.items() if is_ours]
        if living:
            raise Declined(
                f"brokers of Magnetar's live: {', '.join(living)}",
                "End them first: a topic is served by one.",
            )
        return await Moves(cluster, progress).back(place.metadata)

    return _run(place, given, look_at_entries=False)


def _run(
    place: ClusterPlace,
    what: Callable[[PulsarCluster], Awaitable[Takeover]],
    *,
    look_at_entries: bool = True,
) -> Takeover:
    try:
        return asyncio.run(_connected(place, what, look_at_entries))
    except JarsError as error:
        raise AdminError(str(error), "Run `magnetar bookkeeper install`.") from error
    except InvalidZooKeeperConfig as error:
        raise Invalid(
            str(error),
            "Look at the file that --metadata-config names, or metadataStoreConfigPath of --config.",
        ) from error
    except BrokerError as error:
        raise Invalid(str(error), "As metadataStoreUrl has it: zk:HOST:PORT,HOST:PORT/PATH.") from error
    except MetadataError as error:
        raise Unreachable(
            f"the metadata at {place.metadata} cannot be used: {error}", "Run it again."
        ) from error
    except LedgerError as error:
        raise Unreachable(
            f"the bookies of {place.metadata} cannot be used: {error}", "Run it again."
        ) from error


async def _connected(
    place: ClusterPlace, what: Callable[[PulsarCluster], Awaitable[Takeover]], look: bool
) -> Takeover:
    address = zookeeper_address(place.metadata)
    ledgers = bookies_address(place.bookkeeper) or address
    jars: list[Path] = installed()
    security = ZooKeeperSecurity.read(place.client_config)
    store = await ZooKeeperStore.open(
        address.hosts, address.root, session_seconds=_SESSION_S, security=security
    )
    try:
        quorums = await _quorums(ledgers.hosts, ledgers.root, security)
        await asyncio.to_thread(quiet_jvm, jars)
        bookies = Bookies(
            ledgers.hosts,
            ledgers.root,
            jars,
            quorums=quorums,
            password=place.password,
            tls=place.tls,
            login=place.login,
            properties=security.for_java,
        )
        await bookies.connect()
        try:
            cluster = PulsarCluster(store, bookies)
            await cluster.load(look_at_entries=look)
            return await what(cluster)
        finally:
            await bookies.close()
    finally:
        await store.close()


async def _quorums(hosts: str, root: str, security: ZooKeeperSecurity) -> Quorums:
    """Return as many copies as there are bookies for, two at most: what is written here is small."""
    other = await ZooKeeperStore.open(hosts, root, session_seconds=_SESSION_S, security=security)
    try:
        found = set(await other.children("/ledgers/available")) - {"readonly"}
    finally:
        await other.close()
    copies = max(1, min(2, len(found)))
    return Quorums(copies, copies, copies)
