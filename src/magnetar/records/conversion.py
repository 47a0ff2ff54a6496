"""Whole batches from one world's form to the other's, as quickly as this process can.

The rules stand in `magnetar.records.mapping`, and `magnetar.records.pulsar_entries` applies them one record at a time.
"""

from __future__ import annotations

from magnetar.records.batch import BatchHeader
from magnetar.records.compression import Buffer, Codec
from magnetar.records.pulsar_entries import framed_message, kafka_to_pulsar, to_kafka
from magnetar.records.pulsar_metadata import encode_metadata


def kafka_batch(data: Buffer) -> bytes | memoryview:
    """Give the record batches of an entry of any format; raise ``RecordsError``."""
    return to_kafka(data)


def framed_batch(data: memoryview, header: BatchHeader, append_time: int, codec: Codec) -> Buffer:
    """Give one checked record batch as a Pulsar producer would have sent it, under ``codec``."""
    messages = header.last_offset_delta + 1
    metadata, payload = kafka_to_pulsar([(header, data)], append_time, messages, codec)
    return framed_message(encode_metadata(metadata), payload, messages).framed
