"""What a broker has of a topic: its batches as they came, and its records.

Batches are fetched with version 4 of Fetch, the oldest that Kafka 4 answers, by a few lines of our own: a client would
open them, and tell neither codec nor producer. Records are read by the librdkafka that the runner itself has.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from apps import topics
from confluent_kafka.admin import AdminClient

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_BATCH = struct.Struct(">qiiBIhiqqqhii")
"""Record batch, magic 2: base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and last
time (ms), producer id, its epoch, first sequence, records."""
_CODEC, _TRANSACTIONAL, _CONTROL = 0x07, 0x10, 0x20
_ASKED_BYTES = 50_000_000
_PREFIX = 12
"""Bytes of a batch that its length does not count."""


@dataclass(frozen=True)
class Batch:
    """The header of one batch."""

    offset: int
    records: int
    size: int
    magic: int
    codec: str
    is_transactional: bool
    is_control: bool
    latest_ms: int
    producer_id: int
    sequence: int


def batches(address: str, topic: str, partition: int = 0) -> list[Batch]:
    """All batches of a partition, in order, asked of its leader."""
    found: list[Batch] = []
    with socket.create_connection(_leader(address, topic, partition), 30) as connection:
        while True:
            offset = found[-1].offset + found[-1].records if found else 0
            more = [
                each
                for each in _parsed(_fetch(connection, topic, partition, offset))
                if each.offset >= offset
            ]
            if not more:
                return found
            found += more


def _leader(address: str, topic: str, partition: int) -> tuple[str, int]:
    metadata = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=30)
    broker = metadata.brokers[metadata.topics[topic].partitions[partition].leader]
    return broker.host, broker.port


def _fetch(connection: socket.socket, topic: str, partition: int, offset: int) -> bytes:
    name = topic.encode()
    body = struct.pack(">iiiib", -1, 100, 1, _ASKED_BYTES, 0)
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, partition, offset, _ASKED_BYTES)
    request = struct.pack(">hhih", 1, 4, 1, 4) + b"ages" + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    [size] = struct.unpack(">i", _exactly(connection, 4))
    answer = _exactly(connection, size)
    at = 4 + 4 + 4 + 2 + len(name) + 4  # correlation, throttle, topics, the name, partitions
    _, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
    if error:
        raise RuntimeError(f"Fetch of {topic} at {offset}: error {error}")
    at += 26 + 16 * max(aborted, 0)
    [length] = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + max(length, 0)]


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the broker ended the connection")
        data += more
    return bytes(data)


def _parsed(data: bytes) -> Iterator[Batch]:
    at = 0
    while at + _BATCH.size <= len(data):
        offset, length, _, magic, _, attributes, _, _, latest, producer, _, sequence, count = (
            _BATCH.unpack_from(data, at)
        )
        size = _PREFIX + length
        if at + size > len(data):
            return  # a fetch ends where its bytes do
        yield Batch(
            offset,
            count,
            size,
            magic,
            CODECS[attributes & _CODEC],
            bool(attributes & _TRANSACTIONAL),
            bool(attributes & _CONTROL),
            latest,
            producer,
            sequence,
        )
        at += size


@dataclass(frozen=True)
class Record:
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes]]


def records(address: str, topic: str) -> list[Record]:
    """All records that a reader of committed transactions is given."""
    return [
        Record(each.offset(), each.timestamp()[1], each.key(), each.value(), each.headers() or [])
        for each in topics.read(address, topic)
    ]
