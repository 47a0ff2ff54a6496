"""A world of one log for compaction: everything that may be written to it, at any moment, and a map of what it means.

Who reads it reads as clients do: Kafka's by the aborted transactions that an answer names and the markers it comes by,
Pulsar's by putting pieces together.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from unittest.mock import patch

from magnetar.ledger.compaction.runs import KeysDoNotFit
from magnetar.ledger.memory import MemoryDisk, MemoryEngine
from magnetar.ledger.port import (
    CompactionRules,
    Flush,
    LedgerPolicy,
    ManagedLedger,
    Snapshot,
    StoredEntry,
)
from magnetar.logs import producer_log
from magnetar.logs.decided import aborted_among
from magnetar.logs.producers import EndTransactionMarker, ProducerStates
from magnetar.metadata import MemoryStore
from magnetar.records.batch import (
    TRANSACTIONAL,
    BatchHeader,
    PlainRecord,
    decode_records,
    encode_batch,
    read_header,
)
from magnetar.records.compression import Buffer, Codec
from magnetar.records.control import marker_batch
from magnetar.records.conversion import framed_batch, kafka_batch
from magnetar.records.entry import decode_entry, kafka_message_head
from magnetar.records.pulsar_markers import txn_marker
from magnetar.records.pulsar_metadata import (
    MessageMetadata,
    encode_metadata,
)
from magnetar.records.pulsar_plain import framed_message, with_offsets
from magnetar.records.pulsar_transactions import TxnId
from tests.compaction.model_entries import messages_of, single

NAME = "public/default/persistent/t"
NOW_MS = 1_790_000_000_000
KEYS = (b"a", b"b", b"c", b"d")
RETENTION_MS = 1000
Write = Callable[[int | None], Awaitable[None]]
Written = tuple[bytes, bytes | None]


@dataclass(slots=True)
class Chunked:
    """A chunked message on its way. Its producer may be lost in the middle of it."""

    uuid: bytes
    key: bytes
    value: bytes
    pieces: int
    txn: TxnId | None
    sent: int = 0


class Message(NamedTuple):
    """What was written at an offset; ``writer`` is the transaction's number, None for none."""

    key: bytes
    value: bytes | None
    writer: int | None


