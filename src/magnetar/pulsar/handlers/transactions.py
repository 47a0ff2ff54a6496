"""Pulsar's transactions are not served: their commands are refused as by a broker that has them switched off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.pulsar.errors import NotAllowed
from magnetar.pulsar.route import Refusal
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, ServerError

if TYPE_CHECKING:
    from magnetar.pulsar.connection import PulsarConnection


def refuse(connection: PulsarConnection, command: Any, entry: memoryview) -> None:
    """Say that transactions are not enabled."""
    raise NotAllowed("Transaction manager is not started or not enabled")


def refusal(answer_type: BaseCommand.Type, field: str) -> Refusal:
    """Return how one of the commands is refused: with its own answer."""

    def refused(command: Any, code: ServerError, message: str) -> BaseCommand | None:
        answer = BaseCommand(type=answer_type)
        body = getattr(answer, field)
        body.request_id = command.request_id
        body.error = code
        body.message = message
        return answer

    return refused
