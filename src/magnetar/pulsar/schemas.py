"""The schemas of topics: versions that only grow, and which may follow which.

All versions of a topic are one JSON text at ``/schemas/tenant/namespace/topic``: ``{"versions": [{"type": ...,
"name": ..., "data": base64, "properties": {...}, "timestamp": ms, "user": role, "deleted": bool}]}``. A version is its
place in that list; clients are told it as eight bytes, big-endian.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from magnetar.broker.errors import InvalidConfig
from magnetar.broker.names import TopicName
from magnetar.broker.topic import Topic
from magnetar.metadata import MetadataCorrupt, MetadataStore
from magnetar.pulsar.errors import IncompatibleSchema
from magnetar.pulsar.wire import pulsar_pb2 as wire
from magnetar.schema_registry.avro_compatibility import can_read
from magnetar.schema_registry.levels import Compatibility

_ROOT = "/schemas"
_BY_AVRO = frozenset((wire.Schema.Avro, wire.Schema.Json, wire.Schema.Protobuf))
_NO_SCHEMA = frozenset((wire.Schema.Type.Value("None"), wire.Schema.AutoConsume))
MOST_BYTES = 1 << 20


class Strategy(Compatibility):
    """What a new version must be to the older ones, by Pulsar's names."""

    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


def strategy_named(name: str) -> Strategy:
    """Give a strategy by its name; raise ``InvalidConfig``."""
    try:
        found = Strategy[name.upper()]
    except KeyError:
        raise InvalidConfig(
            f"Invalid value {name} for configuration schema.compatibility.strategy: one of "
            + ", ".join(each.name for each in Strategy)
        ) from None
    return Strategy.FULL if found is Strategy.UNDEFINED else found


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of a topic's schema."""

    version: int
    type: int
    name: str
    data: bytes
    properties: Mapping[str, str] = field(default_factory=dict)
    timestamp_ms: int = 0
    user: str = ""
    deleted: bool = False

    @property
    def wire_version(self) -> bytes:
        return version_bytes(self.version)

    def to_wire(self) -> wire.Schema:
        schema = wire.Schema(name=self.name, schema_data=self.data, type=wire.Schema.Type.Name(self.type))
        for key, value in self.properties.items():
            schema.properties.add(key=key, value=value)
        return schema


def version_bytes(version: int) -> bytes:
    """Give a version as clients see it."""
    return version.to_bytes(8, "big", signed=True)


class Schemas:
    """All topics' schemas, read when somebody asks, and written through."""

    def __init__(self, store: MetadataStore, clock: Callable[[], int], strategy: Strategy) -> None:
        self._store = store
        self._clock = clock
        self._strategy = strategy
        self._known: dict[str, list[SchemaVersion]] = {}
        self.strategy_of: Callable[[TopicName], str | None] = lambda topic: None
        """What a topic's namespace says, if it does."""

    def versions(self, topic: TopicName) -> list[SchemaVersion]:
        """Give all versions of a topic, oldest first, also those that were deleted, and what deleted them."""
        path = _path(topic)
        known = self._known.get(path)
        if known is None:
            stored = self._store.get(path)
            known = self._known[path] = [] if stored is None else _decode(path, stored.value)
        return known

    def latest(self, topic: TopicName) -> SchemaVersion | None:
        """Give the version in force, or None where there is none or it was deleted."""
        versions = self.versions(topic)
        return versions[-1] if versions and not versions[-1].deleted else None

    def get(self, topic: TopicName, version: int | None) -> SchemaVersion | None:
        """Give one version, or without a number the latest one; none from before the schema was last deleted."""
        if version is None:
            return self.latest(topic)
        return next((each for each in self.live(topic) if each.version == version), None)

    def for_producer(self, topic: TopicName, schema: wire.Schema | None, role: str) -> bytes:
        """Give the version that a producer's schema has, made if it is new; raise ``IncompatibleSchema``."""
        if schema is None or schema.type in _NO_SCHEMA:
            latest = self.latest(topic)
            return latest.wire_version if latest is not None else b""
        return self.add(topic, schema, role).wire_version

    def for_consumer(self, topic: TopicName, schema: wire.Schema | None, role: str) -> None:
        """Take a consumer's schema as the topic's first, or raise ``IncompatibleSchema`` if it cannot read it."""
        if schema is None or schema.type in _NO_SCHEMA:
            return
        if self.latest(topic) is None:
            self.add(topic, schema, role)
            return
        if self._same(topic, schema) is None:
            self._check(topic, _version(-1, schema, 0, role))

    def add(self, topic: TopicName, schema: wire.Schema, role: str = "") -> SchemaVersion:
        """Give the version that a schema has, made if it is new; raise ``IncompatibleSchema``."""
        known = self._same(topic, schema)
        if known is not None:
            return known
        versions = self.versions(topic)
        made = _version(len(versions), schema, self._clock(), role)
        self._check(topic, made)
        self._keep(topic, [*versions, made])
        return made

    def delete(self, topic: TopicName) -> int:
        """End the schema in force; versions go on behind it. Gives the version that says so."""
        versions = self.versions(topic)
        made = SchemaVersion(len(versions), 0, "", b"", timestamp_ms=self._clock(), deleted=True)
        self._keep(topic, [*versions, made])
        return made.version

    async def topic_deleted(self, topic: Topic) -> None:
        """A topic's schemas go with it."""
        if self.versions(topic.name):
            self._store.delete(_path(topic.name))
        self._known.pop(_path(topic.name), None)

    def _same(self, topic: TopicName, schema: wire.Schema) -> SchemaVersion | None:
        live = self.live(topic)
        return next(
            (each for each in live if each.type == schema.type and _alike(each.data, schema.schema_data)),
            None,
        )

    def live(self, topic: TopicName) -> list[SchemaVersion]:
        """Give the versions since the schema was last deleted."""
        live: list[SchemaVersion] = []
        for each in self.versions(topic):
            live = [] if each.deleted else [*live, each]
        return live

    def check(self, topic: TopicName, schema: wire.Schema) -> None:
        """Raise ``IncompatibleSchema`` unless a schema may become the topic's next version."""
        if self._same(topic, schema) is None:
            self._check(topic, _version(-1, schema, 0, ""))

    def _check(self, topic: TopicName, new: SchemaVersion) -> None:
        _readable(new)
        said = self.strategy_of(topic)
        strategy = self._strategy if said in (None, "UNDEFINED") else strategy_named(str(said))
        live = self.live(topic)
        if strategy is Strategy.ALWAYS_COMPATIBLE or not live:
            return
        if strategy is Strategy.ALWAYS_INCOMPATIBLE:
            raise IncompatibleSchema("Schema is always incompatible, as its namespace has it")
        for old in live if strategy.transitive else live[-1:]:
            _compatible(new, old, strategy)

    def _keep(self, topic: TopicName, versions: list[SchemaVersion]) -> None:
        self._store.put(_path(topic), _encode(versions))
        self._known[_path(topic)] = versions


