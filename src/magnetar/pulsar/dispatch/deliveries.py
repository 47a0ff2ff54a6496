"""Entries as Pulsar's consumers get them: their own as they lie, Kafka's converted, with what dispatching must know."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from google.protobuf.message import DecodeError

from magnetar.broker.slices import sliced
from magnetar.ledger.port import StoredEntry
from magnetar.pulsar.dispatch.murmur import murmur3_32
from magnetar.records.compression import Buffer
from magnetar.records.errors import EntryCorrupt
from magnetar.records.pulsar_entries import to_pulsar
from magnetar.records.pulsar_plain import unpacked_bytes
from magnetar.wire.pulsar.pulsar_pb2 import MessageMetadata

HASH_RANGE = 1 << 16
_IN_LINE_BYTES = 32 << 10  # to convert more of Kafka's records takes longer than others should wait
_THREADS = 2  # that convert at the same time: what a few KB unpack to is up to 64 MB
_PLAIN = b"\x0e\x01"

Place = tuple[int, int]
"""Ledger and entry: what a consumer names a delivery by."""


class Delivery(NamedTuple):
    """One entry on its way to a consumer."""

    place: Place
    last_offset: int
    messages: int
    body: Buffer
    """What follows the command in a MESSAGE frame."""
    metadata: MessageMetadata
    control: bool
    """No message, but a broker's marker: no consumer gets it."""


def sticky_hash(metadata: MessageMetadata) -> int:
    """Return where a message's key lies among the 65,536 hashes that consumers of Key_Shared divide."""
    if metadata.HasField("ordering_key"):
        key = metadata.ordering_key
    elif metadata.HasField("partition_key"):
        key = metadata.partition_key.encode()
        if metadata.partition_key_b64_encoded:
            try:
                key = base64.b64decode(key)
            except binascii.Error:
                pass  # then it is what it is
    else:  # messages without a key may go to anybody, and shall not all go to one
        key = f"{metadata.producer_name}-{metadata.sequence_id}".encode()
    return (murmur3_32(key) & 0x7FFFFFFF) % HASH_RANGE


class Deliveries:
    """Gives deliveries, and keeps the newest ones converted from Kafka's records for the next subscription."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[Place, int], Delivery] = OrderedDict()
        self._threads = asyncio.Semaphore(_THREADS)

    async def deliveries(self, entries: Iterable[StoredEntry]) -> list[Delivery]:
        """Return one delivery per entry; raise ``EntryCorrupt``, which names the entry."""
        found = []
        async for entry in sliced(iter(entries)):  # to convert hundreds of Kafka's batches takes a while
            data = entry.data
            at = 6 + int.from_bytes(data[2:6], "big")
            if data[at : at + 2] == _PLAIN:
                found.append(_own(entry, data[at:]))
            else:
                found.append(await self._converted(entry))
        return found

    async def _converted(self, entry: StoredEntry) -> Delivery:
        place = (entry.ledger_id, entry.entry_id), entry.copy
        kept = self._kept.get(place)
        if kept is not None:
            self._kept.move_to_end(place)
            return kept
        if unpacked_bytes(entry.data) > _IN_LINE_BYTES:
            async with self._threads:
                made = await asyncio.get_running_loop().run_in_executor(None, _foreign, entry)
        else:
            made = _foreign(entry)
        if place not in self._kept:
            self._bytes += len(made.body)
        self._kept[place] = made
        while self._bytes > self._most_bytes:
            self._bytes -= len(self._kept.popitem(last=False)[1].body)
        return made


def _own(entry: StoredEntry, framed: memoryview) -> Delivery:
    end = 10 + int.from_bytes(framed[6:10], "big")
    return _delivery(entry, framed, framed[10:end])


def _foreign(entry: StoredEntry) -> Delivery:
    message = to_pulsar(entry.data)
    made = _delivery(entry, message.framed, message.metadata)
    return made._replace(messages=message.messages, control=message.control)


def _delivery(entry: StoredEntry, framed: Buffer, head: Buffer) -> Delivery:
    metadata = MessageMetadata()
    try:
        metadata.ParseFromString(bytes(head))
    except DecodeError as error:
        raise EntryCorrupt(
            f"entry {entry.entry_id} of ledger {entry.ledger_id}: its metadata cannot be read: {error}"
        ) from None
    return Delivery(
        (entry.ledger_id, entry.entry_id),
        entry.last_offset,
        metadata.num_messages_in_batch,
        framed,
        metadata,
        metadata.HasField("marker_type"),
    )
