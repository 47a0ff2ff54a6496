"""What the writers are asked to write: one list for Kafka's clients, one for Pulsar's. Bytes are in base64, as in the
lines that the clients' programs take (see `cross.clients`)."""

from __future__ import annotations

import base64
import random
from typing import Any

Record = dict[str, Any]

T0 = 1_700_000_000_000
BIG_KAFKA = 900_000
BIG_PULSAR = 1_500_000
CHUNKED = 12_000_000


def b64(data: bytes | None) -> str | None:
    """Bytes as text; null stays null."""
    return None if data is None else base64.b64encode(data).decode()


def kafka(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None], time: int) -> Record:
    """A record as Kafka's clients write it."""
    return {
        "key": b64(key),
        "value": b64(value),
        "headers": [[name, b64(data)] for name, data in headers],
        "time": time,
    }


def pulsar(value: bytes | None, *, time: int = 0, **fields: Any) -> Record:
    """A message as Pulsar's clients write it: ``key``, ``ordering_key`` (base64), ``key_bytes``, ``properties``."""
    return {"value": b64(value), "time": time, "properties": {}, **fields}


def big(size: int) -> bytes:
    """Bytes that compress to about two thirds, the same in every run."""
    noise = random.Random(size).randbytes(size * 2 // 3)
    return (noise + b"all the same " * (size // 26))[:size]


def kafka_records(writer: str) -> list[Record]:
    """What a Kafka client writes; only Java's takes a time of 0 for a time."""
    every_byte = bytes(range(256))
    records = [
        kafka(b"key", b"value", ("name", b"one"), time=T0),
        kafka(None, b"no key", time=T0 + 1),
        kafka(b"tombstone", None, time=T0 + 2),
        kafka(None, None, time=T0 + 3),
        kafka(b"", b"", time=T0 + 4),
        kafka(b"\xff\x00\xfe", every_byte, time=T0 + 5),
        kafka(b"repeated", b"1", ("trace", b"one"), ("trace", b"two"), ("last", b"x"), time=T0 + 6),
        kafka(b"binary", b"2", ("bytes", every_byte), ("empty", b""), ("null", None), time=T0 + 7),
        kafka("schlüssel".encode(), "größe".encode(), ("überschrift", "ä€𝄞".encode()), time=T0 + 8),
        kafka(b"early", b"3", time=1),
        *(kafka(b"k%d" % (n % 7), b"%03d a line " % n * 20, time=T0 + n) for n in range(10, 40)),
        kafka(b"big", big(BIG_KAFKA), ("size", b"%d" % BIG_KAFKA), time=T0 + 60),
        kafka(b"after", b"the big one", time=T0 + 61),
    ]
    if writer == "kafka-java":
        records.append(kafka(b"epoch", b"time 0", ("time", b"0"), time=0))
    return records


def pulsar_messages(writer: str, batched: bool) -> list[Record]:
    """What a Pulsar client writes; null values are not in the Go client, keys of any bytes in Java's alone.

    Empty and null values that travel alone are a test of their own, ``empty_messages``.
    """
    messages = [
        pulsar(b"value", key="key", properties={"name": "one"}, time=T0),
        pulsar(b"no key", time=T0 + 1),
        pulsar(b"ordered", key="key", ordering_key=b64(b"order"), time=T0 + 3),
        pulsar(b"only ordered", ordering_key=b64(b"order only"), time=T0 + 4),
        pulsar("größe".encode(), key="schlüssel", properties={"ü": "ä€𝄞", "empty": ""}, time=T0 + 5),
        pulsar(bytes(range(256)), key="binary", properties={"a": "1", "b": "2", "c": "3"}, time=T0 + 6),
        pulsar(b"no event time", key="now"),
        pulsar(b"early", key="early", time=1),
        *(pulsar(b"%03d a line " % n * 20, key=f"k{n % 7}", time=T0 + n) for n in range(10, 40)),
        pulsar(big(BIG_PULSAR), key="big", properties={"size": str(BIG_PULSAR)}, time=T0 + 60),
        pulsar(b"the big one", key="after", time=T0 + 61),
    ]
    if batched:
        messages += empty_messages(writer)
    if writer == "pulsar-java":
        messages.append(pulsar(b"binary key", key_bytes=b64(b"\xff\x00\xfe"), time=T0 + 64))
        messages.append(pulsar(b"binary order", ordering_key=b64(b"\x80\x81"), time=T0 + 65))
    return messages


def empty_messages(writer: str) -> list[Record]:
    """Messages without a payload, between others."""
    messages = [pulsar(b"", key="empty", time=T0 + 2), pulsar(b"in between", time=T0 + 3)]
    if writer != "pulsar-go":
        messages.append(pulsar(None, key="tombstone", time=T0 + 62))
        messages.append(pulsar(None, properties={"null": "value"}, time=T0 + 63))
    return [*messages, pulsar(b"last", time=T0 + 4)]
