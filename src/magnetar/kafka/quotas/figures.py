"""Tables of what clients with quotas use, and of how often and how long they were made to wait."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from magnetar.figures.figures import Family, FigureTable, labelled
from magnetar.kafka.quotas.managers import QuotaManagers
from magnetar.kafka.quotas.meters import Metered, Meters
from magnetar.topics.client_quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

_AT_A_STRETCH = 50
_USED = {
    PRODUCER_BYTE_RATE: Family("kafka_server_produce_byte_rate", "gauge", "Bytes per second that came in."),
    CONSUMER_BYTE_RATE: Family("kafka_server_fetch_byte_rate", "gauge", "Bytes per second that went out."),
    REQUEST_PERCENTAGE: Family(
        "kafka_server_request_request_time", "gauge", "Part of the event loop's time, in percent."
    ),
    CONTROLLER_MUTATION_RATE: Family(
        "kafka_server_controllermutation_tokens", "gauge", "Partitions that may be made or deleted now."
    ),
}
_THROTTLED = (
    Family("magnetar_quota_throttled_total", "counter", "How often a client was made to wait."),
    Family("magnetar_quota_throttled_seconds_total", "counter", "How long, in all."),
)


def quota_tables(quotas: QuotaManagers, most: int) -> Iterator[FigureTable | None]:
    """Yield the tables, of each quota at most so many lines."""
    now_ms = quotas.now_ms()
    throttled: list[tuple[Any, ...]] = []
    rates = (
        (PRODUCER_BYTE_RATE, quotas.produce),
        (CONSUMER_BYTE_RATE, quotas.fetch),
        (REQUEST_PERCENTAGE, quotas.request),
        (CONNECTION_CREATION_RATE, quotas.connections),
    )
    for key, meters in rates:
        used = []
        for number, metered in enumerate(_some(meters, most)):
            who = _who(key, metered)
            used.append((labelled(**who), metered.meter.rate(now_ms)))
            throttled.append(_throttled(key, who, metered))
            if number % _AT_A_STRETCH == 0:
                yield None
        if key in _USED:
            yield FigureTable((_USED[key],), used)
    tokens = []
    for each in _some(quotas.controller_mutation, most):
        who = _who(CONTROLLER_MUTATION_RATE, each)
        tokens.append((labelled(**who), each.meter.tokens(each.bound, now_ms)))
        throttled.append(_throttled(CONTROLLER_MUTATION_RATE, who, each))
        yield None
    yield FigureTable((_USED[CONTROLLER_MUTATION_RATE],), tokens)
    yield FigureTable(_THROTTLED, throttled)


def _some(meters: Meters[Any], most: int) -> list[Metered[Any]]:
    return list(islice(meters.all.values(), most))


def _who(key: str, metered: Metered[Any]) -> dict[str, str]:
    user, client_id = metered.who
    return {"ip": client_id} if key == CONNECTION_CREATION_RATE else {"user": user, "client_id": client_id}


def _throttled(key: str, who: dict[str, str], metered: Metered[Any]) -> tuple[Any, ...]:
    return labelled(quota=key, **who), metered.throttled, metered.throttled_ms / 1000
