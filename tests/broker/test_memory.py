"""The budget for what clients make the broker keep: it is kept to, nobody starves, and nothing stays behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.records.framing import NARROW_BYTES, SCRATCH_BYTES
from magnetar.serving.memory import LITTLE_BYTES, MIN_BYTES, SPARE_BYTES, Account, MemoryBudget

MB = 1 << 20
LIMIT, STRANGERS = 8 * MB, MB
READ_BYTES = 256 << 10


class Loop:
    """What is to be called later, and is called by `turn`."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()

    def later(self, function: Callable[[], None]) -> None:
        self._calls.append(function)

    def turn(self) -> bool:
        calls, self._calls = self._calls, deque()
        for call in calls:
            call()
        return bool(calls)


class Client:
    """Sends one frame, in pieces, as far as it is read; what has come whole is answered some turns later."""

    def __init__(self, budget: MemoryBudget, size: int, *, known: bool, answered_after: int) -> None:
        self.left = size
        self.reads = True
        self._turns = answered_after
        self.account = budget.account(self._resume, known=known, missing=lambda: self.left)

    @property
    def done(self) -> bool:
        return not self.left and not self.account.held_bytes

    def turn(self) -> bool:
        if not self.left:
            self._turns -= 1
            if self._turns == 0:
                self.account.charge(-self.account.held_bytes)
            return self._turns >= 0
        if not self.reads:
            return False
        piece = min(self.left, READ_BYTES)
        self.left -= piece
        self.account.charge(piece)
        self.reads = self.account.may_take_more()
        return True

    def _resume(self) -> None:
        self.reads = self.reads or self.account.may_take_more()


CLIENTS = st.lists(
    st.tuples(st.integers(1, SPARE_BYTES), st.booleans(), st.integers(1, 5)), min_size=1, max_size=40
)


@settings(max_examples=150, deadline=None)
@given(CLIENTS)
def test_every_frame_can_be_finished_and_the_budget_is_kept_to(
    wanted: list[tuple[int, bool, int]],
) -> None:
    loop = Loop()
    budget = MemoryBudget(LIMIT, STRANGERS, loop.later)
    clients = [
        Client(budget, size if known else size % MB + 1, known=known, answered_after=turns)
        for size, known, turns in wanted
    ]
    # Beside the one of each part that is finished, each may be one read further than was looked at.
    slack = len(clients) * (MIN_BYTES + READ_BYTES)
    while not all(client.done for client in clients):
        went_on = [client.turn() for client in clients]
        assert budget.held_bytes == sum(client.account.held_bytes for client in clients)
        assert budget.held_bytes <= LIMIT + SPARE_BYTES + slack
        assert loop.turn() or any(went_on), "everybody waits for everybody"
    assert budget.held_bytes == 0


