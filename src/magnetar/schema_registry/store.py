"""What a registry keeps, in memory and in the metadata store, where every change is durable before it shows.

    /schema-registry/TENANT/state             {"last_id": 7, "compatibility": "BACKWARD", "mode": "READWRITE"}
    /schema-registry/TENANT/schemas/ID        {"kind": "AVRO", "text": "...", "references": [...]}
    /schema-registry/TENANT/subjects/SUBJECT  {"versions": [[version, id, deleted], ...], "compatibility": "FULL",
                                              "mode": "READONLY"}; SUBJECT is percent-encoded

``last_id`` only grows, so an id never comes to mean another schema, even where all that had it was deleted for good.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from magnetar.metadata import (
    MAX_COMMIT_BYTES,
    MUST_NOT_EXIST,
    Delete,
    MetadataCorrupt,
    Op,
    Put,
    Stored,
    TooLarge,
)
from magnetar.metadata.cache import MetadataCache
from magnetar.schema_registry.errors import InvalidSchema
from magnetar.schema_registry.levels import Level, Mode
from magnetar.schema_registry.schema import Reference, Schema, Version

ROOT = "/schema-registry"
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Subject:
    """One subject's versions, oldest first, and what it says for itself."""

    versions: tuple[Version, ...] = ()
    compatibility: Level | None = None
    mode: Mode | None = None

    @property
    def live(self) -> list[Version]:
        """The versions that are not deleted."""
        return [each for each in self.versions if not each.deleted]


@dataclass(frozen=True, slots=True)
class RegistryState:
    """What goes for a whole registry."""

    last_id: int = 0
    compatibility: Level = Level.BACKWARD
    mode: Mode = Mode.READWRITE


