"""What has to be changed for a cluster of Pulsar's to be served in place, and how that is undone.

Ledgers stay where they are. Each step is one commit that is all done or not at all, and is found done when the whole is
begun again:

- a topic without partitions is the managed ledger ``topic``, and here ``topic-partition-0``: its node and those of its
  cursors are moved, and ``/magnetar/from-pulsar/topics`` notes that it was so
- schemas become the JSON that is here; what named Pulsar's ledgers is kept in ``/magnetar/from-pulsar/schemas``, and on
  the way back a version that Pulsar does not have yet is given a ledger
- topics' own policies are taken from ``__change_events``, once: ``/magnetar/from-pulsar/policies`` notes the namespaces
- partitions of KoP's ``__consumer_offsets`` and ``__transaction_state`` get a ledger with what is in them for the
  coordinators here; their nodes are kept as they were in ``/magnetar/from-pulsar/kop``, and come back on the way back
- on the way back, what cursors know of entries that were acknowledged in part goes into a ledger each: Pulsar does not
  take it from the metadata
"""

from __future__ import annotations

import json
import uuid
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from magnetar.coordination.decision import Fact
from magnetar.kafka.coordinators.groups import partition_of
from magnetar.ledger.bookkeeper.streams import sent
from magnetar.ledger.formats.cursor_info import decode_cursor, encode_cursor, encode_state
from magnetar.ledger.formats.info import ROOT, ManagedLedgerInfo, decode_info, encode_info
from magnetar.ledger.port import wall_clock_ms
from magnetar.ledger.values import LedgerSummary
from magnetar.metadata import ANY, MUST_NOT_EXIST, Delete, Op, Put, Stored
from magnetar.metadata.parts import get_value, put_value
from magnetar.metadata.segments import decoded
from magnetar.migrate.from_pulsar import (
    PARTITIONED,
    PulsarCluster,
    is_pulsars,
)
from magnetar.migrate.pulsar_log import PARTITION, PulsarLog, nodes_below
from magnetar.migrate.pulsar_schema_ledgers import (
    SchemaPlace,
    decode_locator,
    decode_schema,
    encode_locator,
    encode_schema,
    hash_of,
)
from magnetar.migrate.pulsar_system_topics import KEPT_KOP, KEPT_POLICIES, SCHEMAS, kept_kop
from magnetar.migrate.pulsar_topic_policies import OwnPolicies
from magnetar.migrate.takeover import Takeover
from magnetar.pulsar.policies import policies_path
from magnetar.pulsar.schemas import decode_versions, encode_versions
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.records.compression import Buffer
from magnetar.records.entry import broker_entry_head, kafka_message_head
from magnetar.topics.names import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicName
from magnetar.topics.topic import Topic, decode_topic, encode_topic

