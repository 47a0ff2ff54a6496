"""Clients' metrics (KIP-714) once somebody asks for some: most brokers never do, and go without their modules."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from magnetar.metadata.cache import MetadataCache
from magnetar.metadata.when_there import WhenThere

if TYPE_CHECKING:
    from magnetar.kafka.client_metrics.instances import Telemetry
    from magnetar.kafka.client_metrics.subscriptions import ClientMetrics

_ROOT = "/magnetar/client-metrics"


class LazyClientMetrics:
    """What is asked for of one broker's clients, and the clients that push it."""

    def __init__(self, metadata: MetadataCache, clock_ms: Callable[[], int]) -> None:
        self._metadata = metadata
        self._clock_ms = clock_ms
        self.kept = WhenThere(_ROOT, self._made)
        """The subscriptions; to be followed."""

    def _made(self) -> ClientMetrics:
        from magnetar.kafka.client_metrics.subscriptions import ClientMetrics

        return ClientMetrics(self._metadata)

    @property
    def is_asked_for(self) -> bool:
        """Whether anything is asked for of any client; otherwise none is told that it may be."""
        return self.kept.made is not None and bool(self.kept.made.subscriptions)

    def get(self) -> ClientMetrics:
        """Return the subscriptions."""
        return self.kept.get()

    @cached_property
    def telemetry(self) -> Telemetry:
        """The clients."""
        from magnetar.kafka.client_metrics.instances import Telemetry

        return Telemetry(self.get(), self._clock_ms)

    @property
    def pushed(self) -> tuple[int, int]:
        """How often clients have pushed, and how many bytes."""
        if "telemetry" not in vars(self):
            return 0, 0
        return self.telemetry.pushes, self.telemetry.pushed_bytes
