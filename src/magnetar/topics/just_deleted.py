"""Topics that were deleted a moment ago, and their successors, which Kafka clients do not see at once.

A client that deletes a topic and waits until it is gone asks for it again and again, and by that it may make it anew.
On Kafka such a client always finds the topic unknown first, and for some 30 to 60 ms, in which the controller makes the
new one. Here making a topic takes 2 ms, so its successor is withheld for as long as there.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from magnetar.topics.names import TopicName

REMEMBERED_S = 10.0
"""Clients that wait for a deletion begin to ask at once."""
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
        """Withhold a topic that was made now because a client asked for it, if one of its name was just deleted."""
        if self._is_remembered(name):
            self._made_s[name] = self._clock()

    def withholds(self, name: TopicName) -> bool:
        """Whether clients that ask for the topic are to find it unknown still."""
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