class World:
    """What was written, and the log; see `run`."""

    def __init__(self, seed: int, machine: Any = None) -> None:
        self.chance = random.Random(seed)
        self.machine = machine
        self.metadata, self.disk = MemoryStore(), MemoryDisk()
        self.now_ms = NOW_MS
        self.as_pulsar = self.chance.random() < 0.3
        self.policy = LedgerPolicy(flush=Flush.os, max_ledger_entries=self.chance.choice([3, 5, 9]))
        self.buffer_bytes = 24 * self.chance.choice([20, 60, 1000])
        self.messages: dict[int, Message] = {}
        self.open: dict[int, tuple[int, TxnId | None]] = {}
        """Open transactions: the producer id by their number, and Pulsar's id of those that are Pulsar's."""
        self.wrote: set[int] = set()
        """Those that have written something."""
        self.ends: dict[int, bool] = {}
        """Whether a transaction was committed, by its number, once its marker is written."""
        self.transactions = self.count = self.opaque = self.broken = 0
        self.chunked: list[Chunked] = []
        self.sequences = {1: 0, 2: 0, 3: 0}
        self.knows_sequences = True
        self.snapshots: list[Snapshot] = []
        self.engine: MemoryEngine | None = None
        self.log: ManagedLedger
        self.states: ProducerStates

    # -- the log

    async def open_log(
        self, snapshot: Callable[[Snapshot | None], Snapshot | None] = lambda kept: kept
    ) -> None:
        self.log = await self.opened()
        await self.log.note_transactions()
        self.log.snapshot = snapshot(self.log.snapshot)
        self.states = await producer_log.load(self.log)
        self.log.take_snapshot = self._snapshot
        open_now = {self.open[number][0] for number in self.open.keys() & self.wrote}
        assert set(self.log.transactions.open()) == open_now, "open transactions are not those that are open"  # type: ignore[union-attr]

    async def opened(self) -> ManagedLedger:
        """Begin a process, and return its log."""
        self.engine = MemoryEngine(self.metadata, self.disk, clock=lambda: self.now_ms)
        await self.engine.start()
        log = await self.engine.open(NAME, self.policy)
        self.engine.shared.workers.thread.machine = self.machine
        return log

    async def end_process(self) -> None:
        """End the process in order."""
        assert self.engine is not None
        await self.engine.close()

    def _snapshot(self) -> bytes:
        data = self.states.encode()
        self.snapshots.append(Snapshot(self.log.log_end_offset, data))
        return data

    async def restart(self) -> None:
        """End in order, or be killed: then the snapshot may be an old one, or none at all may be left."""
        await self.end_process()
        if self.chance.random() < 0.5:
            await self.open_log()
            return
        chosen = self.chance.choice([None, *self.snapshots])
        self.knows_sequences = False
        await self.open_log(lambda kept: chosen)

    async def append(
        self,
        message: Sequence[Buffer],
        written: Sequence[Written],
        number: int | None = None,
        header: BatchHeader | None = None,
    ) -> None:
        base = self.log.log_end_offset
        count = max(len(written), 1)
        if number is not None:
            self.wrote.add(number)
        pending = self.log.append(message, messages=count, timestamp_ms=self.now_ms)
        if header is not None and header.producer_id >= 0:
            self.states.add(header, base)  # in the same turn: a snapshot may be taken in the next
        await pending.settled()
        for at, (key, value) in enumerate(written):
            self.messages[base + at] = Message(key, value, number)

    # -- writing

    def some(self) -> list[Written]:
        return [(self.chance.choice(KEYS), self.value()) for _ in range(self.chance.choice([1, 1, 2, 4]))]

    def value(self) -> bytes | None:
        self.count += 1
        if self.chance.random() < 0.35:
            return b"" if self.as_pulsar and self.chance.random() < 0.3 else None
        return b"%d" % self.count

    async def kafka(self, number: int | None) -> None:
        written, codec = self.some(), self.chance.choice([Codec.none, Codec.lz4])
        producer_id = self.chance.choice([-1, 1, 2, 3]) if number is None else self.open[number][0]
        if number is None and producer_id in {each for each, _ in self.open.values()}:
            producer_id = -1  # it has a transaction open
        sequence = -1 if producer_id < 0 else self.sequences[producer_id]
        data = encode_batch(
            [PlainRecord(key, value, (), self.now_ms) for key, value in written],
            base_offset=self.log.log_end_offset,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=sequence,
            attributes=0 if number is None else TRANSACTIONAL,
        )
        header = read_header(data)
        if producer_id >= 0 and self.knows_sequences:
            assert self.states.check(header) is None, "the producers' state is not what it was"
        mixed = self.chance.random() < 0.2
        message: list[Buffer] = [kafka_message_head(self.now_ms, len(written), mixed=mixed), data]
        if number is None and self.chance.random() < 0.3:
            message = [framed_batch(memoryview(data), header, self.now_ms, codec)]
        await self.append(message, written, number, header)
        if producer_id >= 0:
            self.sequences[producer_id] += len(written)

    async def pulsar(self, number: int | None) -> None:
        """Write a batch or a single message, which its producer may have encrypted."""
        txn, encrypted = self.txn_of(number), self.chance.random() < 0.15
        written = self.some()
        if self.chance.random() < 0.4:
            written = written[:1]
            ((key, value),) = written
            made = MessageMetadata(partition_key=key, null_value=value is None)
            payload = value or b""
            if encrypted and not payload:
                encrypted = False  # what is hidden is never empty, so it deletes nothing
        else:
            made = MessageMetadata(num_messages_in_batch=len(written), batched=True)
            payload = b"".join(single(key, value) for key, value in written)
            self.opaque += encrypted
        await self.pulsar_message(made, payload, written, number, txn, encrypted=encrypted)

    async def pulsar_message(
        self,
        made: MessageMetadata,
        payload: bytes,
        written: Sequence[Written],
        number: int | None,
        txn: TxnId | None,
        *,
        encrypted: bool = False,
    ) -> None:
        made = replace(
            made,
            producer_name=b"p",
            publish_time=self.now_ms,
            encryption_keys=(b"\x0a\x01k\x12\x01v",) if encrypted else (),
            txnid_most_bits=None if txn is None else txn.most,
            txnid_least_bits=None if txn is None else txn.least,
        )
        if txn is not None:
            self.states.transactions.begin(txn.producer_id, self.log.log_end_offset)
        framed = framed_message(encode_metadata(made), payload, max(len(written), 1)).framed
        await self.append([framed], written, number)

    def txn_of(self, number: int | None) -> TxnId | None:
        return None if number is None else self.open[number][1]

    async def piece(self, number: int | None) -> None:
        """Go on with a chunked message, or begin one; now and then a piece comes twice, or its producer is lost."""
        if self.chunked and self.chance.random() < 0.8:
            each = self.chance.choice(self.chunked)
        else:
            self.count += 1
            each = Chunked(b"u%d" % self.count, self.chance.choice(KEYS), b"chunked %d" % self.count,
                           self.chance.choice([2, 2, 3]), self.txn_of(number))  # fmt: skip
            self.chunked.append(each)
        mine = None
        if each.txn is not None:
            mine = next((n for n, (_, txn) in self.open.items() if txn == each.txn), None)
            if mine is None:
                self.chunked.remove(each)  # its transaction is over
                self.broken += 1
                return
        again, lost = self.chance.random() < 0.1, self.chance.random() < 0.07
        at = max(each.sent - again, 0)
        size = -(-len(each.value) // each.pieces)
        made = MessageMetadata(
            partition_key=each.key,
            uuid=each.uuid,
            num_chunks_from_msg=each.pieces,
            total_chunk_msg_size=len(each.value),
            chunk_id=at,
        )
        is_last = at == each.pieces - 1
        if at == 0 and again:
            each.sent = 0
        each.sent = max(each.sent, at + 1)
        await self.pulsar_message(made, each.value[at * size : at * size + size], [], mine, each.txn)
        if is_last:
            self.messages[self.log.log_end_offset - 1] = Message(each.key, each.value, mine)
        if is_last or lost:
            self.chunked.remove(each)
            self.broken += lost and not is_last

    async def begin(self) -> None:
        self.transactions += 1
        busy = {producer_id for producer_id, _ in self.open.values()}
        free = [each for each in self.sequences if each not in busy]
        if free and self.chance.random() < 0.6:
            self.open[self.transactions] = self.chance.choice(free), None
        else:
            txn = TxnId(3, self.transactions)
            self.open[self.transactions] = txn.producer_id, txn
        await self.write(self.transactions)

    async def end(self, number: int) -> None:
        producer_id, txn = self.open.pop(number)
        committed = self.ends[number] = self.chance.random() < 0.6
        offset = self.log.log_end_offset
        if txn is not None:
            self.states.transactions.end(producer_id, offset, committed=committed)
            await self.append([txn_marker(txn, self.now_ms, committed=committed)], [])
            return
        marker = EndTransactionMarker(producer_id, 0, committed, 0)
        self.states.end(marker, offset, self.now_ms)
        data = marker_batch(producer_id, 0, self.now_ms, committed=committed, coordinator_epoch=0)
        placed = with_offsets(memoryview(data), offset)
        await self.append([kafka_message_head(self.now_ms, 1), placed], [])

    async def write(self, number: int | None) -> None:
        ways: list[Write] = [self.kafka, self.kafka, self.pulsar, self.piece]
        if number is not None:
            ways = [self.pulsar, self.piece] if self.open[number][1] is not None else [self.kafka]
        await self.chance.choice(ways)(number)

    # -- compacting

    def rules(self) -> CompactionRules:
        if self.as_pulsar:
            return CompactionRules(buffer_bytes=self.buffer_bytes)
        return CompactionRules(replaces=True, tombstones_ms=RETENTION_MS, buffer_bytes=self.buffer_bytes)

    async def compact(self, *, unknown: bool = False) -> None:
        """Compact; now and then while nobody knows of transactions, as in a log that was taken over."""
        if self.chance.random() < 0.6:
            await self.log.roll()
        known = self.log.transactions
        if unknown and not self.open:
            self.log.transactions = None
            self.opaque += 1
        with suppress(KeysDoNotFit), patch.object(type(self.log), "has_transactions", not unknown):
            await self.log.compact(self.rules())
        self.log.transactions = known

    # -- reading

    def wanted(self) -> dict[bytes, bytes]:
        """What a map holds of all that is decided: deletions leave nothing."""
        found: dict[bytes, bytes | None] = {}
        for offset, message in sorted(self.messages.items()):
            if offset < self.log.last_stable_offset and (
                message.writer is None or self.ends.get(message.writer)
            ):
                found[message.key] = message.value
        return self.alive(found)

    def alive(self, found: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
        return {
            key: value for key, value in found.items() if value is not None and (value or not self.as_pulsar)
        }

    async def entries(self, *, compacted: bool) -> list[StoredEntry]:
        found, offset, stable = list[StoredEntry](), 0, self.log.last_stable_offset
        read = self.log.read_compacted if compacted else self.log.read
        while some := await read(offset, max_bytes=400, up_to=stable):
            found += some
            assert some[-1].last_offset >= offset
            offset = some[-1].last_offset + 1
        offsets = [entry.last_offset for entry in found]
        assert offsets == sorted(set(offsets))
        return found

    async def as_pulsars(self, *, compacted: bool) -> dict[bytes, bytes]:
        """Read as a consumer of Pulsar's does: the broker leaves out what was aborted."""
        entries = await self.entries(compacted=compacted)
        aborted = await aborted_among(self.log, entries)
        return self.meaning([entry for number, entry in enumerate(entries) if number not in aborted])

    async def as_kafkas(self) -> dict[bytes, bytes]:
        """Read as Java's consumer does: a marker ends what an aborted transaction began."""
        entries = await self.entries(compacted=False)
        transactions = self.log.transactions
        assert transactions is not None
        aborted = sorted(
            transactions.aborted_in(0, self.log.last_stable_offset), key=lambda each: each.first_offset
        )
        passed_over, kept = set[int](), []
        for entry in entries:
            header = producer_log.producer_header(entry)
            if header is not None and header.is_transactional:
                while aborted and aborted[0].first_offset <= header.last_offset:
                    passed_over.add(aborted.pop(0).producer_id)
                if header.is_control:
                    marked = decode_entry(entry.data).message.marker_type
                    record = decode_records(kafka_batch(entry.data))[0]
                    if marked == 22 or (marked is None and (record.key or b"")[3] == 0):
                        passed_over.discard(header.producer_id)
                elif header.producer_id in passed_over:
                    continue
            kept.append(entry)
        return self.meaning(kept)

    def meaning(self, entries: Sequence[StoredEntry]) -> dict[bytes, bytes]:
        """Put together what is in entries, and hold each message against what was written at its offset."""
        found: dict[bytes, bytes | None] = {}
        begun: dict[bytes, list[bytes]] = {}
        for entry in entries:
            for offset, key, value in messages_of(entry, begun):
                was = self.messages[offset]
                assert (key, value) == (was.key, was.value), f"at {offset} was {was}, and is {key, value}"
                found[key] = value
        return self.alive(found)

    async def check(self) -> None:
        want = self.wanted()
        assert await self.as_kafkas() == want, "a Kafka consumer sees something else"
        assert await self.as_pulsars(compacted=False) == want, "a Pulsar consumer sees something else"
        assert await self.as_pulsars(compacted=True) == want, "a compacted reader sees something else"

    # -- all of it

    async def run(self, steps: int = 40) -> None:
        await self.open_log()
        for _ in range(steps):
            await self.step()
            await self.check()
        for number in list(self.open):
            await self.end(number)
        await self.check()
        await self.settle()
        await self.end_process()

    async def step(self) -> None:
        draw = self.chance.random()
        number = self.chance.choice(list(self.open)) if self.open and self.chance.random() < 0.5 else None
        if draw < 0.5:
            await self.write(number)
        elif draw < 0.6 and len(self.open) < 3:
            await self.begin()
        elif draw < 0.72 and number is not None:
            await self.end(number)
        elif draw < 0.92:
            await self.compact(unknown=self.chance.random() < 0.04)
        elif draw < 0.96:
            self.now_ms += 700
        else:
            await self.restart()

    async def settle(self) -> None:
        """Compact until nothing changes: what is left then is what a map holds, where nothing had to be held."""
        if self.buffer_bytes < 24 * 30:
            self.buffer_bytes = 24 * 30
        for _ in range(4):
            self.now_ms += RETENTION_MS + 1
            # One more message, or there would be nothing to compact.
            await self.append_plain(b"last")
            await self.log.roll()
            await self.log.compact(self.rules())
            await self.check()
        if self.opaque or self.as_pulsar or self.broken or self.chunked:
            return
        entries = await self.entries(compacted=False)
        begun: dict[bytes, list[bytes]] = {}
        left = [each for entry in entries for each in messages_of(entry, begun)]
        assert sorted(key for _, key, _ in left) == sorted(self.wanted()), (
            "something is left that nobody needs"
        )

    async def append_plain(self, key: bytes) -> None:
        data = encode_batch([PlainRecord(key, b"v", (), self.now_ms)], base_offset=self.log.log_end_offset)
        await self.append([kafka_message_head(self.now_ms, 1), data], [(key, b"v")])
