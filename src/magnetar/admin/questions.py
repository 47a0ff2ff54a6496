"""What may be asked over the admin socket: one JSON line per question, one per answer. Lines in, lines out.

{"ask": "explain", "topic": "flights", "partition": 3, "offset": 1234}
{"answer": {...}}   or   {"error": {"kind": "NotThere", "message": "...", "next_step": "..."}}
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from magnetar.admin import errors
from magnetar.admin.errors import AdminError, Declined, Invalid
from magnetar.admin.explain import Explained
from magnetar.admin.ledgers_of import PartitionLedgers
from magnetar.admin.live import LiveBroker
from magnetar.admin.plain import restore, to_line
from magnetar.admin.reasons import Why

T = TypeVar("T")
Question = Callable[..., Awaitable[object]]

QUESTIONS: dict[str, tuple[Question, type]] = {
    "explain": (LiveBroker.explain, Explained),
    "ledgers": (LiveBroker.ledgers, PartitionLedgers),
    "why-partition": (LiveBroker.why_partition, Why),
    "why-group": (LiveBroker.why_group, Why),
}
"""By name: the method that answers, and the type of its answer."""


async def answer(line: bytes, broker: LiveBroker) -> bytes:
    """Give the answer to one question, as one line; an error is an answer too."""
    try:
        question, given = _parse(line)
        value = await question(broker, **given)
    except AdminError as error:
        told = {"kind": type(error).__name__, "message": str(error), "next_step": error.next_step}
        return to_line({"error": told})
    return to_line({"answer": value})


def _parse(line: bytes) -> tuple[Question, dict[str, Any]]:
    try:
        given = json.loads(line)
        question, _ = QUESTIONS[given.pop("ask")]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise Invalid(f"not a question: {error!r}", f"Known are {', '.join(QUESTIONS)}.") from error
    wanted = _parameters(question)
    if given.keys() != wanted.keys() or any(type(given[name]) is not kind for name, kind in wanted.items()):
        raise Invalid(f"it takes {', '.join(f'{name} ({kind.__name__})' for name, kind in wanted.items())}")
    return question, given


def _parameters(question: Question) -> dict[str, type]:
    signature = inspect.signature(question, eval_str=True)
    return {name: each.annotation for name, each in signature.parameters.items() if name != "self"}


def ask_line(ask: str, given: Mapping[str, object]) -> bytes:
    """Give the line that asks."""
    return to_line({"ask": ask, **given})


def read_answer(ask: str, line: bytes) -> object:
    """Give the value that an answer holds, or raise the error that it is."""
    try:
        said = json.loads(line)
        if "error" in said:
            error = said["error"]
            raise _KINDS.get(error["kind"], AdminError)(error["message"], error["next_step"])
        return restore(QUESTIONS[ask][1], said["answer"])
    except (ValueError, KeyError, TypeError) as error:
        raise Declined(
            f"the broker's answer cannot be read: {error!r}", "Are both of one version?"
        ) from error


_KINDS = {each.__name__: each for each in vars(errors).values() if isinstance(each, type)}
