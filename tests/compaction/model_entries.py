"""What single entries of the model bring to whoever reads them."""

from __future__ import annotations

from magnetar.ledger.port import StoredEntry
from magnetar.records.batch import decode_records, read_header
from magnetar.records.conversion import kafka_batch
from magnetar.records.entry import decode_entry
from magnetar.records.pulsar_compression import decompress_payload
from magnetar.records.pulsar_metadata import SingleMessageMetadata, encode_single
from magnetar.records.pulsar_plain import singles


def single(key: bytes, value: bytes | None) -> bytes:
    """Return a message of a batch of Pulsar's."""
    made = SingleMessageMetadata(partition_key=key, payload_size=len(value or b""), null_value=value is None)
    head = encode_single(made)
    return len(head).to_bytes(4, "big") + head + (value or b"")


def messages_of(entry: StoredEntry, begun: dict[bytes, list[bytes]]) -> list[tuple[int, bytes, bytes | None]]:
    """Return (offset, key, value) of what an entry brings to whoever has a key to all that is encrypted."""
    opened = decode_entry(entry.data)
    metadata = opened.message
    if metadata.marker_type is not None:
        return []
    if metadata.entry_format == "pulsar" and metadata.is_chunk:
        pieces = begun.setdefault(metadata.uuid, [])
        if metadata.chunk_id == 0:
            pieces.clear()
        if metadata.chunk_id != len(pieces):
            return []  # it was there already, or others are missing
        pieces.append(bytes(opened.payload))
        if len(pieces) < metadata.num_chunks_from_msg:
            return []
        return [(entry.last_offset, metadata.partition_key or b"", b"".join(begun.pop(metadata.uuid)))]
    if metadata.entry_format == "pulsar" and not metadata.batched:
        value = None if metadata.null_value else bytes(opened.payload)
        return [(entry.last_offset, metadata.partition_key or b"", value)]
    if metadata.entry_format == "pulsar":
        body = decompress_payload(metadata.compression, opened.payload, metadata.uncompressed_size)
        some = singles(bytes(body), metadata.num_messages_in_batch)
        return [
            (opened.base_offset + number, single.partition_key or b"", None if single.null_value else payload)
            for number, single, payload in some
            if not single.compacted_out
        ]
    batch = kafka_batch(entry.data)
    if read_header(batch).is_control:
        return []
    return [(each.offset, each.key or b"", each.value) for each in decode_records(batch)]
