"""Which messages of entries a compaction keeps, and how an entry is written with some of its messages left out.

A message that is left out keeps its offset and its batch index: a Kafka batch keeps its base offset and last offset
delta and loses the record, as Kafka's own cleaner does it; a Pulsar batch keeps a placeholder marked ``compacted_out``,
as Pulsar's does. What an entry holds, `magnetar.records.opened` says.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from magnetar.records.batch import HEADER_BYTES, LOG_APPEND_TIME, read_header, seal
from magnetar.records.compression import Buffer, compress, decompress
from magnetar.records.copied import behind_broker_head
from magnetar.records.loading import loaded
from magnetar.records.opened import (
    DELTA,
    END,
    GONE,
    KEY_AT,
    KEY_SIZE,
    START,
    TIME,
    VALUE_SIZE,
    EntryBatch,
    OpenedEntry,
    key_rows,
)
from magnetar.records.pulsar_compression import compress_payload
from magnetar.records.pulsar_plain import COMPACTED_OUT, framed_message, metadata_bytes
from magnetar.records.varint import encode_unsigned

_NO_KEY = 1  # the varint of a size of -1
SLOT_BYTES = 24
"""What the map takes for one key: 16 bytes of hash, 8 of offset, as Kafka's does."""


# --- which messages stay ----------------------------------------------------------------------------------------


