"""Whether a broker serves, and what is not as it should be: the same facts as ``/health`` and ``/ready`` over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.node.broker import Broker


class Status(StrEnum):
    """Status of a broker. The values are stable: scripts may match them."""

    OK = "ok"
    DEGRADED = "degraded"
    """It serves, but an operator should act: a full disk, a slow journal, a certificate near its end."""
    STARTING = "starting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Health:
    """The status, and each reason for it as a sentence; no reasons where all is well."""

    status: Status
    reasons: tuple[str, ...] = ()


async def health_of(broker: Broker) -> Health:
    """Return a running broker's health; storage and metadata are asked, so that their errors show."""
    for status, reasons in (
        (Status.FAILED, await broker.troubles()),
        (Status.STARTING, broker.waits_for()),
        (Status.DEGRADED, broker.health.conditions.texts()),
    ):
        if reasons:
            return Health(status, tuple(reasons))
    return Health(Status.OK)
