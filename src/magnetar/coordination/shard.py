"""One partition of a coordinator's log at work: decide, append, then answer and act; and wake up for deadlines.

All that is decided while an append runs goes out together in the next one. An answer never overtakes a fact
that was decided before it, so no client receives what a crash could take back. If an append fails, what is on disk
is unknown: waiting clients are dismissed (NOT_COORDINATOR makes them look again), and the partition is replayed. The
same happens where a decider raises an unforeseen exception. The replay resumes what was decided, which may fail again
without a new request: there are pauses between, which grow (`base/retries.py`).
Its states are in `magnetar.coordination.shard_states`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from magnetar.base.background import Background, traced
from magnetar.base.retries import Retries
from magnetar.cluster.ownership import NotOwned
from magnetar.coordination.decision import Action, Decider, Decision, Release, Stated, Token
from magnetar.coordination.log import OffsetsLog
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shard_states import DECIDES, GOES_TO, REFUSES, ShardState
from magnetar.coordination.stated_log import StatedLog
from magnetar.wire.kafka.errors import ErrorCode

_RETRY_S: Final = (0.2, 1.0, 5.0)
_CALM_MS: Final = 60_000
"""A failure after so long without one is another fault: pauses are short again."""
_UNFORESEEN: Final = (
    "what was decided about %s of partition %d cannot be gone on with, and is read again from what is kept; if this "
    "line comes again, they are not served: move the partition's bundle, or restart the broker, and report the fault"
)

_log = logging.getLogger(__name__)
T = TypeVar("T")
D = TypeVar("D", bound=Decider)


class Shard(Generic[D]):
    """One partition. Its decider exists once it is loaded; where nothing is written, from the first request on.

    ``act`` carries out the decider's actions. They are begun in their order, and end in any. If it returns None there
    is nothing to wait for, and the decider gets the result immediately: it only wanted its facts to be durable.
    """

    def __init__(
        self,
        partition: int,
        log: OffsetsLog,
        new_decider: Callable[[], D],
        clock: Callable[[], int],
        background: Background,
        act: Callable[[Action], Awaitable[object] | None] | None = None,
        *,
        about: str = "groups",
        on_loaded: Callable[[D], None] | None = None,
    ) -> None:
        """``on_loaded`` is called each time the partition has been loaded because it came to this broker."""
        self.partition = partition
        self.state = ShardState.ELSEWHERE
        self._about = about
        self.made: D | None = None
        """The decider, to look at; None also where it would be empty."""
        self._log = StatedLog(partition, log, clock, about)
        self._new_decider = new_decider
        self._clock = clock
        self._background = background
        self._act = act or _nothing_to_do
        self._on_loaded = on_loaded
        self._facts: list[Stated] = []
        self._releases: list[Release] = []
        self._actions: list[Action] = []
        self._acting: set[asyncio.Task[None]] = set()
        self._when_loaded: list[Callable[[D], Decision[None]]] = []
        self._waiting: set[asyncio.Future[Any]] = set()
        self._writer: asyncio.Task[None] | None = None
        self._loader: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._begun: asyncio.Future[None] | None = None
        """Done when actions have been begun, or the decider that wanted them is gone."""
        self._retries = Retries(_log)
        self._failed_ms = 0
        self._is_due_a_pause = False
        self._has_come = False
        self.epoch = 0
        """The epoch in which this broker got it."""

    @property
    def is_mine(self) -> bool:
        """True if this broker owns the partition, loaded or not."""
        return self.state not in (ShardState.ELSEWHERE, ShardState.LEAVING)

    @property
    def is_loaded(self) -> bool:
        """True if what is written has been read, and requests are decided."""
        return self.state in DECIDES

    def _go_to(self, state: ShardState) -> None:
        assert state in GOES_TO[self.state], (self.state, state)
        self.state = state

    @property
    def records(self) -> int:
        """The number of records in its log, as far as this process knows."""
        return self._log.records

    # Asking.

    def ask(self, decide: Callable[[D, Token], Decision[T]]) -> asyncio.Future[T]:
        """Decide now; the future has the answer when it is due. Raises `CoordinatorRefused`."""
        self.check_loaded()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        decision = self._decide(lambda decider: decide(decider, future))
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        own = () if decision.answer is None else (Release(future, decision.answer),)
        self._carry_out(decision.facts, (*decision.released, *own), decision.actions)
        return future

    def tell(self, decide: Callable[[D], Decision[None]], *, though_loading: bool = False) -> None:
        """Decide without an answer; while not loaded, not at all, or (``though_loading``) once it is.

        A fault is logged, and the partition is replayed. Raises what ``decide`` refuses with.
        """
        if self.state in DECIDES:
            self._decide_alone(decide)
        elif self.state is ShardState.LOADING and though_loading:
            self._when_loaded.append(decide)

    def check_loaded(self) -> D:
        """Return the decider; raise `CoordinatorRefused` while none may decide, or another broker has to."""
        self.check()
        if self.made is None:
            self.made = self._new_decider()
        return self.made

    def tell_of_what_is_there(
        self, decide: Callable[[D], Decision[None]], *, though_loading: bool = False
    ) -> None:
        """Do as `tell` with a decision that changes nothing where nothing is known."""
        if self.made is not None or not self.is_loaded:
            self.tell(decide, though_loading=though_loading)

    def look(self) -> D | None:
        """Return the decider, None where nothing is known; raise `CoordinatorRefused` as `check_loaded` does."""
        self.check()
        return self.made

    def check(self) -> None:
        """Raise `CoordinatorRefused` while nothing may be decided here, or another broker has to."""
        if self.state not in DECIDES:
            raise CoordinatorRefused(REFUSES[self.state])

    def _decide(self, decide: Callable[[D], Decision[T]]) -> Decision[T]:
        if self.made is None:
            self.made = self._new_decider()
        try:
            return decide(self.made)
        except CoordinatorRefused:
            raise
        except Exception:
            # Our own fault: how far it got is unknown, so back to the facts. The caller gets the exception and has to
            # pause before it tries again: other clients of the partition wait no longer than they must.
            self._start_over()
            raise

    def _decide_alone(self, decide: Callable[[D], Decision[None]]) -> None:
        """Decide something that no client waits for, and carry it out."""
        try:
            decision = self._decide(decide)
        except CoordinatorRefused:
            raise
        except Exception as error:
            # The decider that starts over now wants the same again on its own: pause before.
            self._begin_anew_if_calm()
            self._retries.tell_unforeseen(error, _UNFORESEEN, self._about, self.partition)
            self._is_due_a_pause = True
        else:
            self._carry_out(decision.facts, decision.released, decision.actions)

    def _tell_of(self, error: Exception, what: str) -> None:
        is_moving = isinstance(error, NotOwned)  # nothing that an operator has to look after
        _log.log(
            logging.INFO if is_moving else logging.ERROR,
            "facts about %s of partition %d %s: %s",
            self._about,
            self.partition,
            what,
            error,
            exc_info=traced(error),
        )

    def _begin_anew_if_calm(self) -> None:
        now_ms = self._clock()
        if now_ms - self._failed_ms > _CALM_MS:
            self._retries = Retries(_log)
        self._failed_ms = now_ms

    def _carry_out(
        self, facts: Sequence[Stated], releases: Sequence[Release], actions: Sequence[Action]
    ) -> None:
        if facts or self._writer is not None:
            self._facts += facts
            self._releases += releases
            self._actions += actions
            if self._writer is None:
                if self.state is ShardState.READY:
                    self._go_to(ShardState.WRITING)
                self._writer = self._background.once(
                    f"keeping facts about {self._about} of partition", self._write(), about=self.partition
                )
        else:
            _give(releases)
            self._begin_actions(actions, self.made)
        self._set_alarm()

    # Writing.

    async def _write(self) -> None:
        try:
            while self._facts or self._releases or self._actions:
                decider = self.made
                facts, self._facts = self._facts, []
                releases, self._releases = self._releases, []
                actions, self._actions = self._actions, []
                await self._log.append(facts)
                _give(releases)
                self._begin_actions(actions, decider)
                await self._log.compact(self.made)
        except Exception as error:
            self._tell_of(error, "could not be kept")
            self._writer = None
            self._begin_anew_if_calm()
            self._is_due_a_pause = True
            self._start_over()
        else:
            self._writer = None
            if self.state is ShardState.WRITING:
                self._go_to(ShardState.READY)

    def _begin_actions(self, actions: Sequence[Action], decider: D | None) -> None:
        """Begin what ``decider`` wanted; if that one is gone, its successor will want it again."""
        for action in actions:
            if self.made is not decider:
                return
            try:
                begun = self._act(action)
            except Exception as error:
                self._hear(action, error)
                continue
            if begun is None:
                self._hear(action, None)
                continue
            acting = self._background.once(
                "carrying out what was decided in partition",
                self._carry_on(begun, action),
                about=self.partition,
            )
            self._acting.add(acting)
            acting.add_done_callback(self._acting.discard)
        self._tell_begun()

    def begun(self) -> asyncio.Future[None]:
        """Return a future that is done once actions have been begun again, or the decider that wanted them is gone.

        For a caller that waits for an action of a decision whose facts may not be durable yet.
        """
        if self._begun is None:
            self._begun = asyncio.get_running_loop().create_future()
        return self._begun

    def _tell_begun(self) -> None:
        if self._begun is not None:
            if not self._begun.done():
                self._begun.set_result(None)
            self._begun = None

    async def _carry_on(self, begun: Awaitable[object], action: Action) -> None:
        """Carry out an action and pass its result to the decider; cancelled once the decider has been replaced."""
        try:
            result = await begun
        except Exception as error:
            result = error
        self._hear(action, result)

    def _hear(self, action: Action, result: object) -> None:
        """Pass on a result, also when the partition is about to go elsewhere: what was decided is finished."""
        if self.made is not None:
            self._decide_alone(lambda decider: decider.done(action, result, self._clock()))

    # Deadlines.

    def _set_alarm(self) -> None:
        wake_ms = None if self.made is None else self.made.wake_ms()
        if self._alarm is not None:
            if wake_ms is not None and self._alarm_ms <= wake_ms:
                return
            self._alarm.cancel()
            self._alarm = None
        if wake_ms is not None:
            # A millisecond late rather than a moment too early, which would only wake us twice.
            delay_s = max(wake_ms - self._clock() + 1, 0) / 1000
            self._alarm_ms = wake_ms
            self._alarm = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now_ms = self._clock()
        self.tell(lambda decider: decider.expire(now_ms))

    # Life cycle.

    def begin(self, gate: asyncio.Semaphore, epoch: int, *, is_written: bool) -> None:
        """Take the partition up, now that this broker owns it: load it in the background, if anything is written there.

        ``gate`` limits how many load at the same time.
        """
        self._go_to(ShardState.LOADING if is_written else ShardState.READY)
        self.epoch = epoch
        self._is_due_a_pause = False
        self._has_come = is_written
        if is_written:
            self._loader = self._background.once(
                f"loading facts about {self._about} of partition", self._begin(gate), about=self.partition
            )
        else:
            self._log.begin_empty()

    async def _begin(self, gate: asyncio.Semaphore) -> None:
        async with gate:
            await self.load()

    async def unload(self) -> None:
        """Finish what is decided, then dismiss the clients that still wait: the partition goes to another broker."""
        self._go_to(ShardState.LEAVING)
        await self._end()
        if self.state is ShardState.LEAVING:  # and not closed meanwhile
            self._go_to(ShardState.ELSEWHERE)

    async def load(self) -> None:
        """Replay the log; try again until it can be read."""
        tries = 0
        while self.state is ShardState.LOADING:
            if self._is_due_a_pause:
                self._is_due_a_pause = False
                await self._retries.pause()
            if self._writer is not None:
                await asyncio.wait([self._writer])
            try:
                decider = self._new_decider()
                await self._log.replay_into(decider)
            except Exception as error:
                wait_s = _RETRY_S[min(tries, len(_RETRY_S) - 1)]
                self._tell_of(error, "cannot be replayed")
                tries += 1
                await asyncio.sleep(wait_s)
            else:
                self._go_on(decider)

    def _go_on(self, decider: D) -> None:
        """Put the replayed decider in charge. If it cannot resume, nothing is loaded afterwards."""
        if self.state is not ShardState.LOADING:
            return
        self._go_to(ShardState.READY)
        self.made = decider
        self.tell(lambda loaded: loaded.resume(self._clock()))
        delayed, self._when_loaded = self._when_loaded, []
        for decide in delayed:
            with suppress(CoordinatorRefused):  # such as for a group that does not exist
                self.tell(decide, though_loading=True)
        if self.made is decider and self._has_come:
            self._has_come = False
            if self._on_loaded is not None:
                self._on_loaded(decider)

    async def reloaded(self) -> None:
        """Wait until it is loaded, if a load is under way."""
        if self._loader is not None:
            await asyncio.wait([self._loader])

    def _start_over(self) -> None:
        """Forget everything, and load it again; a load that is under way begins again on its own."""
        self._dismiss(ErrorCode.NOT_COORDINATOR)
        if self.state in DECIDES:
            self._go_to(ShardState.LOADING)
        if self.state is ShardState.LOADING and (self._loader is None or self._loader.done()):
            self._loader = self._background.once(
                f"replaying facts about {self._about} of partition", self.load(), about=self.partition
            )

    def _dismiss(self, code: ErrorCode) -> None:
        """Forget everything, and dismiss the clients that wait."""
        self.made = None
        self._facts, self._releases, self._actions = [], [], []
        for acting in self._acting:
            acting.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(CoordinatorRefused(code))
        self._waiting.clear()
        self._tell_begun()

    async def close(self) -> None:
        """Finish what is decided, then dismiss the clients that still wait."""
        self._go_to(ShardState.CLOSED)
        await self._end()

    async def _end(self) -> None:
        self._when_loaded = []
        if self._loader is not None:
            self._loader.cancel()
            self._loader = None
        if self._writer is not None:
            await asyncio.wait([self._writer])
        self._dismiss(ErrorCode.NOT_COORDINATOR)


def _nothing_to_do(action: Action) -> None:
    """Carry nothing out: facts only have to be durable."""


def _give(releases: Sequence[Release]) -> None:
    for token, answer in releases:
        # The client may have gone.
        if isinstance(token, asyncio.Future) and not token.done():
            token.set_result(answer)
