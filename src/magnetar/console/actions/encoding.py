"""Values that a form gives as JSON, as the bytes that a schema has of them: the registry's, or the Pulsar topic's."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable

from magnetar.admin.errors import Invalid, NotThere
from magnetar.admin.payloads.avro import AvroPayload
from magnetar.admin.payloads.encoding import Encoding
from magnetar.admin.payloads.registry import FetchedSchema
from magnetar.console.actions.action import Doing
from magnetar.schema_registry.errors import RegistryError
from magnetar.schema_registry.registries import Registries
from magnetar.schema_registry.topic_schemas import TopicSchema, read_schemas
from magnetar.topics.topic import Topic

Encode = Callable[[bytes], Awaitable[bytes]]
_NUMBERS = {"Int8": ">b", "Int16": ">h", "Int32": ">i", "Int64": ">q", "Float": ">f", "Double": ">d"}
_OF_TOPIC = ("Avro", "Json", "String", *_NUMBERS)
SUBJECT, OF_TOPIC = "subject:", "topic"


async def schemas_of(doing: Doing, topic: Topic) -> list[tuple[str, str]]:
    """Return the schemas that a value of a topic may be written by: for a form's list."""
    found = [("", "none: the text as it is")]
    registries = doing.ask.services.broker.offers.find(Registries)
    if registries is not None:
        registry = await registries.of(topic.name.tenant)
        subjects = set(registry.subjects())
        for name in (f"{topic.kafka_name}-value", f"{topic.name.local}-value"):
            if name in subjects and (SUBJECT + name, _named(name)) not in found:
                found.append((SUBJECT + name, _named(name)))
    newest = await _newest(doing, topic)
    if newest is not None and newest.kind in _OF_TOPIC:
        found.append((OF_TOPIC, f"{newest.kind} of the Pulsar topic"))
    return found


def _named(subject: str) -> str:
    return f"newest of {subject}"


async def encoder_of(doing: Doing) -> Encode:
    """Return what encodes values by the schema that a form names; raise `Invalid` and `NotThere`."""
    chosen = doing.text("schema")
    if not chosen:
        return _as_it_is
    topic = doing.ask.services.broker.get(doing.kafka_topic)
    if topic is None:
        raise NotThere(f"topic {doing.text('topic')} does not exist", "Create it first.")
    if chosen not in [value for value, _ in await schemas_of(doing, topic)]:
        raise NotThere(f"there is no such schema for {topic.kafka_name}", "Choose one of the list.")
    if chosen == OF_TOPIC:
        newest = await _newest(doing, topic)
        assert newest is not None
        return lambda text: asyncio.to_thread(_by_topic, newest, text)
    return await _by_registry(doing, topic, chosen.removeprefix(SUBJECT))


async def _as_it_is(text: bytes) -> bytes:
    return text


async def _newest(doing: Doing, topic: Topic) -> TopicSchema | None:
    schemas = await read_schemas(doing.ask.services.broker.store, topic)
    return schemas[max(schemas)] if schemas else None


async def _by_registry(doing: Doing, topic: Topic, subject: str) -> Encode:
    registry = await doing.ask.services.broker.offers.get(Registries).of(topic.name.tenant)
    try:
        version = registry.versions(subject)[-1]
        schema = registry.schema(version.schema_id)
        references = tuple(registry.texts(schema).items())
    except (RegistryError, IndexError):
        raise NotThere(f"subject {subject} has no schema", "Register one first.") from None
    fetched = FetchedSchema(version.schema_id, schema.kind, schema.text, references)

    def encode(text: bytes) -> bytes:
        return Encoding(fetched).encode(text) or b""

    return lambda text: asyncio.to_thread(encode, text)


def _by_topic(schema: TopicSchema, text: bytes) -> bytes:
    """Return a value as Pulsar producers with the topic's schema write it; raise `Invalid`."""
    if schema.kind == "String":
        return text
    try:
        value = json.loads(text)
        if schema.kind == "Json":
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        if schema.kind in _NUMBERS:
            return struct.pack(_NUMBERS[schema.kind], value)
        return AvroPayload(schema.definition.decode()).encode(value)
    except (ValueError, struct.error, RecursionError) as error:
        raise Invalid(
            f"the value does not fit the topic's schema ({schema.kind}): {error}",
            "The page of the topic's records shows values that do.",
        ) from None
