"""What is found by time or place in entries of very many properties is found in a thread, and others go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.ledger import looking
from magnetar.ledger.looking import LARGE_BYTES, each_looked_at, first_wanted
from magnetar.ledger.port import StoredEntry
from magnetar.ledger.transactions import LogTransactions
from magnetar.logs.decided import aborted_among
from magnetar.records import entry as entries
from magnetar.records.errors import EntryCorrupt
from magnetar.records.pulsar_entries import MAX_FIELDS, open_send
from magnetar.records.pulsar_markers import in_transaction
from magnetar.records.pulsar_metadata import MessageMetadata, decode_metadata, encode_metadata
from magnetar.records.pulsar_plain import framed_message
from magnetar.records.pulsar_transactions import TxnId
from magnetar.records.varint import encode_unsigned
from magnetar.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.pulsar import raw
from tests.turns import of_others
from tests.visibility.conftest import TOPIC, House, soon

NAME = f"persistent://public/default/{TOPIC}"
PROPERTIES = 3_000
FIRST_MS = 1_700_000_000_000
MAX_TIMESTAMP = -3


def large(timestamp_ms: int) -> bytes:
    """Return what is sent of a batch of two messages, whose metadata are large."""
    single = b"\x00\x00\x00\x02\x18\x01x"
    metadata = MessageMetadata(
        b"p", 0, timestamp_ms, ((b"k", b"v"),) * PROPERTIES, num_messages_in_batch=2, batched=True
    )
    return bytes(framed_message(encode_metadata(metadata), single * 2, 2).framed)


class Threads:
    """Which threads take large metadata apart, and how often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[int] = []
        self._here = threading.get_ident()
        monkeypatch.setattr(entries, "decode_metadata", self._decode)

    def _decode(self, data: Any, at: int = 0, end: int | None = None) -> MessageMetadata:
        if (len(data) if end is None else end) - at > LARGE_BYTES:
            self.seen.append(threading.get_ident())
        return decode_metadata(data, at, end)

    def check(self) -> None:
        """See that there were some, and what others wait for was not among them."""
        seen, self.seen = self.seen, []
        assert seen
        assert self._here not in seen


async def test_lookups_leave_large_metadata_to_threads(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = await house.pulsar()
    await soon(producer.ask(raw.producer(NAME)))
    for number in range(4):
        receipt = await soon(producer.ask(raw.send(sequence_id=number), large(FIRST_MS + number)))
        assert receipt.type == BaseCommand.SEND_RECEIPT
    last = receipt.send_receipt.message_id
    kafka, consumer = await house.kafka(), await house.pulsar()
    await soon(consumer.ask(raw.subscribe(NAME, "s", initialPosition=1)))
    threads = Threads(monkeypatch)

    async def offset_of(timestamp: int) -> int:
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])])
        row = (await soon(kafka.ask(request))).topics[0].partitions[0]
        assert row.error_code == 0
        offset: int = row.offset
        return offset

    for number in range(4):
        assert await offset_of(FIRST_MS + number) == 2 * number
        threads.check()
    assert await offset_of(MAX_TIMESTAMP) >= 6
    threads.check()

    command = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID)
    command.getLastMessageId.consumer_id, command.getLastMessageId.request_id = 1, 5
    told = (await soon(consumer.ask(command))).getLastMessageIdResponse.last_message_id
    assert (told.entryId, told.batch_index, told.batch_size) == (last.entryId, 1, 2)
    threads.check()

    acked = raw.ack(last.ledgerId, last.entryId, request_id=6)
    acked.ack.message_id[0].ack_set.append(2)
    assert (await soon(consumer.ask(acked))).type == BaseCommand.ACK_RESPONSE
    threads.check()


def stored(number: int) -> StoredEntry:
    return StoredEntry(1, number, number, memoryview(b"\x0e\x02" + bytes(40)))


@pytest.mark.parametrize("look", ["each", "first"])
async def test_many_entries_are_looked_at_with_turns_for_others(
    look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "TURN_S", -1.0)
    wanted: Callable[[StoredEntry], bool] = lambda entry: entry.entry_id == 49  # noqa: E731
    some = [stored(number) for number in range(100)]
    with of_others() as turns:
        if look == "each":
            assert [number async for (_, number, *_), _ in each_looked_at(some, wanted)] == list(range(100))
        else:
            assert await first_wanted(some, wanted) is some[49]
            assert await first_wanted(some, lambda entry: False) is None
    assert turns.count >= 49


@pytest.mark.parametrize("properties", [1, PROPERTIES], ids=["small", "large"])
async def test_what_was_aborted_is_found_in_threads_and_turns(
    properties: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pulsar's consumers read past it: 13 messages of 4,900 properties held everybody up for half a second."""
    monkeypatch.setattr(looking, "TURN_S", -1.0)
    kept, found = LogTransactions(), []
    mine, other = TxnId(0, 1), TxnId(0, 2)
    for number in range(40):
        said = MessageMetadata(b"p", number, FIRST_MS, ((b"k", b"v"),) * properties)
        sent = open_send(framed_message(encode_metadata(said), b"x", 1).framed)
        txn = (mine, other, None)[number % 3]
        if txn is not None:
            kept.begin(txn.producer_id, number)
            sent = in_transaction(sent, txn)
        data = memoryview(bytes(entries.broker_entry_head(FIRST_MS, number) + bytes(sent.framed)))
        found.append(StoredEntry(1, number, number, data))
    kept.end(mine.producer_id, 40, committed=False)
    kept.end(other.producer_id, 41, committed=True)
    kept.stable(42)
    threads = Threads(monkeypatch)
    log = SimpleNamespace(transactions=kept)
    with of_others() as turns:
        assert await aborted_among(log, found) == set(range(0, 40, 3))  # type: ignore[arg-type]
    assert turns.count >= 39
    if properties == PROPERTIES:
        threads.check()


def field(number: int, content: bytes) -> bytes:
    return encode_unsigned(number << 3 | 2) + encode_unsigned(len(content)) + content


@pytest.mark.parametrize("inner", [b"\x18\x00", b"\x0a\x00", b"\x12\x01v"])
@pytest.mark.parametrize("properties", [1, 3, 50])
def test_what_is_in_properties_counts_as_metadata(inner: bytes, properties: int) -> None:
    """One property of 5 MB, of two million fields that mean nothing, held everybody up for two seconds."""

    def framed(fields: int) -> bytes:
        """Return a message with so many fields in all, of which the first three are what must be there."""
        each, rest = divmod(fields - 3 - properties, properties)
        said = b"".join(field(4, inner * (each + (number < rest))) for number in range(properties))
        return bytes(framed_message(encode_metadata(MessageMetadata(b"p", 0, 1)) + said, b"x", 1).framed)

    assert len(open_send(framed(MAX_FIELDS - 1)).metadata.properties) == properties
    for fields in (MAX_FIELDS, MAX_FIELDS + 1, 3 * MAX_FIELDS):
        with pytest.raises(EntryCorrupt, match="5000 fields or more"):
            open_send(framed(fields))


def test_the_last_field_that_there_may_be_is_not_gone_through() -> None:
    said = encode_metadata(MessageMetadata(b"p", 0, 1)) + field(4, field(1, b"k") + field(2, b"v")) * (
        MAX_FIELDS - 4
    )
    framed = framed_message(said + field(4, b"\x18\x00" * 3 * MAX_FIELDS), b"x", 1).framed
    with pytest.raises(EntryCorrupt, match="5000 fields or more"):
        open_send(framed)
