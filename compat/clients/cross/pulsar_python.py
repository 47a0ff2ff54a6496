"""Pulsar's Python client, which is the C++ client underneath."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

import pulsar
from lines import SECONDS, b64, serve, shown, unb64

QUIET = logging.getLogger("quiet")
QUIET.setLevel(logging.CRITICAL)
CLIENT = pulsar.Client(sys.argv[1], logger=QUIET, operation_timeout_seconds=SECONDS)
CODECS = {"none": "NONE", "lz4": "LZ4", "zlib": "ZLib", "zstd": "ZSTD", "snappy": "SNAPPY"}


def write(request: dict[str, Any]) -> list[str]:
    """Send the messages in order; give their ids."""
    producer = CLIENT.create_producer(
        request["topic"],
        compression_type=getattr(pulsar.CompressionType, CODECS[request["codec"]]),
        batching_enabled=request["batched"],
        batching_max_publish_delay_ms=50,
        chunking_enabled=request["chunked"],
    )
    results: list[tuple[Any, Any]] = []
    done = threading.Event()

    def sent(result: Any, message_id: Any) -> None:
        results.append((result, message_id))
        if len(results) == len(request["records"]):
            done.set()

    for record in request["records"]:
        ordering_key = unb64(record.get("ordering_key"))
        producer.send_async(
            unb64(record["value"]),
            sent,
            properties=record["properties"],
            partition_key=record.get("key"),
            ordering_key=None if ordering_key is None else ordering_key.decode(),
            event_timestamp=record["time"] or None,
        )
    producer.flush()
    if not done.wait(SECONDS):
        raise TimeoutError("not everything was sent")
    producer.close()
    refused = [str(result) for result, _ in results if result != pulsar.Result.Ok]
    if refused:
        raise RuntimeError(refused[0])
    return [place(message_id) for _, message_id in results]


def place(message_id: Any) -> str:
    return f"{message_id.ledger_id()}:{message_id.entry_id()}:{message_id.batch_index()}"


def read(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Read ``count`` messages, from the one of that id."""
    if request["from"] is None:
        reader = CLIENT.create_reader(request["topic"], pulsar.MessageId.earliest)
    else:
        ledger, entry, index = map(int, request["from"].split(":"))
        start = pulsar.MessageId(0, ledger, entry, index)
        reader = CLIENT.create_reader(request["topic"], start, start_message_id_inclusive=True)
    records = [told(reader.read_next(SECONDS * 1000), request["whole"]) for _ in range(request["count"])]
    reader.close()
    return records


def told(message: pulsar.Message, whole: bool) -> dict[str, Any]:
    try:
        ordering_key = b64(message.ordering_key().encode())
    except UnicodeDecodeError:  # the client hands ordering keys out as text
        ordering_key = "not text"
    return {
        "key": message.partition_key(),
        "ordering_key": ordering_key,
        "value": None if message.has_null_value() else shown(message.data(), whole),
        "properties": message.properties(),
        "time": message.event_timestamp(),
        "place": place(message.message_id()),
    }


serve(pulsar.__version__, write, read)
