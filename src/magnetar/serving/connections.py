"""Limits of connections, in all and by address, for all protocols."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from magnetar.settings.settings import Settings


class Connections:
    """All connections of a broker. Each that `came` counts must be taken out by `left`, also one that was refused."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._by_host: Counter[str] = Counter()
        self.count = 0

    def came(self, host: str) -> bool:
        """Count a connection; return whether it may stay (``max.connections``, ``max.connections.per.ip``)."""
        self.count += 1
        self._by_host[host] += 1
        settings = self._settings().connections
        return (
            self.count <= settings.max_connections and self._by_host[host] <= settings.max_connections_per_ip
        )

    def left(self, host: str) -> None:
        """Stop counting a connection."""
        self.count -= 1
        self._by_host[host] -= 1
        if self._by_host[host] <= 0:
            del self._by_host[host]
