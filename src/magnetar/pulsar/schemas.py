"""The schemas of topics: versions that only grow, and which may follow which.

All versions of a topic are one JSON text at ``/schemas/tenant/namespace/topic``: ``{"versions": [{"type": ...,
"name": ..., "data": base64, "properties": {...}, "timestamp": ms, "user": role, "deleted": bool}]}``. A version is its
place in that list; clients are told it as eight bytes, big-endian.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from magnetar.base.errors import InvalidConfig, TopicNotFound
from magnetar.metadata import ANY, MUST_NOT_EXIST, BadVersion, MetadataCorrupt, MetadataStore, Stored
from magnetar.metadata.parts import delete_value, get_value, put_value
from magnetar.pulsar.errors import IncompatibleSchema, NotAllowed
from magnetar.pulsar.schema_rules import (
    READS_THE_LATEST,
    Definition,
    ParsedTopicSchema,
    Strategy,
    check_consumers,
    check_producers,
    type_name,
    understand,
)
from magnetar.schema_registry.work import TooComplex, Work
from magnetar.schema_registry.workshop import Locks, Workshop
from magnetar.topics.names import TopicName
from magnetar.topics.topic import Topic
from magnetar.wire.pulsar import pulsar_pb2 as wire

_ROOT = "/schemas"
NO_SCHEMA = frozenset((wire.Schema.Type.Value("None"), wire.Schema.AutoConsume))
MAX_TOPIC_BYTES = 4 << 20
"""Of all definitions of one topic: they are written together, in parts if need be."""
Check = Callable[[ParsedTopicSchema, Sequence[Callable[[], ParsedTopicSchema]], Strategy, Work], None]


def strategy_named(name: str) -> Strategy:
    """Return a strategy by its name; raise ``InvalidConfig``."""
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
    def definition(self) -> Definition:
        return Definition(self.type, self.data, self.properties)

    @property
    def wire_version(self) -> bytes:
        return version_bytes(self.version)

    def to_wire(self) -> wire.Schema:
        schema = wire.Schema(name=self.name, schema_data=self.data, type=wire.Schema.Type.Name(self.type))
        for key, value in self.properties.items():
            schema.properties.add(key=key, value=value)
        return schema


def no_schema(topic: TopicName) -> wire.Schema:
    """Return what stands for the schema of messages that have none: raw bytes."""
    return wire.Schema(name=topic.local, schema_data=b"", type="None")


def version_bytes(version: int) -> bytes:
    """Return a version as clients see it."""
    return version.to_bytes(8, "big", signed=True)


class _Known(NamedTuple):
    versions: list[SchemaVersion] | None
    """None: they are to be read again."""
    stored_version: int


class TopicSchemas:
    """All topics' schemas, read when somebody first asks, written through, and followed.

    What a schema means, and whether it goes with the others, is found out in the workshop's threads, one schema of a
    topic after another; those that a topic has already are known by their bytes and cost nothing.
    """

    root = _ROOT

    def __init__(
        self,
        store: MetadataStore,
        clock: Callable[[], int],
        strategy: Strategy,
        workshop: Workshop,
        strategy_of: Callable[[TopicName], str | None] | None = None,
    ) -> None:
        """``strategy_of`` returns what a topic or its namespace says, if one does."""
        self._store = store
        self._clock = clock
        self._strategy = strategy
        self._workshop = workshop
        self._locks = Locks()
        self._known: dict[str, _Known] = {}
        self._strategy_of = strategy_of

    # Following what is stored: of those that somebody asked for.

    def known(self) -> Iterable[str]:
        return tuple(self._known)

    def apply(self, path: str, stored: Stored | None) -> None:
        """Have a topic's schemas read again if they were changed."""
        version = MUST_NOT_EXIST if stored is None else stored.version
        known = self._known.get(path)
        if known is not None and known.stored_version != version:
            self._known[path] = _Known(None, version)

    async def _of(self, path: str) -> _Known:
        while True:
            known = self._known.setdefault(path, _Known(None, ANY))
            if known.versions is not None:
                return known
            stored = await get_value(self._store, path)
            if self._known.get(path) is known:  # otherwise it was changed while it was read
                versions = [] if stored is None else decode_versions(path, stored.value)
                self._known[path] = _Known(versions, MUST_NOT_EXIST if stored is None else stored.version)

    # Asking.

    async def versions(self, topic: TopicName) -> list[SchemaVersion]:
        """Return all versions of a topic, oldest first, also those that were deleted, and what deleted them."""
        found = (await self._of(_path(topic))).versions
        assert found is not None
        return found

    async def latest(self, topic: TopicName) -> SchemaVersion | None:
        """Return the version in force, or None where there is none or it was deleted."""
        versions = await self.versions(topic)
        return versions[-1] if versions and not versions[-1].deleted else None

    async def get(self, topic: TopicName, version: int | None) -> SchemaVersion | None:
        """Return one version, or without a number the latest one; none from before the schema was last deleted."""
        if version is None:
            return await self.latest(topic)
        return next((each for each in await self.live(topic) if each.version == version), None)

    async def live(self, topic: TopicName) -> list[SchemaVersion]:
        """Return the versions since the schema was last deleted."""
        return _live(await self.versions(topic))

    def strategy(self, topic: TopicName) -> Strategy:
        """Return the strategy in force for a topic."""
        said = None if self._strategy_of is None else self._strategy_of(topic)
        return self._strategy if said in (None, "UNDEFINED") else strategy_named(str(said))

    async def find(self, topic: TopicName, schema: wire.Schema) -> SchemaVersion | None:
        """Return the version that has just these bytes, or None."""
        return _find(await self.live(topic), schema)

    # Changing.

    async def for_producer(self, topic: TopicName, schema: wire.Schema | None, role: str) -> bytes:
        """Return the version that a producer's schema has, made if it is new; raise ``IncompatibleSchema``."""
        if schema is not None and schema.type == wire.Schema.AutoConsume:
            raise IncompatibleSchema("Schema AUTO_CONSUME is a client-side schema type")
        if schema is None or schema.type in NO_SCHEMA:
            latest = await self.latest(topic)
            return latest.wire_version if latest is not None else b""
        return (await self.add(topic, schema, role)).wire_version

    async def for_consumer(self, topic: TopicName, schema: wire.Schema | None, role: str) -> None:
        """Take a consumer's schema as the topic's first, or raise ``IncompatibleSchema`` if it does not go with it."""
        if schema is None or schema.type in NO_SCHEMA:
            return
        latest, strategy = await self.latest(topic), self.strategy(topic)
        if latest is None:
            await self.add(topic, schema, role)
            return
        same = (latest.type, latest.data) == (schema.type, schema.schema_data)
        if not same or strategy not in READS_THE_LATEST:
            new = _version(-1, schema, 0, role)
            await self._examine(topic, new, check_consumers)

    async def add(self, topic: TopicName, schema: wire.Schema, role: str = "") -> SchemaVersion:
        """Return the version that a schema has, made if it is new; raise ``IncompatibleSchema``."""
        known = await self.find(topic, schema)
        if known is not None:
            return known
        path = _path(topic)
        async with self._locks.of(path):
            while True:
                before = await self._of(path)
                versions = before.versions or []
                made = _version(len(versions), schema, self._clock(), role)
                known = _find(_live(versions), schema) or await self._examine(topic, made, check_producers)
                if known is not None:
                    return known
                if path not in self._known:
                    raise TopicNotFound(f"topic {topic} was deleted")
                if self._known[path] is before:
                    _check_room(versions, made)
                    if await self._keep(path, before, [*versions, made]):
                        return made

    async def check(self, topic: TopicName, schema: wire.Schema) -> None:
        """Raise ``IncompatibleSchema`` unless a schema may become the topic's next version."""
        if await self.find(topic, schema) is None:
            await self._examine(topic, _version(-1, schema, 0, ""), check_producers)

    async def _examine(self, topic: TopicName, new: SchemaVersion, check: Check) -> SchemaVersion | None:
        """Return the version that means the same, or None where there is none and the schema may follow."""
        strategy, live = self.strategy(topic), await self.live(topic)
        try:
            return await self._workshop.do(lambda work: _examined(new, live, strategy, check, work))
        except TooComplex as error:
            raise IncompatibleSchema(f"{type_name(new.type)}: {error}") from None

    async def delete(self, topic: TopicName) -> int:
        """End the schema in force; versions go on behind it. Returns the version that says so."""
        path = _path(topic)
        while True:
            before = await self._of(path)
            versions = before.versions or []
            made = SchemaVersion(len(versions), 0, "", b"", timestamp_ms=self._clock(), deleted=True)
            if await self._keep(path, before, [*versions, made]):
                return made.version

    async def topic_deleted(self, topic: Topic) -> None:
        """A topic's schemas go with it."""
        path = _path(topic.name)
        while True:
            stored = await self._store.get(path)
            self._known.pop(path, None)
            if stored is None:
                return
            with suppress(BadVersion):  # one more was added meanwhile
                await delete_value(self._store, path, stored.version)

    async def _keep(self, path: str, before: _Known, versions: list[SchemaVersion]) -> bool:
        """Store all versions of a topic, and return whether nobody else was faster."""
        try:
            version = await put_value(self._store, path, encode_versions(versions), before.stored_version)
        except BadVersion as error:
            self._known[path] = _Known(None, ANY if error.actual is None else error.actual)
            return False
        self._known[path] = _Known(versions, version)
        return True


