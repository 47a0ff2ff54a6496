"""What references lead to: each schema once, though many may name it, and only so much of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from magnetar.schema_registry.errors import InvalidSchema, RegistryError
from magnetar.schema_registry.schema import Reference, Schema, Version

MAX_REFERENCES = 1_000
MAX_REFERRED_BYTES = 4 << 20


class SchemaLookup(Protocol):
    """Where references lead: a registry."""

    def version(self, name: str, number: int, *, deleted: bool = False) -> Version: ...

    def schema(self, schema_id: int) -> Schema: ...


class Referred(NamedTuple):
    """A reference, and what it leads to."""

    reference: Reference
    schema: Schema


def walk(registry: SchemaLookup, references: Iterable[Reference]) -> list[Referred]:
    """Return all that references lead to, those first that others refer to; raise `InvalidSchema`."""
    found: list[Referred] = []
    entered: set[tuple[str, int]] = set()
    seen = size = 0
    waiting: list[Iterator[Reference]] = [iter(references)]
    left: list[Referred] = []
    while waiting:
        reference = next(waiting[-1], None)
        if reference is None:
            waiting.pop()
            if left:
                found.append(left.pop())
            continue
        seen += 1
        schema = _schema(registry, reference)
        if seen > MAX_REFERENCES:
            raise InvalidSchema(f"Invalid schema: it refers to more than {MAX_REFERENCES} others in all")
        place = reference.subject, reference.version
        if place in entered:
            found.append(Referred(reference, schema))  # by another name
            continue
        entered.add(place)
        size += len(schema.text)
        if size > MAX_REFERRED_BYTES:
            raise InvalidSchema(
                f"Invalid schema: what it refers to is larger than {MAX_REFERRED_BYTES} bytes"
            )
        left.append(Referred(reference, schema))
        waiting.append(iter(schema.references))
    return found


def texts(referred: Iterable[Referred]) -> dict[str, str]:
    """Return the texts by name, in the same order."""
    return {each.reference.name: each.schema.text for each in referred}


def none_found(reference: Reference, why: object) -> InvalidSchema:
    """Return what is said where a reference leads nowhere, or where whoever asks may not know that it does not."""
    return InvalidSchema(
        f"Invalid schema: no schema reference found for subject {reference.subject!r} and version "
        f"{reference.version}: {why}"
    )


def _schema(registry: SchemaLookup, reference: Reference) -> Schema:
    try:
        version = registry.version(reference.subject, reference.version, deleted=True)
        return registry.schema(version.schema_id)
    except RegistryError as error:
        raise none_found(reference, error) from None
