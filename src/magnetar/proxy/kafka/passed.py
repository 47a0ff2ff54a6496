"""Which APIs and versions clients of a proxy are offered: where a route sends its requests stands on the route.

What a broker is asked for by rows (partitions, groups, transactional ids) is cut by who has them and its answers are
joined (`magnetar.proxy.kafka.spreading`), Fetch in a way of its own (`magnetar.proxy.kafka.fetching`).
"""

from __future__ import annotations

from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.kafka.rows import Way
from magnetar.wire.kafka.messages import ApiKey

_FIRST: dict[int, int] = {ApiKey.SASL_HANDSHAKE: 1}
"""Where the proxy begins later than brokers do: with SaslHandshake 0 tokens come without a header."""


def versions_of(api_key: int) -> range:
    """Return the versions that the proxy passes on; none of an API that it, or our brokers, do not know."""
    route = ROUTE_BY_KEY.get(api_key)
    if route is None or route.way is Way.NOT_PASSED:
        return range(0)
    return range(max(route.first, _FIRST.get(api_key, 0)), route.last + 1)
