"""What Kafka's users know of a broker, under the names that they know it by.

Those of the broker's own beans (``kafka_server_...``, ``kafka_log_...``) are what Strimzi's rules for the JMX exporter
make of them; topics' ends and groups' lags are named as by kafka_exporter. ``docs/metrics.md`` tells of each.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from magnetar.auth import Access, Group, Right, may
from magnetar.base.slices import sliced
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.figures.figures import (
    Bounds,
    Family,
    FigureTable,
    LogFigures,
    escaped,
    labelled,
    summarized,
    summary,
)
from magnetar.kafka.coordinators.group import GroupState
from magnetar.kafka.coordinators.kinds import AnyGroup
from magnetar.ledger.port import wall_clock_ms
from magnetar.logs.append_times import AppendTimes, Read, at_offset
from magnetar.settings.metrics import KMINION, KOP
from magnetar.topics.topic import Topic
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from magnetar.kafka.coordinators.groups import GroupCoordinator
    from magnetar.kafka.server import KafkaServer
    from magnetar.kafka.services import KafkaServices
    from magnetar.kafka.shares.dead_letter_topics import LetterCounts
    from magnetar.kafka.tenancy import Tenancy

_BROKER_TOPIC = "kafka_server_brokertopicmetrics_"
_OF_TOPICS = tuple(
    Family(f"{_BROKER_TOPIC}{name}_total", "counter", text)
    for name, text in (
        ("bytesin", "Bytes of record batches and messages that came in, by any protocol."),
        ("bytesout", "Bytes of record batches that Kafka's consumers fetched."),
        ("messagesin", "Messages that came in, by any protocol."),
        ("totalproducerequests", "How often Produce named a partition."),
        ("totalfetchrequests", "How often Fetch named a partition."),
        (
            "failedproducerequests",
            "How often Produce failed for a partition, but for what clients must expect.",
        ),
        ("failedfetchrequests", "How often Fetch failed for a partition, but for what clients must expect."),
        ("remotefetcherrors", "How often a read of Kafka clients from tiered storage failed."),
    )
)
_OF_PARTITIONS = (
    Family("kafka_log_log_size", "gauge", "Bytes on disk."),
    Family("kafka_log_log_logstartoffset", "gauge", "First offset that may be read."),
    Family("kafka_log_log_logendoffset", "gauge", "Offset that the next record gets."),
    Family("kafka_log_log_numlogsegments", "gauge", "Ledgers, which Kafka calls segments."),
    Family("kafka_topic_partition_current_offset", "gauge", "High watermark: all below it may be read."),
    Family("kafka_topic_partition_oldest_offset", "gauge", "First offset that may be read."),
    Family("kafka_topic_partition_leader", "gauge", "Node id of the broker that leads the partition."),
    Family("kafka_topic_partition_leader_is_preferred", "gauge", "1: it is led by the broker that should."),
    Family("kafka_topic_partition_replicas", "gauge", "Replicas; the storage below sees to copies."),
    Family("kafka_topic_partition_in_sync_replica", "gauge", "Replicas that are in sync."),
    Family("kafka_topic_partition_under_replicated_partition", "gauge", "1 if a replica is behind."),
    Family("kafka_cluster_partition_replicascount", "gauge", "Replicas; the storage below sees to copies."),
    Family("kafka_cluster_partition_insyncreplicascount", "gauge", "Replicas that are in sync."),
    Family(
        "kafka_cluster_partition_underminisr", "gauge", "1 if fewer than min.insync.replicas are in sync."
    ),
    Family("kafka_cluster_partition_atminisr", "gauge", "1 if one less in sync would be too few."),
)
_PARTITIONS = Family("kafka_topic_partitions", "gauge", "Partitions of a topic.")
_OF_GROUPS = (
    Family("kafka_consumergroup_current_offset", "gauge", "Offset that a group committed."),
    Family(
        "kafka_consumergroup_lag", "gauge", "Messages that may be read and that a group has not committed."
    ),
    # As gauges these two would be what linters object to: the endings are those of summaries' parts.
    Family(
        "kafka_consumergroup_current_offset_sum", "untyped", "Offsets that a group committed, of a topic."
    ),
    Family("kafka_consumergroup_lag_sum", "untyped", "Lag of a group, of a topic."),
    Family(
        "magnetar_consumergroup_lag_seconds",
        "gauge",
        "How long ago the oldest record was appended that a group has not committed; 0 if there is none.",
    ),
)
_WORST = (
    Family("magnetar_consumergroup_max_lag", "gauge", "Highest lag of a group's partitions."),
    Family(
        "magnetar_consumergroup_max_lag_seconds",
        "gauge",
        "Highest lag in seconds of a group's partitions, of those that are known.",
    ),
)
_TRANSACTIONS = Family("magnetar_transactions", "gauge", "Transactional ids and transactions, by state.")
_OLDEST_TRANSACTION = Family(
    "magnetar_transactions_oldest_open_seconds",
    "gauge",
    "How long the oldest transaction that is not ended has been open; 0 if there is none.",
)
_OF_PULSARS = (Family("pulsar_txn_active_count", "untyped", "Open transactions of Pulsar clients."),)
_UNCLEAN = Family(
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "counter",
    "Leaders that began without all records; there are none.",
)
_IDLE = (
    (
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "Part of the time in which the event loop, that serves connections, waits: 0 to 1.",
    ),
    (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "The same: requests are handled on that event loop, too.",
    ),
)
_MEMBERS = Family("kafka_consumergroup_members", "gauge", "Members of a group.")
_SHARE = "kafka_server_sharegroupmetrics_deadletterqueue"
_LETTERS = (
    Family(f"{_SHARE}recordcount", "untyped", "Records of a share group that are in its dead-letter queue."),
    Family(f"{_SHARE}totalproducerequests_total", "counter", "Batches of letters that were to be written."),
    Family(f"{_SHARE}failedproducerequests_total", "counter", "Those of them that could not be written."),
)
_GROUP_STATES = {
    None: "",
    GroupState.STABLE: "stable",
    GroupState.EMPTY: "empty",
    GroupState.DEAD: "dead",
    GroupState.PREPARING_REBALANCE: "preparingrebalance",
    GroupState.COMPLETING_REBALANCE: "completingrebalance",
}
_MANAGER = "kafka_coordinator_group_groupmetadatamanager_"
_REQUESTS = Family("kafka_network_requestmetrics_requests_total", "counter", "Requests that were answered.")
_ERRORS = Family("kafka_network_requestmetrics_errors_total", "counter", "Errors in answers, row by row.")
_TIMES = summary(
    "kafka_network_requestmetrics_totaltimems",
    "Time from when a request had come until its answer was ready, ms; quantiles of the last 1024.",
)
_CONNECTIONS = Family("kafka_server_socket_server_metrics_connection_count", "untyped", "Connections.")
_SOFTWARE = Family(
    "kafka_server_socket_server_metrics_connections",
    "gauge",
    "Connections by their client's software (KIP-511).",
)
_FLUSHES = summary(
    "kafka_log_logflushstats_logflushrateandtimems",
    "Time that it took to make appends durable, ms; quantiles of the last 1024.",
)
_TELEMETRY = (
    Family("magnetar_client_telemetry_pushes_total", "counter", "Pushes of clients' metrics (KIP-714)."),
    Family("magnetar_client_telemetry_bytes_total", "counter", "Bytes of the same."),
)
_LEFT_OUT = Family("magnetar_metrics_left_out", "gauge", "Series that are not shown individually.")
_MAX_SOFTWARE = 100
_AT_A_STRETCH = 50
_ALL_IS_WELL = (
    ("kafka_server_replicamanager_underreplicatedpartitions", "Partitions with a replica that is behind."),
    ("kafka_server_replicamanager_underminisrpartitioncount", "Partitions with too few replicas in sync."),
    ("kafka_server_replicamanager_offlinereplicacount", "Replicas that cannot be had."),
    ("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader."),
    (
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        "Partitions not led by the broker that should.",
    ),
)


class KafkaFigures:
    """Tables of what Kafka's users know; see `magnetar.figures.figures.Source`."""

    def __init__(self, services: KafkaServices, server: KafkaServer, tenancy: Tenancy | None) -> None:
        self._services = services
        self._broker = services.broker
        self._server = server
        self._tenancy = tenancy
        self._looking: asyncio.Task[None] | None = None
        self._looked_at: set[tuple[bytes, int]] = set()
        self._times = AppendTimes()
        self._idle = IdleShare()

    def __call__(self, access: Access | None) -> Iterator[FigureTable | None]:
        yield from self._of_topics(access)
        yield from self._of_groups(access)
        yield from self._of_transactions(access)
        yield from self.of_requests()
        yield from self.of_connections()
        yield from self._of_broker()
        yield FigureTable(_TELEMETRY, [("", *self._services.client_metrics.pushed)])
        yield None
        if may(access, Right.see_cluster_configs):
            from magnetar.kafka.quotas.figures import quota_tables

            most = self._broker.settings.metrics.metrics_max_lines_per_figure
            yield from quota_tables(self._services.quotas.get(), most)
        yield from self._in_dialects(access)

    def _in_dialects(self, access: Access | None) -> Iterator[FigureTable | None]:
        dialects = self._broker.figures.dialects
        if not (dialects.has(KOP) or dialects.has(KMINION)):
            return
        from magnetar.kafka.dialect_figures import kminion_tables, kop_tables

        if dialects.has(KOP):
            yield from kop_tables(self._services, self._server, access)
        if dialects.has(KMINION):
            yield from kminion_tables(self._services, self._seen_groups, access)

    def _seen_groups(self, access: Access | None) -> Iterator[tuple[str, AnyGroup]]:
        for tenant, group in self._groups():
            if self._shows(access, tenant, group):
                yield _name_of(tenant, group), group

    async def look(self) -> None:
        """Find out how old the oldest records are that groups have not committed."""
        most = self._broker.settings.metrics.metrics_max_lines_per_figure
        wanted: dict[Hashable, Read] = {}
        logs = self._broker.logs.open_logs
        async for _, group in sliced(self._groups()):
            for kafka_name, committed in list(group.offsets.items()):
                topic = self._broker.get(kafka_name)
                if topic is None:
                    continue
                async for index, commit in sliced(iter(list(committed.items()))):
                    figures = logs.figures(topic, index)
                    bounds = None if figures is None else figures.bounds
                    if bounds is None or commit.offset >= bounds.high_watermark or len(wanted) >= most:
                        continue
                    place = topic.topic_id, index, commit.offset
                    wanted[place] = at_offset(logs, topic, index, commit.offset)
        await self._times.look(wanted)

    # -- topics

    def _of_topics(self, access: Access | None) -> Iterator[FigureTable | None]:
        broker = self._broker
        settings, logs = broker.settings.metrics, broker.logs.open_logs
        in_full, most = (
            settings.expose_topic_level_metrics_in_prometheus,
            settings.metrics_max_lines_per_figure,
        )
        all_topics = LogFigures()
        all_topics.add(logs.gone)
        topics: list[tuple[Any, ...]] = []
        partitions: list[tuple[Any, ...]] = []
        counts: list[tuple[str, int]] = []
        unseen: list[tuple[Topic, int]] = []
        left_out = 0
        for topic in broker.topics():
            seen = in_full and may(access, Right.see, topic.name)
            of_topic = LogFigures()
            is_used = False
            name = escaped(topic.kafka_name)
            if seen and len(counts) < most:
                counts.append((f'{{topic="{name}"}}', topic.partitions))
            for index in range(topic.partitions):
                figures = logs.figures(topic, index)
                if figures is None:
                    if len(unseen) < most:
                        unseen.append((topic, index))
                    yield None
                    continue
                is_used = True
                of_topic.add(figures)
                if seen and (bounds := figures.bounds) is not None:
                    if len(partitions) < most:
                        partitions.append(self._row(f'{{topic="{name}",partition="{index}"}}', bounds))
                    else:
                        left_out += 1
                yield None
            all_topics.add(of_topic)
            if seen and is_used and len(topics) < most:
                topics.append((f'{{topic="{name}"}}', *_counted(of_topic)))
            yield None
        self._look_at(unseen)
        yield FigureTable(_OF_TOPICS, [("", *_counted(all_topics)), *topics])
        yield FigureTable((_PARTITIONS,), counts)
        yield FigureTable(_OF_PARTITIONS, partitions)
        yield FigureTable((_LEFT_OUT,), [(labelled(what="partitions"), left_out)])

    def _look_at(self, unseen: list[tuple[Topic, int]]) -> None:
        """Have the next scrape tell of logs that nobody has asked for since the process began."""
        ownership = self._broker.cluster.ownership
        mine = [
            (topic, index)
            for topic, index in unseen
            if (topic.topic_id, index) not in self._looked_at and ownership.is_mine(topic.name, index)
        ]
        if not mine or (self._looking is not None and not self._looking.done()):
            return
        self._looked_at.update((topic.topic_id, index) for topic, index in mine)  # once: it may be damaged
        self._looking = self._broker.background.once(
            "looking at logs that nobody uses", self._broker.logs.open_logs.look_at(mine)
        )

    def _row(self, labels: str, bounds: Bounds) -> tuple[Any, ...]:
        return (
            labels,
            bounds.size,
            bounds.log_start_offset,
            bounds.log_end_offset,
            bounds.ledgers,
            bounds.high_watermark,
            bounds.log_start_offset,
            self._broker.cluster.ownership.node_id,
            *(1, 1, 1, 0),
            *(1, 1, 0, 1),  # as a Kafka says of a partition with one replica
        )

    # -- groups

    def _of_groups(self, access: Access | None) -> Iterator[FigureTable | None]:
        most = self._broker.settings.metrics.metrics_max_lines_per_figure
        states: Counter[str | None] = Counter(dict.fromkeys(_GROUP_STATES, 0))
        partitions: list[tuple[Any, ...]] = []
        sums: list[tuple[Any, ...]] = []
        members: list[tuple[str, int]] = []
        letters: list[tuple[Any, ...]] = []
        worst: list[tuple[Any, ...]] = []
        offsets = left_out = 0
        now_ms = wall_clock_ms()
        for tenant, group in self._groups():
            states[None] += 1
            states[group.state] += 1
            offsets += sum(map(len, group.offsets.values()))
            yield None
            if not self._shows(access, tenant, group):
                continue
            name = _name_of(tenant, group)
            lags: list[int] = []
            ages: list[float] = []
            if len(members) < most:
                members.append((f'{{consumergroup="{name}"}}', len(group.members)))
            counts = self._letters(tenant, group.group_id)
            if counts is not None and len(letters) < most:
                letters.append((f'{{group="{name}"}}', counts.records, counts.produces, counts.failed))
            for kafka_name, committed in list(group.offsets.items()):
                topic = self._broker.get(kafka_name)
                if topic is None or not may(access, Right.see, topic.name):
                    continue
                labels = f'consumergroup="{name}",topic="{escaped(topic.kafka_name)}"'
                offset_sum, lag_sum, all_known = 0, 0, True
                for index, commit in list(committed.items()):
                    figures = self._broker.logs.open_logs.figures(topic, index)
                    bounds = None if figures is None else figures.bounds
                    lag = None if bounds is None else max(bounds.high_watermark - commit.offset, 0)
                    offset_sum += commit.offset
                    lag_sum += lag or 0
                    all_known = all_known and lag is not None
                    age = 0.0 if lag == 0 else None
                    if lag:
                        at_ms = self._times.of((topic.topic_id, index, commit.offset))
                        age = None if at_ms is None else max(now_ms - at_ms, 0) / 1000
                    if lag is not None:
                        lags.append(lag)
                    if age is not None:
                        ages.append(age)
                    if len(partitions) < most:
                        row = (f'{{{labels},partition="{index}"}}', commit.offset, lag, None, None, age)
                        partitions.append(row)
                    else:
                        left_out += 1
                    yield None
                if len(sums) < most:
                    known_sum = lag_sum if all_known else None
                    sums.append((f"{{{labels}}}", None, None, offset_sum, known_sum, None))
            if lags and len(worst) < most:
                worst.append((f'{{consumergroup="{name}"}}', max(lags), max(ages, default=None)))
        yield FigureTable(_OF_GROUPS, partitions + sums)
        yield FigureTable(_WORST, worst)
        yield FigureTable((_MEMBERS,), members)
        yield FigureTable(_LETTERS, letters)
        yield FigureTable((_LEFT_OUT,), [(labelled(what="partitions of groups"), left_out)])
        for state, word in _GROUP_STATES.items():
            text = f"Groups that are {word}." if word else "Groups."
            yield _one(f"{_MANAGER}numgroups{word}", text, states[state])
        yield _one(f"{_MANAGER}numoffsets", "Offsets that groups have committed.", offsets)

    def _letters(self, tenant: str, group_id: str) -> LetterCounts | None:
        """Return what became of what a share group gave up."""
        shares = (
            self._tenancy.shares()[tenant] if tenant and self._tenancy is not None else self._services.shares
        )
        return None if shares.made is None else shares.made.dead_letters.counts.get(group_id)

    def _groups(self) -> Iterator[tuple[str, AnyGroup]]:
        """Return all groups that are loaded, each with its tenant where it is not everybody's."""
        coordinators: list[tuple[str, GroupCoordinator]] = [("", self._services.groups)]
        if self._tenancy is not None:
            coordinators += self._tenancy.coordinators()
        return chain.from_iterable(
            ((tenant, group) for group in each.loaded_groups()) for tenant, each in coordinators
        )

    def _shows(self, access: Access | None, tenant: str, group: AnyGroup) -> bool:
        naming = self._broker.naming
        home = f"{tenant or naming.tenant}/{naming.namespace}"
        of_tenant = (tenant or naming.tenant) if self._services.by_tenant else None
        if not may(access, Right.use, Group(group.group_id, home, of_tenant)):
            return False
        # Where all tenants' groups are in one room, a name is told to who may see a topic that the group reads.
        if of_tenant is not None or may(access, Right.operate):
            return True
        topics = (self._broker.get(name) for name in list(group.offsets))
        return any(topic is not None and may(access, Right.see, topic.name) for topic in topics)

    # -- transactions

    def _of_transactions(self, access: Access | None) -> Iterator[FigureTable | None]:
        """Yield how many there are in each state, and how long the oldest is open, by the protocol of their clients."""
        made = self._services.transactions.made
        cluster = self._broker.cluster.ownership.cluster
        if made is None:  # most brokers have no transactions
            yield FigureTable((_TRANSACTIONS,), [])
            ages: list[tuple[Any, ...]] = [(labelled(protocol=name), 0) for name in ("kafka", "pulsar")]
            yield FigureTable((_OLDEST_TRANSACTION,), ages)
            yield FigureTable(_OF_PULSARS, [(labelled(cluster=cluster, coordinator_id="0"), 0)])
            return
        from magnetar.kafka.transactions.metadata import IDLE, State
        from magnetar.records.pulsar_transactions import TxnId, is_transactions

        states: Counter[tuple[str, str]] = Counter()
        oldest_ms = {"kafka": 0, "pulsar": 0}
        active: Counter[int] = Counter()
        try:
            everything = made.list()
        except CoordinatorRefused:  # some are being loaded
            everything = []
        for number, each in enumerate(everything):
            txn = TxnId.parse(each.transactional_id) if is_transactions(each.producer_id) else None
            protocol = "kafka" if txn is None else "pulsar"
            states[protocol, each.state.kafka_name] += 1
            if each.state not in IDLE:
                oldest_ms[protocol] = max(oldest_ms[protocol], made.now_ms() - each.start_ms)
            if txn is not None and each.state is State.ONGOING:
                active[txn.most] += 1
            if number % _AT_A_STRETCH == 0:
                yield None
        rows = [(labelled(protocol=name, state=state), count) for (name, state), count in states.items()]
        yield FigureTable((_TRANSACTIONS,), rows)
        ages = [(labelled(protocol=name), ms / 1000) for name, ms in oldest_ms.items()]
        yield FigureTable((_OLDEST_TRANSACTION,), ages)
        counts = [
            (labelled(cluster=cluster, coordinator_id=str(number)), count) for number, count in active.items()
        ]
        yield FigureTable(_OF_PULSARS, counts or [(labelled(cluster=cluster, coordinator_id="0"), 0)])

    # -- the rest

    def of_requests(self) -> Iterator[FigureTable | None]:
        """Yield what was counted of requests and of the errors in their answers."""
        counted: list[tuple[Any, ...]] = []
        errors: list[tuple[Any, ...]] = []
        times: list[tuple[Any, ...]] = []
        for each in list(self._services.requests.values()):
            # As in Kafka, consumers' fetches have a name of their own beside the one for all of them.
            for name in (each.name, "FetchConsumer") if each.name == "Fetch" else (each.name,):
                for version, count in enumerate(each.versions):
                    if count:
                        counted.append((labelled(request=name, version=str(version)), count))
                for code, count in list(each.errors.items()):
                    errors.append((labelled(request=name, error=ErrorCode(code).name), count))
                each.count = sum(each.versions)
                times += summarized(each, 1000, request=name)
            yield None
        yield FigureTable((_REQUESTS,), counted)
        yield FigureTable((_ERRORS,), errors)
        yield FigureTable(_TIMES, times)
        yield FigureTable(_FLUSHES, summarized(self._broker.engine.flushes, 1000))

    def of_connections(self) -> Iterator[FigureTable | None]:
        """Yield how many connections there are, by listener and by the software of clients."""
        listeners: Counter[str] = Counter()
        software: Counter[tuple[str, str]] = Counter()
        for each in list(self._server.connections):
            listeners[each.listener_name] += 1
            said = each.conversation.software
            known = (said.name or "unknown", said.version or "unknown")
            software[known if known in software or len(software) < _MAX_SOFTWARE else ("other", "other")] += 1
            yield None
        yield FigureTable(
            (_CONNECTIONS,), [(labelled(listener=name), count) for name, count in listeners.items()]
        )
        yield FigureTable(
            (_SOFTWARE,),
            [
                (labelled(client_software_name=name, client_software_version=version), count)
                for (name, version), count in software.items()
            ],
        )

    def _of_broker(self) -> Iterator[FigureTable | None]:
        broker = self._broker
        ownership = broker.cluster.ownership
        brokers = list(ownership.brokers())
        topics = broker.topics()
        partitions = sum(topic.partitions for topic in topics)
        yield _one("kafka_brokers", "Brokers of the cluster.", len(brokers))
        yield FigureTable(
            (Family("kafka_broker_info", "gauge", "1 for each broker."),),
            [
                (labelled(id=str(each.node_id), address=str(next(iter(each.endpoints.values()), ""))), 1)
                for each in brokers
            ],
        )
        yield _one("kafka_server_kafkaserver_brokerstate", "3: it is running.", 3)
        led = partitions
        if ownership.sole_owner is None:
            led = 0
            for topic in topics:
                for index in range(topic.partitions):
                    led += ownership.is_mine(topic.name, index)
                    yield None
        yield _one("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.", led)
        yield _one("kafka_server_replicamanager_partitioncount", "Partitions that this broker has.", led)
        is_leader = int(ownership.leader() == ownership.node_id)
        name = "kafka_controller_kafkacontroller_"
        yield _one(f"{name}activecontrollercount", "1 on one broker of the cluster.", is_leader)
        yield _one(f"{name}globaltopiccount", "Topics of the cluster.", len(topics))
        yield _one(f"{name}globalpartitioncount", "Partitions of the cluster.", partitions)
        for name, text in _ALL_IS_WELL:
            yield _one(name, text, 0)
        yield FigureTable((_UNCLEAN,), [("", 0)])
        is_offline = int(broker.engine.failed is not None)
        yield _one("kafka_log_logmanager_offlinelogdirectorycount", "1 if storage has failed.", is_offline)
        idle = self._idle.look()
        for name, text in _IDLE:
            yield _one(name, text, idle)


class IdleShare:
    """Which part of the time the event loop's thread was not busy, between two looks at least a second apart."""

    def __init__(self) -> None:
        self._at, self._busy = time.monotonic(), time.thread_time()
        self._share = 1.0

    def look(self) -> float:
        """Return the share, 0 to 1."""
        now, busy = time.monotonic(), time.thread_time()
        passed = now - self._at
        if passed >= 1.0:
            self._share = min(max(1.0 - (busy - self._busy) / passed, 0.0), 1.0)
            self._at, self._busy = now, busy
        return round(self._share, 4)


def _name_of(tenant: str, group: AnyGroup) -> str:
    """Return what figures call a group, escaped."""
    return escaped(f"{tenant}/{group.group_id}" if tenant else group.group_id)


def _counted(figures: LogFigures) -> tuple[int, ...]:
    return (
        figures.bytes_in,
        figures.bytes_out,
        figures.messages_in,
        figures.produces,
        figures.fetches,
        figures.failed_produces,
        figures.failed_fetches,
        figures.failed_tier_reads,
    )


def _one(name: str, text: str, value: float) -> FigureTable:
    return FigureTable((Family(name, "gauge", text),), [("", value)])
