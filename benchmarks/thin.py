"""A thin Kafka client: one socket, one request at a time, nothing hidden, so that a clock beside it tells the truth."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.header import RequestHeader, decode_response_header, encode_request_header
from magnetar.wire.kafka.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from magnetar.wire.kafka.messages.create_topics_response import CreateTopicsResponse
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.fetch_response import FetchResponse
from magnetar.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from magnetar.wire.kafka.messages.find_coordinator_response import FindCoordinatorResponse
from magnetar.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.list_offsets_response import ListOffsetsResponse
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.metadata_response import MetadataResponse
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.produce_response import ProduceResponse

# One version of each that both sides speak and that still names topics.
_CREATE, _METADATA, PRODUCE, _FETCH, _LIST, _COORDINATOR = 7, 12, 9, 12, 7, 4
_NOT_YET = {3, 5, 6}  # UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER


class Refused(Exception):
    """The broker answered with an error code."""


def framed(request: Any, version: int, correlation_id: int) -> bytes:
    """Return a request as it is sent."""
    head = encode_request_header(RequestHeader(request.API_KEY, version, correlation_id, "thin"))
    body = request.encode(version)
    return struct.pack(">i", len(head) + len(body)) + head + body


def batch_request(topic: str, partitions: list[int], batch: bytes) -> ProduceRequest:
    """Return what appends a batch as it is to each of the partitions, for `PRODUCE`'s version."""
    data = [PartitionProduceData(index=index, records=batch) for index in partitions]
    return ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


class ThinClient:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(120)
        self._turn = 0

    @classmethod
    def to(cls, address: str) -> ThinClient:
        host, port = address.rsplit(":", 1)
        return cls(socket.create_connection((host, int(port))))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> ThinClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, request: Any, answer: Any, version: int) -> Any:
        """Send one request and give its answer."""
        self._turn += 1
        self._socket.sendall(framed(request, version, self._turn))
        (size,) = struct.unpack(">i", self._receive(4))
        frame = memoryview(self._receive(size))
        turn, body = decode_response_header(frame, request.API_KEY, version)
        assert turn == self._turn
        return answer.decode(body, version)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)

    # -- what benchmarks ask -----------------------------------------------------------------------------------

    def create_topics(self, names: list[str], partitions: int, configs: dict[str, str] | None = None) -> None:
        wanted = [CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()]
        topics = [
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=wanted)
            for name in names
        ]
        answer = self.call(
            CreateTopicsRequest(topics=topics, timeout_ms=60_000), CreateTopicsResponse, _CREATE
        )
        for topic in answer.topics:
            if topic.error_code:
                raise Refused(f"topic {topic.name}: error {topic.error_code}")
        for name in names:
            self.wait_for_leaders(name)

    def wait_for_leaders(self, topic: str, seconds: float = 60) -> None:
        """Ask for the topic, which creates it where that is allowed, until all its partitions have a leader."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            (found,) = self.call(request, MetadataResponse, _METADATA).topics
            rows = found.partitions
            if not found.error_code and rows and all(not r.error_code and r.leader_id >= 0 for r in rows):
                return
            time.sleep(0.005)
        raise Refused(f"topic {topic} has no leaders")

    def leaders(self, topic: str) -> dict[tuple[str, int], list[int]]:
        """Return where the topic's leaders are, and which partitions each has."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        told = self.call(request, MetadataResponse, _METADATA)
        where = {each.node_id: (each.host, each.port) for each in told.brokers}
        found: dict[tuple[str, int], list[int]] = {}
        for row in told.topics[0].partitions:
            found.setdefault(where[row.leader_id], []).append(row.partition_index)
        return found

    def wait_for_coordinators(self, groups: list[str], seconds: float = 60) -> None:
        """Ask who coordinates the groups, upon which Kafka makes the topic for it, until somebody does."""
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=groups)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            told = self.call(request, FindCoordinatorResponse, _COORDINATOR).coordinators
            if not any(each.error_code for each in told):
                return
            time.sleep(0.1)
        raise Refused(f"nobody coordinates {groups[0]}")

    def produce(self, topic: str, partitions: list[int], value: bytes) -> list[int]:
        """Append one record to each of the partitions; give their offsets."""
        batch = encode_batch([PlainRecord(None, value, timestamp=time.time_ns() // 1_000_000)])
        request = batch_request(topic, partitions, batch)
        end = time.perf_counter() + 60
        while True:
            rows = self.call(request, ProduceResponse, PRODUCE).responses[0].partition_responses
            errors = {row.error_code for row in rows} - {0}
            if not errors:
                return [row.base_offset for row in rows]
            # Kafka shows a leader before that leader knows of it.
            if not errors <= _NOT_YET or time.perf_counter() > end:
                raise Refused(f"{topic}: errors {errors}")
            time.sleep(0.002)

    def send_batch(self, topic: str, partition: int, batch: bytes) -> None:
        """Append a batch as it is."""
        request = batch_request(topic, [partition], batch)
        (row,) = self.call(request, ProduceResponse, PRODUCE).responses[0].partition_responses
        if row.error_code:
            raise Refused(f"{topic}-{partition}: error {row.error_code}")

    def fetch(self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 20) -> bytes:
        """Return the batches from ``offset`` on, waiting for the first."""
        place = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=10_000,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic=topic, partitions=[place])],
        )
        (row,) = self.call(request, FetchResponse, _FETCH).responses[0].partitions
        if row.error_code:
            raise Refused(f"{topic}-{partition}: error {row.error_code}")
        return bytes(row.records or b"")

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the offset that the next record gets."""
        place = ListOffsetsPartition(partition_index=partition, timestamp=-1)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[place])])
        (row,) = self.call(request, ListOffsetsResponse, _LIST).topics[0].partitions
        if row.error_code:
            raise Refused(f"{topic}-{partition}: error {row.error_code}")
        return int(row.offset)