def _version(number: int, schema: wire.Schema, now_ms: int, role: str) -> SchemaVersion:
    properties = {pair.key: pair.value for pair in schema.properties}
    return SchemaVersion(number, schema.type, schema.name, schema.schema_data, properties, now_ms, role)


def _alike(one: bytes, other: bytes) -> bool:
    """Whether two texts are one schema: JSON may be laid out in many ways."""
    if one == other:
        return True
    try:
        return bool(json.loads(one) == json.loads(other))
    except (ValueError, RecursionError):
        return False


def _readable(schema: SchemaVersion) -> None:
    if len(schema.data) > MOST_BYTES:
        raise IncompatibleSchema(f"a schema of {len(schema.data)} bytes; {MOST_BYTES} may be")
    if schema.type in _BY_AVRO:
        try:
            can_read(json.loads(schema.data), json.loads(schema.data))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise IncompatibleSchema(
                f"Invalid schema definition data for {_type_name(schema.type)} schema: {error}"
            ) from None


def _compatible(new: SchemaVersion, old: SchemaVersion, strategy: Strategy) -> None:
    if new.type != old.type:
        raise IncompatibleSchema(
            f"Incompatible schema: exists schema type {_type_name(old.type)}, new schema type {_type_name(new.type)}"
        )
    if new.type not in _BY_AVRO:
        return
    mine, theirs = json.loads(new.data), json.loads(old.data)
    if strategy.reads_older and not can_read(mine, theirs):
        raise IncompatibleSchema(
            f"Unable to read schema: version {old.version} cannot be read with the new one ({strategy.name})"
        )
    if strategy.is_read_by_older and not can_read(theirs, mine):
        raise IncompatibleSchema(
            f"Unable to read schema: the new one cannot be read with version {old.version} ({strategy.name})"
        )


def _type_name(number: int) -> str:
    return str(wire.Schema.Type.Name(number)).upper()


def _path(topic: TopicName) -> str:
    return f"{_ROOT}/{topic.namespace_name}/{topic.metadata_name}"


def _encode(versions: list[SchemaVersion]) -> bytes:
    rows = [
        {
            "type": wire.Schema.Type.Name(each.type),
            "name": each.name,
            "data": base64.b64encode(each.data).decode(),
            "properties": dict(each.properties),
            "timestamp": each.timestamp_ms,
            "user": each.user,
            "deleted": each.deleted,
        }
        for each in versions
    ]
    return json.dumps({"versions": rows}).encode()


def _decode(path: str, data: bytes) -> list[SchemaVersion]:
    try:
        rows: list[dict[str, Any]] = json.loads(data)["versions"]
        return [
            SchemaVersion(
                number,
                wire.Schema.Type.Value(row["type"]),
                row["name"],
                base64.b64decode(row["data"]),
                row["properties"],
                row["timestamp"],
                row["user"],
                row["deleted"],
            )
            for number, row in enumerate(rows)
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise MetadataCorrupt(path, f"no schemas: {error!r}") from error
