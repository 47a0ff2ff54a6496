"""The records of a modern group: the common part of each kind's module of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from magnetar.coordination.decision import Fact
from magnetar.wire.kafka.message import Message

_VERSION = bytes(2)
G = TypeVar("G")


class ModernFact(NamedTuple, Generic[G]):
    """One record: its group, and its effect on it; ``ends`` if the group itself is gone."""

    group_id: str
    apply: Callable[[G], object]
    is_end: bool = False
    """Whether it ends something: a group that does not exist need not be created for it."""
    ends: bool = False


Readers: TypeAlias = Mapping[bytes, Callable[[bytes, bytes | None], ModernFact[Any]]]
"""Functions that read a record's key (without its kind) and value (without its version), by the kind's two bytes."""


def fact(kind: bytes, key: Message, value: Message | None) -> Fact:
    """Return a record; without a value it says that the key is gone."""
    return Fact(kind + key.encode(0), None if value is None else _VERSION + value.encode(0))
