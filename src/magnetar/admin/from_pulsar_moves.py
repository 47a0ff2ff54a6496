"""What has to be changed for a cluster of Pulsar's to be served in place, and how that is undone.

Ledgers stay where they are. Each step is one commit that is all done or not at all, and is found done when the whole is
begun again:

- a topic without partitions is the managed ledger ``topic``, and here ``topic-partition-0``: its node and those of its
  cursors are moved, and ``/magnetar/from-pulsar/topics`` notes that it was so
- schemas become the JSON that is here; what named Pulsar's ledgers is kept in ``/magnetar/from-pulsar/schemas``, and on
  the way back a version that Pulsar does not have yet is given a ledger
- on the way back, what cursors know of entries that were acknowledged in part goes into a ledger each: Pulsar does not
  take it from the metadata
"""

from __future__ import annotations

import asyncio
import uuid
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jpype

from magnetar.admin.errors import AdminError, Declined, Invalid, Unreachable
from magnetar.admin.from_pulsar import (
    PARTITIONED,
    SCHEMAS,
    PulsarCluster,
    PulsarLog,
    Takeover,
    is_pulsars,
)
from magnetar.admin.pulsar_schema_ledgers import (
    SchemaPlace,
    decode_locator,
    decode_schema,
    encode_locator,
    encode_schema,
    hash_of,
)
from magnetar.broker.errors import BrokerError
from magnetar.broker.names import TopicName
from magnetar.broker.storage.cluster import bookies_address, zookeeper_address
from magnetar.broker.topic import Topic, encode_topic
from magnetar.ledger.bookkeeper.bookies import Bookies, Quorums
from magnetar.ledger.bookkeeper.jars import JarsError, installed
from magnetar.ledger.bookkeeper.jvm import start_jvm
from magnetar.ledger.bookkeeper.streams import sent
from magnetar.ledger.cursor_info import decode_cursor, encode_cursor, encode_state
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.info import ROOT
from magnetar.metadata import ANY, MUST_NOT_EXIST, Delete, MetadataError, MetadataStore, Op, Put, Stored
from magnetar.metadata.parts import get_value, put_value
from magnetar.metadata.zookeeper import ZooKeeperStore
from magnetar.pulsar.schemas import decode_versions, encode_versions

KEPT_TOPICS, KEPT_SCHEMAS = "/magnetar/from-pulsar/topics", "/magnetar/from-pulsar/schemas"
_APPLICATION = {"application": b"pulsar"}
_JVM_BYTES = 256 << 20
_SESSION_S = 10
Progress = Callable[[int, int], object]


def check(metadata: str, bookkeeper: str, progress: Progress) -> Takeover:
    """Return what there is and what stands in the way; nothing is changed. Raises `AdminError`."""

    async def looked(cluster: PulsarCluster) -> Takeover:
        return cluster.report(metadata)

    return _run(metadata, bookkeeper, looked)


def take(metadata: str, bookkeeper: str, progress: Progress) -> Takeover:
    """Have all topics be served in place; nothing is changed if something stands in the way. Raises `AdminError`."""

    async def taken(cluster: PulsarCluster) -> Takeover:
        living = [name for name, is_ours in cluster.brokers.items() if not is_ours]
        if living:
            raise Declined(
                f"brokers of Pulsar's live: {', '.join(living)}", "End them first: a topic is served by one."
            )
        found = cluster.report(metadata)
        if not found.is_possible:
            return found
        return await Moves(cluster, progress).take(metadata)

    return _run(metadata, bookkeeper, taken)


def back(metadata: str, bookkeeper: str, progress: Progress) -> Takeover:
    """Have Pulsar's brokers be able to open all topics again; raise `AdminError`."""

    async def given(cluster: PulsarCluster) -> Takeover:
        living = [name for name, is_ours in cluster.brokers.items() if is_ours]
        if living:
            raise Declined(
                f"brokers of Magnetar's live: {', '.join(living)}",
                "End them first: a topic is served by one.",
            )
        return await Moves(cluster, progress).back(metadata)

    return _run(metadata, bookkeeper, given, look_at_entries=False)