KEPT_TOPICS, KEPT_SCHEMAS = "/magnetar/from-pulsar/topics", "/magnetar/from-pulsar/schemas"
_APPLICATION = {"application": b"pulsar"}
_MADE_HERE = b"made here"
"""What is kept of a log that KoP had not begun; one that it had not opened has an empty node."""
_FACTS = 1000
"""Facts of a coordinator's in one batch."""
Progress = Callable[[int, int], object]


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
        kops = {
            short: topic
            for short, topic in self._cluster.partitioned.items()
            if topic.name.local in (CONSUMER_OFFSETS, TRANSACTION_STATE) and topic.made_partitioned
        }
        policies, groups = self._cluster.system.policies, self._cluster.system.groups
        counts = len(singles), len(self._cluster.locators), len(policies), len(kops)
        steps = sum(counts)
        for number, log in enumerate(singles):
            self._progress(number, steps)
            await self._take_topic(log)
        for number, (path, stored) in enumerate(self._cluster.locators.items(), len(singles)):
            self._progress(number, steps)
            await self._take_schemas(path, stored)
        for number, (name, own) in enumerate(policies.items(), sum(counts[:2])):
            self._progress(number, steps)
            await self._take_policies(name, own)
        for namespace in self._cluster.system.namespaces:
            await self._store.commit([Put(f"{KEPT_POLICIES}/{namespace}", b"", ANY)])
        for number, (short, topic) in enumerate(kops.items(), sum(counts[:3])):
            self._progress(number, steps)
            await self._take_kops(short, topic)
        self._progress(steps, steps)
        return await self._reported(
            metadata,
            topics_moved=counts[0],
            schemas_moved=counts[1],
            policies_moved=counts[2],
            groups_moved=sum(len(each.group_ids()) for each in groups.values()),
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
        topic = decoded(path.rpartition("/")[2])
        versions = []
        for place in decode_locator(stored.value, path):
            (data,) = await self._bookies.read(place.ledger_id, place.entry_id, place.entry_id)
            versions.append(replace(decode_schema(data, place), name=topic))
        await self._store.commit([Put(KEPT_SCHEMAS + path.removeprefix(SCHEMAS), stored.value, ANY)])
        await put_value(self._store, path, encode_versions(versions), stored.version)

    async def _take_policies(self, name: TopicName, own: OwnPolicies) -> None:
        """Keep a topic's own policies where they are kept here, in place of those that it had."""
        ops: list[Op] = []
        if own.content:
            ops.append(Put(policies_path(name), json.dumps(own.content, separators=(",", ":")).encode(), ANY))
        path = f"{PARTITIONED}/{name.namespace_name}/persistent/{name.metadata_name}"
        stored = await self._store.get(path) if own.config and name.persistent else None
        if stored is not None:
            topic = decode_topic(path, stored.value, name, str(name))
            topic.overrides |= own.config
            ops.append(Put(path, encode_topic(topic), stored.version))
        await self._store.commit(ops)

    async def _take_kops(self, short: str, topic: Topic) -> None:
        """Have a topic of KoP's coordinators be one of those here, in one commit; its ledgers stay."""
        namespace, _, encoded = short.rpartition("/")
        node = f"{PARTITIONED}/{namespace}/persistent/{encoded}"
        facts: list[list[Fact]] = [[] for _ in range(topic.partitions)]
        paths = [f"{ROOT}/{namespace}/persistent/{encoded}-partition-{n}" for n in range(topic.partitions)]
        for path in paths:
            groups = self._cluster.system.groups.get(path)
            for group_id, fact in groups.facts() if groups is not None else ():
                facts[partition_of(group_id, topic.partitions)].append(fact)
        was = await self._store.get(node)
        assert was is not None
        topic.made_partitioned = False
        ops: list[Op] = [
            Put(f"{KEPT_KOP}/{short}", was.value, ANY),
            Put(node, encode_topic(topic), was.version),
        ]
        for path, some in zip(paths, facts, strict=True):
            ops += await self._kops_log_taken(path, some)
        await self._store.commit(ops)

    async def _kops_log_taken(self, path: str, facts: Sequence[Fact]) -> list[Op]:
        """Write what is kept here in place of a log of KoP's; return what makes it count."""
        info = ManagedLedgerInfo()
        if facts:
            info.ledgers.append(await self._written_facts(facts))
        log = self._cluster.logs.get(path)
        if log is None:
            kept = f"{KEPT_KOP}/{path.removeprefix(ROOT + '/').replace('/persistent/', '/')}"
            return [Put(kept, _MADE_HERE, ANY), Put(path, encode_info(info), MUST_NOT_EXIST)] if facts else []
        kept, cursors = kept_kop(log), log.cursors.items()
        return [
            Put(kept, log.stored.value, ANY),
            *(Put(f"{kept}/{name}", each.value, ANY) for name, each in cursors),
            *(Delete(f"{path}/{name}", each.version) for name, each in cursors),
            Put(path, encode_info(info), log.stored.version),
        ]

    async def _written_facts(self, facts: Sequence[Fact]) -> LedgerSummary:
        now_ms = wall_clock_ms()
        rows: list[list[Buffer]] = []
        for begin in range(0, len(facts), _FACTS):
            some = [PlainRecord(each.key, each.value, (), now_ms) for each in facts[begin : begin + _FACTS]]
            head = broker_entry_head(now_ms, begin + len(some) - 1) + kafka_message_head(now_ms, len(some))
            rows.append([head + encode_batch(some, base_offset=begin)])
        writer = await self._bookies.create({**_APPLICATION, "component": b"managed-ledger"})
        await sent(writer, rows)
        await writer.close()
        return LedgerSummary(
            writer.ledger_id,
            first_offset=0,
            last_offset=len(facts) - 1,
            entries=len(rows),
            size=sum(len(part) for row in rows for part in row),
            max_timestamp=now_ms,
            created_ms=now_ms,
            sealed=True,
        )

    # -- the way back

    async def back(self, metadata: str) -> Takeover:
        """Undo `take`, and have what came since be Pulsar's, too."""
        cursors = await self._give_cursors()
        schemas = await self._give_schemas()
        again = PulsarCluster(self._store, None)
        await again.load()
        topics = await self._give_topics(again)
        await self._give_kops()
        for path in await nodes_below(self._store, KEPT_POLICIES, 2):
            await self._store.commit([Delete(path, ANY)])  # Pulsar's are what counts from now on
        return await self._reported(
            metadata, topics_moved=topics, schemas_moved=schemas, cursors_moved=cursors
        )

    async def _give_kops(self) -> None:
        """Put back what KoP kept, as it was; what groups have committed here since is not in it."""
        for kept in await nodes_below(self._store, KEPT_KOP, 3):
            short = kept.removeprefix(KEPT_KOP + "/")
            namespace, _, encoded = short.rpartition("/")
            is_log = PARTITION.fullmatch(encoded) is not None
            path = f"{ROOT if is_log else PARTITIONED}/{namespace}/persistent/{encoded}"
            was, now = await self._store.get(kept), await self._store.get(path)
            if was is None:
                continue
            below = await self._store.children(kept)
            cursors = await self._store.get_many([f"{kept}/{name}" for name in below])
            version = MUST_NOT_EXIST if now is None else now.version
            ops: list[Op] = [Put(path, was.value, version)]
            if was.value == _MADE_HERE:
                ops = [] if now is None else [Delete(path, version)]
            for name, each in zip(below, cursors, strict=True):
                if each is not None:
                    ops += [
                        Put(f"{path}/{name}", each.value, ANY),
                        Delete(f"{kept}/{name}", each.version),
                    ]
            await self._store.commit([*ops, Delete(kept, was.version)])
            if is_log and now is not None:
                for ledger in decode_info(now.value, name=path).ledgers:
                    await self._bookies.delete(ledger.ledger_id)

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
        paths = await nodes_below(self._store, SCHEMAS, 3)
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
        paths = await nodes_below(self._store, KEPT_TOPICS, 3)
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
