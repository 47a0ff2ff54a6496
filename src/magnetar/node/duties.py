"""What a broker does beside requests for all its topics, whichever protocols it serves."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.ledger.port import wall_clock_ms
from magnetar.node.broker import Broker
from magnetar.node.cleaner import Cleaner
from magnetar.node.compaction_monitor import CompactionMonitor
from magnetar.node.left_open import LeftOpen
from magnetar.node.retention import Retention


class Duties:
    """Retention, the log cleaner, compaction past a threshold, limits of backlogs, and what dead brokers left open.

    Ended with `Background`.
    """

    def __init__(self, broker: Broker, clock: Callable[[], int] = wall_clock_ms) -> None:
        self.retention = Retention(broker, clock)
        self.cleaner = Cleaner(broker, clock)
        self.compaction_monitor = CompactionMonitor(broker.logs, lambda: broker.settings, broker.background)
        self._broker = broker
        self._clock = clock

    def start(self) -> None:
        """Begin all of them."""
        self.retention.start()
        self.cleaner.start()
        self.compaction_monitor.start()
        if self._broker.engine.opens_slowly:
            self._broker.events.bundle_acquired.append(LeftOpen(self._broker).acquired)
        self._broker.logs.offloading.start()
        self._broker.logs.backlogs.start(self._broker.background)
        security = self._broker.settings.security
        if security.delegation_token_secret_key:
            tokens = self._broker.security.delegation_tokens
            self._broker.background.repeat(
                "delegation tokens that have ended",
                lambda: security.delegation_token_expiry_check_interval_ms / 1000,
                lambda: tokens.tidy(self._clock()),
            )
