"""What deciders hand back, and what carries it out expects of them.

A decision has facts, an answer and actions. Facts are made durable first; then answers are given and actions carried
out, and what an action came to is told to the decider, which decides anew. So a decider stays a value that does nothing
itself, and yet may have the world do things: write to another partition, ask another broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

Answer = TypeVar("Answer")
Token = object
"""Stands for one waiting request; whoever asks chooses it, deciders only give it back."""


class Transaction(NamedTuple):
    """Whose transaction it is: one of a producer is open at a time (KIP-98)."""

    producer_id: int
    producer_epoch: int


class Fact(NamedTuple):
    """One record of a coordinator's log; no value means that the key is gone.

    What belongs to a transaction counts when its `Marker` says so, and not before.
    """

    key: bytes
    value: bytes | None
    transaction: Transaction | None = None


class Marker(NamedTuple):
    """The end of a transaction in this partition: a control record of Kafka's.

    Its epoch is above that of what the transaction wrote if it ``bumps_epoch``, else the same or above. That is not
    part of the record.
    """

    transaction: Transaction
    committed: bool
    coordinator_epoch: int = 0
    bumps_epoch: bool = False


Stated: TypeAlias = Fact | Marker


class Release(NamedTuple):
    """The answer to a request that has waited."""

    token: Token
    answer: object


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do once the facts of its decision are durable; each kind has its own fields.

    It may be carried out twice, as a crash after it loses what it came to: a decider that resumes asks again for all
    whose results are not among its facts.
    """


@dataclass(frozen=True, slots=True)
class Assigned(Action):
    """A generation whose assignment is among the facts: the group is stable once they are durable, not before."""

    group_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Decision(Generic[Answer]):
    """Facts to append first; then the answer to give (None: it comes later), those of others who waited, actions."""

    facts: tuple[Stated, ...]
    answer: Answer | None
    released: tuple[Release, ...] = ()
    actions: tuple[Action, ...] = ()


class Decider(Protocol):
    """One partition of a coordinator's log as a value. It is replayed, resumed, and then asked."""

    foreign: int
    """Records of kinds that are not known here: a snapshot would lose them."""

    def replay(self, stated: Stated) -> None:
        """Take in what was stated before; raises ``WireError`` if the record is damaged."""

    def resume(self, now_ms: int) -> Decision[None]:
        """Go on where the facts end: deadlines begin anew, and actions that may not have been carried out."""
        ...

    def done(self, action: Action, result: object, now_ms: int) -> Decision[None]:
        """Hear what an action came to: the exception that it raised, if it did."""
        ...

    def wake_ms(self) -> int | None:
        """Return when `expire` has something to do, if ever."""
        ...

    def expire(self, now_ms: int) -> Decision[None]:
        """Do what is due."""
        ...

    def live_facts(self) -> int:
        """Return how many facts a snapshot has."""
        ...

    def snapshot(self) -> Iterator[Sequence[Fact]]:
        """Return the facts that make all this what it is, some at a time; others may ask for decisions in between."""
        ...
