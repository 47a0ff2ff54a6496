"""Topics that were deleted a moment ago, and their successors, which Kafka clients do not see immediately.

A client that deletes a topic and waits until it is gone asks for it again and again, which may create it again. On
Kafka such a client always finds the topic unknown first, for some 30 to 60 ms, in which the controller creates the new
one. Here creating a topic takes 2 ms, so its successor is withheld as long as on Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from magnetar.topics.names import TopicName

REMEMBERED_S = 10.0
"""How long a deletion is remembered. Clients that wait for one begin to ask immediately."""
WITHHELD_S = 0.05
MOST = 10_000


class JustDeleted:
    """Which topics were deleted in the last `REMEMBERED_S` seconds, and since when each has a successor."""

    __slots__ = ("_clock", "_deleted_s", "_made_s")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deleted_s: dict[TopicName, float] = {}
        self._made_s: dict[TopicName, float] = {}

    def note(self, name: TopicName) -> None:
        """Remember that a topic was deleted now."""
        self._made_s.pop(name, None)
        self._deleted_s.pop(name, None)
        self._deleted_s[name] = self._clock()
        oldest = next(iter(self._deleted_s))
        while len(self._deleted_s) > MOST or not self._is_remembered(oldest):
            self._forget(oldest)
            oldest = next(iter(self._deleted_s))

    def made_again(self, name: TopicName) -> None:
        """Withhold a topic that was created now by a client's question, if one of its name was just deleted."""
        if self._is_remembered(name):
            self._made_s[name] = self._clock()

    def withholds(self, name: TopicName) -> bool:
        """True if clients that ask for the topic must still find it unknown."""
        made_s = self._made_s.get(name)
        if made_s is None:
            return False
        if self._clock() - made_s < WITHHELD_S:
            return True
        self._forget(name)
        return False

    def _is_remembered(self, name: TopicName) -> bool:
        deleted_s = self._deleted_s.get(name)
        return deleted_s is not None and self._clock() - deleted_s < REMEMBERED_S

    def _forget(self, name: TopicName) -> None:
        self._deleted_s.pop(name, None)
        self._made_s.pop(name, None)
