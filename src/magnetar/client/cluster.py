"""A cluster: which topics it has, who leads which partition, and connections to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, TypeVar

from magnetar.client.connection import Connection
from magnetar.client.errors import BrokerRefused, BrokerUnreachable, ClientError, check
from magnetar.client.settings import ClientSettings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from magnetar.wire.kafka.messages.describe_log_dirs_response import DescribeLogDirsResponse
from magnetar.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from magnetar.wire.kafka.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from magnetar.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.list_offsets_response import ListOffsetsResponse
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.metadata_response import MetadataResponse, MetadataResponseTopic

EARLIEST, LATEST = -2, -1
_MAX_BACKOFF_S = 1.0

Result = TypeVar("Result")
Partition = tuple[str, int]


class TopicMetadata(NamedTuple):
    """A topic: its id (16 bytes), and each partition's leader by node id, -1 where there is none now."""

    name: str
    topic_id: bytes
    leaders: tuple[int, ...]
    internal: bool


class Cluster:
    """Connections are made when they are first needed. Not to be shared between threads."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._nodes: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._connections: dict[tuple[str, int], Connection] = {}

    def close(self) -> None:
        """Close all connections; the next question opens new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Patience.

    def retrying(self, attempt: Callable[[], Result], *, timeout_s: float | None = None) -> Result:
        """Return what ``attempt`` gives; try again, on new connections, while the reason may pass."""
        deadline = time.monotonic() + (self.settings.delivery_timeout_s if timeout_s is None else timeout_s)
        pause = self.settings.backoff_s
        while True:
            try:
                return attempt()
            except ClientError as error:
                self.close()
                self._topics.clear()
                if not error.retriable or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _MAX_BACKOFF_S)

    # Topics.

    def topics(self) -> dict[str, TopicMetadata]:
        """Return all topics."""
        self._learn(self._ask_metadata(None))
        return dict(self._topics)

    def topic(self, name: str, *, create: bool = False) -> TopicMetadata:
        """Return one topic; raise `BrokerRefused` if there is none. ``create`` lets the broker make it, if it does
        such.
        """
        if name not in self._topics:
            for each in self._learn(self._ask_metadata([name], create=create)):
                check(each.error_code, f"topic {name!r}")
        return self._topics[name]

    def leader(self, name: str, partition: int) -> Connection:
        """Return a connection to the partition's leader."""
        leaders = self.topic(name).leaders
        if partition >= len(leaders):
            raise BrokerRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{partition}")
        if leaders[partition] not in self._nodes:
            raise BrokerRefused(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{partition}")
        return self._connect(self._nodes[leaders[partition]])

    def by_leader(self, partitions: Iterable[Partition]) -> dict[Connection, list[Partition]]:
        """Group partitions by the connection to their leader."""
        found: dict[Connection, list[Partition]] = {}
        for name, partition in partitions:
            found.setdefault(self.leader(name, partition), []).append((name, partition))
        return found

    def list_offsets(
        self, times: Mapping[Partition, int], *, committed: bool = False
    ) -> dict[Partition, int]:
        """Return for each partition the first offset of a time in ms or later, `EARLIEST` or `LATEST`; -1 if none.

        ``committed`` has `LATEST` be the last stable offset.
        """
        found = {}
        for connection, partitions in self.by_leader(times).items():
            topics: dict[str, list[ListOffsetsPartition]] = {}
            for name, partition in partitions:
                topics.setdefault(name, []).append(
                    ListOffsetsPartition(partition_index=partition, timestamp=times[name, partition])
                )
            answer: ListOffsetsResponse = connection.call(
                ListOffsetsRequest(
                    replica_id=-1,
                    isolation_level=int(committed),
                    topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
                    timeout_ms=int(self.settings.request_timeout_s * 1000),
                )
            )
            for topic in answer.topics:
                for row in topic.partitions:
                    check(row.error_code, f"ListOffsets of {topic.name}-{row.partition_index}")
                    found[topic.name, row.partition_index] = row.offset
        return found

    def sizes(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return how many bytes each partition's log has, at its leader; none for those that nobody tells of."""
        found: dict[Partition, int] = {}
        for connection, asked in self.by_leader(partitions).items():
            topics: dict[str, list[int]] = {}
            for name, partition in asked:
                topics.setdefault(name, []).append(partition)
            answer: DescribeLogDirsResponse = connection.call(
                DescribeLogDirsRequest(
                    topics=[DescribableLogDirTopic(topic=n, partitions=ps) for n, ps in topics.items()]
                )
            )
            for directory in answer.results:
                for topic in directory.topics:
                    for row in topic.partitions:
                        found[topic.name, row.partition_index] = row.partition_size
        return found

    # Brokers.

    def brokers(self) -> list[Connection]:
        """Return connections to all brokers that answer; raise `BrokerUnreachable` if none does."""
        self._learn(self._ask_metadata([]))
        found = []
        for address in self._nodes.values():
            with suppress(BrokerUnreachable):
                found.append(self._connect(address))
        return found or [self.any_broker()]

    def broker(self, node_id: int | None) -> Connection:
        """Return a connection to the broker with a number; to any if that is None, or nobody knows of it."""
        if node_id is None:
            return self.any_broker()
        self._learn(self._ask_metadata([]))
        address = self._nodes.get(node_id)
        return self.any_broker() if address is None else self._connect(address)

    def grouped(self, partitions: Iterable[Partition]) -> dict[Connection, list[Partition]]:
        """Return the partitions by their leaders; those that nobody leads, or that are not known, at any broker."""
        wanted = list(partitions)
        self._learn(self._ask_metadata(list(dict.fromkeys(name for name, _ in wanted))))
        found: dict[Connection, list[Partition]] = {}
        for name, partition in wanted:
            known = self._topics.get(name)
            leader = known.leaders[partition] if known is not None and partition < len(known.leaders) else -1
            address = self._nodes.get(leader)
            connection = self.any_broker() if address is None else self._connect(address)
            found.setdefault(connection, []).append((name, partition))
        return found

    def coordinator(self, key: str, key_type: int = 0) -> Connection:
        """Return a connection to the coordinator of a group, or with key type 1 of a transactional id."""
        found = self.find_coordinator(key, key_type)
        return self._connect((found.host, found.port))

    def find_coordinator(self, key: str, key_type: int = 0) -> Coordinator:
        """Return who that is, and where."""
        answer: FindCoordinatorResponse = self.any_broker().call(
            FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type), 4
        )
        (found,) = answer.coordinators
        what = "transactional id" if key_type else "group"
        check(found.error_code, f"the coordinator of {what} {key!r}", found.error_message)
        return found

    def any_broker(self) -> Connection:
        """Return a connection to some broker; raise `BrokerUnreachable` if none answers."""
        for connection in self._connections.values():
            return connection
        errors: list[BrokerUnreachable] = []
        for address in dict.fromkeys((*self._nodes.values(), *self.settings.bootstrap)):
            try:
                return self._connect(address)
            except BrokerUnreachable as error:
                errors.append(error)
        raise type(errors[-1])("; ".join(map(str, errors)))

    def _connect(self, address: tuple[str, int]) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(*address, self.settings)
        return self._connections[address]

    def _ask_metadata(self, names: list[str] | None, *, create: bool = False) -> MetadataResponse:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        answer: MetadataResponse = self.any_broker().call(
            MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        )
        return answer

    def _learn(self, answer: MetadataResponse) -> list[MetadataResponseTopic]:
        self._nodes = {each.node_id: (each.host, each.port) for each in answer.brokers}
        for each in answer.topics:
            if each.name is not None and not each.error_code:
                leaders = dict.fromkeys(range(len(each.partitions)), -1)
                leaders |= {row.partition_index: row.leader_id for row in each.partitions}
                known = tuple(leaders[i] for i in range(len(leaders)))
                self._topics[each.name] = TopicMetadata(each.name, each.topic_id, known, each.is_internal)
        return answer.topics
