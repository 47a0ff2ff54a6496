"""What may be asked over the admin socket: one JSON line per question, one per answer. Lines in, lines out.

{"ask": "explain", "topic": "flights", "partition": 3, "offset": 1234}
{"answer": {...}}   or   {"error": {"kind": "NotThere", "message": "...", "next_step": "..."}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from magnetar.admin import errors
from magnetar.admin.broker_state import BrokerState, Inventory
from magnetar.admin.compaction import TopicCompaction
from magnetar.admin.errors import AdminError, Declined, Invalid
from magnetar.admin.explain import Explained
from magnetar.admin.health import Health
from magnetar.admin.ledgers_of import PartitionLedgers
from magnetar.admin.manifest import Adopted, Reserved
from magnetar.admin.permissions import GrantsOf
from magnetar.admin.plain import restore, to_line
from magnetar.admin.reasons import Why
from magnetar.admin.topic_schema import TopicSchemaVersion
from magnetar.admin.users import User
from magnetar.base.audit import Act, Actor, Outcome, note

if TYPE_CHECKING:
    from magnetar.admin.live import LiveBroker


@dataclass(frozen=True, slots=True)
class Question:
    """One question: the method of `LiveBroker` that answers it, what it takes, and what it gives."""

    method: str
    takes: Mapping[str, type]
    gives: Any
    changes: bool = False
    """True for an order, which changes something."""


_PARTITION = {"topic": str, "partition": int}
_PARTITIONS = {"topic": str, "partitions": list[int]}
QUESTIONS = {
    "health": Question("health", {}, Health),
    "state": Question("state", {}, BrokerState),
    "knows-client": Question("knows_client", {"software": str}, bool),
    "inventory": Question("inventory", {}, Inventory),
    "metrics": Question("metrics", {}, str),
    "stacks": Question("stacks", {}, str),
    "recent-log": Question("recent_log", {}, tuple[str, ...]),
    "redact": Question("redact", {"texts": list[str]}, tuple[str, ...]),
    "explain": Question("explain", {**_PARTITION, "offset": int}, Explained),
    "ledgers": Question("ledgers", _PARTITION, PartitionLedgers),
    "schemas": Question("schemas", {"topic": str}, tuple[TopicSchemaVersion, ...]),
    "why-partition": Question("why_partition", _PARTITION, Why),
    "compact": Question("compact", _PARTITIONS, TopicCompaction, changes=True),
    "compaction": Question("compaction", _PARTITIONS, TopicCompaction),
    "permissions": Question("permissions", {"target": str}, GrantsOf),
    "grant": Question("grant", {"target": str, "role": str, "actions": list[str]}, GrantsOf, changes=True),
    "revoke": Question("revoke", {"target": str, "role": str}, GrantsOf, changes=True),
    "restrict": Question(
        "restrict", {"namespace": str, "subscription": str, "roles": list[str]}, GrantsOf, changes=True
    ),
    "set-admins": Question("set_admins", {"tenant": str, "roles": list[str]}, tuple[str, ...], changes=True),
    "users": Question("users", {}, tuple[User, ...]),
    "set-user": Question(
        "set_user",
        {"user": str, "password": str, "mechanisms": list[str], "iterations": int},
        tuple[User, ...],
        changes=True,
    ),
    "delete-user": Question("delete_user", {"user": str}, tuple[User, ...], changes=True),
    "why-group": Question("why_group", {"group": str}, Why),
    "reserve-ledgers": Question("reserve_ledgers", {"manifest": str}, Reserved, changes=True),
    "adopt-ledgers": Question("adopt_ledgers", {"manifest": str}, Adopted, changes=True),
}


async def answer(line: bytes, broker: LiveBroker) -> bytes:
    """Return the answer to one question, as one line; an error is an answer too."""
    try:
        question, given = _parse(line)
        value = await getattr(broker, question.method)(**given)
    except AdminError as error:
        return to_line(as_error(error))
    return to_line({"answer": value})


def note_order(line: bytes, reply: bytes, operator: str) -> None:
    """Write the audit line of what an operator of this machine had done; nothing for what only asks."""
    try:
        given = json.loads(line)
        name = given.pop("ask")
        if not QUESTIONS[name].changes:
            return
        error = json.loads(reply).get("error")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return  # the answer says what is wrong with it
    about = next(
        (each for each in ("topic", "target", "namespace", "tenant", "user", "manifest") if each in given), ""
    )
    outcome = Outcome.DONE if error is None else Outcome.FAILED
    note(
        Actor(operator, "socket"),
        Act(
            name,
            about,
            str(given.get(about, "")),
            outcome,
            "" if error is None else error["message"],
            asked=given,
        ),
    )


def as_error(error: AdminError) -> dict[str, object]:
    """Return what is told of an error, by which `read_answer` makes it again."""
    told = {"kind": type(error).__name__, "message": str(error), "next_step": error.next_step}
    return {"error": told}


def _parse(line: bytes) -> tuple[Question, dict[str, object]]:
    try:
        given = json.loads(line)
        name = given.pop("ask")
        known = name in QUESTIONS
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise Invalid(f"not a question: {error!r}", f"Known are {', '.join(QUESTIONS)}.") from error
    if not known:
        raise Invalid(f"not a question: {name!r}", f"Known are {', '.join(QUESTIONS)}.")
    return parse(name, given)


def parse(name: str, given: dict[str, object]) -> tuple[Question, dict[str, object]]:
    """Return a question and what it is given; raise `Invalid` if that is not what it takes."""
    question = QUESTIONS[name]
    takes = question.takes
    if given.keys() != takes.keys() or not all(_is(given[name], kind) for name, kind in takes.items()):
        raise Invalid(f"it takes {', '.join(f'{name} ({kind.__name__})' for name, kind in takes.items())}")
    return question, given


def _is(value: object, kind: type) -> bool:
    """Return whether a value is of a kind, in a list each of its elements; of these, true is no number."""
    if of := get_args(kind):
        return isinstance(value, list) and all(type(each) is of[0] for each in value)
    return type(value) is kind


def ask_line(ask: str, given: Mapping[str, object]) -> bytes:
    """Return the line that asks."""
    return to_line({"ask": ask, **given})


def read_answer(ask: str, line: bytes) -> object:
    """Return the value that an answer holds, or raise the error that it is."""
    try:
        said = json.loads(line)
        if "error" in said:
            error = said["error"]
            raise _KINDS.get(error["kind"], AdminError)(error["message"], error["next_step"])
        return restore(QUESTIONS[ask].gives, said["answer"])
    except (ValueError, KeyError, TypeError) as error:
        raise Declined(
            f"the broker's answer cannot be read: {error!r}", "Are both of one version?"
        ) from error


_KINDS = {each.__name__: each for each in vars(errors).values() if isinstance(each, type)}
