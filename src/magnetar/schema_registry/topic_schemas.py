"""The schemas that Pulsar's producers gave their topics, in the registry's ids: ``kafkaApplyAvroSchemaOnDecode``.

The versions of a topic's schema lie where `magnetar.pulsar.schemas` writes them. Each that a consumer comes across is
registered once, as ``TOPIC-value`` (and ``TOPIC-key``), whatever the subject's compatibility: Pulsar has decided that.

    Avro                    the value, as Avro
    Json                    the value, as JSON, with a JSON Schema made from Pulsar's definition
    KeyValue, SEPARATED     key and value, each by its own kind
    KeyValue, INLINE        nothing: key and value are one blob that no deserializer of Confluent's knows
    others                  nothing
"""

from __future__ import annotations

import base64
import json
import logging
import struct
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from magnetar.ledger.port import StoredEntry
from magnetar.metadata import MetadataStore
from magnetar.metadata.parts import get_value
from magnetar.records.errors import RecordsError
from magnetar.records.schema_ids import SchemaPrefix, frame_of, schema_version
from magnetar.schema_registry.avro_as_json import avro_as_json
from magnetar.schema_registry.avro_types import types_of
from magnetar.schema_registry.errors import RegistryError
from magnetar.schema_registry.registries import Registries
from magnetar.schema_registry.registry import Registry
from magnetar.schema_registry.schema import Schema
from magnetar.schema_registry.work import TooComplex, Work
from magnetar.topics.topic import Topic

_SIZE = struct.Struct(">i")
_MAX_STEPS = 20_000
_MAX_JSON_BYTES = 256 << 10
_MAX_KNOWN = 10_000
_MAX_ROWS = 64
_log = logging.getLogger("magnetar.schema_registry")


class TopicSchema(NamedTuple):
    """One version of a topic's schema, as Pulsar keeps it."""

    kind: str
    definition: bytes
    properties: Mapping[str, str]


class TopicFrames:
    """What stands before keys and values of the entries of topics; remembered for each version of a schema."""

    def __init__(self, store: MetadataStore, namespace: str, registries: Registries) -> None:
        self._store = store
        self._namespace = namespace
        self._registries = registries
        self._known: dict[tuple[bytes, bytes], SchemaPrefix | None] = {}

    async def of(self, topic: Topic, entry: StoredEntry, *, whole: bool = False) -> SchemaPrefix | None:
        """Return the frame of an entry's records, or None if they are to stay as they are.

        A piece of a larger message has one only where it stands for the ``whole``.
        """
        try:
            version = schema_version(entry.data, whole=whole)
        except RecordsError:
            return None  # whoever converts it will say what is wrong
        if version is None:
            return None
        key = topic.topic_id, version
        if key not in self._known:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            found = self._known[key] = await self._made(topic, version)
            return found
        return self._known[key]

    async def _made(self, topic: Topic, version: bytes) -> SchemaPrefix | None:
        found = await read_schema(self._store, topic, int.from_bytes(version, "big", signed=True))
        if found is None:
            return None
        registry = await self._registries.of(topic.name.tenant)
        # A tenant's clients, who have a registry of their own, know its topics by their short names.
        at_home = (registry.kept.tenant, self._namespace) == (topic.name.tenant, topic.name.namespace)
        try:
            return await _frame(registry, topic.name.local if at_home else topic.kafka_name, found)
        except (RegistryError, ValueError, KeyError, TypeError, RecursionError, struct.error) as error:
            _log.warning(
                "%s: consumers get the values as Pulsar's producers wrote them: %s", topic.name, error
            )
            return None


async def read_schema(store: MetadataStore, topic: Topic, version: int) -> TopicSchema | None:
    """Return one version of a topic's schema; None if there is none."""
    return (await read_schemas(store, topic)).get(version)


async def read_schemas(store: MetadataStore, topic: Topic) -> Mapping[int, TopicSchema]:
    """Return all versions of a topic's schema that are not deleted, by their numbers."""
    stored = await get_value(store, f"/schemas/{topic.name.namespace_name}/{topic.name.metadata_name}")
    return {} if stored is None else _rows(stored.value)


@lru_cache(_MAX_ROWS)
def _rows(stored: bytes) -> Mapping[int, TopicSchema]:
    """Return the versions that are stored; messages may name many that are not there, one after another."""
    rows: list[dict[str, Any]] = json.loads(stored)["versions"]
    return {
        version: TopicSchema(row["type"], base64.b64decode(row["data"]), row["properties"])
        for version, row in enumerate(rows)
        if not row["deleted"]
    }


async def _frame(registry: Registry, subject: str, schema: TopicSchema) -> SchemaPrefix | None:
    if schema.kind != "KeyValue":
        schema_id = await _id(registry, f"{subject}-value", schema.kind, schema.definition)
        return None if schema_id is None else SchemaPrefix(b"", frame_of(schema_id))
    if schema.properties.get("kv.encoding.type", "INLINE") != "SEPARATED":
        return None
    parts = []
    for part, definition in zip(("key", "value"), _two(schema.definition), strict=True):
        kind = schema.properties.get(f"{part}.schema.type", "").capitalize()
        parts.append(frame_of(await _id(registry, f"{subject}-{part}", kind, definition)))
    return SchemaPrefix(*parts) if any(parts) else None


def _two(definition: bytes) -> list[bytes]:
    """Take apart the definitions of key and value, each behind its size."""
    found, at = [], 0
    for _ in range(2):
        size = max(_SIZE.unpack_from(definition, at)[0], 0)
        found.append(definition[at + 4 : at + 4 + size])
        at += 4 + size
    return found


async def _id(registry: Registry, subject: str, kind: str, definition: bytes) -> int | None:
    """Return the id of a definition, which Pulsar's side has checked: this is the event loop."""
    if kind == "Avro":
        content = json.loads(definition)
        with suppress(TooComplex):
            types_of([content], Work(_MAX_STEPS))
        schema = Schema("AVRO", json.dumps(content, separators=(",", ":"), ensure_ascii=False))
    elif kind == "Json":
        if len(definition) > _MAX_JSON_BYTES:
            raise ValueError(f"a JSON schema of {len(definition)} bytes; {_MAX_JSON_BYTES} may be")
        schema = Schema("JSON", avro_as_json(definition.decode()))
    else:
        return None
    return await registry.provide(subject, schema)