def _run(
    metadata: str,
    bookkeeper: str,
    what: Callable[[PulsarCluster], Awaitable[Takeover]],
    *,
    look_at_entries: bool = True,
) -> Takeover:
    try:
        return asyncio.run(_connected(metadata, bookkeeper, what, look_at_entries))
    except JarsError as error:
        raise AdminError(str(error), "Run `magnetar bookkeeper install`.") from error
    except BrokerError as error:
        raise Invalid(str(error), "As metadataStoreUrl has it: zk:HOST:PORT,HOST:PORT/PATH.") from error
    except MetadataError as error:
        raise Unreachable(f"the metadata at {metadata} cannot be used: {error}", "Run it again.") from error
    except LedgerError as error:
        raise Unreachable(f"the bookies of {metadata} cannot be used: {error}", "Run it again.") from error


async def _connected(
    metadata: str, bookkeeper: str, what: Callable[[PulsarCluster], Awaitable[Takeover]], look: bool
) -> Takeover:
    address = zookeeper_address(metadata)
    ledgers = bookies_address(bookkeeper) or address
    jars: list[Path] = installed()
    store = await ZooKeeperStore.open(address.hosts, address.root, session_seconds=_SESSION_S)
    try:
        quorums = await _quorums(store, ledgers.hosts, ledgers.root)
        await asyncio.to_thread(quiet_jvm, jars)
        bookies = Bookies(ledgers.hosts, ledgers.root, jars, quorums=quorums)
        await bookies.connect()
        try:
            cluster = PulsarCluster(store, bookies)
            await cluster.load(look_at_entries=look)
            return await what(cluster)
        finally:
            await bookies.close()
    finally:
        await store.close()


def quiet_jvm(jars: list[Path]) -> None:
    """Start the JVM, and have BookKeeper's client say errors only: the command says the rest."""
    start_jvm(jars, _JVM_BYTES, _JVM_BYTES)
    level = jpype.JClass("org.apache.logging.log4j.Level").ERROR
    jpype.JClass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(level)


async def _quorums(store: MetadataStore, hosts: str, root: str) -> Quorums:
    """Return as many copies as there are bookies for, two at most: what is written here is small."""
    other = await ZooKeeperStore.open(hosts, root, session_seconds=_SESSION_S)
    try:
        found = set(await other.children("/ledgers/available")) - {"readonly"}
    finally:
        await other.close()
    copies = max(1, min(2, len(found)))
    return Quorums(copies, copies, copies)


