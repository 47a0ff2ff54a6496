"""What lies in a topic, entry by entry, as Pulsar's own protocol gives it: asked by hand, with no client between."""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, MessageMetadata

CODECS = {"none": 0, "lz4": 1, "zlib": 2, "zstd": 3, "snappy": 4}
_SILENCE_S = 3.0


class StoredMessages(NamedTuple):
    """One entry's metadata, and how many bytes its payload has."""

    metadata: MessageMetadata
    payload_bytes: int

    @property
    def messages(self) -> int:
        return self.metadata.num_messages_in_batch


def entries(service_url: str, topic: str, messages: int) -> list[StoredMessages]:
    """Return the entries that hold a topic's first ``messages``."""
    host, _, port = service_url.removeprefix("pulsar://").rpartition(":")
    found: list[StoredMessages] = []
    with socket.create_connection((host, int(port)), 30) as wire:
        stream = wire.makefile("rb")
        connect = BaseCommand(type=BaseCommand.CONNECT)
        connect.connect.client_version, connect.connect.protocol_version = "ages", 15
        lookup = BaseCommand(type=BaseCommand.LOOKUP)  # Pulsar serves a topic once somebody asked where it is
        lookup.lookupTopic.topic, lookup.lookupTopic.request_id = topic, 1
        subscribe = BaseCommand(type=BaseCommand.SUBSCRIBE)
        asked = subscribe.subscribe
        asked.topic, asked.subscription, asked.consumer_id, asked.request_id = topic, "ages-stored", 1, 2
        asked.subType, asked.durable, asked.initialPosition = 0, False, 1
        asked.start_message_id.ledgerId = asked.start_message_id.entryId = (1 << 64) - 1
        flow = BaseCommand(type=BaseCommand.FLOW)
        flow.flow.consumer_id, flow.flow.messagePermits = 1, 10 * messages
        _ask(wire, stream, connect, BaseCommand.CONNECTED)
        _ask(wire, stream, lookup, BaseCommand.LOOKUP_RESPONSE)
        _ask(wire, stream, subscribe, BaseCommand.SUCCESS)
        _send(wire, flow)
        while sum(each.messages for each in found) < messages:
            command, rest = _hear(stream)
            if command.type == BaseCommand.PING:
                _send(wire, BaseCommand(type=BaseCommand.PONG, pong={}))
            elif command.type == BaseCommand.MESSAGE:
                found.append(_opened(rest))
    return found


def _opened(rest: bytes) -> StoredMessages:
    at = 0
    if rest[:2] == b"\x0e\x02":  # Pulsar's brokers may send their own metadata before the message
        at = 6 + struct.unpack_from(">I", rest, 2)[0]
    if rest[at : at + 2] == b"\x0e\x01":
        at += 6
    (size,) = struct.unpack_from(">I", rest, at)
    return StoredMessages(MessageMetadata.FromString(rest[at + 4 : at + 4 + size]), len(rest) - at - 4 - size)


def _send(wire: socket.socket, command: BaseCommand) -> None:
    body = command.SerializeToString()
    wire.sendall(struct.pack(">II", 4 + len(body), len(body)) + body)


def _ask(wire: socket.socket, stream: object, command: BaseCommand, answer: int) -> None:
    _send(wire, command)
    while True:
        heard, _ = _hear(stream)
        if heard.type == answer:
            return
        if heard.type != BaseCommand.PING:
            raise RuntimeError(f"{command.type} was answered by {heard}")


def _hear(stream: object) -> tuple[BaseCommand, bytes]:
    (size,) = struct.unpack(">I", stream.read(4))  # type: ignore[attr-defined]
    data = stream.read(size)  # type: ignore[attr-defined]
    (length,) = struct.unpack_from(">I", data)
    return BaseCommand.FromString(data[4 : 4 + length]), data[4 + length :]


def faults_of(found: list[StoredMessages], codec: str, batched: int, single: int) -> list[str]:
    """Say what is not stored as it was sent: ``batched`` messages in batches, then ``single`` ones alone."""
    wrong = []
    if {each.metadata.compression for each in found} != {CODECS[codec]}:
        wrong.append(f"codecs {sorted({each.metadata.compression for each in found})}")
    if {each.metadata.producer_name for each in found} != {f"ages-{codec}"}:
        wrong.append(f"producers {sorted({each.metadata.producer_name for each in found})}")
    alone = [each for each in found if not each.metadata.HasField("num_messages_in_batch")]
    if len(alone) != single or sum(each.messages for each in found) != batched + single:
        wrong.append(f"{len(alone)} alone of {sum(each.messages for each in found)}")
    if len(found) - len(alone) > batched // 4:
        wrong.append(f"{len(found) - len(alone)} batches for {batched} messages")
    firsts, due = [each.metadata.sequence_id for each in found], 0
    for each, first in zip(found, firsts, strict=True):
        if first != due:
            wrong.append(f"sequence id {first} where {due} is due")
            break
        due += each.messages
    if any(each.metadata.compression and not each.metadata.uncompressed_size for each in found):
        wrong.append("no uncompressed size")
    return wrong
