"""How one kind of command is handled, and how it is refused."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, ServerError

Handle = Callable[[Any, Any, memoryview], Coroutine[Any, Any, None] | None]
"""Is given the connection, the command and the entry with it; what must wait is given back as a coroutine."""
Refusal = Callable[[Any, ServerError, str], BaseCommand | None]
"""Is given the command, Pulsar's number and words; None where Pulsar says nothing."""


class CommandRoute(NamedTuple):
    """One kind of command: where it stands in ``BaseCommand``, who handles it, and how its errors look."""

    field: str
    handle: Handle
    refusal: Refusal


def error_answer(command: Any, code: ServerError, message: str) -> BaseCommand | None:
    """Refuse with ERROR, as most commands are."""
    answer = BaseCommand(type=BaseCommand.ERROR)
    answer.error.request_id = command.request_id
    answer.error.error = code
    answer.error.message = message
    return answer


def silence(command: Any, code: ServerError, message: str) -> BaseCommand | None:
    """Refuse without a word: the command has no answer."""
    return None


def success(request_id: int) -> BaseCommand:
    """Return the answer of commands that have nothing more to say."""
    answer = BaseCommand(type=BaseCommand.SUCCESS)
    answer.success.request_id = request_id
    return answer
