"""A cluster of Pulsar's that is to be served in place: what there is, and what stands in the way. Nothing is changed.

ZooKeeper says which topics there are; of each ledger the first and the last entry are looked at on the bookies, without
fencing anybody. `magnetar.migrate.from_pulsar_moves` does what has to be done.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from magnetar.base.errors import InvalidTopic
from magnetar.cluster.cluster_ownership import BROKERS
from magnetar.doctor.cluster_doctor import ClusterFinding, Severity
from magnetar.ledger.errors import LedgerCorrupt, LedgerError
from magnetar.ledger.formats.cursor_info import decode_cursor
from magnetar.ledger.formats.info import ROOT, decode_info
from magnetar.ledger.values import LedgerSummary
from magnetar.metadata import MetadataStore, Stored
from magnetar.metadata.errors import MetadataCorrupt
from magnetar.metadata.segments import decoded, is_whole
from magnetar.migrate.pulsar_log import OF_SYSTEM, PARTITION, PulsarLog, nodes_below
from magnetar.migrate.pulsar_schema_ledgers import decode_locator
from magnetar.migrate.pulsar_system_topics import SCHEMAS, SystemTopics
from magnetar.migrate.takeover import FoundTopic, Takeover
from magnetar.records.entry import BROKER_ENTRY_MAGIC, decode_entry
from magnetar.records.errors import RecordsError
from magnetar.topics.identity import CLUSTERS
from magnetar.topics.names import INTERNAL_TOPICS, TopicName
from magnetar.topics.namespaces import POLICIES
from magnetar.topics.topic import Topic, decode_topic

if TYPE_CHECKING:
    from magnetar.ledger.bookkeeper.bookies import Bookies

PARTITIONED = "/admin/partitioned-topics"
_AT_ONCE = 64
_SHOWN = 3
_NOT_HONOURED = {
    "replicatorDispatchRate": "it limits geo-replication",
    "namespaceAntiAffinityGroup": "bundles are placed without it",
    "resource_group_name": "there are no resource groups",
    "entryFilters": "there are no entry filters",
    "dispatcherPauseOnAckStatePersistentEnabled": "dispatch does not pause for it",
    "migrated": "clients are not sent to another cluster",
}


class PulsarCluster:
    """What lies there. ``bookies`` None: entries are not looked at."""

    def __init__(self, store: MetadataStore, bookies: Bookies | None) -> None:
        self.store = store
        self.bookies = bookies
        self.logs: dict[str, PulsarLog] = {}
        """By path."""
        self.partitioned: dict[str, Topic] = {}
        """By ``tenant/namespace/topic``, the last part as in the path."""
        self.locators: dict[str, Stored] = {}
        """Schemas where Pulsar has them, by path."""
        self.brokers: dict[str, bool] = {}
        """Those that live, and whether they are Magnetar's."""
        self.findings: list[ClusterFinding] = []
        self.system = SystemTopics(store)
        self._blocked: set[str] = set()
        """Logs that something stands in the way of, by path."""

    async def load(self, *, look_at_entries: bool = True) -> None:
        """Read all there is of it; what cannot be read becomes a finding."""
        self.clusters = tuple(each for each in await self.store.children(CLUSTERS) if each != "global")
        if not self.clusters:
            self._error(
                "no-cluster",
                "there is no cluster's metadata",
                "Look at the path behind the hosts: it is what Pulsar's metadataStoreUrl has.",
            )
        for name in await self.store.children(BROKERS):
            stored = await self.store.get(f"{BROKERS}/{name}")
            if stored is not None:
                self.brokers[name] = "nodeId" in _json(stored.value)
        for tenant in await self.store.children(ROOT):
            for namespace in await self.store.children(f"{ROOT}/{tenant}"):
                await self._load_namespace(f"{tenant}/{namespace}")
        await self._load_schemas()
        for begin in range(0, len(self.logs) if look_at_entries else 0, _AT_ONCE):
            some = list(self.logs.values())[begin : begin + _AT_ONCE]
            await asyncio.gather(*map(self._look_at_ledgers, some))
        await self.system.load()
        await self._look()
        if look_at_entries:
            await self.read_system_topics(fences=False)

    async def _load_namespace(self, namespace: str) -> None:
        domains = await self.store.children(f"{ROOT}/{namespace}")
        if "persistent" not in domains and domains:
            self._warning(
                "old-names",
                f"{namespace} has topics of Pulsar 1 (tenant/cluster/namespace): they are not served",
                "Move what is in them to topics of tenant/namespace.",
            )
            return
        for encoded in await self.store.children(f"{PARTITIONED}/{namespace}/persistent"):
            path = f"{PARTITIONED}/{namespace}/persistent/{encoded}"
            stored = await self.store.get(path)
            if stored is not None and stored.value:
                tenant, _, local = namespace.partition("/")
                name = TopicName.from_metadata(tenant, local, encoded)
                with self._readable(path):
                    topic = decode_topic(path, stored.value, name, str(name))
                    topic.stored_version = stored.version
                    self.partitioned[f"{namespace}/{encoded}"] = topic
        for encoded in await self.store.children(f"{ROOT}/{namespace}/persistent"):
            path = f"{ROOT}/{namespace}/persistent/{encoded}"
            stored = await self.store.get(path)
            if stored is None:
                continue
            with self._readable(path):
                info = decode_info(stored.value, name=path)
                names = await self.store.children(path)
                kept = await self.store.get_many([f"{path}/{each}" for each in names])
                cursors = {cursor: each for cursor, each in zip(names, kept, strict=True) if each is not None}
                self.logs[path] = PulsarLog(namespace, encoded, stored, info, cursors)
                for cursor, each in cursors.items():
                    decode_cursor(each.value, name=f"{path}/{cursor}")

    async def _load_schemas(self) -> None:
        paths = await nodes_below(self.store, SCHEMAS, 3)
        for path, stored in zip(paths, await self.store.get_many(paths), strict=True):
            topic = decoded(path.rpartition("/")[2])
            if stored is not None and is_pulsars(stored.value) and not OF_SYSTEM.fullmatch(topic):
                with self._readable(path):
                    decode_locator(stored.value, path)
                    self.locators[path] = stored

    async def read_system_topics(self, *, fences: bool) -> None:
        """Read topics' own policies and KoP's groups; unless ``fences``, without disturbing who writes them."""
        if self.bookies is not None:
            logs = self.logs.values()
            topics = {each.name for each in self.partitioned.values()}
            for log in logs:
                tenant, _, namespace = log.namespace.partition("/")
                topics.add(TopicName(tenant, namespace, log.local))
            await self.system.read(self.bookies, logs, self.topic_of, topics, fences=fences)

    async def _look_at_ledgers(self, log: PulsarLog) -> None:
        """Read the first and the last entry of each ledger that tells no offsets."""
        if self.bookies is None or log.is_of_system or PARTITION.sub(r"\1", log.local) in INTERNAL_TOPICS:
            return
        without: list[int] = []
        for ledger in log.info.ledgers:
            if ledger.sealed or ledger.offloaded:
                continue
            try:
                raw = await self._ends_of(ledger)
                if any(int.from_bytes(each[:2], "big") != BROKER_ENTRY_MAGIC for each in raw):
                    without.append(ledger.ledger_id)
                else:
                    log.ends[ledger.ledger_id] = [decode_entry(each) for each in raw]
            except RecordsError:
                without.append(ledger.ledger_id)
            except LedgerError as error:
                self._error(
                    "ledger",
                    f"{log.name}: {error}",
                    "Pulsar's managedLedgerPassword has to be empty, and bookies have to be there.",
                    log=log,
                )
        if without:
            some = ", ".join(map(str, without[:_SHOWN])) + (" ..." if len(without) > _SHOWN else "")
            self._error(
                "no-index",
                f"{log.name}: entries without an index in {len(without)} of {len(log.info.ledgers)} ledgers ({some})",
                "Have Pulsar's brokers write it (brokerEntryMetadataInterceptors: AppendBrokerTimestampMetadata"
                "Interceptor and AppendIndexMetadataInterceptor, in org.apache.pulsar.common.intercept), and take the"
                " topic over once retention has let go of what was written before.",
                log=log,
            )

    async def _ends_of(self, ledger: LedgerSummary) -> list[bytes]:
        assert self.bookies is not None
        if not ledger.entries:
            # It is written, or was left open; how many there are is not known without fencing it.
            with suppress(LedgerError):
                return await self.bookies.read(ledger.ledger_id, 0, 0)
            return []
        return [
            data
            for at in sorted({0, ledger.entries - 1})
            for data in await self.bookies.read(ledger.ledger_id, at, at)
        ]

    # -- what is found

    def _error(self, kind: str, what: str, next_step: str, log: PulsarLog | None = None) -> None:
        if log is not None:
            self._blocked.add(log.path)
        self.findings.append(ClusterFinding(Severity.error, kind, what, next_step))

    def _warning(self, kind: str, what: str, next_step: str) -> None:
        self.findings.append(ClusterFinding(Severity.warning, kind, what, next_step))

    @contextmanager
    def _readable(self, path: str) -> Iterator[None]:
        """Make a finding of what is not as it should be."""
        try:
            yield
        except (LedgerCorrupt, MetadataCorrupt) as error:
            self._error(
                "metadata",
                f"{path}: {error}",
                "If Pulsar compresses its metadata, end that (managedLedgerInfoCompressionType and"
                " managedCursorInfoCompressionType: NONE), and have it load the topic once.",
            )

    def is_single(self, log: PulsarLog) -> bool:
        """Whether a log is a topic of Pulsar's without partitions."""
        return not log.is_of_system and self.topic_of(log) is None

    def is_kops(self, log: PulsarLog) -> bool:
        """Whether a log is one that KoP's coordinators keep, and was not taken."""
        return self.system.is_kops(log, self.topic_of(log))

    def topic_of(self, log: PulsarLog) -> Topic | None:
        """Return the partitioned topic that a log is a partition of."""
        found = PARTITION.fullmatch(log.encoded)
        return self.partitioned.get(f"{log.namespace}/{found[1]}") if found else None

    async def _look(self) -> None:
        for log in self.logs.values():
            if not log.is_of_system:
                self._look_at(log)
        for tenant in await self.store.children(POLICIES):
            for namespace in await self.store.children(f"{POLICIES}/{tenant}"):
                stored = await self.store.get(f"{POLICIES}/{tenant}/{namespace}")
                if stored is not None:
                    self._look_at_policies(f"{tenant}/{namespace}", _json(stored.value))
        if any(log.encoded.startswith("__transaction_log") for log in self.logs.values()):
            self._warning(
                "coordinators",
                "Pulsar's transaction coordinators have a log: transactions that are open end unknown to them here",
                "End them first: pulsar-admin transactions slow-transactions.",
            )

    def _look_at(self, log: PulsarLog) -> None:
        if PARTITION.sub(r"\1", log.local) in INTERNAL_TOPICS:
            topic = self.topic_of(log)
            if topic is None or (
                topic.made_partitioned and not self.is_kops(log) and not self.system.was_taken(log)
            ):
                self._error(
                    "kop",
                    f"{log.name} is KoP's, and not as KoP 2.8 and later have it",
                    "Note the groups' offsets, delete the topic, and set them by `magnetar group` after the takeover.",
                    log=log,
                )
            return
        if not _is_name(log):
            self._error(
                "name",
                f"{log.name}: a topic cannot have this name here",
                "Move it to a topic of another name, of at most 249 characters.",
                log=log,
            )
        if self.is_single(log):
            if PARTITION.fullmatch(log.local):
                self._error(
                    "partition",
                    f"{log.name} is called a partition, and there is no such partitioned topic",
                    "Have it be one (pulsar-admin topics create-partitioned-topic), or delete it.",
                    log=log,
                )
            elif f"{ROOT}/{log.namespace}/persistent/{log.encoded}-partition-0" in self.logs:
                self._error(
                    "two",
                    f"{log.name} exists with partitions and without",
                    "Move one to another name.",
                    log=log,
                )
        drivers = sorted({_driver(each) for each in log.info.ledgers if each.offloaded})
        if drivers:
            self._error(
                "offloaded",
                f"{log.name}: ledgers were offloaded ({', '.join(drivers)}), and objects of Pulsar have "
                "no index of offsets, so they are not read here",
                "Wait until retention has let go of them; end offloading first (managedLedgerOffloadDriver).",
                log=log,
            )
        if "PULSAR.SHADOW_SOURCE" in log.info.properties:
            self._error(
                "shadow",
                f"{log.name} is a shadow topic",
                "Delete it: what it shows is its source's.",
                log=log,
            )
        self._look_at_cursors(log)
        self._look_at_entries(log)

    def _look_at_cursors(self, log: PulsarLog) -> None:
        for name in log.cursors:
            if decoded(name).startswith("pulsar.repl."):
                self._warning(
                    "geo-replication",
                    f"{log.name} is replicated to {decoded(name).removeprefix('pulsar.repl.')}: nothing is from here",
                    "End replication once all is there; delete the cursor if ledgers are to be let go of.",
                )
            if name == "__compaction":
                self._warning(
                    "compacted",
                    f"{log.name}: what Pulsar's compaction kept is not read; readers get the log itself",
                    "Have it compacted anew here.",
                )

    def _look_at_entries(self, log: PulsarLog) -> None:
        ends = [log.ends[each.ledger_id] for each in log.info.ledgers if log.ends.get(each.ledger_id)]
        some = [entry for entries in ends for entry in entries]
        if any(each.message.txn is not None and each.message.num_messages_in_batch > 1 for each in some):
            self._warning(
                "transactions",
                f"{log.name}: batches were published in transactions, and Pulsar's index counts each as one message",
                "Pulsar's clients get all of them; Kafka's do not: have these topics be read by Pulsar's clients only.",
            )
        elif any(
            second[0].base_offset != first[-1].broker.index + 1
            for first, second in pairwise(ends)
            if len(first) > 1
        ):
            self._error(
                "index",
                f"{log.name}: the index does not go on from one ledger to the next",
                "Brokers of different settings wrote it: take it over once retention has let go of what was before.",
                log=log,
            )
        if any(each.message.encryption_keys for each in some):
            self._warning(
                "encrypted",
                f"{log.name} has encrypted messages: Kafka's clients get them as they are",
                "Pulsar's clients decrypt them as before.",
            )

    def _look_at_policies(self, namespace: str, policies: dict[str, Any]) -> None:
        clusters = policies.get("replication_clusters") or []
        if len(clusters) > 1:
            self._warning(
                "geo-replication",
                f"{namespace} is replicated to {', '.join(map(str, clusters))}: nothing is from here",
                "Set its clusters to one: pulsar-admin namespaces set-clusters.",
            )
        for key, why in _NOT_HONOURED.items():
            if policies.get(key):
                self._warning("policy", f"{namespace}: {key} is kept and not honoured: {why}", "")

    def report(self, metadata: str, **done: int) -> Takeover:
        """Return what there is, and what was done."""
        order = {Severity.error: 0, Severity.warning: 1}
        findings = sorted([*self.findings, *self.system.findings], key=lambda each: order[each.severity])
        is_possible = all(each.severity is not Severity.error for each in findings)
        return Takeover(
            metadata,
            self.clusters,
            is_possible,
            tuple(self._topics()),
            tuple(findings),
            len(self.locators),
            tuple(self.system.found_policies()),
            tuple(self.system.found_groups()),
            **done,
        )

    def _topics(self) -> Iterator[FoundTopic]:
        for log in sorted(self.logs.values(), key=lambda each: each.name):
            if log.is_of_system:
                state = "Pulsar's own"
            elif log.path in self._blocked:
                state = "blocked"
            elif self.is_single(log) or self.is_kops(log):
                state = "to be moved"
            else:
                state = "served"
            entries = sum(each.entries for each in log.info.ledgers)
            yield FoundTopic(log.name, state, len(log.info.ledgers), entries, len(log.cursors))


def _is_name(log: PulsarLog) -> bool:
    """Whether a topic may be called so here, and is found under the name that it has in the path."""
    try:
        TopicName.parse(f"{log.namespace}/{log.base}")
    except InvalidTopic:
        return False
    return is_whole(log.encoded)


def is_pulsars(value: bytes) -> bool:
    """Whether a node of schemas is one of Pulsar's."""
    return value[:1] == b"\x0a"  # field 1 of a SchemaLocator; ours are JSON, or the head of parts


def _driver(ledger: LedgerSummary) -> str:
    return (
        ledger.offload.driver
        if ledger.offload is not None and ledger.offload.driver
        else "by an unnamed driver"
    )


def _json(value: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(value)
        if isinstance(found, dict):
            return found
    return {}
