"""The messages of a managed ledger of Pulsar's brokers, as far as they are still there: system topics read as a whole.

What Pulsar's compaction kept comes first, then all ledgers from the first on. A key's last message comes last that way,
whatever retention has let go of, so nobody needs to know where the compaction ended.

An entry of a compacted ledger (Pulsar's ``RawMessage``) is

    offset  size  field
         0     4  size of the id, n
         4     n  MessageIdData
       4+n     4  size of the message, m
       8+n     m  the message as in any entry
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from magnetar.ledger.errors import LedgerNotFound
from magnetar.ledger.formats.cursor_info import decode_cursor, decode_state
from magnetar.ledger.formats.info import ManagedLedgerInfo
from magnetar.records.control import marker_batch
from magnetar.records.entry import BROKER_ENTRY_MAGIC, broker_entry_head, decode_entry
from magnetar.records.errors import EntryCorrupt, InvalidRecord
from magnetar.records.mapping import partition_key_of
from magnetar.records.pulsar_compression import decompress_payload
from magnetar.records.pulsar_metadata import MessageMetadata
from magnetar.records.pulsar_plain import count_of, singles
from magnetar.records.pulsar_transactions import ABORT_MARKER, COMMIT_MARKER

if TYPE_CHECKING:
    from magnetar.ledger.bookkeeper.bookies import Bookies

_SIZE = struct.Struct(">I")
_AT_ONCE = 500
_COMPACTED = "CompactedTopicLedger"


class KeyedMessage(NamedTuple):
    """One message; a payload of None says that its key is gone."""

    key: bytes | None
    payload: bytes | None
    schema_version: bytes = b""
    """Of the topic's schema, as eight bytes; empty for none."""
    is_kafka: bool = False
    """Whether it is no message but record batches, as KoP writes the markers of transactions."""


def messages_in(data: bytes) -> Iterator[KeyedMessage]:
    """Yield what an entry holds, with an index or without; raise ``RecordsError``."""
    has_index = int.from_bytes(data[:2], "big") == BROKER_ENTRY_MAGIC
    entry = decode_entry(data if has_index else broker_entry_head(0, 0) + data)
    metadata = entry.message
    if metadata.entry_format != "pulsar":
        yield KeyedMessage(None, bytes(entry.payload), is_kafka=True)
    elif metadata.marker_type in (COMMIT_MARKER, ABORT_MARKER):
        yield KeyedMessage(None, _kops_marker(metadata), is_kafka=True)
    elif metadata.marker_type is None:
        yield from _messages(metadata, entry.payload)


def _kops_marker(metadata: MessageMetadata) -> bytes:
    """Return Kafka's marker for one that KoP wrote in Pulsar's format: the producer's id stands for a transaction's."""
    return marker_batch(
        metadata.txnid_most_bits or 0,
        metadata.txnid_least_bits or 0,
        metadata.publish_time,
        committed=metadata.marker_type == COMMIT_MARKER,
        coordinator_epoch=0,
    )


def _messages(metadata: MessageMetadata, payload: memoryview) -> Iterator[KeyedMessage]:
    if metadata.encryption_keys or metadata.is_chunk:
        raise InvalidRecord("a message is encrypted, or a part of one")
    count = count_of(metadata, len(payload))
    body = decompress_payload(metadata.compression, payload, metadata.uncompressed_size)
    if not metadata.batched:
        value = None if metadata.null_value else bytes(body)
        yield KeyedMessage(partition_key_of(metadata), value, metadata.schema_version)
        return
    for _, single, data in singles(body, count):
        if not single.compacted_out:
            value = None if single.null_value else data
            yield KeyedMessage(partition_key_of(single), value, metadata.schema_version)


def message_of_raw(entry: bytes) -> bytes:
    """Return the message in an entry of a compacted ledger; raise ``EntryCorrupt``."""
    with suppress(struct.error):
        at = 4 + int(_SIZE.unpack_from(entry)[0])
        size = int(_SIZE.unpack_from(entry, at)[0])
        if at + 4 + size == len(entry):
            return entry[at + 4 :]
    raise EntryCorrupt("an entry of a compacted ledger that is no RawMessage")


async def read_log(
    bookies: Bookies, info: ManagedLedgerInfo, compaction: bytes | None, *, fences: bool
) -> AsyncIterator[KeyedMessage]:
    """Yield all messages; ``compaction`` is the node of the cursor ``__compaction``, None where there is none.

    Unless ``fences``, who writes a ledger goes on, and what it has just written may be missing. Raises ``LedgerError``
    and ``RecordsError``.
    """
    if compaction is not None:
        compacted = await _compacted_ledger(bookies, compaction, fences=fences)
        if compacted is not None:
            async for entry in entries_of(bookies, compacted, fences=fences):
                for each in messages_in(message_of_raw(entry)):
                    yield each
    for ledger in info.ledgers:
        async for entry in entries_of(bookies, ledger.ledger_id, fences=fences):
            for each in messages_in(entry):
                yield each


async def _compacted_ledger(bookies: Bookies, node: bytes, *, fences: bool) -> int | None:
    """Return the ledger that the newest compaction wrote, as the position of its cursor names it."""
    found = decode_cursor(node, name="__compaction")
    if found.ledger_id >= 0:
        states = [each async for each in entries_of(bookies, found.ledger_id, fences=fences)]
        if not states:
            return None
        found = decode_state(states[-1], found, name="__compaction")
    return found.numbers.get(_COMPACTED)


async def entries_of(bookies: Bookies, ledger_id: int, *, fences: bool) -> AsyncIterator[bytes]:
    """Yield a ledger's entries; raise ``LedgerError``."""
    if fences:
        last = (await bookies.recover(ledger_id)).last_entry
    else:
        last = await bookies.last_confirmed(ledger_id)
    for begin in range(0, last + 1, _AT_ONCE):
        for entry in await bookies.read(ledger_id, begin, min(last, begin + _AT_ONCE - 1)):
            yield entry
    while not fences:  # the last entries of a ledger that is written are confirmed by those behind them
        last += 1
        try:
            (entry,) = await bookies.read(ledger_id, last, last, confirmed=False)
        except LedgerNotFound:
            return
        yield entry
