"""What the admin REST says of a message in headers, under the names that Pulsar's admin clients read.

The Java client compares some of these names letter by letter, so they are sent as they stand here.
"""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

from magnetar.ledger.port import StoredEntry
from magnetar.pulsar.dispatch.deliveries import Delivery
from magnetar.wire.pulsar.pulsar_pb2 import CompressionType, MessageMetadata

_NOT_A_HEADER = re.compile(r"[^\x20-\x7e]")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What an HTTP header may be called."""


def headers_of(entry: StoredEntry, delivery: Delivery, *, uncommitted: bool, aborted: bool) -> dict[str, str]:
    """Return the headers of an entry: what its metadata says, and where its transaction stands."""
    metadata = delivery.metadata
    headers = {
        "X-Pulsar-Message-ID": f"{entry.ledger_id}:{entry.entry_id}",
        "X-Pulsar-publish-time": iso(metadata.publish_time),
        "X-Pulsar-Is-Encrypted": _said(bool(metadata.encryption_keys)),
        "X-Pulsar-txn-uncommitted": _said(uncommitted),
        "X-Pulsar-PROPERTY": json.dumps({pair.key: pair.value for pair in metadata.properties}),
        **{f"X-Pulsar-{name}": text for name, text in _of_fields(metadata)},
    }
    if aborted:
        headers["X-Pulsar-txn-aborted"] = "true"
    if metadata.HasField("num_messages_in_batch"):
        headers["X-Pulsar-num-batch-message"] = str(metadata.num_messages_in_batch)
        # As Pulsar counts: what is left of a message without its metadata, checksum and sizes included.
        headers["X-Pulsar-batch-size"] = str(len(delivery.body) - _metadata_in(delivery)[1])
    for pair in metadata.properties:  # as older clients read them, whose names can be those of headers
        if _NAME.fullmatch(pair.key):
            headers[f"X-Pulsar-PROPERTY-{pair.key}"] = pair.value
    return {_NOT_A_HEADER.sub("?", name): _NOT_A_HEADER.sub("?", text) for name, text in headers.items()}


def payload_at(delivery: Delivery) -> int:
    """Return where the payload begins in a message's body."""
    start, size = _metadata_in(delivery)
    return start + size


def _metadata_in(delivery: Delivery) -> tuple[int, int]:
    """Return where a message's metadata begins in its body, behind checksum and size, and how long it is."""
    body = memoryview(delivery.body)
    at = 6 if bytes(body[:2]) == b"\x0e\x01" else 0
    return at + 4, int.from_bytes(body[at : at + 4], "big")


def _of_fields(metadata: MessageMetadata) -> Iterator[tuple[str, str]]:
    """Yield names and texts of what is set."""
    for field, name, as_text in _FIELDS:
        if metadata.HasField(field):
            yield name, as_text(getattr(metadata, field))
    if metadata.compression:
        yield "compression", CompressionType.Name(metadata.compression)
    if metadata.replicate_to:
        yield "replicated-to", json.dumps(list(metadata.replicate_to))
    if metadata.encryption_keys:
        keys = json.dumps([each.key for each in metadata.encryption_keys])
        yield "Base64-encryption-keys", b64encode(keys.encode()).decode()


def iso(ms: int) -> str:
    """Return a time as Pulsar's admin writes it, in UTC with milliseconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms / 1000)) + f".{ms % 1000:03d}Z"


def _said(value: bool) -> str:
    return str(value).lower()


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


_FIELDS: tuple[tuple[Any, str, Callable[[Any], str]], ...] = (
    ("producer_name", "producer-name", str),
    ("sequence_id", "sequence-id", str),
    ("highest_sequence_id", "highest-sequence-id", str),
    ("replicated_from", "replicated-from", str),
    ("partition_key", "partition-key", str),
    ("partition_key_b64_encoded", "partition-key-b64-encoded", _said),
    ("ordering_key", "Base64-ordering-key", _base64),
    ("null_partition_key", "null-partition-key", _said),
    ("null_value", "null-value", _said),
    ("event_time", "event-time", iso),
    ("deliver_at_time", "deliver-at-time", iso),
    ("marker_type", "marker-type", str),
    ("txnid_least_bits", "txnid-least-bits", str),
    ("txnid_most_bits", "txnid-most-bits", str),
    ("uuid", "uuid", str),
    ("num_chunks_from_msg", "num-chunks-from-msg", str),
    ("total_chunk_msg_size", "total-chunk-msg-size", str),
    ("chunk_id", "chunk-id", str),
    ("uncompressed_size", "uncompressed-size", str),
    ("encryption_algo", "encryption-algo", str),
    ("encryption_param", "Base64-encryption-param", _base64),
    ("schema_version", "Base64-schema-version-b64encoded", _base64),
)
"""Fields of ``MessageMetadata``, what they are called behind ``X-Pulsar-``, and how they are written."""
