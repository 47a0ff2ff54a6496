"""The machine that serves one of Pulsar's clients, against a model: every reason to hold up, every end of one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from magnetar.pulsar.serving import (
    DUE,
    ENDED,
    IDLE,
    MAX_COMMANDS,
    SERVING,
    SHORT,
    THROTTLED,
    TURN_S,
    PulsarServing,
    PulsarServingState,
)
from tests.models import assert_noticed

REASONS = (
    PulsarServingState.PROVING,
    PulsarServingState.UNSETTLED,
    PulsarServingState.BUSY,
    PulsarServingState.BEHIND,
    PulsarServingState.THROTTLED,
)


class Machine(RuleBasedStateMachine):
    """A client that sends, what becomes of its commands, and everything that may hold it up."""

    def __init__(self) -> None:
        super().__init__()
        self.socket: deque[tuple[int, PulsarServingState | None, float]] = deque()  # sent, not read
        self.frames: deque[tuple[int, PulsarServingState | None, float]] = deque()  # read, not taken up
        self.sent = 0
        self.taken: list[int] = []
        self.reasons: set[PulsarServingState] = set()
        self.by_gathering: set[PulsarServingState] = set()
        self.has_room = True
        self.waits_for_room = False
        self.had_room = True  # when it looked last
        self.soon: list[Callable[[], None]] = []
        self.alarms: list[Callable[[], None]] = []
        self.reads = True
        self.now = 0.0
        self.is_gathering = False
        self.serving = PulsarServing(
            self.take_up,
            lambda: next((each for each in REASONS if each in self.reasons), None),
            lambda: None,
            self.may_take_more,
            self.read,
            later=self.soon.append,
            when_throttled=self.alarms.append,
            gathering=self.gathering,
            clock=lambda: self.now,
        )

    def take_up(self) -> bool:
        assert self.serving.state is SERVING
        assert self.is_gathering
        assert not self.reasons, "it is held up"
        if not self.frames:
            return False
        number, brings, seconds = self.frames.popleft()
        self.taken.append(number)
        self.now += seconds
        if brings is not None:
            self.reasons.add(brings)
            if number % 3 == 0:  # what it waits for is done at the end of the gathering
                self.by_gathering.add(brings)
        return True

    @contextmanager
    def gathering(self) -> Iterator[None]:
        assert not self.is_gathering
        self.is_gathering = True
        yield
        self.is_gathering = False
        done, self.by_gathering = self.by_gathering, set()
        self.reasons -= done
        if done:
            self.serving.went_on()

    def may_take_more(self) -> bool:
        self.waits_for_room = not self.has_room
        self.had_room = self.has_room
        return self.has_room

    def read(self, wanted: bool) -> None:
        assert wanted is not self.reads
        self.reads = wanted

    def pump(self) -> None:
        """Read what was sent, some commands at a time, as long as the socket is read."""
        while self.reads and self.socket and self.serving.state is not ENDED:
            for _ in range(min(50, len(self.socket))):
                self.frames.append(self.socket.popleft())
            self.serving.go_on()

    # -- what happens

    @rule(
        brings=st.sampled_from([None, None, *REASONS]),
        seconds=st.sampled_from([0.0, 0.0, TURN_S / 3, TURN_S * 2]),
        count=st.sampled_from([1, 1, 5, MAX_COMMANDS + 20]),
    )
    def say(self, brings: PulsarServingState | None, seconds: float, count: int) -> None:
        """Commands come, the last of which may bring what holds the client up."""
        for number in range(count):
            self.socket.append((self.sent, brings if number == count - 1 else None, seconds))
            self.sent += 1
        self.pump()

    @precondition(lambda self: self.reasons - {THROTTLED})
    @rule(which=st.integers(0, 9))
    def one_ends(self, which: int) -> None:
        """A message is stored, a command done, an answer taken, it is known who speaks."""
        ending = [each for each in REASONS if each in self.reasons and each is not THROTTLED]
        self.reasons.remove(ending[which % len(ending)])
        self.serving.went_on()
        self.pump()

    @rule(
        reason=st.sampled_from(
            [PulsarServingState.UNSETTLED, PulsarServingState.BEHIND, PulsarServingState.THROTTLED]
        )
    )
    def one_begins(self, reason: PulsarServingState) -> None:
        """Meanwhile something comes up that will hold it up."""
        self.reasons.add(reason)

    @precondition(lambda self: self.alarms)
    @rule()
    def time_passes(self) -> None:
        """It may send again."""
        self.reasons.discard(THROTTLED)
        alarms, self.alarms[:] = list(self.alarms), []
        for each in alarms:
            each()
        self.pump()

    @rule(has_room=st.booleans())
    def room(self, has_room: bool) -> None:
        """Others hold so much that there is none, or let go of it."""
        self.has_room = has_room
        if has_room and self.waits_for_room:
            self.waits_for_room = False
            self.serving.went_on()
            self.pump()

    @precondition(lambda self: self.soon)
    @rule()
    def turn(self) -> None:
        """The loop's next turn."""
        soon, self.soon[:] = list(self.soon), []
        self.now += 1
        for each in soon:
            each()
        self.pump()

    @precondition(lambda self: self.sent > 300)
    @rule()
    def go_away(self) -> None:
        self.serving.end()

    # -- what must hold

    @invariant()
    def commands_are_taken_up_in_order(self) -> None:
        assert self.taken == list(range(len(self.taken)))

    @invariant()
    def it_reads_when_nothing_keeps_it_and_only_then(self) -> None:
        state = self.serving.state
        assert self.reads is self.serving.reads
        if state is not ENDED:
            assert self.reads is (state is IDLE)

    @invariant()
    def whatever_waits_waits_for_something(self) -> None:
        state = self.serving.state
        assert state is not SERVING
        if state is IDLE:
            assert not self.frames
            assert self.had_room
        elif state is DUE:
            assert self.soon
        elif state is SHORT:
            assert self.waits_for_room
            assert not self.frames
        elif state is THROTTLED:
            assert self.alarms
        elif state is not ENDED:
            assert state in self.reasons

    def teardown(self) -> None:
        """Whatever is waited for comes: then all has been taken up."""
        if self.serving.state is not ENDED:
            self.room(True)
            for _ in range(10_000):
                if self.serving.state is IDLE and not self.socket:
                    break
                while self.reasons - {THROTTLED}:
                    self.one_ends(0)
                while self.soon:
                    self.turn()
                if self.alarms:
                    self.time_passes()
                self.reasons.discard(THROTTLED)
            assert len(self.taken) == self.sent
            assert self.serving.state is IDLE
            self.serving.end()
        taken = len(self.taken)
        for each in (*self.soon, *self.alarms, self.serving.went_on, self.serving.go_on):
            each()
        assert len(self.taken) == taken
        assert self.serving.state is ENDED


