"""What a client needs for an API, as routes declare it; `magnetar.kafka.authorization.declared` asks for it.

The checks are those of `magnetar.kafka.authorization.checks.Checks`, by name: it is loaded where clients need grants.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from magnetar.auth import Right
from magnetar.wire.kafka.errors import ErrorCode


class May(NamedTuple):
    """One question about the client, and the code that it is told if the answer is no."""

    check: str
    denied: ErrorCode
    right: Right | None = None
    """Of the cluster; None for what is about a topic, a group or a transactional id."""


def on_cluster(right: Right) -> May:
    """Return the question for a right to the cluster."""
    return May("on_cluster", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, right)


READS_TOPIC = May("reads", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
READS_TOPIC_IN_GROUP = May("reads_in", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
SEES_TOPIC = May("sees", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
CREATES_TOPIC = May("creates", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
DELETES_TOPIC = May("deletes", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
ALTERS_TOPIC = May("alters", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
USES_GROUP = May("uses", ErrorCode.GROUP_AUTHORIZATION_FAILED)
SEES_GROUP = May("sees_group", ErrorCode.GROUP_AUTHORIZATION_FAILED)
DELETES_GROUP = May("deletes_group", ErrorCode.GROUP_AUTHORIZATION_FAILED)
WRITES_AS = May("writes_as", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
SEES_TRANSACTIONS_OF = May("sees_transactions_of", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


class Need(NamedTuple):
    """What the whole request needs: ``may`` of the value in a field, or of each value in it."""

    may: May
    field: str = ""
    each: bool = False


class Rights(NamedTuple):
    """What an API needs, and what its answers show. Rows are those that the route names.

    A request that lacks one of its ``needs`` is refused whole: by the answer's own code, or by that of each row where
    an answer has no code of its own.
    """

    needs: tuple[Need, ...] = ()
    rows: May | None = None
    """Of each row; those that lack it are answered beside the handler's, which does not see them."""
    given: tuple[str, ...] = ()
    """Fields of the request that the check of a row takes before the row's own."""
    unless: Right | None = None
    """Whoever has this right to the cluster needs nothing for rows, and is shown all."""
    empty_is_all: bool = False
    """A request without rows asks for all, of which the handler shows what may be seen."""
    once: bool = False
    """What was named twice is refused once."""
    refuses_rows: bool = False
    """A request that is refused whole has its rows refused, too, though its answer has a code."""
    unless_failed: bool = False
    """Rows are only told of if the answer has no code."""
    says: bool = False
    """Refusals carry Kafka's sentence beside the code."""
    instead: tuple[tuple[str, Any], ...] = ()
    """Fields of a refused row that are not what a new row of its class has."""
    shows: May | None = None
    """Rows of the answer that lack it are left out."""
    operations: str = ""
    """What has its permitted operations told (KIP-430): "groups" or "topics", rows of the answer, or "cluster"."""
    sees: tuple[str, ...] = ()
    """Where rows of the answer name topics: one with a topic that may not be seen is answered with a code instead."""
    hidden: str = ""
    """The sentence with that code."""


def cluster(right: Right, *, says: bool = False, refuses_rows: bool = False) -> Rights:
    """Return what needs a right to the cluster, and nothing else."""
    return Rights((Need(on_cluster(right)),), says=says, refuses_rows=refuses_rows)


def group(may: May = USES_GROUP) -> Rights:
    """Return what needs a right to the group that the request names, and nothing else."""
    return Rights((Need(may, "group_id"),))
