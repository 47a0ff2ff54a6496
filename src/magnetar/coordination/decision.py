"""What a decider returns, and what its caller expects of it.

A decision has facts, an answer and actions. Facts are made durable first; then answers are given and actions carried
out, and the result of each action is passed to the decider, which decides again. So a decider stays a value that does
nothing itself, and can still cause effects: write to another partition, ask another broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

Answer = TypeVar("Answer")
Token = object
"""Stands for one waiting request; the caller chooses it, deciders only return it."""


class Transaction(NamedTuple):
    """The producer of a transaction: each has one transaction open at a time (KIP-98)."""

    producer_id: int
    producer_epoch: int


class Fact(NamedTuple):
    """One record of a coordinator's log; no value means that the key is gone.

    A fact of a transaction takes effect when the transaction's `Marker` commits it, and not before.
    """

    key: bytes
    value: bytes | None
    transaction: Transaction | None = None


class Marker(NamedTuple):
    """The end of a transaction in this partition: a Kafka control record.

    Its epoch is above that of the transaction's facts if it ``bumps_epoch``, else the same or above. ``bumps_epoch``
    is not part of the record.
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

    It may be carried out twice, since a crash after it loses its result: a decider that resumes requests again all
    actions whose results are not among its facts.
    """


@dataclass(frozen=True, slots=True)
class Assigned(Action):
    """A generation whose assignment is among the facts: the group is stable once they are durable, not before."""

    group_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Decision(Generic[Answer]):
    """Facts to append first; then the answer (None: it comes later), the answers of waiting requests, and actions."""

    facts: tuple[Stated, ...]
    answer: Answer | None
    released: tuple[Release, ...] = ()
    actions: tuple[Action, ...] = ()


class Decider(Protocol):
    """One partition of a coordinator's log as a value. It is replayed, resumed, and then decides requests."""

    foreign: int
    """The number of records of unknown kinds: a snapshot would lose them."""

    def replay(self, stated: Stated) -> None:
        """Apply one record of the log; raise ``WireError`` if the record is damaged."""

    def resume(self, now_ms: int) -> Decision[None]:
        """Continue where the facts end: restart deadlines, and actions that may not have been carried out."""
        ...

    def done(self, action: Action, result: object, now_ms: int) -> Decision[None]:
        """Take the result of an action, which is the exception if it raised one."""
        ...

    def wake_ms(self) -> int | None:
        """Return when `expire` next has something to do, None for never."""
        ...

    def expire(self, now_ms: int) -> Decision[None]:
        """Do what is due by now."""
        ...

    def live_facts(self) -> int:
        """Return how many facts a snapshot has."""
        ...

    def snapshot(self) -> Iterator[Sequence[Fact]]:
        """Yield the facts that restore this state, some at a time; requests may be decided in between."""
        ...
