"""The memory that clients of all protocols make the broker hold: one budget, shared fairly.

Each connection has an `Account`, which is charged for the memory it makes the broker hold (frames that are coming or
waiting, requests under way, answers that it does not take). Before it may take more, its account is asked for room:

    holds next to nothing        always, so that small requests are served however much others take; little is received
                                 at a stretch then, and next to nothing is less once the spare bytes are used up too
    up to half of the budget     any account
    up to all of it              accounts that hold less than a fair part
    past it                      one at a time, the first that came, so that a frame that has half come can be finished;
                                 also accounts that lack little of a frame, while half of the spare bytes is free

A client that is not known yet (it must authenticate and has not) shares a small part with all others like it.
An account that must wait is notified when it is worth asking again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar.records.framing import NARROW_BYTES, Lending

MIN_BYTES = 32 << 10
"""A connection that holds no more than that never has to wait."""
SPARE_BYTES = 48 << 20
"""Past the limit, for the frame that is being finished. Anything larger waits until others have released theirs."""
LITTLE_BYTES = 1 << 20
"""An account that lacks no more of a frame does not wait for those that lack more. As much as a producer sends at most
by default."""
_FAIR_PARTS = 32  # so many may hold a fair part of their half, twice as many of the whole
_WOKEN_AT_ONCE = 16  # each may read a good deal before its account is asked again


class MemoryBudget:
    """The memory that all connections of a broker may hold together. Everything happens on one event loop.

    ``later`` calls a function in another turn of it; tests pass their own.
    """

    def __init__(
        self,
        limit_bytes: int,
        strangers_bytes: int,
        later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self.limit_bytes = limit_bytes
        self._later = later
        self._known = _Part(self, limit_bytes)
        self._strangers = _Part(self, min(strangers_bytes, limit_bytes))
        self.held_bytes = 0
        self.lending = Lending()
        """Limits how much is received at a stretch from connections that may take little."""

    @property
    def room_bytes(self) -> int:
        """The bytes that are left before the limit; 0 past it."""
        return max(self.limit_bytes - self.held_bytes, 0)

    @property
    def is_full(self) -> bool:
        """True if the spare bytes for finishing are used up as well: then even small requests may wait."""
        return self.held_bytes >= self.limit_bytes + SPARE_BYTES

    @property
    def is_short(self) -> bool:
        """True if any account waits for room."""
        return bool(self._known.waiting or self._strangers.waiting)

    @property
    def has_spare(self) -> bool:
        """True if there is something left for accounts that lack little."""
        return self.held_bytes < self.limit_bytes + SPARE_BYTES // 2

    def account(
        self, resume: Callable[[], None], *, known: bool, missing: Callable[[], int] | None = None
    ) -> Account:
        """Return a connection's account; ``resume`` is called when it is worth calling `Account.may_take_more` again.

        ``known`` is False for a stranger, who becomes known by `Account.login`. ``missing`` returns how many bytes of a
        frame that has half come are still to come, 0 without such a frame.
        """
        return Account(self, self._known if known else self._strangers, resume, missing)

    def _wake(self) -> None:
        self._known.wake()
        self._strangers.wake()

    def _call_later(self, function: Callable[[], None]) -> None:
        if self._later is not None:
            self._later(function)
        else:
            asyncio.get_running_loop().call_soon(function)


class Account:
    """The memory that one connection makes the broker hold."""

    __slots__ = ("_budget", "_closed", "_part", "held_bytes", "is_orphan", "missing", "resume")

    def __init__(
        self,
        budget: MemoryBudget,
        part: _Part,
        resume: Callable[[], None],
        missing: Callable[[], int] | None = None,
    ) -> None:
        self._budget = budget
        self._part = part
        self._closed = False
        self.resume = resume
        self.missing = missing
        self.held_bytes = 0
        self.is_orphan = False
        """Whether its connection has ended: nothing must be retained for it any more."""

    @property
    def lacks_little(self) -> bool:
        """True if a frame has half come, and little of it is missing."""
        return self.missing is not None and 0 < self.missing() <= LITTLE_BYTES

    @property
    def budget(self) -> MemoryBudget:
        """The budget that it belongs to."""
        return self._budget

    def charge(self, nbytes: int) -> None:
        """Charge bytes to this connection; negative to release some. A closed account counts none."""
        if self._closed or not nbytes:
            return
        self.held_bytes += nbytes
        assert self.held_bytes >= 0
        part, budget = self._part, self._budget
        part.held_bytes += nbytes
        budget.held_bytes += nbytes
        if (budget.held_bytes >= budget.limit_bytes) is not budget.lending.is_narrow:
            budget.lending.narrow(not budget.lending.is_narrow)
        if nbytes < 0 and (part.finishing is self or budget.is_short):
            part.given_back(self)
            budget._wake()

    def may_take_more(self) -> bool:
        """Return whether this connection may take more; if not, ``resume`` is called when there may be room."""
        if self.held_bytes <= MIN_BYTES and not self._part.waiting:
            return True
        return self._closed or self._part.may_take_more(self)

    def login(self) -> None:
        """Move the account to the part of known clients: its client has authenticated."""
        if self._part is self._budget._known or self._closed:
            return
        self._part.leave(self)
        self._part = self._budget._known
        self._part.held_bytes += self.held_bytes
        # It may have waited for room among strangers, whose part would not notify it any more.
        self._budget._call_later(self.resume)

    def close(self) -> None:
        """Release everything, and stop waiting. May be called again."""
        if self._closed:
            return
        self._closed = self.is_orphan = True
        held, self.held_bytes = self.held_bytes, 0
        self._budget.held_bytes -= held
        self._budget.lending.narrow(self._budget.room_bytes == 0)
        self._part.leave(self, held)
        self._budget._wake()


class _Part:
    """A part of the budget, its accounts, and which of them wait."""

    def __init__(self, budget: MemoryBudget, limit_bytes: int) -> None:
        self._budget = budget
        self._limit = limit_bytes
        self._fair = max(limit_bytes // _FAIR_PARTS, MIN_BYTES)
        self.held_bytes = 0
        self.finishing: Account | None = None
        self._finishing_from = 0  # what it held when it was chosen
        self.waiting: dict[Account, None] = {}  # in their order
        self._to_wake = 0
        self._waking = False

    def given_back(self, account: Account) -> None:
        """Note that an account holds less than before."""
        if account is self.finishing and account.held_bytes < self._finishing_from:
            self.finishing = None  # the frame that had half come is done

    def leave(self, account: Account, held_bytes: int | None = None) -> None:
        """Remove an account, and what it held."""
        self.held_bytes -= account.held_bytes if held_bytes is None else held_bytes
        assert self.held_bytes >= 0
        self.waiting.pop(account, None)
        if account is self.finishing:
            self.finishing = None
        self.wake()

    def may_take_more(self, account: Account) -> bool:
        if self._has_room_for(account):
            self.waiting.pop(account, None)
            return True
        self.waiting[account] = None
        return False

    def _has_room_for(self, account: Account) -> bool:
        held, budget = account.held_bytes, self._budget
        if held <= (NARROW_BYTES if budget.is_full else MIN_BYTES):
            return True
        used = self._used
        if used < 0.5 or (used < 1 and held < self._fair):
            return True
        if self is budget._known and budget.has_spare and account.lacks_little:
            return True
        if self.finishing is None:
            self.finishing, self._finishing_from = account, held
        if account is not self.finishing:
            return False
        return not budget.is_full or budget.held_bytes - held <= SPARE_BYTES // 2

    def wake(self) -> None:
        """Resume the waiting accounts after a release, a few in each turn of the loop."""
        if not self.waiting:
            return
        busy = self.finishing is not None and self.finishing not in self.waiting
        if busy and self._used >= 1 and not self._budget.has_spare:
            return  # no other account may go on, and this one does already
        self._to_wake = len(self.waiting)
        if not self._waking:
            self._waking = True
            self._budget._call_later(self._wake_some)

    @property
    def _used(self) -> float:
        """The used share of this part, or of the whole budget, whichever is larger."""
        budget = self._budget
        return max(self.held_bytes / self._limit, budget.held_bytes / budget.limit_bytes)

    def _wake_some(self) -> None:
        count = min(self._to_wake, len(self.waiting), _WOKEN_AT_ONCE)
        woken = [account for account, _ in zip(self.waiting, range(count), strict=False)]
        self._to_wake -= count
        for account in woken:
            if self.waiting.pop(account, self) is None:
                account.resume()
        self._waking = bool(self._to_wake > 0 and self.waiting)
        if self._waking:
            self._budget._call_later(self._wake_some)
