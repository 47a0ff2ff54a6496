"""Backlogs held to their limits: messages that are too old (TTL), and quotas, each as often as settings say.

Whoever keeps subscriptions hands in the topics that a limit may concern; one leaves the list when none does any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from magnetar.base.background import Background
from magnetar.base.slices import sliced
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.port import wall_clock_ms
from magnetar.metadata import MetadataError
from magnetar.records.errors import RecordsError
from magnetar.settings.settings import Settings

_EVERY_S = 1.0
_log = logging.getLogger("magnetar.broker")


class Backlog(Protocol):
    """What subscriptions of one partition have not acknowledged."""

    @property
    def name(self) -> str: ...

    @property
    def is_bounded(self) -> bool:
        """Whether a limit may concern it."""
        ...

    async def expire(self, now_ms: int) -> None:
        """Pass over what is older than its TTL."""
        ...

    async def enforce(self, now_ms: int) -> None:
        """Do what its quotas say, if it is past them."""
        ...


class Backlogs:
    """Looks at backlogs that have limits, once a second at most."""

    def __init__(self, settings: Callable[[], Settings], clock: Callable[[], int] = wall_clock_ms) -> None:
        self._settings = settings
        self._clock = clock
        self._bounded: dict[Backlog, None] = {}
        self._rounds = 0

    def start(self, background: Background) -> None:
        """Begin to look."""
        background.repeat("holding backlogs to their limits", lambda: _EVERY_S, self.look, essential=True)

    def add(self, backlog: Backlog) -> None:
        """Have a backlog looked at from now on, for as long as a limit may concern it."""
        self._bounded[backlog] = None

    def remove(self, backlog: Backlog) -> None:
        """Have it looked at no more."""
        self._bounded.pop(backlog, None)

    async def look(self) -> None:
        """Do one round; what fails is logged, and tried again in the next one."""
        self._rounds += 1
        settings = self._settings().topics
        expires = self._rounds % settings.message_expiry_check_interval_seconds == 0
        enforces = self._rounds % settings.backlog_quota_check_interval_in_seconds == 0
        if not expires and not enforces:
            return
        async for backlog in sliced(self._bounded):
            try:
                if backlog in self._bounded and expires:
                    await backlog.expire(self._clock())
                if backlog in self._bounded and enforces:
                    await backlog.enforce(self._clock())
            except (LedgerError, MetadataError, RecordsError) as error:
                _log.error("%s cannot be held to its limits: %s", backlog.name, error)
                continue
            if not backlog.is_bounded:
                self.remove(backlog)