def _live(versions: list[SchemaVersion]) -> list[SchemaVersion]:
    first = len(versions)
    while first and not versions[first - 1].deleted:
        first -= 1
    return versions[first:]


def _find(live: Iterable[SchemaVersion], schema: wire.Schema) -> SchemaVersion | None:
    return next((each for each in live if (each.type, each.data) == (schema.type, schema.schema_data)), None)


def _version(number: int, schema: wire.Schema, now_ms: int, role: str) -> SchemaVersion:
    properties = {pair.key: pair.value for pair in schema.properties}
    return SchemaVersion(number, schema.type, schema.name, schema.schema_data, properties, now_ms, role)


def _examined(
    new: SchemaVersion, live: list[SchemaVersion], strategy: Strategy, check: Check, work: Work
) -> SchemaVersion | None:
    mine = understand(new.definition, work)
    known: dict[int, ParsedTopicSchema] = {}

    def of(version: SchemaVersion) -> ParsedTopicSchema:
        if version.version not in known:
            known[version.version] = understand(version.definition, work)
        return known[version.version]

    if check is check_producers and mine.text is not None:
        # JSON may be laid out in many ways; of other kinds the bytes decide.
        for each in live:
            if each.type == new.type and _text(partial(of, each)) == mine.text:
                return each
    check(mine, [partial(of, each) for each in live], strategy, work)
    return None


def _text(of: Callable[[], ParsedTopicSchema]) -> Any:
    try:
        return of().text
    except IncompatibleSchema:
        return None  # from a time when such ones were taken


def _check_room(versions: list[SchemaVersion], new: SchemaVersion) -> None:
    size = len(new.data) + sum(len(each.data) for each in versions)
    if size > MAX_TOPIC_BYTES:
        raise NotAllowed(
            f"the schemas of the topic have {size} bytes together, with this one; {MAX_TOPIC_BYTES} may be"
        )


def _path(topic: TopicName) -> str:
    return f"{_ROOT}/{topic.namespace_name}/{topic.metadata_name}"


def encode_versions(versions: list[SchemaVersion]) -> bytes:
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


def decode_versions(path: str, data: bytes) -> list[SchemaVersion]:
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
