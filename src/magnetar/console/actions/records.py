"""Records: produced by a schema, sent again to a topic, and dropped from the beginning of a partition."""

from __future__ import annotations

import json
from collections.abc import Sequence

from magnetar.admin import topics
from magnetar.admin.errors import Invalid
from magnetar.admin.offsets import EARLIEST, Spot, list_offsets
from magnetar.admin.one_record import Produced, produce_one, read_one
from magnetar.auth import Right
from magnetar.console.actions.action import ActionOutcome, ConsoleAction, Doing, FormField, no_fields
from magnetar.console.actions.encoding import encoder_of, schemas_of
from magnetar.console.page import Command, kafka_tool, magnetar
from magnetar.console.rendering import url
from magnetar.records.batch import Header, PlainRecord

_ORIGINS = (
    "real_topic",
    "__connect.errors.topic",
    "kafka_dlt-original-topic",
    "dlt-original-topic",
    "original-topic",
)
"""Headers by which clients' dead letters name the topic that they come from: Pulsar's, Connect's, Spring's."""
_SUFFIXES = ("-DLQ", "-RETRY", ".DLQ", ".DLT", "-dlt", "-dlq")


# Produced.


async def _produce_fields(doing: Doing) -> Sequence[FormField]:
    found = doing.ask.services.broker.get(doing.kafka_topic)
    count = 1 if found is None else found.partitions
    schemas = [("", "none: the text as it is")] if found is None else await schemas_of(doing, found)
    best = schemas[1][0] if len(schemas) > 1 else ""
    return [
        FormField("key", "Key"),
        FormField("no_key", "Without a key", "check", "yes" if not doing.text("key") else ""),
        FormField("schema", "Schema of the value", "select", best, options=schemas),
        FormField("value", "Value", "area", help="JSON where a schema is chosen, otherwise any text"),
        FormField("no_value", "Without a value: on a compacted topic, this deletes the key", "check"),
        FormField("headers", "Headers", "area", help="NAME=VALUE, one a line"),
        *(
            [FormField("partition", "Partition", "number", "", f"by the key, if empty; 0 to {count - 1}")]
            if count > 1
            else []
        ),
    ]


def _headers(text: str) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    for line in filter(None, text.split("\n")):
        name, equals, value = line.partition("=")
        if not equals or not name:
            raise Invalid(f"{line[:40]!r} is no header", "Write NAME=VALUE, one a line.")
        headers.append((name, value.encode()))
    return headers


async def _produce(doing: Doing) -> ActionOutcome:
    topic = doing.kafka_topic
    encode = await encoder_of(doing)
    text = doing.given.get("value", "")
    value = None if doing.text("no_value") else await encode(text.encode())
    key = None if doing.text("no_key") and not doing.text("key") else doing.given.get("key", "").encode()
    headers = _headers(doing.given.get("headers", ""))
    partition = doing.number("partition") if doing.text("partition") else None
    now_ms = doing.ask.services.clock()
    done = await doing.by_kafka(
        lambda cluster: produce_one(cluster, topic, key, value, headers, now_ms, partition)
    )
    return _produced(done)


def _produced(done: Produced) -> ActionOutcome:
    place = {"topic": done.topic, "partition": done.partition, "offset": done.offset}
    return ActionOutcome(
        f"The record is {done.topic}-{done.partition}@{done.offset}.",
        links=[
            ("The record", url("record", place)),
            ("Records", url("records", topic=done.topic)),
            ("Produce another one", url("act/produce", topic=done.topic)),
        ],
    )


def _produce_commands(doing: Doing) -> Sequence[Command]:
    topic, schema = doing.kafka_topic, doing.text("schema")
    by = ["--subject", schema.partition(":")[2]] if schema.startswith("subject:") else []
    where = ["-p", doing.text("partition")] if doing.text("partition") else []
    return [
        magnetar("produce", topic, "--format", "json", *where, *by),
        kafka_tool(doing.ask, "kafka-console-producer", "--topic", topic),
        ("pulsar-client", f"pulsar-client produce {doing.topic} -m TEXT"),
    ]


PRODUCE = ConsoleAction(
    "produce",
    "Produce a record",
    ("topic",),
    ("topic", "records"),
    lambda doing: doing.may(Right.produce, doing.topic),
    _produce_fields,
    _produce,
    _produce_commands,
    "Produce the record",
)


# Sent again: a dead letter, or any other record.


