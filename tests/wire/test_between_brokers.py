"""The API that brokers ask each other and no client is told of."""

from __future__ import annotations

import pytest

from magnetar.kafka.handlers import ROUTES, between_brokers
from magnetar.kafka.route import Route
from magnetar.wire.kafka.between_brokers import (
    BETWEEN_BROKERS_KEY,
    BetweenBrokersRequest,
    BetweenBrokersResponse,
)
from magnetar.wire.kafka.malformed import WireError


@pytest.mark.parametrize("asked", [b"", b"[1]", bytes(range(256))])
def test_what_is_written_is_read(asked: bytes) -> None:
    request = BetweenBrokersRequest("transactions.ënd", asked)
    assert BetweenBrokersRequest.decode(request.encode(0), 0) == request
    answer = BetweenBrokersResponse(asked)
    assert BetweenBrokersResponse.decode(answer.encode(0), 0) == answer


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\5ab", b"\xff\xffab", b"\0\1\xff"])
def test_what_is_damaged_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        BetweenBrokersRequest.decode(data, 0)


def test_clients_are_told_of_no_such_api() -> None:
    assert BETWEEN_BROKERS_KEY not in [route.api_key for route in ROUTES]


def test_its_route_has_all_that_a_connection_asks_of_one() -> None:
    """It is made without `Route`'s constructor: what is added there has to be added here."""
    for name in Route.__slots__:
        getattr(between_brokers.ROUTE, name)
