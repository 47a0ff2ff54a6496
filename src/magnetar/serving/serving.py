"""Whether one client's next request is begun, and when its answers go out: a machine that sees no socket.

Requests of Produce overlap, so that one flush serves many; any other begins when all before it are answered, as in
Kafka. Answers go out in the order of their requests. The state says why nothing is begun right now:

    state     because                                         until
    IDLE      no whole request has come                       bytes come
    SERVING   requests are being begun at this moment         that has ended
    ORDERED   the next must wait for those before it          one of them is answered
    SLOW      the client does not take its answers            it takes them
    MUTED     the client has used up its quota (KIP-219)      its time is over, or it has gone
    SHORT     the next has many rows, and there is no room    there is room
    DUE       others have their turn first                    the loop's next turn
    ENDED     it is over                                      -

As with `magnetar.serving.reading`, the next state depends on the facts, and not on what happened: nobody has to know
which event ends which wait. All that is needed is that `go_on` runs after every event, now or in the loop's next turn.

The client is a machine of its own, which is moved by the client's actions:

    client    it is slow    it takes    it left    nothing more comes
    LISTENS   SLOW          LISTENS     GONE       LOST
    SLOW      SLOW          LISTENS     GONE       LOST
    GONE      GONE          GONE        GONE       LOST
    LOST      LOST          LOST        LOST       LOST

A client that has gone does not read answers, and none go out; but bytes may still come, and requests that change
something are carried out: a producer with acks=0 sends and closes. When the client is lost, the requests that had come
whole are carried out, and it ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from enum import Enum, auto
from math import inf
from time import perf_counter
from typing import Generic, Protocol, TypeVar

from magnetar.records.compression import Buffer
from magnetar.serving.pace import LONG_SECONDS, MAX_SECONDS

PRODUCE = 0
MAX_OVERLAPPING = 64
MAX_READY_BYTES = 1 << 20
"""Of answers that go out together; the client has to take them before more is begun for it."""


class KafkaServingState(Enum):
    """Why nothing is begun."""

    IDLE = auto()
    SERVING = auto()
    ORDERED = auto()
    SLOW = auto()
    MUTED = auto()
    SHORT = auto()
    DUE = auto()
    ENDED = auto()


IDLE, SERVING, ORDERED, SLOW, MUTED, SHORT, DUE, ENDED = KafkaServingState


class ClientState(Enum):
    """The state of the client: it takes answers, is slow, or has gone."""

    LISTENS = auto()
    SLOW = auto()
    GONE = auto()
    LOST = auto()


class Event(Enum):
    """An action of the client."""

    IS_SLOW = auto()
    TAKES = auto()
    LEFT = auto()
    IS_LOST = auto()


_BECOMES: dict[ClientState, dict[Event, ClientState]] = {
    ClientState.LISTENS: {
        Event.IS_SLOW: ClientState.SLOW, Event.TAKES: ClientState.LISTENS,
        Event.LEFT: ClientState.GONE, Event.IS_LOST: ClientState.LOST,
    },
    ClientState.SLOW: {
        Event.IS_SLOW: ClientState.SLOW, Event.TAKES: ClientState.LISTENS,
        Event.LEFT: ClientState.GONE, Event.IS_LOST: ClientState.LOST,
    },
    ClientState.GONE: {
        Event.IS_SLOW: ClientState.GONE, Event.TAKES: ClientState.GONE,
        Event.LEFT: ClientState.GONE, Event.IS_LOST: ClientState.LOST,
    },
    ClientState.LOST: dict.fromkeys(Event, ClientState.LOST),
}  # fmt: skip


class Request(Protocol):
    """A request that was begun, in its place among the others."""

    parts: Sequence[Buffer] | None
    """Its answer, once it has one; empty if the client wants none."""

    @property
    def placed(self) -> bool:
        """True if a Produce may be begun behind it: what it appends has its place."""
        ...


R = TypeVar("R", bound=Request)


class Waiting(Protocol):
    """The requests that have come and were not begun (`magnetar.wire.kafka.frames.KafkaFrameReader`)."""

    @property
    def waiting(self) -> int: ...

    @property
    def are_taken(self) -> bool:
        """True if no request waits, and what came last is not malformed."""
        ...

    @property
    def next_key(self) -> int | None:
        """The API of the next one, None if none has come whole."""
        ...


class WakeupGate(Protocol):
    """Fetches that wait for what is appended meanwhile resume at the end (`magnetar.serving.wakeups`)."""

    def begin(self) -> None: ...

    def end(self) -> None: ...


class KafkaServing(Generic[R]):
    """The serving of one client.

    ``begin_next`` begins the next request, puts it into ``in_flight``, and returns SERVING; or why it did not: IDLE if
    there was none, or SHORT. ``send`` takes answers' parts, ``later`` calls a function in the loop's next turn;
    ``others_first`` returns whether a slow client waits for the next turn; what is appended while in ``gathering`` is
    written at its end. ``went_on`` is called whenever requests may have been begun or answered, ``done`` when a lost
    client has nothing left to be carried out.
    """

    __slots__ = (
        "_begin_next",
        "_clock",
        "_done",
        "_frames",
        "_gathering",
        "_held",
        "_is_muted",
        "_later",
        "_others_first",
        "_ready",
        "_ready_bytes",
        "_send",
        "_took_s",
        "_wakeups",
        "_went_on",
        "began_s",
        "client",
        "in_flight",
        "may_put_off",
        "state",
    )

    def __init__(
        self,
        frames: Waiting,
        begin_next: Callable[[], KafkaServingState],
        send: Callable[[Sequence[Buffer]], None],
        *,
        later: Callable[[Callable[[], None]], object],
        gathering: Callable[[], AbstractContextManager[None]],
        wakeups: WakeupGate,
        others_first: Callable[[], bool] = lambda: False,
        went_on: Callable[[], None],
        done: Callable[[], None],
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.state = IDLE
        self.client = ClientState.LISTENS
        self.in_flight: deque[R] = deque()
        """Requests that were begun and whose answers have not gone out, in order."""
        self.began_s = 0.0
        """When the machine last started to begin requests."""
        self.may_put_off = False
        """Set by ``begin_next`` where the client has to wait for the next turn if this took long. The time of batches
        depends on their length, and to put them off only lets more of them come meanwhile."""
        self._frames = frames
        self._begin_next = begin_next
        self._send = send
        self._later = later
        self._gathering = gathering
        self._wakeups = wakeups
        self._others_first = others_first
        self._is_muted = False
        self._held: KafkaServingState | None = None
        """Why nothing of the client is begun, whatever has come; None if there is no reason."""
        self._took_s = inf  # last time; unknown for a client that has sent nothing yet
        self._went_on = went_on
        self._done = done
        self._clock = clock
        self._ready: list[Buffer] = []  # answers, in parts, that go out together
        self._ready_bytes = 0

    # -- events

    def go_on(self) -> None:
        """Look at the facts again: begin what may begin, and send what may go out."""
        if self.state is SERVING or self.state is ENDED:
            return
        if self._frames.are_taken:
            self.state = IDLE
            self._send_ready()  # there may only be answers
        elif self._took_s > LONG_SECONDS and self._others_first():
            if self.state is not DUE:
                self._become_due()
            return
        else:
            self.state = SERVING
            self.may_put_off = False
            began = self.began_s = self._clock()
            self._serve(began + MAX_SECONDS)
            if self.state is not ENDED:
                self._send_ready()
            self._took_s = self._clock() - began if self.may_put_off else 0.0
        self._went_on()
        if self.client is ClientState.LOST and not self.in_flight and not self._frames.waiting:
            self._done()

    def answered(self, *, at_once: bool) -> None:
        """Note that a request in flight has its answer; other answers may go out with it unless ``at_once``."""
        if at_once:
            self.go_on()
        elif self.state is not SERVING and self.state is not DUE and self.state is not ENDED:
            self._become_due()

    def client_did(self, event: Event) -> None:
        """Note an action of the client."""
        self.client = _BECOMES[self.client][event]
        self._hold()
        if self.client is not ClientState.SLOW:
            self.go_on()

    def mute(self) -> None:
        """Begin nothing more, though what was begun is answered, until `unmute`, or until the client has gone."""
        self._is_muted = True
        self._hold()

    def unmute(self) -> None:
        """Begin requests again: the client has waited long enough."""
        self._is_muted = False
        self._hold()
        self.go_on()

    def _hold(self) -> None:
        if self.client is ClientState.SLOW:
            self._held = SLOW
        elif self.client is ClientState.LISTENS and self._is_muted:
            self._held = MUTED
        else:
            self._held = None
        if self._held is not None and (self.state is SLOW or self.state is MUTED):
            self.state = self._held  # it waits for something else now

    def end(self) -> list[R]:
        """Begin nothing more; send what may go out, and return the requests that have no answer yet."""
        self._collect()
        self.state = ENDED
        left = list(self.in_flight)
        self.in_flight.clear()
        self._send_ready()
        return left

    # -- how it goes on

    def _serve(self, yields_at: float) -> None:
        why = IDLE
        self._wakeups.begin()
        try:
            while True:
                with self._gathering():
                    why = self._begin_some(yields_at)
                # What they appended is written now, and that may answer some of them.
                if why is not ORDERED or self._must_wait():
                    break
        finally:
            self._wakeups.end()
            if self.state is SERVING:
                self.state = why
        if self.state is ORDERED and not self._must_wait():
            why = DUE
        if why is DUE and self.state is not ENDED:
            self._become_due()

    def _begin_some(self, yields_at: float) -> KafkaServingState:
        """Begin requests while what they append can be written together; return why no more are begun."""
        frames, in_flight = self._frames, self.in_flight
        while self.state is SERVING:
            if self._held is not None:
                return self._held
            if in_flight and self._must_wait():
                return ORDERED
            state = self._begin_next()
            if state is not SERVING:
                return state
            if frames.are_taken:
                return IDLE
            self._collect()
            if self._clock() > yields_at or self._ready_bytes > MAX_READY_BYTES:
                return DUE
        return self.state

    def _must_wait(self) -> bool:
        """True if order keeps the next request from being begun."""
        self._collect()
        in_flight = self.in_flight
        if not in_flight:
            return False
        if len(in_flight) >= MAX_OVERLAPPING or not in_flight[-1].placed:
            return True
        key = self._frames.next_key
        return key is not None and key != PRODUCE

    def _become_due(self) -> None:
        self.state = DUE
        self._later(self._turn)

    def _turn(self) -> None:
        if self.state is DUE:
            self.state = IDLE
            self.go_on()

    # -- out

    def _collect(self) -> None:
        """Take the answers whose turn it is."""
        in_flight = self.in_flight
        if not in_flight or in_flight[0].parts is None:
            return
        listens = self.client is ClientState.LISTENS or self.client is ClientState.SLOW
        while in_flight and in_flight[0].parts is not None:
            parts = in_flight.popleft().parts
            if parts and listens:
                size = sum(map(len, parts))
                self._ready.append(size.to_bytes(4, "big"))
                self._ready += parts
                self._ready_bytes += size

    def _send_ready(self) -> None:
        self._collect()
        if self._ready:
            ready, self._ready, self._ready_bytes = self._ready, [], 0
            self._send(ready)