class Steps:
    """What somebody may do with accounts, at random."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.budget = MemoryBudget(LIMIT, STRANGERS, self.loop.later)
        self.accounts: list[Account] = []
        self.waiting: set[Account] = set()

    def open(self, known: bool) -> None:
        missing = None if len(self.accounts) % 2 else lambda: len(self.accounts) << 18
        account = self.budget.account(lambda: self.waiting.discard(account), known=known, missing=missing)
        self.accounts.append(account)

    def look(self, account: Account) -> None:
        if account.may_take_more():
            self.waiting.discard(account)
        else:
            self.waiting.add(account)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "stranger", "charge", "give back", "look", "login", "close", "turn"]),
        st.integers(0, 1 << 16),
        st.integers(0, 4 * MB),
    ),
    max_size=80,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_nothing_stays_behind_and_who_waits_is_told(steps: list[tuple[str, int, int]]) -> None:
    at = Steps()
    at.open(True)
    for what, who, size in steps:
        account = at.accounts[who % len(at.accounts)]
        match what:
            case "open" | "stranger":
                at.open(what == "open")
            case "charge":
                account.charge(size)
            case "give back":
                account.charge(-min(size, account.held_bytes))
            case "look":
                at.look(account)
            case "login":
                account.login()
            case "close":
                account.close()
                at.waiting.discard(account)
            case _:
                at.loop.turn()
        assert at.budget.held_bytes == sum(each.held_bytes for each in at.accounts)
    for account in at.accounts:
        account.charge(-account.held_bytes)
    while at.loop.turn():
        pass
    assert not at.waiting
    assert not at.budget.is_short
    for account in at.accounts:
        account.charge(MB)
        account.close()
        account.close()
    assert at.budget.held_bytes == 0


def account_of(budget: MemoryBudget, *, known: bool = True) -> Account:
    return budget.account(lambda: None, known=known)


def test_small_requests_are_heard_however_much_others_take() -> None:
    budget = MemoryBudget(LIMIT, STRANGERS, Loop().later)
    most = account_of(budget)
    most.charge(LIMIT + SPARE_BYTES - MB)
    for known in (True, False):
        small = account_of(budget, known=known)
        small.charge(MIN_BYTES)
        assert small.may_take_more()
    most.charge(MB)
    for known in (True, False):
        smallest = account_of(budget, known=known)
        smallest.charge(NARROW_BYTES)
        assert smallest.may_take_more()


def test_who_lacks_little_waits_for_nobody_that_lacks_more() -> None:
    budget = MemoryBudget(LIMIT, STRANGERS, Loop().later)
    crowd = [budget.account(lambda: None, known=True, missing=lambda: 5 * MB) for _ in range(40)]
    for each in crowd:
        each.charge(256 << 10)
    assert [each.may_take_more() for each in crowd].count(True) == 1
    little = budget.account(lambda: None, known=True, missing=lambda: LITTLE_BYTES)
    more = budget.account(lambda: None, known=True, missing=lambda: LITTLE_BYTES + 1)
    none = budget.account(lambda: None, known=True, missing=lambda: 0)
    stranger = budget.account(lambda: None, known=False, missing=lambda: LITTLE_BYTES)
    for _ in range(2):
        other = budget.account(lambda: None, known=False)
        other.charge(256 << 10)
        other.may_take_more()  # the first one is what is finished of strangers'
    for each in (little, more, none, stranger):
        each.charge(256 << 10)
        assert each.may_take_more() is (each is little)
    crowd[1].charge(SPARE_BYTES // 2)
    assert not little.may_take_more()  # the other half is for the one that is finished


def test_little_is_lent_while_memory_is_short() -> None:
    budget = MemoryBudget(LIMIT, STRANGERS, Loop().later)
    first, second = account_of(budget), account_of(budget)
    first.charge(LIMIT - 1)
    assert budget.lending.nbytes == SCRATCH_BYTES
    second.charge(1)
    assert budget.lending.nbytes == NARROW_BYTES
    second.charge(-1)
    assert budget.lending.nbytes == SCRATCH_BYTES
    second.charge(1)
    first.close()
    assert budget.lending.nbytes == SCRATCH_BYTES


def test_strangers_share_a_small_part_and_a_login_frees_it() -> None:
    budget = MemoryBudget(LIMIT, STRANGERS, Loop().later)
    strangers = [account_of(budget, known=False) for _ in range(20)]
    for each in strangers:
        while each.held_bytes < 256 << 10 and each.may_take_more():
            each.charge(MIN_BYTES)
    assert sum(each.held_bytes for each in strangers) <= 2 * STRANGERS
    mine = account_of(budget)
    mine.charge(MB)
    assert mine.may_take_more()
    blocked = next(each for each in strangers if not each.may_take_more())
    blocked.login()
    assert blocked.may_take_more()


def test_one_connection_alone_does_not_take_all() -> None:
    budget = MemoryBudget(LIMIT, STRANGERS, Loop().later)
    first, second, third = (account_of(budget) for _ in range(3))
    first.charge(LIMIT * 3 // 4)
    assert first.may_take_more()  # it is what is finished
    second.charge(MB)
    third.charge(MIN_BYTES + 1)
    assert not second.may_take_more()
    assert third.may_take_more()


def test_what_is_larger_than_all_waits_until_the_others_let_go() -> None:
    loop = Loop()
    budget = MemoryBudget(LIMIT, STRANGERS, loop.later)
    told: list[None] = []
    large = budget.account(lambda: told.append(None), known=True)
    other = account_of(budget)
    other.charge(SPARE_BYTES)
    large.charge(LIMIT)
    assert not large.may_take_more()
    other.close()
    loop.turn()
    assert told
    assert large.may_take_more()
    large.charge(10 * LIMIT + SPARE_BYTES)
    assert large.may_take_more()


def test_a_charge_below_nothing_is_our_own_mistake() -> None:
    budget = MemoryBudget(LIMIT, STRANGERS, Loop().later)
    with pytest.raises(AssertionError):
        account_of(budget).charge(-1)


def test_what_is_left_before_the_limit_is_told() -> None:
    budget = MemoryBudget(LIMIT, STRANGERS)
    assert budget.room_bytes == LIMIT
    budget.held_bytes = MB
    assert budget.room_bytes == LIMIT - MB
    budget.held_bytes = LIMIT + 1
    assert budget.room_bytes == 0
