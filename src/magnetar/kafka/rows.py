"""Where messages have their rows, and which brokers a proxy sends a request to: what routes say of both."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

GROUP, TRANSACTION = 0, 1
"""Kinds of keys that have coordinators, as FindCoordinator has them."""


class Way(Enum):
    """Which brokers a proxy sends a request to."""

    HERE = auto()
    """None: the proxy answers."""
    ANY = auto()
    """Any one; the same one for all requests of a connection."""
    CONTROLLER = auto()
    """The controller."""
    COORDINATOR = auto()
    """The coordinator of the key that the request names; any broker if it names none."""
    COORDINATORS = auto()
    """The coordinators of the rows' keys."""
    LEADERS = auto()
    """The leaders of the rows' partitions."""
    EVERY = auto()
    """All brokers; the rows of their answers are put together."""
    NOT_PASSED = auto()
    """None, and clients of a proxy are not offered it: brokers ask each other, or it tells of controllers."""


class PartitionRows(NamedTuple):
    """Where a message names partitions: fields of it, of a topic in it, and of a partition ("": numbers alone)."""

    topics: str
    name: str
    """Empty where a topic has an id only."""
    topic_id: str
    """Empty where a topic has a name only."""
    partitions: str
    number: str


class KeyRows(NamedTuple):
    """Where a message names keys: its list, and the field of a row ("": keys alone, or rows that have none)."""

    rows: str
    key: str
    below: str = ""
    """The list of a row that is put together where several brokers have a row for a key."""


class Rows(NamedTuple):
    """Where the request and its answer have one row for the same thing."""

    asked: PartitionRows | KeyRows | None
    answered: PartitionRows | KeyRows | None


NO_ROWS = Rows(None, None)


def alike(rows: PartitionRows | KeyRows) -> Rows:
    """Return rows that have the same fields in request and answer."""
    return Rows(rows, rows)


class Key(NamedTuple):
    """The field of a request that holds the one key, whose coordinator answers; "" where there is none."""

    field: str = ""
    kind: int = GROUP
    rows_from: int = 0
    """The first version with rows; those before it have the field."""


NO_KEY = Key()
