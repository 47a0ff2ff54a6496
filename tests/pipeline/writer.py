"""Writes a data directory as a broker would leave it, by hand: the tests' own reading of the layouts."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from magnetar.metadata import SqliteFile
from magnetar.records.batch import (
    CONTROL,
    TRANSACTIONAL,
    PlainRecord,
    encode_batch,
    read_header,
    with_log_append_time,
)
from magnetar.records.compression import Codec
from magnetar.records.conversion import framed_batch
from magnetar.records.entry import broker_entry_head

NOW_MS = 1_700_000_000_000


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return out + bytes((value,))


def entry(batch: bytes, *, entry_format: bytes = b"kafka", checksum: bool = False) -> bytes:
    """Lay one record batch out as an entry, as PIP-70 has it."""
    header = read_header(batch)
    broker = b"\x08" + varint(NOW_MS) + b"\x10" + varint(header.last_offset)
    marked = b"\x0a\x0centry.format\x12" + varint(len(entry_format)) + entry_format
    message = b"\x0a\x00\x10\x00\x18" + varint(NOW_MS) + b"\x22" + varint(len(marked)) + marked
    message += b"\x58" + varint(header.last_offset_delta + 1)
    behind = struct.pack(">I", len(message)) + message + batch
    if checksum:
        behind = b"\x0e\x01" + struct.pack(">I", crc32c(behind)) + behind
    return b"\x0e\x02" + struct.pack(">I", len(broker)) + broker + behind


def frame(ledger_id: int, entry_id: int, content: bytes) -> bytes:
    crc = crc32c(struct.pack(">QQI", ledger_id, entry_id, len(content)) + content)
    return struct.pack(">IIQ", len(content), crc, entry_id) + content


def file_header(ledger_id: int) -> bytes:
    head = b"MGLEDGR1" + struct.pack(">QQI", ledger_id, NOW_MS, 0)
    return head + struct.pack(">I", crc32c(head))


def ledger_file(data: Path, ledger_id: int) -> Path:
    return data / "ledgers" / f"{ledger_id >> 10:06x}" / f"{ledger_id:016x}.ledger"


class Partition:
    """Grows ledger by ledger; remembers what a reader must find."""

    def __init__(self, data: Path, topic: str, partition: int, first_ledger: int) -> None:
        self.data = data
        self.topic = topic
        self.partition = partition
        self.next_offset = 0
        self.expected: list[tuple[PlainRecord, int]] = []
        self._next_ledger = first_ledger
        self._ledgers: list[tuple[int, dict[str, str], int, int]] = []
        self._frames: list[bytes] = []
        self._first = 0
        self._latest = -1

    def append(
        self, records: Sequence[PlainRecord], *, codec: Codec = Codec.none, append_time: int | None = None,
        control: bool = False, checksum: bool = False, entry_format: str = "kafka", producer_id: int | None = None,
    ) -> None:  # fmt: skip
        """Add one batch as one entry of the open ledger; with a ``producer_id`` it is part of a transaction."""
        attributes = (CONTROL if control else 0) | (TRANSACTIONAL if producer_id is not None else 0)
        batch = encode_batch(
            records, base_offset=self.next_offset, codec=codec, attributes=attributes,
            producer_id=-1 if producer_id is None else producer_id,
        )  # fmt: skip
        if append_time is not None:
            batch = with_log_append_time(batch, read_header(batch), append_time)
        if not control:
            for number, record in enumerate(records):
                time = record.timestamp if append_time is None else append_time
                place = self.next_offset + number
                found = record._replace(offset=place, timestamp=time, headers=tuple(record.headers))
                self.expected.append((found, 0 if append_time is None else 1))
        self.next_offset += len(records)
        self._latest = max(self._latest, read_header(batch).max_timestamp)
        content = entry(batch, entry_format=entry_format.encode(), checksum=checksum)
        if entry_format == "mixed_kafka":  # its offsets are relative: as if it were the first of its topic
            relative = bytes(8) + batch[8:]
            content = entry(batch, entry_format=b"mixed_kafka")[: -len(batch)] + relative
        elif entry_format == "pulsar":
            framed = framed_batch(memoryview(batch), read_header(batch), NOW_MS, codec)
            content = broker_entry_head(NOW_MS, self.next_offset - 1) + bytes(framed)
        self._frames.append(frame(self._next_ledger, len(self._frames), content))

    def close_ledger(self, *, sealed: bool = True, tail: bytes = b"") -> Path:
        """Write the ledger's file; only the last one of a partition may stay open."""
        path = ledger_file(self.data, self._next_ledger)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = file_header(self._next_ledger) + b"".join(self._frames)
        path.write_bytes(content + tail)
        properties = {"first_index": str(self._first)}
        if sealed:
            properties |= {"last_index": str(self.next_offset - 1), "max_timestamp": str(self._latest)}
        entries, size = (len(self._frames), len(content)) if sealed else (0, 0)
        self._ledgers.append((self._next_ledger, properties, entries, size))
        self._next_ledger, self._frames, self._first, self._latest = (
            self._next_ledger + 1,
            [],
            self.next_offset,
            -1,
        )
        return path

    def info(self) -> bytes:
        """Return Pulsar's ManagedLedgerInfo."""
        out = b""
        for ledger_id, properties, entries, size in self._ledgers:
            body = b"\x08" + varint(ledger_id) + b"\x10" + varint(entries) + b"\x18" + varint(size)
            body += b"\x20" + varint(NOW_MS)
            for key, value in properties.items():
                pair = (
                    b"\x0a" + varint(len(key)) + key.encode() + b"\x12" + varint(len(value)) + value.encode()
                )
                body += b"\x32" + varint(len(pair)) + pair
            out += b"\x0a" + varint(len(body)) + body
        return out


class Writer:
    """A data directory with one topic or more."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._topics: dict[str, list[Partition]] = {}

    def topic(self, name: str, partitions: int = 1) -> list[Partition]:
        first = 1 + 1000 * sum(len(each) for each in self._topics.values())
        made = [Partition(self.data, name, p, first + 1000 * p) for p in range(partitions)]
        self._topics[name] = made
        return made

    def finish(self) -> Path:
        """Write the metadata, and give the directory."""
        store = SqliteFile(self.data / "metadata.sqlite")
        for name, partitions in self._topics.items():
            content = json.dumps({"partitions": len(partitions), "properties": {}}).encode()
            store.put(f"/admin/partitioned-topics/public/default/persistent/{name}", content)
            for each in partitions:
                path = f"/managed-ledgers/public/default/persistent/{name}-partition-{each.partition}"
                if each._ledgers:
                    store.put(path, each.info())
        store.close()
        return self.data