async def _read(doing: Doing) -> PlainRecord:
    topic, partition, offset = doing.kafka_topic, doing.number("partition"), doing.number("offset")
    return await doing.by_kafka(lambda cluster: read_one(cluster, topic, partition, offset))


def origin_of(topic: str, headers: Sequence[Header]) -> str:
    """Return the topic that a dead letter comes from, as its headers or its topic's name tell; itself if none do."""
    for name in _ORIGINS:
        for each in headers:
            if each.key.lower() == name and each.value:
                return each.value.decode("utf-8", "replace")
    return next((topic.removesuffix(end) for end in _SUFFIXES if topic.endswith(end)), topic)


async def _again_fields(doing: Doing) -> Sequence[FormField]:
    record = await _read(doing)
    return [
        FormField("to", "To topic", value=origin_of(doing.kafka_topic, record.headers), required=True),
        FormField("drop", "Then drop it here, with all records before it in this partition", "check"),
    ]


async def _send_again(doing: Doing) -> ActionOutcome:
    record, now_ms = await _read(doing), doing.ask.services.clock()
    to = doing.ask.services.broker.naming.parse(doing.needed("to", "the topic"))
    target = doing.ask.services.broker.naming.kafka_name(to)
    done = await doing.by_kafka(
        lambda cluster: produce_one(
            cluster,
            target,
            record.key,
            record.value,
            [(each.key, each.value) for each in record.headers],
            now_ms,
        )
    )
    told = _produced(done)
    if not doing.text("drop"):
        return told
    dropped = await _dropped(doing)
    return ActionOutcome(f"{told.says} {dropped}", links=told.links)


def _again_commands(doing: Doing) -> Sequence[Command]:
    topic, partition, offset = doing.kafka_topic, doing.text("partition"), doing.text("offset")
    read = magnetar("consume", topic, "-p", partition, "-o", offset, "-n", "1", "--json")[1]
    send = magnetar("produce", doing.text("to", "TOPIC"), "--format", "json")[1]
    return [("magnetar", f"{read} | {send}")]


SEND_AGAIN = ConsoleAction(
    "send-again",
    "Send again",
    ("topic", "partition", "offset"),
    ("record",),
    lambda doing: doing.may(Right.consume, doing.topic),
    _again_fields,
    _send_again,
    _again_commands,
    "Send it",
    "Produces the record once more: key, value and headers as Kafka consumers get them. Of a dead letter, the topic "
    "that it comes from is filled in.",
    fits=lambda facts: facts.get("record") is not None,
)


# Dropped.


async def _dropped(doing: Doing) -> str:
    topic, partition, offset = doing.kafka_topic, doing.number("partition"), doing.number("offset")
    done = await doing.by_kafka(
        lambda cluster: topics.trim(cluster, topic, [partition], Spot("offset", offset + 1))
    )
    return f"{topic}-{partition} begins with offset {done.first[str(partition)]} now."


async def _drop_preview(doing: Doing) -> ActionOutcome:
    topic, partition, offset = doing.kafka_topic, doing.number("partition"), doing.number("offset")
    key = (topic, partition)
    first = (await doing.by_kafka(lambda cluster: list_offsets(cluster, [key], EARLIEST)))[key]
    count = max(offset + 1 - first, 0)
    return ActionOutcome(
        f"{count:,} records of {topic}-{partition} would be deleted: offsets {first} to {offset}."
    )


async def _drop(doing: Doing) -> ActionOutcome:
    says = await _dropped(doing)
    return ActionOutcome(says, links=[("Records", url("records", topic=doing.kafka_topic))])


def _drop_commands(doing: Doing) -> Sequence[Command]:
    topic, partition, before = doing.kafka_topic, doing.text("partition"), doing.number("offset") + 1
    rows = {"partitions": [{"topic": topic, "partition": int(partition), "offset": before}], "version": 1}
    return [
        magnetar("topic", "trim", topic, "--partition", partition, "--before", str(before)),
        (
            "kafka-delete-records",
            f"echo '{json.dumps(rows)}' > rows.json && "
            + kafka_tool(doing.ask, "kafka-delete-records", "--offset-json-file", "rows.json")[1],
        ),
    ]


DROP = ConsoleAction(
    "drop-records",
    "Drop up to here",
    ("topic", "partition", "offset"),
    ("record",),
    lambda doing: doing.may(Right.delete, doing.topic),
    no_fields,
    _drop,
    _drop_commands,
    "Drop them",
    "Deletes this record and all before it in its partition, for every reader: what is done with dead letters that are "
    "settled. Nothing brings them back.",
    _drop_preview,
)
