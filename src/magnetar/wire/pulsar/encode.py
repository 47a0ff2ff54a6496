"""Commands as bytes, whole frames with their sizes. The two that are sent per message are written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from magnetar.records.varint import encode_unsigned
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand

_SIZES = Struct(">II")
_UINT64 = (1 << 64) - 1
_MESSAGE = b"\x08\x09\x4a"  # type = MESSAGE, then field 9 (message), whose size follows
_SEND_RECEIPT = b"\x08\x07\x3a"  # type = SEND_RECEIPT, then field 7 (send_receipt)


def frame(command: BaseCommand) -> bytes:
    """Return the frame of a command without an entry."""
    body: bytes = command.SerializeToString()
    return _SIZES.pack(4 + len(body), len(body)) + body


def message_id(ledger_id: int, entry_id: int, partition: int, ack_set: Sequence[int] = ()) -> bytes:
    """Return MessageIdData: ledger, entry, partition (-1 for none), and which of a batch are not acknowledged yet."""
    body = b"\x08" + encode_unsigned(ledger_id & _UINT64) + b"\x10" + encode_unsigned(entry_id & _UINT64)
    if partition >= 0:
        body += b"\x18" + encode_unsigned(partition)
    if ack_set:
        body += b"".join(b"\x28" + encode_unsigned(word & _UINT64) for word in ack_set)
    return body


def message_head(
    consumer_id: int,
    position: tuple[int, int],
    partition: int,
    entry_bytes: int,
    redelivery_count: int = 0,
    ack_set: Sequence[int] = (),
    consumer_epoch: int | None = None,
) -> bytes:
    """Return what stands before an entry of ``entry_bytes`` in a MESSAGE frame."""
    place = message_id(*position, partition)
    body = b"\x08" + encode_unsigned(consumer_id) + b"\x12" + encode_unsigned(len(place)) + place
    if redelivery_count:
        body += b"\x18" + encode_unsigned(redelivery_count)
    if ack_set:
        body += b"".join(b"\x20" + encode_unsigned(word & _UINT64) for word in ack_set)
    if consumer_epoch is not None:
        body += b"\x28" + encode_unsigned(consumer_epoch)
    command = _MESSAGE + encode_unsigned(len(body)) + body
    return _SIZES.pack(4 + len(command) + entry_bytes, len(command)) + command


def send_receipt(
    producer_id: int, sequence_id: int, highest_sequence_id: int, position: tuple[int, int], partition: int
) -> bytes:
    """Return the frame that tells a producer where its message lies."""
    place = message_id(*position, partition)
    body = b"\x08" + encode_unsigned(producer_id) + b"\x10" + encode_unsigned(sequence_id)
    body += b"\x1a" + encode_unsigned(len(place)) + place
    if highest_sequence_id:
        body += b"\x20" + encode_unsigned(highest_sequence_id)
    command = _SEND_RECEIPT + encode_unsigned(len(body)) + body
    return _SIZES.pack(4 + len(command), len(command)) + command