class RegistryContents:
    """Everything of one tenant's registry, as it is stored. Read it freely; change it by `change` only."""

    def __init__(self, cache: MetadataCache, tenant: str) -> None:
        self.tenant = tenant
        self.root = f"{ROOT}/{tenant}"
        self.state = RegistryState()
        self.schemas: dict[int, Schema] = {}
        self.subjects: dict[str, Subject] = {}
        self.ids: dict[Schema, int] = {}
        self.users: dict[int, set[str]] = {}
        """The subjects that have versions with a schema, deleted ones too, by its id."""
        self.referrers: dict[tuple[str, int], set[int]] = {}
        """The ids of schemas that refer to a version of a subject."""
        self.stored_versions: dict[str, int] = {}
        """Of all nodes, by path."""
        self._cache = cache
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Read what is stored, and follow it; raise `MetadataCorrupt` for what cannot be."""
        await self._cache.follow(self)

    # Following what is stored.

    def known(self) -> Iterable[str]:
        return tuple(self.stored_versions)

    def apply(self, path: str, stored: Stored | None) -> None:
        """Take over what is stored at one path."""
        kind, _, name = path.removeprefix(self.root + "/").partition("/")
        value = None if stored is None else stored.value
        if kind == "state":
            self.state = RegistryState() if value is None else _read(path, value, _state)
        elif kind == "schemas" and name:
            self._put_schema(int(name), None if value is None else _read(path, value, _schema))
        elif kind == "subjects" and name:
            self._put_subject(unquote(name), None if value is None else _read(path, value, _subject))
        else:
            return
        if stored is None:
            self.stored_versions.pop(path, None)
        else:
            self.stored_versions[path] = stored.version

    def _put_schema(self, schema_id: int, schema: Schema | None) -> None:
        before = self.schemas.pop(schema_id, None)
        if before is not None:
            for each in before.references:
                _forget(self.referrers, (each.subject, each.version), schema_id)
            if self.ids.get(before) == schema_id:
                del self.ids[before]
        if schema is not None:
            self.schemas[schema_id] = schema
            self.ids.setdefault(schema, schema_id)
            for each in schema.references:
                self.referrers.setdefault((each.subject, each.version), set()).add(schema_id)

    def _put_subject(self, name: str, subject: Subject | None) -> None:
        before = self.subjects.pop(name, None)
        for each in () if before is None else before.versions:
            _forget(self.users, each.schema_id, name)
        if subject is not None:
            self.subjects[name] = subject
            for each in subject.versions:
                self.users.setdefault(each.schema_id, set()).add(name)

    # Changing what is stored.

    async def change(self, decide: Callable[[RegistryChanges], T]) -> T:
        """Make all changes that ``decide`` asks for one, and return what it returned.

        They are stored together, and seen only then. Where another broker was faster it is called again. Raises
        `InvalidSchema` for what has become larger than a store takes at once.
        """
        decided: list[T] = []

        def plan() -> list[Op]:
            made = RegistryChanges(self)
            decided[:] = [decide(made)]
            return made.ops()

        async with self._changing:
            try:
                await self._cache.change(plan)
            except TooLarge as error:
                raise InvalidSchema(
                    f"Too large to be stored: {error.size} bytes of {MAX_COMMIT_BYTES}"
                ) from None
        return decided[0]


class RegistryChanges:
    """Changes on their way into a registry."""

    def __init__(self, kept: RegistryContents) -> None:
        self._kept = kept
        self._state: RegistryState | None = None
        self._schemas: dict[int, Schema | None] = {}
        self._subjects: dict[str, Subject | None] = {}

    def state(self, **values: Any) -> None:
        self._state = replace(self._state or self._kept.state, **values)

    def subject(self, name: str, subject: Subject | None) -> None:
        """Put a subject; None removes it."""
        self._subjects[name] = subject

    def schema(self, schema_id: int, schema: Schema | None) -> None:
        """Put a schema; None removes it."""
        self._schemas[schema_id] = schema

    def ops(self) -> list[Op]:
        """Return what stores them, over what was known when they were decided."""
        root = self._kept.root
        values: dict[str, bytes | None] = {}
        if self._state is not None:
            values[f"{root}/state"] = _state_bytes(self._state)
        for number, schema in self._schemas.items():
            values[f"{root}/schemas/{number}"] = None if schema is None else _schema_bytes(schema)
        for name, subject in self._subjects.items():
            path = f"{root}/subjects/{quote(name, safe='')}"
            values[path] = None if subject is None else _subject_bytes(subject)
        known = self._kept.stored_versions
        return [
            Delete(path, known[path]) if value is None else Put(path, value, known.get(path, MUST_NOT_EXIST))
            for path, value in values.items()
            if value is not None or path in known
        ]


def _forget(index: dict[K, set[V]], key: K, value: V) -> None:
    """Take a value out of an index, if it is there, and leave no empty set."""
    values = index.get(key)
    if values is not None:
        values.discard(value)
        if not values:
            del index[key]


def _read(path: str, value: bytes, decode: Callable[[Any], T]) -> T:
    try:
        return decode(json.loads(value))
    except (ValueError, KeyError, TypeError) as error:
        raise MetadataCorrupt(path, f"nothing that a schema registry keeps: {error!r}") from error


def _state(content: Any) -> RegistryState:
    return RegistryState(content["last_id"], Level[content["compatibility"]], Mode[content["mode"]])


def _state_bytes(state: RegistryState) -> bytes:
    return json.dumps(
        {"last_id": state.last_id, "compatibility": state.compatibility.name, "mode": state.mode.name}
    ).encode()


def _schema(content: Any) -> Schema:
    return Schema(
        content["kind"], content["text"], tuple(Reference(**each) for each in content["references"])
    )


def _schema_bytes(schema: Schema) -> bytes:
    references = [each.to_json() for each in schema.references]
    return json.dumps({"kind": schema.kind, "text": schema.text, "references": references}).encode()


def _subject(content: Any) -> Subject:
    level, mode = content.get("compatibility"), content.get("mode")
    return Subject(
        tuple(Version(number, schema_id, deleted) for number, schema_id, deleted in content["versions"]),
        None if level is None else Level[level],
        None if mode is None else Mode[mode],
    )


def _subject_bytes(subject: Subject) -> bytes:
    content = {
        "versions": [list(each) for each in subject.versions],
        "compatibility": None if subject.compatibility is None else subject.compatibility.name,
        "mode": None if subject.mode is None else subject.mode.name,
    }
    return json.dumps(content).encode()
