"""What a consumer asks for when it subscribes, and the subscription that is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from magnetar.ledger.cursors.cursor import Cursor, Start
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.key_shared import KeyShared
from magnetar.pulsar.dispatch.keys import Division
from magnetar.pulsar.dispatch.reading import Readings
from magnetar.pulsar.dispatch.shared import Shared
from magnetar.pulsar.dispatch.single_active import SingleActive
from magnetar.pulsar.dispatch.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a consumer asks for when it subscribes."""

    subscription: str
    sub_type: SubType
    durable: bool = True
    start: Start = Start.latest
    start_place: tuple[int, int] | None = None
    """For a subscription that is not durable: the entry to begin with."""
    rollback_ms: int = 0
    create: bool = True
    division: Division = Division.RING
    any_order: bool = False
    properties: Mapping[str, str] | None = None
    is_group: bool = False
    """Whether it is to follow a Kafka group of that name."""


def subscription_of(wanted: Wanted, cursor: Cursor, readings: Readings) -> Subscription:
    """Make a subscription of the wanted type."""
    name = wanted.subscription
    if wanted.sub_type == SubType.Shared:
        return Shared(name, cursor, readings)
    if wanted.sub_type == SubType.Key_Shared:
        return KeyShared(name, cursor, readings, division=wanted.division, any_order=wanted.any_order)
    return SingleActive(name, cursor, readings, wanted.sub_type)


def is_as_wanted(found: Subscription, wanted: Wanted) -> bool:
    """Whether a subscription that is there is of the wanted type, and divides keys in the wanted way."""
    same_keys = not isinstance(found, KeyShared) or found.division is wanted.division
    return found.sub_type == wanted.sub_type and same_keys
