"""What the registry knows of each kind of schema: whether a text is one, its one spelling, and what reads what."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol

from magnetar.schema_registry.errors import InvalidSchema
from magnetar.schema_registry.schema import KINDS
from magnetar.schema_registry.work import TooComplex, Work


class Parsed(Protocol):
    """A schema that has been understood, with all that it refers to."""

    @property
    def text(self) -> str:
        """The text that is kept and given: equal for schemas that mean the same."""

    def reads(self, writer: Parsed, work: Work) -> list[str]:
        """Say why this cannot read what ``writer`` wrote; nothing if it can. Raises `TooComplex`."""


def parse(kind: str, text: str, references: Mapping[str, str], work: Work) -> Parsed:
    """Understand a schema; ``references`` are the texts of others by the names it uses, those first that others use.

    Raises `InvalidSchema`, also for what takes more than its share of ``work``. Protobuf texts are given to protoc,
    in a process of its own: call this in a thread.
    """
    if kind not in KINDS:
        raise InvalidSchema(f"Invalid schema type {kind}: one of {', '.join(KINDS)}")
    module = import_module(f"magnetar.schema_registry.kinds.{kind.lower()}_kind")
    try:
        parsed: Parsed = module.parse(text, references, work)
    except UnicodeError:
        raise InvalidSchema(f"Invalid schema of type {kind}: it is not text that UTF-8 has") from None
    except RecursionError:
        raise InvalidSchema(f"Invalid schema of type {kind}: it is nested too deeply") from None
    except TooComplex as error:
        raise InvalidSchema(f"Invalid schema of type {kind}: {error}") from None
    return parsed
