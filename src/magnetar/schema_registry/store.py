"""What a registry keeps, in memory and in the metadata store, where every change is durable before it shows.

    /schema-registry/TENANT/state             {"last_id": 7, "compatibility": "BACKWARD", "mode": "READWRITE"}
    /schema-registry/TENANT/schemas/ID        {"kind": "AVRO", "text": "...", "references": [...]}
    /schema-registry/TENANT/subjects/SUBJECT  {"versions": [[version, id, deleted], ...], "compatibility": "FULL",
                                              "mode": "READONLY"}; SUBJECT is percent-encoded

``last_id`` only grows, so an id never comes to mean another schema, even where all that had it was deleted for good.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from magnetar.metadata import BlockingStore, MetadataCorrupt
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
class State:
    """What goes for a whole registry."""

    last_id: int = 0
    compatibility: Level = Level.BACKWARD
    mode: Mode = Mode.READWRITE


@dataclass(slots=True)
class Kept:
    """Everything of one tenant's registry. Read it freely; change it inside `Changes` only."""

    store: BlockingStore
    tenant: str
    state: State = field(default_factory=State)
    schemas: dict[int, Schema] = field(default_factory=dict)
    subjects: dict[str, Subject] = field(default_factory=dict)
    ids: dict[Schema, int] = field(default_factory=dict)
    users: dict[int, set[str]] = field(default_factory=dict)
    """The subjects that have versions with a schema, deleted ones too, by its id."""
    referrers: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    """The ids of schemas that refer to a version of a subject."""

    def load(self) -> None:
        """Read what is stored; raise `MetadataCorrupt` for what cannot be."""
        found = self.store.get(f"{self._root}/state")
        if found is not None:
            self.state = _read(f"{self._root}/state", found.value, _state)
        for path, stored in self.store.scan(f"{self._root}/schemas/"):
            number = int(path.rpartition("/")[2])
            self.put_schema(number, _read(path, stored.value, _schema))
        for path, stored in self.store.scan(f"{self._root}/subjects/"):
            self.put_subject(unquote(path.rpartition("/")[2]), _read(path, stored.value, _subject))
        self.ids = {schema: number for number, schema in self.schemas.items()}

    def put_schema(self, schema_id: int, schema: Schema | None) -> None:
        """Show a schema, or with None no more."""
        before = self.schemas.pop(schema_id, None)
        for each in () if before is None else before.references:
            _forget(self.referrers, (each.subject, each.version), schema_id)
        if schema is not None:
            self.schemas[schema_id] = schema
            for each in schema.references:
                self.referrers.setdefault((each.subject, each.version), set()).add(schema_id)

    def put_subject(self, name: str, subject: Subject | None) -> None:
        """Show a subject, or with None no more."""
        before = self.subjects.pop(name, None)
        for each in () if before is None else before.versions:
            _forget(self.users, each.schema_id, name)
        if subject is not None:
            self.subjects[name] = subject
            for each in subject.versions:
                self.users.setdefault(each.schema_id, set()).add(name)

    @contextmanager
    def changes(self) -> Iterator[Changes]:
        """Make all changes of the block one: stored together when it ends, and seen only then."""
        made = Changes(self)
        yield made
        with self.store.transaction():
            made.write()
        made.show()

    @property
    def _root(self) -> str:
        return f"{ROOT}/{self.tenant}"


class Changes:
    """Changes on their way into a registry."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._state: State | None = None
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

    def write(self) -> None:
        store, root = self._kept.store, self._kept._root
        if self._state is not None:
            store.put(f"{root}/state", _state_bytes(self._state))
        for number, schema in self._schemas.items():
            _put(store, f"{root}/schemas/{number}", None if schema is None else _schema_bytes(schema))
        for name, subject in self._subjects.items():
            path = f"{root}/subjects/{quote(name, safe='')}"
            _put(store, path, None if subject is None else _subject_bytes(subject))

    def show(self) -> None:
        kept = self._kept
        kept.state = self._state or kept.state
        for number, schema in self._schemas.items():
            before = kept.schemas.get(number)
            if before is not None and kept.ids.get(before) == number:
                del kept.ids[before]
            kept.put_schema(number, schema)
            if schema is not None:
                kept.ids.setdefault(schema, number)
        for name, subject in self._subjects.items():
            kept.put_subject(name, subject)


def _forget(index: dict[K, set[V]], key: K, value: V) -> None:
    """Take a value out of an index, if it is there, and leave no empty set."""
    values = index.get(key)
    if values is not None:
        values.discard(value)
        if not values:
            del index[key]


def _put(store: BlockingStore, path: str, value: bytes | None) -> None:
    if value is not None:
        store.put(path, value)
    elif store.get(path) is not None:
        store.delete(path)


def _read(path: str, value: bytes, decode: Callable[[Any], T]) -> T:
    try:
        return decode(json.loads(value))
    except (ValueError, KeyError, TypeError) as error:
        raise MetadataCorrupt(path, f"nothing that a schema registry keeps: {error!r}") from error


def _state(content: Any) -> State:
    return State(content["last_id"], Level[content["compatibility"]], Mode[content["mode"]])


def _state_bytes(state: State) -> bytes:
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
