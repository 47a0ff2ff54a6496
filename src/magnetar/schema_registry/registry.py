"""One registry: subjects with versions, schemas with ids, what may follow what, and what may be deleted when."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from threading import Lock
from types import EllipsisType

from magnetar.schema_registry import kinds
from magnetar.schema_registry.errors import (
    Incompatible,
    InvalidSchema,
    RegistryError,
    no_schema,
    no_subject,
    no_version,
)
from magnetar.schema_registry.levels import Level, Mode
from magnetar.schema_registry.references import none_found, texts, walk
from magnetar.schema_registry.schema import Reference, Schema, Version
from magnetar.schema_registry.store import RegistryChanges, RegistryContents, Subject
from magnetar.schema_registry.work import TooComplex, Work

MAX_SCHEMA_BYTES = 1 << 20
MAX_SUBJECT_LENGTH = 600
MAX_PARSED_BYTES = 4 << 20
"""Of the texts whose meaning is kept at hand; it takes some ten times as much."""
_LATEST = -1
_GLOBAL_SUBJECTS = ("__GLOBAL", "__EMPTY")


class Overtaken(Exception):
    """A subject was changed while somebody found out what may follow in it."""


class ParsedSchema:
    """A schema that may be registered: parsed apart from the event loop, for that may take long."""

    def __init__(self, schema: Schema, parsed: kinds.Parsed) -> None:
        self.schema = schema
        self.parsed = parsed


class Registry:
    """The schemas of one tenant. What changes them is stored when the call returns."""

    def __init__(self, kept: RegistryContents) -> None:
        self.kept = kept
        self._parsed: dict[Schema, kinds.Parsed] = {}
        self._parsed_bytes = 0
        self._parsing = Lock()

    # -- asking ------------------------------------------------------------------------------------------------

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """Return the subjects that have versions; with ``deleted`` those too of which all were deleted."""
        return sorted(name for name, each in self.kept.subjects.items() if _shown(each, deleted))

    def versions(self, name: str, *, deleted: bool = False) -> list[Version]:
        """Return a subject's versions, oldest first; raise `RegistryError` 40401."""
        found = _shown(self.kept.subjects.get(name, Subject()), deleted)
        if not found:
            raise no_subject(name)
        return found

    def version(self, name: str, number: int, *, deleted: bool = False) -> Version:
        """Return one version, -1 for the latest; raise `RegistryError` 40401 or 40402."""
        found = self.versions(name, deleted=deleted)
        if number == _LATEST:
            return found[-1]
        for each in found:
            if each.version == number:
                return each
        raise no_version(number)

    def schema(self, schema_id: int) -> Schema:
        """Return a schema by its id; raise `RegistryError` 40403."""
        found = self.kept.schemas.get(schema_id)
        if found is None:
            raise no_schema(schema_id)
        return found

    def users(self, schema_id: int, *, deleted: bool = False) -> list[tuple[str, int]]:
        """Return (subject, version) of all that have this schema."""
        return [
            (name, each.version)
            for name in sorted(self.kept.users.get(schema_id, ()))
            for each in _shown(self.kept.subjects[name], deleted)
            if each.schema_id == schema_id
        ]

    def referenced_by(self, name: str, number: int) -> list[int]:
        """Return the ids of schemas that refer to a version of a subject."""
        return sorted(
            schema_id for schema_id in self.kept.referrers.get((name, number), ()) if self.users(schema_id)
        )

    def find(self, name: str, schema: Schema, *, deleted: bool = False) -> Version:
        """Return the version that a schema has in a subject; raise `RegistryError` 40401 or 40403."""
        schema_id = self.kept.ids.get(schema)
        for each in reversed(self.versions(name, deleted=deleted)):
            if each.schema_id == schema_id:
                return each
        raise no_schema()

    # -- understanding -----------------------------------------------------------------------------------------

    def understand(self, schema: Schema, work: Work) -> ParsedSchema:
        """Check a schema and give it in its one spelling; raise `InvalidSchema`. Call it in a thread."""
        if len(schema.text.encode("utf-8", "replace")) > MAX_SCHEMA_BYTES:
            raise InvalidSchema(f"Invalid schema: it is larger than {MAX_SCHEMA_BYTES} bytes")
        parsed = kinds.parse(schema.kind, schema.text, self.texts(schema), work)
        return ParsedSchema(schema._replace(text=parsed.text), parsed)

    def texts(self, schema: Schema) -> dict[str, str]:
        """Return the texts that a schema's references lead to, by name, those first that others refer to."""
        return texts(walk(self, schema.references))

    def subjects_behind(self, schema: Schema) -> set[str]:
        """Return the subjects that a schema's references lead to; raise `InvalidSchema`."""
        return {each.reference.subject for each in walk(self, schema.references)}

    def _parse(self, schema: Schema, work: Work) -> kinds.Parsed:
        found = self._parsed.get(schema)
        if found is None:
            found = self.understand(schema, work).parsed
            self._remember(schema, found)
        return found

    def _remember(self, schema: Schema, parsed: kinds.Parsed) -> None:
        """Keep a schema as it was understood, as long as there is room."""
        with self._parsing:
            if schema not in self._parsed:
                self._parsed[schema] = parsed
                self._parsed_bytes += len(schema.text)
            while self._parsed_bytes > MAX_PARSED_BYTES and len(self._parsed) > 1:
                self._parsed_bytes -= len(next(iter(self._parsed)).text)
                del self._parsed[next(iter(self._parsed))]

    # -- compatibility -----------------------------------------------------------------------------------------

    def level(self, name: str) -> Level:
        """Return the compatibility level in force for a subject."""
        return self.kept.subjects.get(name, Subject()).compatibility or self.kept.state.compatibility

    def mode(self, name: str) -> Mode:
        """Return the mode in force for a subject."""
        if self.kept.state.mode is Mode.READONLY_OVERRIDE:
            return Mode.READONLY_OVERRIDE
        return self.kept.subjects.get(name, Subject()).mode or self.kept.state.mode

    def older(self, name: str, number: int | None = None) -> list[tuple[Version, Schema]]:
        """Return what a new version is compared with, the newest first, or with a number just that version."""
        level = self.level(name)
        if level is Level.NONE:
            return []
        if number is not None:
            found = [self.version(name, number)]
        else:
            live = self.kept.subjects.get(name, Subject()).live
            found = live if level.transitive else live[-1:]
        return [(each, self.schema(each.schema_id)) for each in reversed(found)]

    def clashes(
        self,
        level: Level,
        new: ParsedSchema,
        older: Iterable[tuple[Version, Schema]],
        work: Work,
        unseen: Container[Schema] = (),
    ) -> list[str]:
        """Say why a schema may not follow these; nothing if it may. Raises `InvalidSchema` for what takes too long.

        Of those ``unseen`` nothing more is told: they refer to what whoever asks may not read. Older schemas are parsed
        for this: call it in a thread.
        """
        reasons: list[str] = []
        try:
            for version, schema in older:
                found = self._clash(level, new, schema, work)
                if found and schema in unseen:
                    found = ["it does not fit, and the older schema refers to others that you may not read"]
                said = f"(version {version.version}, compatibility {level.name})"
                reasons += [f"{reason} {said}" for reason in found]
        except TooComplex as error:
            raise InvalidSchema(f"Invalid schema of type {new.schema.kind}: {error}") from None
        return reasons

    def _clash(self, level: Level, new: ParsedSchema, old: Schema, work: Work) -> list[str]:
        if old.kind != new.schema.kind:
            return [f"the older schema is {old.kind}, the new one {new.schema.kind}"]
        before = self._parse(old, work)
        reasons = new.parsed.reads(before, work) if level.reads_older else []
        return reasons + (before.reads(new.parsed, work) if level.is_read_by_older else [])

    # -- changing ----------------------------------------------------------------------------------------------

    async def register(
        self,
        name: str,
        new: ParsedSchema,
        *,
        as_id: int = -1,
        as_version: int = -1,
        checked: Subject | EllipsisType | None = ...,
    ) -> int:
        """Return the id of a schema in a subject, registered if it is not yet; raise `RegistryError`.

        ``as_id`` and ``as_version`` are for mode IMPORT. Check `clashes` first; ``checked`` is the subject as it was
        then, and `Overtaken` is raised if it is another by now.
        """

        def decide(changes: RegistryChanges) -> int:
            if checked is not ... and self.kept.subjects.get(name) != checked:
                raise Overtaken(name)
            return self._register(changes, name, new, as_id, as_version)

        return await self.kept.change(decide)

    def _register(
        self, changes: RegistryChanges, name: str, new: ParsedSchema, as_id: int, as_version: int
    ) -> int:
        schema = new.schema
        subject = self.kept.subjects.get(name, Subject())
        known = self.kept.ids.get(schema)
        for each in subject.live:
            if each.schema_id == known and as_id in (-1, known):
                return known
        self._check_writable(name, as_id)
        _check_name(name)
        if as_id >= 0:
            return self._import(changes, name, subject, schema, as_id, as_version)
        schema_id = known if known is not None else self.kept.state.last_id + 1
        self._add(changes, name, subject, schema, schema_id, _next_version(subject))
        self._remember(schema, new.parsed)
        return schema_id

    async def provide(self, name: str, schema: Schema) -> int:
        """Return the id of a schema that the broker itself has for a subject: modes and levels do not matter."""
        return await self.kept.change(lambda changes: self._provide(changes, name, schema))

    def _provide(self, changes: RegistryChanges, name: str, schema: Schema) -> int:
        subject = self.kept.subjects.get(name, Subject())
        known = self.kept.ids.get(schema)
        if known is not None and any(each.schema_id == known for each in subject.live):
            return known
        schema_id = known if known is not None else self.kept.state.last_id + 1
        self._add(changes, name, subject, schema, schema_id, _next_version(subject))
        return schema_id

    def _import(
        self,
        changes: RegistryChanges,
        name: str,
        subject: Subject,
        schema: Schema,
        schema_id: int,
        number: int,
    ) -> int:
        before = self.kept.schemas.get(schema_id)
        if before is not None and before != schema:
            raise RegistryError(42205, f"Overwrite new schema with id {schema_id} is not permitted.")
        number = number if number > 0 else _next_version(subject)
        if any(each.version == number and each.schema_id != schema_id for each in subject.versions):
            raise RegistryError(42205, f"Version {number} of subject {name} has another schema already")
        others = tuple(each for each in subject.versions if each.version != number)
        self._add(changes, name, replace(subject, versions=others), schema, schema_id, number)
        return schema_id

    def _add(
        self,
        changes: RegistryChanges,
        name: str,
        subject: Subject,
        schema: Schema,
        schema_id: int,
        number: int,
    ) -> None:
        for each in schema.references:  # they were there when it was understood
            self._check_there(each)
        versions = (*subject.versions, Version(number, schema_id))
        changes.subject(name, replace(subject, versions=tuple(sorted(versions))))
        if schema_id not in self.kept.schemas:
            changes.schema(schema_id, schema)
        changes.state(last_id=max(self.kept.state.last_id, schema_id))

    def _check_there(self, reference: Reference) -> None:
        try:
            self.version(reference.subject, reference.version, deleted=True)
        except RegistryError as error:
            raise none_found(reference, error) from None

    def _check_writable(self, name: str, as_id: int = -1) -> None:
        mode = self.mode(name)
        if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
            raise RegistryError(42205, f"Subject {name} is in read-only mode")
        if as_id >= 0 and mode is not Mode.IMPORT:
            raise RegistryError(42205, f"Subject {name} is not in import mode")
        if as_id < 0 and mode is Mode.IMPORT:
            raise RegistryError(42205, f"Subject {name} is in import mode: the schema needs its id")

    async def delete_subject(self, name: str, *, permanent: bool) -> list[int]:
        """Delete all versions, and for good those deleted before; return their numbers."""
        return await self.kept.change(lambda changes: self._delete_subject(changes, name, permanent))

    def _delete_subject(self, changes: RegistryChanges, name: str, permanent: bool) -> list[int]:
        self._check_writable_for_deletion(name)
        subject = self.kept.subjects.get(name, Subject())
        if not subject.versions:
            raise no_subject(name)
        if permanent and subject.live:
            raise RegistryError(
                40405, f"Subject '{name}' was not deleted first before being permanently deleted"
            )
        if not permanent and not subject.live:
            raise RegistryError(
                40404, f"Subject '{name}' was soft deleted. Set permanent=true to delete permanently"
            )
        leaving = subject.versions if permanent else tuple(subject.live)
        self._check_unreferenced(name, leaving)
        self._drop(changes, name, subject, leaving, permanent=permanent)
        return [each.version for each in leaving]

    async def delete_version(self, name: str, number: int, *, permanent: bool) -> int:
        """Delete one version, or for good one that was deleted before; return its number."""
        return await self.kept.change(lambda changes: self._delete_version(changes, name, number, permanent))

    def _delete_version(self, changes: RegistryChanges, name: str, number: int, permanent: bool) -> int:
        self._check_writable_for_deletion(name)
        found = self.version(name, number, deleted=number != _LATEST)
        if permanent and not found.deleted:
            raise RegistryError(
                40407,
                f"Subject '{name}' Version {found.version} was not deleted first before being permanently deleted",
            )
        if not permanent and found.deleted:
            raise RegistryError(
                40406,
                f"Subject '{name}' Version {found.version} was soft deleted. "
                "Set permanent=true to delete permanently",
            )
        self._check_unreferenced(name, (found,))
        self._drop(changes, name, self.kept.subjects[name], (found,), permanent=permanent)
        return found.version

    def _check_writable_for_deletion(self, name: str) -> None:
        if self.mode(name) in (Mode.READONLY, Mode.READONLY_OVERRIDE):
            raise RegistryError(42205, f"Subject {name} is in read-only mode")

    def _check_unreferenced(self, name: str, leaving: Iterable[Version]) -> None:
        for each in leaving:
            users = self.referenced_by(name, each.version)
            if users:
                raise RegistryError(
                    42206,
                    f"One or more references exist to the schema {name} version {each.version}: from ids {users}",
                )

    def _drop(
        self,
        changes: RegistryChanges,
        name: str,
        subject: Subject,
        leaving: tuple[Version, ...],
        *,
        permanent: bool,
    ) -> None:
        if permanent:
            left = tuple(each for each in subject.versions if each not in leaving)
        else:
            left = tuple(each._replace(deleted=each.deleted or each in leaving) for each in subject.versions)
        empty = not left and subject.mode is None and subject.compatibility is None
        changes.subject(name, None if empty else replace(subject, versions=left))
        if permanent:
            for schema_id in {each.schema_id for each in leaving} - {each.schema_id for each in left}:
                if all(user == name for user, _ in self.users(schema_id, deleted=True)):
                    changes.schema(schema_id, None)

    # -- configuration -----------------------------------------------------------------------------------------

    async def set_level(self, name: str | None, level: Level | None) -> None:
        """Set the level of a subject, or with None as its name of all; None as level takes it back."""

        def decide(changes: RegistryChanges) -> None:
            if name is None:
                changes.state(compatibility=level or Level.BACKWARD)
            else:
                self._configure(changes, name, compatibility=level)

        await self.kept.change(decide)

    async def set_mode(self, name: str | None, mode: Mode | None, *, force: bool = False) -> None:
        """Set the mode of a subject, or of all; None takes it back. IMPORT asks for an empty place or ``force``."""

        def decide(changes: RegistryChanges) -> None:
            if mode is Mode.IMPORT and not force:
                names = (
                    self.subjects() if name is None else [each for each in self.subjects() if each == name]
                )
                if names:
                    raise RegistryError(42205, f"Cannot import since found existing subjects: {names[:10]}")
            if name is None:
                changes.state(mode=mode or Mode.READWRITE)
            else:
                self._configure(changes, name, mode=mode)

        await self.kept.change(decide)

    def _configure(self, changes: RegistryChanges, name: str, **values: Level | Mode | None) -> None:
        _check_name(name)
        made = replace(self.kept.subjects.get(name, Subject()), **values)  # type: ignore[arg-type]
        empty = not made.versions and made.mode is None and made.compatibility is None
        changes.subject(name, None if empty else made)


def refuse(name: str, reasons: list[str]) -> None:
    """Raise `Incompatible` where there is a reason."""
    if reasons:
        raise Incompatible(name, reasons)


def _shown(subject: Subject, deleted: bool) -> list[Version]:
    return list(subject.versions) if deleted else subject.live


def _next_version(subject: Subject) -> int:
    return max((each.version for each in subject.versions), default=0) + 1


def _check_name(name: str) -> None:
    bad = not name or name in _GLOBAL_SUBJECTS or len(name) > MAX_SUBJECT_LENGTH or not name.isprintable()
    if bad:
        raise RegistryError(42208, f"The specified subject '{name[:100]}' is not a valid.")
