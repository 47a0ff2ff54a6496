"""Whether one client's next command is taken up, and whether its socket is read: a machine that sees neither.

The state says why nothing is taken up right now. The socket is read in state IDLE alone, and while it is SERVING:

    state       because                                             until
    IDLE        no whole command has come                           bytes come
    SERVING     commands are being taken up at this moment          that has ended
    PROVING     it is being found out who speaks                    that is known
    UNSETTLED   too many of its messages wait to be stored,         some are
                or one for the ledger that it goes to
    BUSY        too many of its commands are under way              one is done
    BEHIND      it does not take its answers                        it takes them
    THROTTLED   its producers sent faster than they may             a time
    SHORT       clients hold more memory than there is              there is room
    DUE         others have their turn first                        the loop's next turn
    ENDED       it is over                                          -

The next state depends on what is so, not on what happened: nobody has to know which event ends which wait. All that is
needed is that `went_on` is called when something may have ended, and `go_on` when bytes came.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import Enum, auto

MAX_COMMANDS = 200
TURN_S = 0.003
"""After so many commands, or so long, others have a turn."""


class PulsarServingState(Enum):
    """Why nothing is taken up."""

    IDLE = auto()
    SERVING = auto()
    PROVING = auto()
    UNSETTLED = auto()
    BUSY = auto()
    BEHIND = auto()
    THROTTLED = auto()
    SHORT = auto()
    DUE = auto()
    ENDED = auto()


IDLE, SERVING, PROVING, UNSETTLED, BUSY, BEHIND, THROTTLED, SHORT, DUE, ENDED = PulsarServingState


class PulsarServing:
    """The serving of one client.

    ``take_up`` takes up the next command, and says whether there was one. ``held_up`` says what keeps it from that,
    None for nothing. ``count`` counts what is kept for the client, ``has_room`` says whether more may be. ``read``
    starts and stops the reading of the socket, which is started at first. ``later`` has a function called in the loop's
    next turn, ``when_throttled`` when its client may send again. What is appended while in ``gathering`` is written at
    its end.
    """

    __slots__ = (
        "_clock",
        "_count",
        "_gathering",
        "_has_room",
        "_held_up",
        "_later",
        "_read",
        "_take_up",
        "_when_throttled",
        "reads",
        "state",
    )

    def __init__(
        self,
        take_up: Callable[[], bool],
        held_up: Callable[[], PulsarServingState | None],
        count: Callable[[], object],
        has_room: Callable[[], bool],
        read: Callable[[bool], None],
        *,
        later: Callable[[Callable[[], None]], object],
        when_throttled: Callable[[Callable[[], None]], object],
        gathering: Callable[[], AbstractContextManager[None]],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.state = IDLE
        self.reads = True
        self._take_up = take_up
        self._held_up = held_up
        self._count = count
        self._has_room = has_room
        self._read = read
        self._later = later
        self._when_throttled = when_throttled
        self._gathering = gathering
        self._clock = clock

    def go_on(self) -> None:
        """Bytes have come: take up whole commands as long as that may be; see whether to read on."""
        if self.state is SERVING or self.state is ENDED:
            return
        self.state = SERVING
        why = IDLE
        try:
            with self._gathering():
                why = self._take_up_some()
        finally:
            if self.state is SERVING:
                self._stop(why)

    def went_on(self) -> None:
        """Something that may have held it up has ended, and it need not go on within that."""
        if self.state is not IDLE and self.state is not SERVING and self.state is not DUE:
            self._become_due()

    def end(self) -> None:
        """Nothing more is taken up."""
        self.state = ENDED

    def _take_up_some(self) -> PulsarServingState:
        clock = self._clock
        until = clock() + TURN_S
        for _ in range(MAX_COMMANDS):
            why = self._held_up()
            if why is not None:
                return why
            if not self._take_up():
                return IDLE
            if self.state is not SERVING or clock() > until:
                break
        return DUE

    def _stop(self, why: PulsarServingState) -> None:
        self._count()
        if why is IDLE and not self._has_room():
            why = SHORT
        self.state = why
        reads = why is IDLE
        if reads is not self.reads:
            self.reads = reads
            self._read(reads)
        if why is DUE:
            self._become_due()
        elif why is THROTTLED:
            self._when_throttled(self.went_on)
        elif why is not IDLE and why is not SHORT and self._held_up() is None:
            self._become_due()  # it ended while the gathering did

    def _become_due(self) -> None:
        if self.state is ENDED:
            return
        self.state = DUE
        self._later(self._turn)

    def _turn(self) -> None:
        if self.state is DUE:
            self.go_on()
