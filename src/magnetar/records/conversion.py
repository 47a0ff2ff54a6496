"""Whole batches from one world's form to the other's, as quickly as this process can.

The usual cases are done in machine code (numba) where that is installed; all others, and all faults, are left to
`magnetar.records.pulsar_plain`. A process that converts little never loads the compiler's runtime, which takes a second
and 130 MB: past `WORTH_IT` it is loaded in the background, and until it is there the plain form serves.
"""

from __future__ import annotations

import struct
import threading
from typing import Any, NamedTuple

from magnetar.records.batch import HEADER_BYTES, LOG_APPEND_TIME, BatchHeader, batches
from magnetar.records.compression import Buffer, Codec, decompress
from magnetar.records.crc import crc32c
from magnetar.records.entry import decode_entry, kafka_payload_at
from magnetar.records.errors import RecordsError
from magnetar.records.loading import LoadedLater, loaded
from magnetar.records.mapping import first_key
from magnetar.records.pulsar_compression import compress_payload, decompress_payload
from magnetar.records.pulsar_metadata import MAX_MESSAGES, encode_metadata
from magnetar.records.pulsar_plain import (
    CHECKSUM,
    PulsarMessage,
    batch_metadata,
    framed_message,
    kafka_to_pulsar,
    plain_kafka_batch,
    plain_pulsar_message,
)

_SIZE = struct.Struct(">I")
_FRAME_BYTES = 10  # checksum with its mark, and the metadata's size
WORTH_IT = 1 << 20
"""So many bytes of entries converted plainly, after which machine code is loaded: some tenths of a second of work."""
_MESSAGE_BYTES = 64  # how much longer than a record its message may be, besides three times its content


class _Machine(LoadedLater):
    """The machine code, once it is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.code: Any = None
        self.many: Any = None
        self.to_pulsar: Any = None
        self.asked = False
        self._scratch = threading.local()

    def get(self, size: int) -> Any:
        """Return the code, or None: then ``size`` bytes are converted without it, and past `WORTH_IT` it is loaded."""
        if self.code is None:
            self.goes_without(size, WORTH_IT)
        return self.code

    def load(self) -> None:
        """Load the code now, if there is any for this installation."""
        names = ("pulsar_many", "kafka", "pulsar")
        if there := loaded(*(f"magnetar.records.kernels.{each}" for each in names)):
            self.many, self.to_pulsar, self.code = there
        self.asked = True

    def scratch(self, size: int) -> Any:
        """Return a thread's own room of at least ``size`` bytes: fresh pages cost more than what is done on them."""
        room = getattr(self._scratch, "room", None)
        if room is None or len(room) < size:
            room = self.code.np.empty(max(size, 1 << 20), self.code.np.uint8)
            if size <= 4 << 20:
                self._scratch.room = room
        return room


_machine = _Machine()


class Kernels(NamedTuple):
    """The machine code for one entry, `magnetar.records.kernels.pulsar`, and for many, `pulsar_many`."""

    one: Any
    many: Any


def machine_code(size: int) -> Kernels | None:
    """Return the machine code for so many bytes of entries, or None: it is loaded once that is worth it."""
    code = _machine.get(size)
    return None if code is None else Kernels(code, _machine.many)


def use_machine_code() -> bool:
    """Have the machine code loaded when this returns, for processes that are going to convert a lot; tell if it is."""
    if not _machine.asked:
        _machine.load()
    return _machine.code is not None


# --- Pulsar to Kafka -------------------------------------------------------------------------------------------


def kafka_batch(data: Buffer) -> bytes | memoryview:
    """Return the record batches of an entry of any format; raise ``RecordsError``."""
    at = kafka_payload_at(memoryview(data))
    if at >= 0:
        return memoryview(data)[at:]
    code = _machine.get(len(data))
    if code is None:
        return plain_kafka_batch(data)
    np = code.np
    entry = np.frombuffer(data, np.uint8)
    facts = np.empty(code.FACTS, np.int64)
    status = code.open_entry(entry, facts)
    if status == code.KernelStatus.PLAIN or facts[code.MESSAGES] > MAX_MESSAGES:
        return plain_kafka_batch(data)
    body, at = entry, int(facts[code.PAYLOAD_AT])
    if status == code.KernelStatus.COMPRESSED:
        size = int(facts[code.UNCOMPRESSED_SIZE])
        try:
            inflated = decompress_payload(int(facts[code.COMPRESSION]), memoryview(data)[at:], size)
        except RecordsError:
            return plain_kafka_batch(data)
        body, at = np.frombuffer(inflated, np.uint8), 0
    content = len(body) if facts[code.BATCHED] else len(entry) + len(body)
    out = _machine.scratch(HEADER_BYTES + content + code.RECORD_BYTES * int(facts[code.MESSAGES]))
    size = code.fill_batch(entry, body, at, facts, out)
    return plain_kafka_batch(data) if size < 0 else bytes(out[:size].data)