class KeyMap:
    """The last offset of each key, as far as ``most_bytes`` go. One run's own; not for two threads."""

    def __init__(self, messages: int, most_bytes: int, machine: Any = None, load_factor: float = 0.9) -> None:
        self.machine = machine
        self.most = max(int(most_bytes / SLOT_BYTES * load_factor), 1)
        self.used = 0
        """How many keys are noted, and how many have their place reserved."""
        if self.machine is None:
            self._secret, self._last = os.urandom(16), dict[bytes, int]()
            return
        np = self.machine.np
        slots = 1 << max(int(min(messages, self.most) / load_factor) + 1, 15).bit_length()
        while slots > 16 and slots * SLOT_BYTES > most_bytes:
            slots >>= 1
        self.most = min(self.most, max(int(slots * load_factor), 1))
        self._table = np.full((slots, self.machine.MAP_FIELDS), self.machine.EMPTY, np.int64)
        self._salt = np.frombuffer(os.urandom(16), np.int64).copy()

    def note(self, opened: OpenedEntry) -> bool:
        """Note the offsets of an entry's messages; tell whether there was room for all of its keys."""
        if self.used + sum(len(part.rows) for part in opened.parts) > self.most:
            return False
        for part in opened.parts:
            if self.machine is None:
                self._note_plainly(part)
                continue
            data = self.machine.np.frombuffer(part.data, self.machine.np.uint8)
            self.used += self.machine.note_rows(data, part.rows, part.base_offset, self._salt, self._table)
        return True

    def reserve(self) -> bool:
        """Reserve the place of a key that is noted later; tell whether there was room for it."""
        if self.used >= self.most:
            return False
        self.used += 1
        return True

    def note_reserved(self, key: bytes, offset: int) -> None:
        """Note the offset of one message, for whose key a place is reserved."""
        part = self._one(key, offset)
        if self.machine is None:
            hashed = self._hashed(part, part.rows[0])
            self._last[hashed] = max(self._last.get(hashed, -1), offset)
            return
        data = self.machine.np.frombuffer(part.data, self.machine.np.uint8)
        self.machine.note_rows(data, part.rows, offset, self._salt, self._table)

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Tell of one message whether a later one has its key."""
        return bool(self.superseded(self._one(key, offset))[0])

    def _one(self, key: bytes, offset: int) -> EntryBatch:
        return EntryBatch(key or b"-", key_rows(key, 1, self.machine), offset, None, b"")

    def _note_plainly(self, part: EntryBatch) -> None:
        before = len(self._last)
        for row in part.rows:
            if row[KEY_SIZE] >= 0 and row[VALUE_SIZE] != GONE:
                hashed, offset = self._hashed(part, row), part.base_offset + row[DELTA]
                if self._last.get(hashed, -1) < offset:
                    self._last[hashed] = offset
        self.used += len(self._last) - before

    def _hashed(self, part: EntryBatch, row: Sequence[int]) -> bytes:
        key = part.data[row[KEY_AT] : row[KEY_AT] + row[KEY_SIZE]]
        return blake2b(key, digest_size=16, key=self._secret).digest()

    def superseded(self, part: EntryBatch) -> Any:
        """Tell of each message whether a later one has its key."""
        if self.machine is None:
            return [
                row[KEY_SIZE] >= 0
                and self._last.get(self._hashed(part, row), -1) > part.base_offset + row[DELTA]
                for row in part.rows
            ]
        np = self.machine.np
        last = np.empty(len(part.rows), np.int64)
        data = np.frombuffer(part.data, np.uint8)
        self.machine.last_of_rows(data, part.rows, self._salt, self._table, last)
        return last > part.rows[:, DELTA] + part.base_offset


class Keeping(NamedTuple):
    """What is kept besides the last value of every key."""

    null_keys: bool
    """Messages without a key."""
    tombstones: bool
    """Deletions: a null value or, where ``empty_deletes``, one of no bytes."""
    empty_deletes: bool


def kept_rows(part: EntryBatch, keys: KeyMap, keeping: Keeping) -> Any:
    """Tell of each message of a batch whether it stays."""
    gone = keys.superseded(part)
    least = 1 if keeping.empty_deletes else 0
    if keys.machine is None:
        return [
            not late
            and row[VALUE_SIZE] != GONE
            and (row[KEY_SIZE] >= 0 or keeping.null_keys)
            and (keeping.tombstones or row[VALUE_SIZE] >= least or row[KEY_SIZE] < 0)
            for row, late in zip(part.rows, gone, strict=True)
        ]
    rows = part.rows
    keep = ~gone & (rows[:, VALUE_SIZE] != GONE)
    if not keeping.null_keys:
        keep &= rows[:, KEY_SIZE] >= 0
    if not keeping.tombstones:
        keep &= (rows[:, VALUE_SIZE] >= least) | (rows[:, KEY_SIZE] < 0)
    return keep


def kept_deletions(part: EntryBatch, keys: KeyMap, keeping: Keeping, held: Collection[bytes]) -> Any:
    """Do as `kept_rows`, but keep deletions of the keys that are ``held``, too."""
    keep = kept_rows(part, keys, keeping)
    if keeping.tombstones:
        return keep
    for number, stays in enumerate(kept_rows(part, keys, keeping._replace(tombstones=True))):
        if stays and not keep[number]:
            at, size = int(part.rows[number][KEY_AT]), int(part.rows[number][KEY_SIZE])
            keep[number] = bytes(part.data[at : at + size]) in held
    return keep


def bits_of(opened: OpenedEntry, keeps: Sequence[Any], machine: Any) -> bytes:
    """Return what `Copied.there` says when these messages are kept."""
    base, messages = opened.entry.base_offset, opened.entry.message.num_messages_in_batch
    if machine is not None:
        there = machine.np.zeros(messages, bool)
        for part, keep in zip(opened.parts, keeps, strict=True):
            there[part.rows[keep, DELTA] + (part.base_offset - base)] = True
        return bytes(machine.np.packbits(there, bitorder="little"))
    bits = 0
    for part, keep in zip(opened.parts, keeps, strict=True):
        for row, stays in zip(part.rows, keep, strict=True):
            bits |= bool(stays) << (part.base_offset - base + row[DELTA])
    return bits.to_bytes(-(-messages // 8), "little")


def there_were(part: EntryBatch, machine: Any) -> int:
    """Return how many messages of a batch were there before."""
    if machine is not None:
        return int((part.rows[:, VALUE_SIZE] != GONE).sum())
    return sum(1 for row in part.rows if row[VALUE_SIZE] != GONE)


def count_of(keep: Any, machine: Any) -> int:
    """Return how many messages stay."""
    return int(keep.sum()) if machine is not None else sum(map(bool, keep))


# --- writing ----------------------------------------------------------------------------------------------------


def rewritten(data: memoryview, opened: OpenedEntry, keeps: Sequence[Any], machine: Any) -> list[Buffer]:
    """Return what follows the broker's entry metadata, without the messages that are not kept."""
    entry = opened.entry
    if entry.message.entry_format == "pulsar":
        part, keep = opened.parts[0], keeps[0]
        payload = _copied_rows(part, keep, COMPACTED_OUT, machine)
        metadata = metadata_bytes(data)
        if entry.message.compression:  # of a field that is written twice the last one counts
            metadata += b"\x48" + encode_unsigned(len(payload))
        return [framed_message(metadata, compress_payload(entry.message.compression, payload), 0).framed]
    behind = behind_broker_head(data)
    head = behind[: len(behind) - len(entry.payload)]
    return [
        head,
        *(_rewritten_batch(part, keep, machine) for part, keep in zip(opened.parts, keeps, strict=True)),
    ]


