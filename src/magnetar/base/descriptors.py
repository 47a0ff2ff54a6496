"""Whether the process still gets descriptors. Without them the system closes new connections as soon as they come, and
neither the event loop nor a client that is turned away can tell why.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
from collections.abc import Callable

AGAIN_AFTER_S = 60.0
_log = logging.getLogger("magnetar.broker")


def take_one() -> None:
    """Get a descriptor and give it back; raise ``OSError`` if there is none."""
    os.close(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))


class DescriptorWatch:
    """Says in the log, once a minute at most, that there are none, and once that there are some again."""

    def __init__(self, clock: Callable[[], float], take: Callable[[], None] = take_one) -> None:
        self._clock = clock
        self._take = take
        self._said_at: float | None = None

    async def look(self) -> None:
        """See whether there is one."""
        try:
            self._take()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self._say(error)
            return
        if self._said_at is not None:
            self._said_at = None
            _log.warning("there are file descriptors again: new connections are taken")

    def _say(self, error: OSError) -> None:
        now = self._clock()
        if self._said_at is not None and now - self._said_at < AGAIN_AFTER_S:
            return
        self._said_at = now
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        _log.error(
            "%s (%d for this process): new connections are closed, and new ledgers cannot be opened. Allow it more "
            "(ulimit -n, LimitNOFILE), or bound max.connections.",
            os.strerror(error.errno or errno.EMFILE),
            limit,
        )
