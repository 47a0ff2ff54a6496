"""Schemas as values: what a client gives, and what has an id."""

from __future__ import annotations

from typing import Any, NamedTuple

KINDS = ("AVRO", "JSON", "PROTOBUF")


class Reference(NamedTuple):
    """Another schema that one uses, by the name that it uses for it."""

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


class Schema(NamedTuple):
    """A schema as its text. Equal ones, as `kinds.parse` gives their text, have one id."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


class Version(NamedTuple):
    """One version of a subject; a deleted one is still found by who asks for deleted ones."""

    version: int
    schema_id: int
    deleted: bool = False
