"""Entries as Pulsar's consumers get them: their own as they lie, Kafka's converted, with what dispatching must know."""

from __future__ import annotations

import asyncio
import base64
import binascii
from array import array
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from google.protobuf.message import DecodeError

from magnetar.base.slices import sliced
from magnetar.ledger.port import StoredEntry
from magnetar.records.compression import Buffer
from magnetar.records.errors import EntryCorrupt, RecordsError
from magnetar.records.pulsar_compression import decompress_payload
from magnetar.records.pulsar_entries import to_pulsar
from magnetar.records.pulsar_plain import unpacked_bytes
from magnetar.records.sticky_keys import KeyHashes, hash_of_key, key_hashes
from magnetar.wire.pulsar.pulsar_pb2 import MessageMetadata

_IN_LINE_BYTES = 32 << 10  # to convert more of Kafka's records takes longer than others should wait
_THREADS = 2  # that convert at the same time: what a few KB unpack to is up to 64 MB
_PLAIN = b"\x0e\x01"
_MESSAGE_COST = 64  # bytes that are looked through in the time that one message takes, at least
# What stands for Kafka's producers as the name of Pulsar's: here, and where KoP wrote.
_OF_KAFKA, _IDEMPOTENT = ("kafka", "", "fake_kop_producer_name"), "kafka-"

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
    keys: KeyHashes | None = None
    """Of a batch whose keys were looked for."""


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
    return hash_of_key(key)


def sticky_hashes(delivery: Delivery) -> tuple[int, ...]:
    """Return where the keys of an entry lie, each hash once, that of its first message first.

    Of a batch whose keys were not looked for that is the one outside, which in Pulsar's own is the first message's.
    """
    return (sticky_hash(delivery.metadata),) if delivery.keys is None else delivery.keys.distinct


def _has_keys_inside(delivery: Delivery) -> bool:
    """Whether an entry's keys have to be looked for in its batch: Kafka's producers put all of a partition into one."""
    metadata = delivery.metadata
    name = metadata.producer_name
    if not name.startswith(_IDEMPOTENT) and name not in _OF_KAFKA:
        return False
    if not metadata.HasField("num_messages_in_batch") or metadata.encryption_keys or delivery.control:
        return False
    return delivery.messages > 1 or not (
        metadata.HasField("ordering_key") or metadata.HasField("partition_key")
    )


class Deliveries:
    """Gives deliveries, and keeps the newest ones converted from Kafka's records for the next subscription."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[Place, int], Delivery] = OrderedDict()
        self._threads = asyncio.Semaphore(_THREADS)

    async def deliveries(self, entries: Iterable[StoredEntry], *, keyed: bool = False) -> list[Delivery]:
        """Return one delivery per entry; raise ``EntryCorrupt``, which names the entry.

        ``keyed`` has the keys of Kafka's batches looked for.
        """
        found = []
        async for entry in sliced(iter(entries)):  # to convert hundreds of Kafka's batches takes a while
            data = entry.data
            at = 6 + int.from_bytes(data[2:6], "big")
            if data[at : at + 2] == _PLAIN:
                found.append(_own(entry, data[at:]))
            else:
                found.append(await self._converted(entry))
            if keyed and found[-1].keys is None and _has_keys_inside(found[-1]):
                found[-1] = await self._keyed(found[-1], entry.copy)
        return found

    async def _keyed(self, delivery: Delivery, copy: int) -> Delivery:
        """Return a delivery with its keys, which are kept with it if it is kept."""
        size = (
            max(len(delivery.body), delivery.metadata.uncompressed_size) + _MESSAGE_COST * delivery.messages
        )
        if size > _IN_LINE_BYTES:
            async with self._threads:
                made = await asyncio.get_running_loop().run_in_executor(None, _with_keys, delivery)
        else:
            made = _with_keys(delivery)
        place = delivery.place, copy
        if place in self._kept:
            self._kept[place] = made
        return made

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


def _with_keys(delivery: Delivery) -> Delivery:
    metadata, body = delivery.metadata, memoryview(delivery.body)
    # By its place: all batches of producers that are not idempotent have the same name and sequence id.
    keyless = hash_of_key(f"{metadata.producer_name}-{delivery.last_offset}".encode())
    at = 6 if body[:2] == _PLAIN else 0
    payload = body[at + 4 + int.from_bytes(body[at : at + 4], "big") :]
    try:
        inside = decompress_payload(metadata.compression, payload, metadata.uncompressed_size)
        return delivery._replace(keys=key_hashes(inside, delivery.messages, keyless=keyless))
    except RecordsError:  # its consumers will say so; until then it has the key that is outside
        return delivery._replace(keys=KeyHashes((sticky_hash(metadata),), array("i")))


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
