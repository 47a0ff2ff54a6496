"""The machine that serves one client, against a model of what it may do: every kind of answer, every pause, every end.

The model knows only what was said, answered, taken and told. After each step it says what must have been begun and sent
by now, in which order, and that whatever waits has something that will end its wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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

from magnetar.serving import serving
from magnetar.serving.pace import MAX_SECONDS
from magnetar.serving.serving import (
    DUE,
    ENDED,
    IDLE,
    MAX_OVERLAPPING,
    MAX_READY_BYTES,
    MUTED,
    ORDERED,
    SERVING,
    SHORT,
    ClientState,
    Event,
    KafkaServing,
    KafkaServingState,
)
from tests.models import assert_noticed

PRODUCE, METADATA = 0, 3
BUFFER = 3
"""So many answers the socket takes before the client is slow."""


@dataclass(eq=False)
class Asked:
    """A request, and what will become of it."""

    number: int
    key: int
    placed_by: str
    """``begin``, ``answer`` or ``later``: when a Produce behind it may be begun."""
    answered_by: str
    """``begin`` at once, ``written`` at the end of the gathering, ``later`` when the test says so."""
    wants_answer: bool = True
    is_large: bool = False
    seconds: float = 0.0
    size: int = 1
    parts: Sequence[bytes] | None = None
    placed: bool = False
    begun: bool = False

    @property
    def frame(self) -> bytes:
        return bytes(4) + self.number.to_bytes(4, "big") + bytes(self.size)

    def answer(self) -> None:
        self.placed = self.placed or self.placed_by == "answer"
        self.parts = [self.frame] if self.wants_answer else ()


@dataclass
class World:
    """What is around the machine: frames that came, a socket, a clock, a budget, and the loop's next turn."""

    frames: deque[Asked] = field(default_factory=deque)
    begun: list[Asked] = field(default_factory=list)
    dropped: list[Asked] = field(default_factory=list)
    written: list[Asked] = field(default_factory=list)
    soon: list[Callable[[], None]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    untaken: int = 0
    now: float = 0.0
    has_room: bool = True
    others_first: bool = False
    is_gathering: bool = False
    depth: int = 0
    done: int = 0
    went_on: int = 0
    woken: list[Callable[[], None]] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        return len(self.frames)

    @property
    def are_taken(self) -> bool:
        return not self.frames

    @property
    def next_key(self) -> int | None:
        return self.frames[0].key if self.frames else None

    def begin(self) -> None:
        self.depth += 1

    def end(self) -> None:
        self.depth -= 1
        woken, self.woken = self.woken, []
        for each in woken:
            each()


class Machine(RuleBasedStateMachine):
    """Every order of events that can be."""

    def __init__(self) -> None:
        super().__init__()
        self.world = world = World()
        self.said: list[Asked] = []
        self.is_gone = False
        self.is_muted = False
        self.expected: list[int] = []
        self.serving: KafkaServing[Asked] = KafkaServing(
            world,
            self.begin_next,
            self.send,
            later=world.soon.append,
            gathering=self.gathering,
            wakeups=world,
            others_first=lambda: world.others_first,
            went_on=self.went_on,
            done=self.close,
            clock=lambda: world.now,
        )

    # -- what it is given

    def begin_next(self) -> KafkaServingState:
        world = self.world
        assert self.serving.state is SERVING
        assert world.is_gathering
        assert world.depth == 1
        assert self.serving.client is not ClientState.SLOW
        assert self.is_gone or not self.is_muted, "it is to wait for its quota"
        if not world.frames:
            return IDLE
        asked = world.frames[0]
        before = [each for each in world.begun if each.parts is None]
        assert not before or (
            asked.key == PRODUCE and all(each.key == PRODUCE and each.placed for each in before)
        ), "it had to wait for those before it"
        assert len(self.serving.in_flight) < MAX_OVERLAPPING
        if asked.is_large and not world.has_room:
            return SHORT
        world.frames.popleft()
        world.now += asked.seconds
        self.serving.may_put_off |= asked.key != PRODUCE
        asked.begun = True
        if asked.key != PRODUCE and self.is_gone:
            world.dropped.append(asked)
            asked.parts = ()
            return SERVING
        world.begun.append(asked)
        self.serving.in_flight.append(asked)
        asked.placed = asked.placed_by == "begin"
        if asked.answered_by == "begin":
            self.has_answer(asked)
        elif asked.answered_by == "written":
            world.written.append(asked)
        return SERVING

    def has_answer(self, asked: Asked, *, at_once: bool = False) -> None:
        asked.answer()
        self.serving.answered(at_once=at_once)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        world = self.world
        assert not world.is_gathering
        world.is_gathering = True
        try:
            yield
        finally:
            world.is_gathering = False
            written, world.written = world.written, []
            for each in written:
                if self.serving.state is not ENDED:
                    self.has_answer(each)

    def send(self, parts: Sequence[bytes]) -> None:
        world = self.world
        assert parts
        assert not self.is_gone
        for size, part in zip(parts[::2], parts[1::2], strict=True):
            assert int.from_bytes(size, "big") == len(part)
            world.sent.append(int.from_bytes(part[4:8], "big"))
            world.untaken += 1
        if world.untaken > BUFFER and self.serving.client is ClientState.LISTENS:
            self.serving.client_did(Event.IS_SLOW)

    def went_on(self) -> None:
        self.world.went_on += 1
        self.seen = self.facts

    def close(self) -> None:
        assert not self.world.frames
        assert not self.serving.in_flight
        self.world.done += 1
        assert self.serving.end() == []

    @property
    def facts(self) -> tuple[int, int]:
        """What is read on by: requests that wait, and those in flight."""
        return len(self.world.frames), len(self.serving.in_flight)

    # -- what happens

    @rule(
        key=st.sampled_from([PRODUCE, PRODUCE, PRODUCE, METADATA]),
        placed_by=st.sampled_from(["begin", "begin", "answer", "later"]),
        answered_by=st.sampled_from(["begin", "written", "written", "later", "later"]),
        wants_answer=st.booleans(),
        is_large=st.sampled_from([False, False, False, True]),
        seconds=st.sampled_from([0.0, 0.0, MAX_SECONDS / 2, MAX_SECONDS * 2]),
        size=st.sampled_from([1, 1, 1, MAX_READY_BYTES]),
        count=st.sampled_from([1, 1, 2, 5, MAX_OVERLAPPING + 5]),
    )
    def say(self, key: int, placed_by: str, count: int, **how: Any) -> None:
        """Requests come, several of a kind in one read."""
        if self.serving.client is ClientState.LOST:
            return
        if key != PRODUCE:
            placed_by, how["wants_answer"] = "never", True
        for _ in range(count):
            asked = Asked(len(self.said), key, placed_by, **how)
            self.said.append(asked)
            self.world.frames.append(asked)
        self.serving.go_on()

    @property
    def unanswered(self) -> list[Asked]:
        return [each for each in self.serving.in_flight if each.parts is None]

    @precondition(lambda self: self.unanswered)
    @rule(which=st.integers(0, 1 << 16), at_once=st.booleans(), count=st.sampled_from([1, 1, 3, 100]))
    def answer(self, which: int, at_once: bool, count: int) -> None:
        """Answers are there, in any order, several of them by one flush."""
        for _ in range(count):
            if unanswered := self.unanswered:
                self.has_answer(unanswered[which % len(unanswered)], at_once=at_once)

    @precondition(lambda self: self.unanswered)
    @rule(which=st.integers(0, 1 << 16))
    def answer_within_a_turn(self, which: int) -> None:
        """What is appended for one client answers another of this one's requests, while its own are begun."""
        asked = self.unanswered[which % len(self.unanswered)]

        def woken() -> None:
            if asked.parts is None and self.serving.state is not ENDED:
                self.has_answer(asked, at_once=True)

        self.world.woken.append(woken)
        self.serving.go_on()

    @precondition(
        lambda self: [each for each in self.unanswered if not each.placed and each.placed_by == "later"]
    )
    @rule()
    def place(self) -> None:
        """A Produce that had to wait for something has its place at last; nobody is told."""
        next(each for each in self.unanswered if not each.placed and each.placed_by == "later").placed = True

    @precondition(lambda self: self.world.soon)
    @rule()
    def turn(self) -> None:
        """The loop's next turn."""
        soon, self.world.soon[:] = list(self.world.soon), []
        self.world.now += 1
        self.world.others_first = False
        for each in soon:
            each()

    @rule()
    def take(self) -> None:
        """The client takes what it was sent."""
        self.world.untaken = 0
        if self.serving.client is ClientState.SLOW:
            self.serving.client_did(Event.TAKES)

    @rule(on=st.sampled_from([True, False, False]))
    def mute(self, on: bool) -> None:
        """The client has used up what it may; or it has waited long enough."""
        self.is_muted = on
        if on:
            self.serving.mute()
        else:
            self.serving.unmute()

    @rule(others_first=st.sampled_from([False, False, True]))
    def others(self, others_first: bool) -> None:
        """Others have taken enough of this turn, or not yet."""
        self.world.others_first = others_first

    @rule(has_room=st.booleans())
    def room(self, has_room: bool) -> None:
        """Others hold so much that there is no room for requests with many rows; or they let go of it."""
        self.world.has_room = has_room
        if has_room:
            self.serving.go_on()

    @precondition(lambda self: len(self.said) > 5)
    @rule(event=st.sampled_from([Event.LEFT, Event.IS_LOST]))
    def go_away(self, event: Event) -> None:
        """The client leaves; what only waits for it is given up."""
        for each in self.unanswered:
            if each.key != PRODUCE:
                each.parts = ()
        self.is_gone = True
        self.serving.client_did(event)

    @precondition(lambda self: self.unanswered)
    @rule(which=st.integers(0, 1 << 16))
    def fail(self, which: int) -> None:
        """A request ends it all: what was answered before it goes out, and nothing behind it."""
        unanswered = self.unanswered
        left = self.serving.end()
        assert [each for each in left if each.parts is None] == unanswered

    # -- what must hold

    @invariant()
    def requests_are_begun_in_order(self) -> None:
        begun = [each.number for each in self.said if each.begun]
        assert begun == list(range(len(begun)))
        assert [each.number for each in self.world.begun] == sorted(each.number for each in self.world.begun)

    @invariant()
    def answers_go_out_in_order_and_once(self) -> None:
        sent = self.world.sent
        assert sent == sorted(set(sent))
        for each in self.said:
            assert each.number not in sent or (each.parts and each.wants_answer)

    @invariant()
    def what_may_go_out_has_gone_out(self) -> None:
        """All answers before the first request without one have been sent, if anybody listens and none is due."""
        serving = self.serving
        if serving.state in (DUE, ENDED) or self.is_gone:
            return
        assert not serving.in_flight or serving.in_flight[0].parts is None
        last = serving.in_flight[0].number if serving.in_flight else len(self.said)
        wanted = [each.number for each in self.world.begun if each.number < last and each.parts]
        assert self.world.sent == wanted

    @invariant()
    def whatever_waits_waits_for_something(self) -> None:
        serving, world = self.serving, self.world
        match serving.state:
            case KafkaServingState.IDLE:
                assert not world.frames
            case KafkaServingState.DUE:
                assert world.soon
            case KafkaServingState.ORDERED:
                assert self.unanswered
            case KafkaServingState.SLOW:
                assert serving.client is ClientState.SLOW
            case KafkaServingState.MUTED:
                assert self.is_muted
                assert serving.client is ClientState.LISTENS
            case KafkaServingState.SHORT:
                assert not world.has_room
                assert world.frames[0].is_large
            case KafkaServingState.SERVING:
                raise AssertionError("it is not at it any more")
        if serving.client is ClientState.LOST and serving.state is not ENDED:
            assert world.frames or serving.in_flight

    @invariant()
    def whoever_reads_knows_how_many_requests_wait(self) -> None:
        if self.serving.state not in (DUE, ENDED) and self.world.went_on:
            assert self.facts == self.seen, "reading would not be looked at again"

    def teardown(self) -> None:
        """Whatever is waited for comes: then all has been begun, and all answers were sent."""
        if self.serving.state is not ENDED:
            self.world.others_first = False
            self.room(True)
            self.mute(False)
            for _ in range(10_000):
                if self.serving.state is ENDED or not (
                    self.world.frames or self.unanswered or self.world.soon
                ):
                    break
                self.take()
                while self.world.soon:
                    self.turn()
                while self.unanswered:
                    self.has_answer(self.unanswered[-1])
            if self.serving.state is not ENDED:
                self.take()
                assert not self.world.frames
                assert not self.serving.in_flight
                self.what_may_go_out_has_gone_out()
                self.is_gone = True
                self.serving.client_did(Event.IS_LOST)
            assert self.world.done == 1 or self.serving.state is ENDED
            assert all(each.begun for each in self.said) or self.world.done == 0
        assert self.serving.state is ENDED
        count = len(self.world.begun), len(self.world.sent)
        self.serving.go_on()
        self.serving.answered(at_once=True)
        self.serving.client_did(Event.TAKES)
        assert count == (len(self.world.begun), len(self.world.sent))


def test_a_client_that_is_muted_and_becomes_slow_waits_for_being_read() -> None:
    """It was said to wait for its quota, though answers that it does not take are in the way as well."""
    machine = Machine()
    how = {"is_large": False, "seconds": 0.0, "size": 1, "placed_by": "begin", "wants_answer": True}
    machine.say(key=PRODUCE, count=BUFFER + 2, answered_by="later", **how)
    machine.mute(on=True)
    machine.say(key=PRODUCE, count=1, answered_by="later", **how)
    assert machine.serving.state is MUTED
    machine.answer(which=0, at_once=False, count=BUFFER + 1)
    machine.turn()
    machine.whatever_waits_waits_for_something()
    assert machine.serving.state is KafkaServingState.SLOW
    machine.teardown()


EXAMPLES = settings(max_examples=150, stateful_step_count=40, deadline=None)
Machine.TestCase.settings = EXAMPLES
TestServing = Machine.TestCase


def test_the_clients_table() -> None:
    """Every event is known in every state, and nobody comes back who has gone."""
    order = list(ClientState)
    for client in ClientState:
        for event in Event:
            after = serving._BECOMES[client][event]
            assert order.index(after) >= order.index(client) or client is ClientState.SLOW


# -- the model notices what would be wrong


def only_when_something_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading resumes only when an answer goes out, which acks=0 never does."""

    def go_on(self: KafkaServing[Any]) -> None:
        sent: list[object] = []
        send, went_on = self._send, self._went_on
        self._send = lambda parts: (sent.append(1), send(parts))[1]
        self._went_on = lambda: went_on() if sent else None
        try:
            whole(self)
        finally:
            self._send, self._went_on = send, went_on

    whole = KafkaServing.go_on
    monkeypatch.setattr(KafkaServing, "go_on", go_on)


def not_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is up, and nobody begins again."""
    monkeypatch.setattr(KafkaServing, "_become_due", lambda self: setattr(self, "state", IDLE))


def order_of_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers go out as they come."""

    def collect(self: KafkaServing[Any]) -> None:
        for each in list(self.in_flight):
            if each.parts is not None:
                self.in_flight.remove(each)
                for part in each.parts:
                    self._ready += [len(part).to_bytes(4, "big"), part]

    monkeypatch.setattr(KafkaServing, "_collect", collect)


def questions_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is none of Produce begins behind Produce."""
    monkeypatch.setattr(World, "next_key", property(lambda self: PRODUCE if self.frames else None))


def unplaced_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Produce begins before the one before it has its place."""

    def must_wait(self: KafkaServing[Any]) -> bool:
        self._collect()
        return bool(self.in_flight) and self._frames.next_key not in (PRODUCE, None)

    monkeypatch.setattr(KafkaServing, "_must_wait", must_wait)


def slow_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not take its answers gets more of them."""

    def hold(self: KafkaServing[Any]) -> None:
        self._held = MUTED if self._is_muted and self.client is ClientState.LISTENS else None

    monkeypatch.setattr(KafkaServing, "_hold", hold)


def muted_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is to wait for its quota is served nonetheless."""
    monkeypatch.setattr(KafkaServing, "mute", lambda self: setattr(self, "_is_muted", True))


def muted_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """That it has waited long enough is not looked at."""

    def unmute(self: KafkaServing[Any]) -> None:
        self._is_muted = False
        self._hold()

    monkeypatch.setattr(KafkaServing, "unmute", unmute)


def slow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a client takes its answers again is not looked at."""

    def client_did(self: KafkaServing[Any], event: Event) -> None:
        self.client = serving._BECOMES[self.client][event]
        self._hold()
        if event not in (Event.TAKES, Event.IS_SLOW):
            self.go_on()

    monkeypatch.setattr(KafkaServing, "client_did", client_did)


def written_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is answered by the end of a gathering is not looked at: acks=1 would wait for the next bytes."""

    def serve(self: KafkaServing[Any], yields_at: float) -> None:
        self._wakeups.begin()
        with self._gathering():
            why = self._begin_some(yields_at)
        self._wakeups.end()
        if self.state is SERVING:
            self.state = why
        if self.state is DUE:
            self._become_due()

    monkeypatch.setattr(KafkaServing, "_serve", serve)


def woken_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is answered at the end of the wake-ups is not looked at."""
    whole = KafkaServing._must_wait
    last: dict[int, bool] = {}

    def must_wait(self: KafkaServing[Any]) -> bool:
        if self.state is not ORDERED:
            last[id(self)] = whole(self)
        return last[id(self)]

    monkeypatch.setattr(KafkaServing, "_must_wait", must_wait)


def gone_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers go out to a client that has gone."""
    table = {client: dict(events) for client, events in serving._BECOMES.items()}
    for client in (ClientState.LISTENS, ClientState.SLOW):
        table[client][Event.LEFT] = client
    monkeypatch.setattr(serving, "_BECOMES", table)


def lost_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a client that is lost goes what it had sent: with acks=0 nobody ever learns of that."""

    def client_did(self: KafkaServing[Any], event: Event) -> None:
        if event is Event.IS_LOST:
            self._done()
        else:
            whole(self, event)

    whole = KafkaServing.client_did
    monkeypatch.setattr(KafkaServing, "client_did", client_did)


def lost_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost client's conversation never ends: its descriptor and its memory stay."""

    def go_on(self: KafkaServing[Any]) -> None:
        client, self.client = (
            self.client,
            ClientState.GONE if self.client is ClientState.LOST else self.client,
        )
        whole(self)
        self.client = client

    whole = KafkaServing.go_on
    monkeypatch.setattr(KafkaServing, "go_on", go_on)


def more_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of Produce requests overlap."""
    monkeypatch.setattr(serving, "MAX_OVERLAPPING", 1 << 30)


DEFECTS = (
    only_when_something_is_sent, not_due, order_of_answers, questions_overlap, unplaced_overlap,
    slow_is_served, slow_for_ever, muted_is_served, muted_for_ever, written_is_not_seen, woken_is_not_seen,
    gone_are_answered, lost_is_dropped, lost_stays, more_than_may,
)  # fmt: skip


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_the_model_notices(
    defect: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    defect(monkeypatch)
    assert_noticed(Machine, EXAMPLES)


def test_a_turn_is_as_long_as_it_may_be_and_no_longer() -> None:
    """What a client has sent at once is begun in several turns of the loop, and others have theirs between."""
    machine = Machine()
    world = machine.world
    world.untaken = -9  # the socket takes all
    world.frames += [
        Asked(number, METADATA, "answer", "begin", seconds=MAX_SECONDS / 2) for number in range(9)
    ]
    machine.serving.go_on()
    turns = [len(world.begun)]
    while world.soon:
        turn = world.soon.pop(0)
        turn()
        turns.append(len(world.begun))
    assert turns == [3, 6, 9], "the one that begins when the time is almost over is the last"
