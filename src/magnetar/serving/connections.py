"""How many connections there are, whatever they speak, and from where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from magnetar.settings.settings import Settings


class Connections:
    """All of a broker. What is counted is taken out again by `left`, also when it was not let in."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._by_host: Counter[str] = Counter()
        self.count = 0

    def came(self, host: str) -> bool:
        """Count a connection; tell whether it may stay (``max.connections``, ``max.connections.per.ip``)."""
        self.count += 1
        self._by_host[host] += 1
        settings = self._settings().connections
        return (
            self.count <= settings.max_connections and self._by_host[host] <= settings.max_connections_per_ip
        )

    def left(self, host: str) -> None:
        """Count it no more."""
        self.count -= 1
        self._by_host[host] -= 1
        if self._by_host[host] <= 0:
            del self._by_host[host]