def _rewritten_batch(part: EntryBatch, keep: Any, machine: Any) -> Buffer:
    header = part.header
    assert header is not None
    count = count_of(keep, machine)
    if count == len(part.rows):
        return part.batch
    latest = header.max_timestamp
    if count and not header.attributes & LOG_APPEND_TIME:
        latest = header.base_timestamp + _latest(part, keep, machine)
    body = _copied_rows(part, keep, b"", machine)
    return seal(header._replace(records_count=count, max_timestamp=latest), compress(header.codec, body))


def _latest(part: EntryBatch, keep: Any, machine: Any) -> int:
    if machine is not None:
        return int(part.rows[keep, TIME].max())
    return max(int(row[TIME]) for row, stays in zip(part.rows, keep, strict=True) if stays)


def _copied_rows(part: EntryBatch, keep: Any, gone: bytes, machine: Any) -> Buffer:
    if machine is None:
        view = memoryview(part.data)
        return b"".join(
            bytes(view[row[START] : row[END]]) if stays else gone
            for row, stays in zip(part.rows, keep, strict=True)
        )
    np = machine.np
    out = np.empty(len(part.data) + len(gone) * len(part.rows), np.uint8)
    size = machine.copy_rows(
        np.frombuffer(part.data, np.uint8), part.rows, keep.view(np.uint8), np.frombuffer(gone, np.uint8), out
    )
    return memoryview(out[:size].data)


def keyless_records(data: Buffer) -> list[int]:
    """Return which records of a whole Kafka batch, which was checked, have no key; half a microsecond a record."""
    header = read_header(data)
    body = bytes(decompress(header.codec, memoryview(data)[HEADER_BYTES : header.size]))
    keyless, at = [], 0
    for number in range(header.records_count):
        byte, size, shift = body[at], body[at] & 0x7F, 7
        while byte > 0x7F:
            at += 1
            byte = body[at]
            size |= (byte & 0x7F) << shift
            shift += 7
        end = at + 1 + (size >> 1)  # a size that is not negative, as Kafka's varints have it
        at += 2  # and the attributes
        for _ in ("the timestamp's delta", "the offset's delta"):
            while body[at] > 0x7F:
                at += 1
            at += 1
        if body[at] == _NO_KEY:
            keyless.append(number)
        at = end
    return keyless


_loaded: dict[str, Any] = {}


def machine_code() -> Any:
    """Return the kernels, or None where numba is not installed. They take seconds to load: never on the event loop."""
    if "code" not in _loaded:
        there = loaded("magnetar.records.kernels.compaction")
        _loaded["code"] = there[0] if there else None
    return _loaded["code"]
