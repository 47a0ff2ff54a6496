"""Entries of Pulsar's transactions: the marker that ends one, and messages whose metadata do not name theirs."""

from __future__ import annotations

import struct
from dataclasses import replace

from magnetar.records.compression import Buffer
from magnetar.records.pulsar_entries import Sent
from magnetar.records.pulsar_metadata import MessageMetadata, encode_metadata, encode_txn
from magnetar.records.pulsar_plain import CHECKSUM, framed_message
from magnetar.records.pulsar_transactions import ABORT_MARKER, COMMIT_MARKER, TxnId

_NAME = b"pulsar.txn.marker"
_SIZE = struct.Struct(">I")


def txn_marker(txn: TxnId, now_ms: int, *, committed: bool) -> Buffer:
    """Return the entry that ends a transaction, as Pulsar's own brokers write it (Markers.newTxnMarker)."""
    metadata = MessageMetadata(
        producer_name=_NAME,
        sequence_id=-1,
        publish_time=now_ms,
        marker_type=COMMIT_MARKER if committed else ABORT_MARKER,
        txnid_most_bits=txn.most,
        txnid_least_bits=txn.least,
    )
    return framed_message(encode_metadata(metadata), b"", 1).framed


def in_transaction(sent: Sent, txn: TxnId) -> Sent:
    """Return a message with its transaction in its metadata, where whoever reads the log looks for it.

    Pulsar's client in Go says it in the command alone; protobuf lets fields be added behind the others.
    """
    at = 6 if bytes(sent.framed[:2]) == CHECKSUM else 0
    start = at + 4
    end = start + int(_SIZE.unpack_from(sent.framed, at)[0])
    said = encode_txn(txn)
    message = framed_message(bytes(sent.framed[start:end]) + said, sent.framed[end:], sent.messages)
    metadata = replace(sent.metadata, txnid_most_bits=txn.most, txnid_least_bits=txn.least)
    # What the producer counted is no longer what is there.
    return sent._replace(framed=memoryview(message.framed), metadata=metadata, crc=None)
