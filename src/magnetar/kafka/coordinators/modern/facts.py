"""What a record says about a modern group, and what the modules of its kind's records have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from magnetar.coordination.decision import Fact
from magnetar.wire.kafka.message import Message

_VERSION = bytes(2)
G = TypeVar("G")


class ModernFact(NamedTuple, Generic[G]):
    """One record: which group it is about, and what it does to it; ``ends`` where the group itself is gone."""

    group_id: str
    apply: Callable[[G], object]
    is_end: bool = False
    """Whether it says that something is gone: a group that does not exist need not be created for it."""
    ends: bool = False


Readers: TypeAlias = Mapping[bytes, Callable[[bytes, bytes | None], ModernFact[Any]]]
"""What reads a record's key (without its kind) and value (without its version), by the two bytes of the kind."""


def fact(kind: bytes, key: Message, value: Message | None) -> Fact:
    """Return a record; without a value it says that the key is gone."""
    return Fact(kind + key.encode(0), None if value is None else _VERSION + value.encode(0))