EXAMPLES = settings(max_examples=150, stateful_step_count=40, deadline=None)
Machine.TestCase.settings = EXAMPLES
TestServing = Machine.TestCase


# -- the model notices what would be wrong


def not_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is up, and nobody begins again."""
    monkeypatch.setattr(PulsarServing, "_become_due", lambda self: None)


def no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was throttled is never read again."""
    init = PulsarServing.__init__

    def without(self: PulsarServing, *args: Any, **named: Any) -> None:
        init(self, *args, **{**named, "when_throttled": lambda then: None})

    monkeypatch.setattr(PulsarServing, "__init__", without)


def without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads on though there is no room."""
    init = PulsarServing.__init__

    def generous(self: PulsarServing, *args: Any, **named: Any) -> None:
        init(self, *args, **named)
        ask = self._has_room
        self._has_room = lambda: (ask(), True)[1]

    monkeypatch.setattr(PulsarServing, "__init__", generous)


def held_up_takes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds a client up is looked at once in a turn only."""

    def take_up_some(self: PulsarServing) -> PulsarServingState:
        why = self._held_up()
        if why is not None:
            return why
        for _ in range(MAX_COMMANDS):
            if not self._take_up():
                return IDLE
        return DUE

    monkeypatch.setattr(PulsarServing, "_take_up_some", take_up_some)


def gathering_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a reason ended with the gathering is not looked at: a producer would wait for its next bytes."""
    stop = PulsarServing._stop

    def deaf(self: PulsarServing, why: PulsarServingState) -> None:
        held_up, self._held_up = self._held_up, lambda: why
        stop(self, why)
        self._held_up = held_up

    monkeypatch.setattr(PulsarServing, "_stop", deaf)


def went_on_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends while it waits for room is all that it hears."""

    def went_on(self: PulsarServing) -> None:
        if self.state is SHORT:
            self._become_due()

    monkeypatch.setattr(PulsarServing, "went_on", went_on)


def reads_while_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket is read whatever the state is: nothing bounds what is kept."""
    monkeypatch.setattr(PulsarServing, "_stop", lambda self, why: setattr(self, "state", why))


DEFECTS = (
    not_due, no_alarm, without_room, held_up_takes_up, gathering_is_not_seen, went_on_is_dropped, reads_while_held_up,
)  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_the_model_notices(
    defect: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    defect(monkeypatch)
    assert_noticed(Machine, EXAMPLES)