class Moves:
    """Changes what is kept of a cluster, a step at a time."""

    def __init__(self, cluster: PulsarCluster, progress: Progress) -> None:
        assert cluster.bookies is not None
        self._cluster = cluster
        self._store = cluster.store
        self._bookies = cluster.bookies
        self._progress = progress

    async def take(self, metadata: str) -> Takeover:
        """Move topics without partitions, and schemas."""
        singles = [each for each in self._cluster.logs.values() if self._cluster.is_single(each)]
        steps = len(singles) + len(self._cluster.locators)
        for number, log in enumerate(singles):
            self._progress(number, steps)
            await self._take_topic(log)
        for number, (path, stored) in enumerate(self._cluster.locators.items(), len(singles)):
            self._progress(number, steps)
            await self._take_schemas(path, stored)
        self._progress(steps, steps)
        return await self._reported(
            metadata, topics_moved=len(singles), schemas_moved=len(self._cluster.locators)
        )

    async def _reported(self, metadata: str, **done: int) -> Takeover:
        now = PulsarCluster(self._store, None)
        await now.load()
        now.findings += [each for each in self._cluster.findings if each not in now.findings]
        return now.report(metadata, **done)

    async def _take_topic(self, log: PulsarLog) -> None:
        tenant, namespace = log.namespace.split("/")
        name = TopicName(tenant, namespace, log.local)
        topic = Topic(name, str(name), uuid.uuid5(uuid.NAMESPACE_URL, str(name)).bytes, partitions=1)
        await self._rename(
            log,
            f"{log.path}-partition-0",
            [
                Put(
                    f"{PARTITIONED}/{log.namespace}/persistent/{log.encoded}",
                    encode_topic(topic),
                    MUST_NOT_EXIST,
                ),
                Put(f"{KEPT_TOPICS}/{log.namespace}/{log.encoded}", b64encode(topic.topic_id), ANY),
            ],
        )

    async def _rename(self, log: PulsarLog, path: str, more: list[Op]) -> None:
        """Move a log's node, and those of its cursors, in one commit."""
        cursors = log.cursors.items()
        await self._store.commit([
            Put(path, log.stored.value, MUST_NOT_EXIST),
            *(Put(f"{path}/{name}", each.value, MUST_NOT_EXIST) for name, each in cursors),
            *(Delete(f"{log.path}/{name}", each.version) for name, each in cursors),
            Delete(log.path, log.stored.version),
            *more,
        ])  # fmt: skip

    async def _take_schemas(self, path: str, stored: Stored) -> None:
        topic = unquote(path.rpartition("/")[2])
        versions = []
        for place in decode_locator(stored.value, path):
            (data,) = await self._bookies.read(place.ledger_id, place.entry_id, place.entry_id)
            versions.append(replace(decode_schema(data, place), name=topic))
        await self._store.commit([Put(KEPT_SCHEMAS + path.removeprefix(SCHEMAS), stored.value, ANY)])
        await put_value(self._store, path, encode_versions(versions), stored.version)

    # -- the way back

    async def back(self, metadata: str) -> Takeover:
        """Undo `take`, and have what came since be Pulsar's, too."""
        cursors = await self._give_cursors()
        schemas = await self._give_schemas()
        again = PulsarCluster(self._store, None)
        await again.load()
        topics = await self._give_topics(again)
        return await self._reported(
            metadata, topics_moved=topics, schemas_moved=schemas, cursors_moved=cursors
        )

    async def _give_cursors(self) -> int:
        due = [
            (f"{log.path}/{name}", stored)
            for log in self._cluster.logs.values()
            for name, stored in log.cursors.items()
        ]
        given = 0
        for number, (path, stored) in enumerate(due):
            self._progress(number, len(due))
            info = decode_cursor(stored.value, name=path)
            if info.ledger_id < 0 and info.partly:
                made = await self._written({"component": b"managed-ledger"}, encode_state(info))
                value = encode_cursor(replace(info, ledger_id=made))
                await self._store.commit([Put(path, value, stored.version)])
                given += 1
        return given

    async def _written(self, custom: dict[str, bytes], data: bytes) -> int:
        """Write a ledger of one entry and return its id."""
        writer = await self._bookies.create({**_APPLICATION, **custom})
        await sent(writer, [[data]])
        await writer.close()
        return writer.ledger_id

    async def _give_schemas(self) -> int:
        paths = [SCHEMAS]
        for _ in range(3):
            paths = [f"{path}/{name}" for path in paths for name in await self._store.children(path)]
        given = 0
        for number, path in enumerate(paths):
            self._progress(number, len(paths))
            stored = await get_value(self._store, path)
            if stored is None or not stored.value or is_pulsars(stored.value):
                continue
            await self._give_schemas_of(path, stored)
            given += 1
        return given

    async def _give_schemas_of(self, path: str, stored: Stored) -> None:
        schema_id = path.removeprefix(SCHEMAS + "/")
        kept_at = f"{KEPT_SCHEMAS}/{schema_id}"
        versions = decode_versions(path, stored.value)
        kept = await self._store.get(kept_at)
        places = [] if kept is None else decode_locator(kept.value, kept_at)
        del places[len(versions) :]
        for version in versions[len(places) :]:
            data = encode_schema(schema_id, version, places)
            custom = {"component": b"schema", "pulsar/schemaId": schema_id.encode()}
            ledger_id = await self._written(custom, data)
            places.append(SchemaPlace(version.version, ledger_id, 0, hash_of(version)))
        await put_value(self._store, path, encode_locator(places), stored.version)
        if kept is not None:
            await self._store.commit([Delete(kept_at, kept.version)])

    async def _give_topics(self, now: PulsarCluster) -> int:
        given = 0
        paths = [KEPT_TOPICS]
        for _ in range(3):
            paths = [f"{path}/{name}" for path in paths for name in await self._store.children(path)]
        for number, path in enumerate(paths):
            self._progress(number, len(paths))
            short = path.removeprefix(KEPT_TOPICS + "/")
            namespace, _, encoded = short.rpartition("/")
            marked = await self._store.get(path)
            if marked is None:
                continue
            topic = now.partitioned.get(short)
            log = now.logs.get(f"{ROOT}/{namespace}/persistent/{encoded}-partition-0")
            more: list[Op] = [Delete(path, marked.version)]
            if topic is None or log is None or not _is_same(topic, marked.value):
                await self._store.commit(more)  # it was deleted since, or has been given more partitions
                continue
            node = f"{PARTITIONED}/{namespace}/persistent/{encoded}"
            await self._rename(
                log, f"{ROOT}/{namespace}/persistent/{encoded}", [Delete(node, topic.stored_version), *more]
            )
            given += 1
        return given


def _is_same(topic: Topic, marked: Any) -> bool:
    return topic.partitions == 1 and b64encode(topic.topic_id) == marked
