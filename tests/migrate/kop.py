"""A data directory as KoP before 2.8 left it: entries without an index, offsets packed of their places.

What is expected is counted here on its own: each record that is written is noted with its place and the offset it had.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from magnetar.kafka.coordinators.facts import Committed, offset_fact
from magnetar.ledger.formats.cursor_info import CursorInfo, cursor_path, encode_cursor
from magnetar.ledger.formats.info import path_of
from magnetar.ledger.formats.layout import encode_header, frame_head, ledger_path
from magnetar.ledger.formats.protobuf import message, number
from magnetar.ledger.port import Position
from magnetar.metadata import SqliteFile
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.records.compression import Codec
from magnetar.records.crc import crc32c
from magnetar.records.pulsar_metadata import (
    MessageMetadata,
    SingleMessageMetadata,
    encode_metadata,
    encode_single,
)

T0 = 1_600_000_000_000


class Old(NamedTuple):
    """A record and the packed offset that it had."""

    value: bytes
    packed: int


def kafka_entry(values: Sequence[bytes], codec: Codec = Codec.none) -> bytes:
    """An entry of format ``kafka`` as KoP 2.7 wrote it: no checksum, base offset 0."""
    batch = encode_batch(
        [PlainRecord(b"k", value, (), T0 + n) for n, value in enumerate(values)], codec=codec
    )
    metadata = encode_metadata(
        MessageMetadata(
            publish_time=T0, properties=((b"entry.format", b"kafka"),), num_messages_in_batch=len(values),
            batched=True,
        )
    )  # fmt: skip
    return len(metadata).to_bytes(4, "big") + metadata + batch


def pulsar_entry(values: Sequence[bytes], *, batched: bool = True, key: bytes | None = None) -> bytes:
    """An entry as Pulsar's own producers sent it, with their checksum."""
    if batched:
        payload = b""
        for value in values:
            single = encode_single(SingleMessageMetadata(payload_size=len(value)))
            payload += len(single).to_bytes(4, "big") + single + value
    else:
        (payload,) = values
    metadata = encode_metadata(
        MessageMetadata(
            producer_name=b"p", sequence_id=7, publish_time=T0, num_messages_in_batch=len(values),
            batched=batched, partition_key=key,
        )
    )  # fmt: skip
    body = len(metadata).to_bytes(4, "big") + metadata + payload
    return b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body


@dataclass
class OldCluster:
    """Writes topics, ledgers, cursors and committed offsets; ``records`` has them by log, in order."""

    data: Path
    records: dict[str, list[Old]] = field(default_factory=dict)
    _infos: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.data.mkdir(parents=True)

    def topic(self, name: str, partitions: int, folder: str = "public/default") -> None:
        with self._store() as store:
            path = f"/admin/partitioned-topics/{folder}/persistent/{name}"
            store.store.put(path, json.dumps({"partitions": partitions}).encode())

    def ledger(self, log: str, ledger_id: int, entries: Sequence[tuple[bytes, Sequence[bytes]]]) -> None:
        """Write a ledger: each entry's bytes, and the values of its records."""
        path = ledger_path(self.data, ledger_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = encode_header(ledger_id, T0)
        for entry_id, (entry, values) in enumerate(entries):
            content += frame_head(ledger_id, entry_id, entry, [], len(entry))
            for index, value in enumerate(values):
                packed = (ledger_id & 0xFFFFF) * 2**44 + entry_id * 2**12 + index
                self.records.setdefault(log, []).append(Old(value, packed))
        path.write_bytes(content)
        self._infos.setdefault(log, []).append((ledger_id, len(entries)))
        info = b"".join(  # as Pulsar's: no properties, and the last ledger without numbers of its own
            message(1, number(1, one) + (number(2, count) + number(3, 1) + number(4, T0) if done else b""))
            for place, (one, count) in enumerate(self._infos[log])
            for done in [place + 1 < len(self._infos[log])]
        )
        with self._store() as store:
            store.store.put(path_of(log), info)

    def cursor(self, log: str, name: str, position: Position) -> None:
        with self._store() as store:
            store.store.put(cursor_path(log, name), encode_cursor(CursorInfo(position)))

    def committed(self, ledger_id: int, commits: Sequence[tuple[str, str, int, int]]) -> None:
        """Write (group, topic, partition, offset) as KoP did: a message with the key, its payload a batch."""
        entries = []
        for group, topic, partition, offset in commits:
            fact = offset_fact(
                group, topic, partition, Committed(offset, 3, "kept", commit_timestamp=4_000_000_000_000)
            )
            batch = encode_batch([PlainRecord(fact.key, fact.value, (), T0)])
            entries.append((pulsar_entry([batch], batched=False, key=fact.key), ()))
        self.ledger("public/__kafka/persistent/__consumer_offsets-partition-0", ledger_id, entries)

    def _store(self) -> _Opened:
        return _Opened(SqliteFile(self.data / "metadata.sqlite"))


class _Opened:
    def __init__(self, store: SqliteFile) -> None:
        self.store = store

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()


LOG = "public/default/persistent/orders-partition-0"
OTHER = "public/default/persistent/orders-partition-1"
COMMITTED = 900


def values(name: str, count: int) -> list[bytes]:
    return [f"{name}-{n}".encode() for n in range(count)]


def old_cluster(data: Path) -> OldCluster:
    """Two partitions, several ledgers, both formats, a ledger without entries, and groups in the middle of batches."""
    old = OldCluster(data)
    old.topic("orders", 2)
    old.topic("__consumer_offsets", 1, "public/__kafka")
    for ledger_id in (17, 23, 40):
        old.ledger(LOG, ledger_id, [
            (kafka_entry(v := values(f"{ledger_id}a", 5)), v),
            (kafka_entry(v := values(f"{ledger_id}b", 300), Codec.lz4), v),
            (pulsar_entry(v := values(f"{ledger_id}c", 7)), v),
            (pulsar_entry(v := values(f"{ledger_id}d", 1), batched=False), v),
            (kafka_entry(v := values(f"{ledger_id}e", 2)), v),
        ])  # fmt: skip
    old.ledger(LOG, 41, [])
    old.ledger(OTHER, 18, [(pulsar_entry(v := values("only", 3)), v)])
    old.cursor(LOG, "reader", Position(23, 2))
    old.cursor(LOG, "at-the-end", Position(41, -1))
    records = old.records[LOG]
    long_name = "persistent://public/default/orders"
    old.committed(COMMITTED, [
        ("middle", long_name, 0, records[3].packed),  # written over by the next
        ("middle", long_name, 0, records[400].packed),
        ("first", long_name, 0, records[0].packed),
        ("next-entry", "orders", 0, records[4].packed + 1),
        ("end", "orders", 0, records[-1].packed + 1),
        ("middle", "orders", 1, old.records[OTHER][1].packed),
        ("elsewhere", "unknown", 0, 5),
    ])  # fmt: skip
    return old
