"""What deciders hand back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

Answer = TypeVar("Answer")
Token = object
"""Stands for one waiting request; whoever asks chooses it, deciders only give it back."""


class Fact(NamedTuple):
    """One record of ``__consumer_offsets``; no value means that the key is gone."""

    key: bytes
    value: bytes | None


class Release(NamedTuple):
    """The answer to a request that has waited."""

    token: Token
    answer: object


class Assigned(NamedTuple):
    """A generation whose assignment is among the facts: the group is stable once they are durable, not before."""

    group_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Decision(Generic[Answer]):
    """Facts to append first; then the answer to give (None: it comes later), and those of others who waited."""

    facts: tuple[Fact, ...]
    answer: Answer | None
    released: tuple[Release, ...] = ()
    assigned: tuple[Assigned, ...] = ()
    """Of which the decider wants to hear once the facts are durable."""