# --- Kafka to Pulsar -------------------------------------------------------------------------------------------


def pulsar_message(data: Buffer) -> PulsarMessage:
    """Return an entry of any format as Pulsar's consumers expect it; raise ``RecordsError``."""
    at = kafka_payload_at(memoryview(data))
    if at >= 0 and _machine.get(len(data)) is not None:
        found = list(batches(memoryview(data)[at:]))
        if len(found) == 1 and not found[0][0].is_control:
            header, batch = found[0]
            append_time = decode_entry(data).message.publish_time if header.max_timestamp <= 0 else 0
            return _framed(batch, header, append_time, header.codec)
    return plain_pulsar_message(data)


def framed_batch(
    data: memoryview, header: BatchHeader, append_time: int, codec: Codec, body: memoryview | None = None
) -> Buffer:
    """Return one checked record batch as a Pulsar producer would have sent it, under ``codec``.

    ``body`` is its records, if somebody has decompressed them already.
    """
    return _framed(data, header, append_time, codec, body).framed


def _framed(
    data: memoryview,
    header: BatchHeader,
    append_time: int,
    codec: Codec,
    body: memoryview | None = None,
) -> PulsarMessage:
    messages = header.last_offset_delta + 1
    code = _machine.get(len(data))
    stamped = bool(header.attributes & LOG_APPEND_TIME)
    usual = header.records_count == messages and not (stamped and header.max_timestamp <= 0)
    if code is None or not usual:
        return _plain_framed(data, header, append_time, codec)
    body = decompress(header.codec, data[HEADER_BYTES:]) if body is None else body
    latest = header.max_timestamp if header.max_timestamp > 0 else append_time
    # Only a compressed payload's metadata tell a size, so those of any other can be written first.
    key = first_key(body)
    metadata = encode_metadata(batch_metadata(header, messages, latest, codec, 0, key=key))
    at = _FRAME_BYTES + len(metadata)
    # A record takes 7 bytes at least. Its message adds at most 47 bytes of fields, and twice the content in properties
    # and base64.
    room = at + 3 * len(body) + _MESSAGE_BYTES * min(messages, len(body) // 7 + 1)
    out = code.np.empty(room, code.np.uint8) if codec is Codec.none else _machine.scratch(room)
    end = _machine.to_pulsar.fill_payload(
        code.np.frombuffer(body, code.np.uint8), 0, messages, header.base_timestamp,
        header.max_timestamp if stamped else -1, header.base_sequence if header.producer_id >= 0 else -1, out, at,
    )  # fmt: skip
    if end < 0:
        return _plain_framed(data, header, append_time, codec)
    if codec is not Codec.none:
        described = batch_metadata(header, messages, latest, codec, end - at, key=key)
        payload = compress_payload(described.compression, memoryview(out[at:end].data))
        return framed_message(encode_metadata(described), payload, messages)
    view = memoryview(out[:end].data)
    view[:2] = CHECKSUM
    view[6:at] = _SIZE.pack(len(metadata)) + metadata
    view[2:6] = _SIZE.pack(crc32c(view[6:]))
    view = view.toreadonly()
    return PulsarMessage(view, view[_FRAME_BYTES:at], view[at:], messages, control=False)


def _plain_framed(data: memoryview, header: BatchHeader, append_time: int, codec: Codec) -> PulsarMessage:
    messages = header.last_offset_delta + 1
    metadata, payload = kafka_to_pulsar([(header, data)], append_time, messages, codec)
    return framed_message(encode_metadata(metadata), payload, messages, metadata.marker_type is not None)
