"""Whether one connection's socket is read: a small machine that sees no socket and no request, only facts.

              muted   more waits than may   none of these   no room in the budget   ended
    READING   MUTED   CROWDED               READING         SHORT                   ENDED
    MUTED     MUTED   CROWDED               READING         SHORT                   ENDED
    CROWDED   MUTED   CROWDED               READING         SHORT                   ENDED
    SHORT     MUTED   CROWDED               READING         SHORT                   ENDED
    ENDED     ENDED   ENDED                 ENDED           ENDED                   ENDED

The next state depends on the facts alone, not on what happened: nobody has to know which event ends a pause. All that
is needed is that `look` is called whenever a fact may have changed, so after each of these:

    bytes came; requests were taken up or answered, whether or not an answer was sent (acks=0 wants none);
    the budget reported room again
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

MAX_WAITING_BYTES = 512 << 10
"""Of whole requests that were not begun; beyond it no more are read. What waits in the socket costs the broker nothing;
what waits here is memory, and has left the processor's caches by the time that it is written to a log."""


class ReadingState(Enum):
    """Why a connection is read, or is not."""

    READING = auto()
    MUTED = auto()
    """Its client has used up its quota, and waits (KIP-219)."""
    CROWDED = auto()
    """Enough of its requests wait, or large ones; read on when some were begun."""
    SHORT = auto()
    """All clients together hold too much; read on when the budget has room."""
    ENDED = auto()


class Reading:
    """The reading of one connection. ``switch`` starts (True) and stops (False) it at the socket; it begins started.

    ``may_take_more`` asks the budget, which notifies later if it refuses (`magnetar.serving.memory.Account`).
    """

    __slots__ = ("_is_muted", "_may_take_more", "_switch", "max_waiting", "state")

    def __init__(
        self, max_waiting: int, may_take_more: Callable[[], bool], switch: Callable[[bool], None]
    ) -> None:
        self.max_waiting = max_waiting
        self.state = ReadingState.READING
        self._is_muted = False
        self._may_take_more = may_take_more
        self._switch = switch

    def look(self, waiting: int, nbytes: int = 0) -> None:
        """Go to the state that the facts require; ``waiting`` requests wait, those not begun have ``nbytes`` bytes."""
        if self.state is ReadingState.ENDED:
            return
        is_crowded = waiting > self.max_waiting or nbytes > MAX_WAITING_BYTES
        if self.state is ReadingState.READING and not is_crowded and self._may_take_more():
            return  # nearly always
        if self._is_muted:
            self._go_to(ReadingState.MUTED)
        elif is_crowded:
            self._go_to(ReadingState.CROWDED)
        elif self._may_take_more():
            self._go_to(ReadingState.READING)
        else:
            self._go_to(ReadingState.SHORT)

    def mute(self, on: bool) -> None:
        """Stop reading now; or (off) let the other facts decide, from the next `look` on."""
        self._is_muted = on
        if on and self.state is not ReadingState.ENDED:
            self._go_to(ReadingState.MUTED)

    def end(self) -> None:
        """The connection closes: nothing starts its reading again."""
        self.state = ReadingState.ENDED

    def _go_to(self, state: ReadingState) -> None:
        before, self.state = self.state, state
        if (before is ReadingState.READING) is not (state is ReadingState.READING):
            self._switch(state is ReadingState.READING)
