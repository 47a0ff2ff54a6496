"""One line for clients that end each connection after the first answer, which otherwise leave no trace in the log.

A client that cannot read the answer to ApiVersions, or does not find in it what it needs, closes its connection and
tries again, for ever. That is seen when connection after connection of the same software at the same address asks for
nothing else. A single one means nothing: clients open connections that they then do not need.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from magnetar.base.some_lines import SomeLines

IN_A_ROW = 5
WITHIN_S = 60.0
"""A row that takes longer begins again."""
SILENT_S = 600.0
"""As long nothing more is logged of the same software at the same address."""
MOST = 1_000

Who = tuple[str, str, str]
"""An address, and the name and version of the software there."""


class GivingUp:
    """Counts the connections that ended so, by who made them."""

    __slots__ = ("_clock", "_lines", "_logged_s", "_rows")

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines = SomeLines(log, clock)
        self._rows: OrderedDict[Who, tuple[int, float]] = OrderedDict()
        """How many in a row, and when that began."""
        self._logged_s: OrderedDict[Who, float] = OrderedDict()

    def went_further(self, who: Who) -> None:
        """A connection ended that had asked for more."""
        self._rows.pop(who, None)

    def gave_up(self, who: Who, client_id: str) -> None:
        """A connection ended that had asked for ApiVersions and nothing else."""
        now_s = self._clock()
        count, since_s = self._rows.pop(who, (0, now_s))
        if now_s - since_s > WITHIN_S:
            count, since_s = 0, now_s
        self._rows[who] = count + 1, since_s
        if len(self._rows) > MOST:
            self._rows.popitem(last=False)
        if count + 1 >= IN_A_ROW and now_s - self._logged_s.get(who, -SILENT_S) >= SILENT_S:
            self._log(who, client_id, now_s)

    def _log(self, who: Who, client_id: str, now_s: float) -> None:
        self._logged_s.pop(who, None)
        self._logged_s[who] = now_s
        if len(self._logged_s) > MOST:
            self._logged_s.popitem(last=False)
        peer, name, version = who
        software = f"{name} {version}" if name else "a client that does not name its software"
        self._lines.warning(
            "%d connections in a row from %s ended right after ApiVersions: %.200r (client id %.80r) may not be able "
            "to use what it lists; the client's own log says why",
            IN_A_ROW,
            peer,
            software,
            client_id,
        )
