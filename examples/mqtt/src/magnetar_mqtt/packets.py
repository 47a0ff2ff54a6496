"""From bytes to packets and back, and from packets to Kafka's records and back. No socket, no clock.

`mqtt5` reads and writes packets. What a client says is cut here first, by the length that each packet begins with, so
that one that is too large is refused before it has come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mqtt5

from magnetar.records.batch import Header, PlainRecord

_CONTENT_TYPE = "mqtt.content-type"
_RESPONSE_TOPIC = "mqtt.response-topic"
_CORRELATION = "mqtt.correlation-data"
_OWN = (_CONTENT_TYPE, _RESPONSE_TOPIC, _CORRELATION)
"""Properties of MQTT that are headers of these names in a record."""
_MAX_LENGTH_BYTES = 4
_CONNECT = 0x10


class Refused(Exception):
    """A client is let go of, with the reason that it is told."""

    def __init__(self, code: mqtt5.DisconnectReasonCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class Packets:
    """Cut one client's bytes into packets."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._buffer = bytearray()

    @property
    def held_bytes(self) -> int:
        """Bytes of a packet that is not whole yet."""
        return len(self._buffer)

    def allow(self, most_bytes: int) -> None:
        """Take packets of this size from now on."""
        self._most_bytes = most_bytes

    def feed(self, data: bytes) -> None:
        """Take more bytes of the client's."""
        self._buffer += data

    def cut(self) -> Iterator[tuple[mqtt5.Packet, int]]:
        """Yield the whole packets with their sizes; raise `Refused` for what is none, or is too large."""
        at = 0
        try:
            while (size := _size(self._buffer, at)) is not None:
                if size > self._most_bytes:
                    raise Refused(
                        mqtt5.DisconnectReasonCode.PACKET_TOO_LARGE,
                        f"a packet of {size} bytes, and at most {self._most_bytes} are taken",
                    )
                if len(self._buffer) - at < size:
                    break
                with memoryview(self._buffer) as view, view[at : at + size] as whole:
                    packet, _ = mqtt5.read(whole)
                at += size
                yield packet, size
        except (ValueError, IndexError) as error:
            raise Refused(mqtt5.DisconnectReasonCode.MALFORMED_PACKET, str(error)) from None
        finally:
            del self._buffer[:at]

    def begins_with_connect(self) -> bool:
        """Return whether what lies here may be the beginning of a CONNECT."""
        return not self._buffer or self._buffer[0] == _CONNECT

    def old_version(self) -> bool:
        """Return whether what lies here begins a CONNECT of MQTT 3.1 or 3.1.1, which `mqtt5` does not read."""
        head = bytes(self._buffer[:16])
        return head[:1] == b"\x10" and (b"\0\4MQTT\4" in head or b"\0\6MQIsdp\3" in head)


def _size(buffer: bytearray, at: int) -> int | None:
    """Return how long the packet that begins here is, all in all; None while that has not come."""
    length, shift = 0, 0
    for number, byte in enumerate(buffer[at + 1 : at + 1 + _MAX_LENGTH_BYTES], start=1):
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return 1 + number + length
    if len(buffer) - at > _MAX_LENGTH_BYTES:
        raise ValueError("a packet's length takes more than four bytes")
    return None


def to_record(packet: mqtt5.PublishPacket, now_ms: int) -> PlainRecord:
    """Return what is stored of a message: its payload, and its properties as headers."""
    headers = [Header(name, text.encode()) for name, text in packet.user_properties]
    if packet.content_type is not None:
        headers.append(Header(_CONTENT_TYPE, packet.content_type.encode()))
    if packet.response_topic is not None:
        headers.append(Header(_RESPONSE_TOPIC, packet.response_topic.encode()))
    if packet.correlation_data is not None:
        headers.append(Header(_CORRELATION, packet.correlation_data))
    return PlainRecord(None, packet.payload, headers, now_ms)


def to_publish(topic: str, record: PlainRecord, packet_id: int | None) -> bytes:
    """Return the message that a client is sent of a record, whoever wrote it: with QoS 1 if it has an id.

    Headers that MQTT cannot say (a text with a NUL, of 64 KB or more) are left out, all of them.
    """
    try:
        return _publish(topic, record, record.headers, packet_id)
    except ValueError:
        return _publish(topic, record, (), packet_id)


def _publish(topic: str, record: PlainRecord, headers: Sequence[Header], packet_id: int | None) -> bytes:
    own = {each.key: each.value for each in headers if each.key in _OWN and each.value is not None}
    return mqtt5.PublishPacket(
        topic,
        record.value or b"",
        qos=mqtt5.QoS.AT_MOST_ONCE if packet_id is None else mqtt5.QoS.AT_LEAST_ONCE,
        packet_id=packet_id,
        content_type=own[_CONTENT_TYPE].decode() if _CONTENT_TYPE in own else None,
        response_topic=own[_RESPONSE_TOPIC].decode() if _RESPONSE_TOPIC in own else None,
        correlation_data=own.get(_CORRELATION),
        user_properties=[
            (each.key, each.value.decode(errors="replace"))
            for each in headers
            if each.value is not None and each.key not in _OWN
        ],
    ).write()
