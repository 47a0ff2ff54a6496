"""Fetch sessions (KIP-227) are their connection's, and are bounded by what they keep."""

from __future__ import annotations

from magnetar.serving.fetch_sessions import (
    MAX_SESSION_ROWS,
    ROW_BYTES,
    UNUSED_S,
    FetchSession,
    FetchSessions,
    asks_of,
)
from magnetar.serving.memory import Account, MemoryBudget
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic

MAX_ROWS = 2 * MAX_SESSION_ROWS
SLOTS = 3


class House:
    """Sessions, a clock that is turned by hand, and connections."""

    def __init__(self) -> None:
        self.now = 0.0
        self.budget = MemoryBudget(64 << 20, 8 << 20)
        self.sessions = FetchSessions(SLOTS, MAX_ROWS, self.connection(), lambda: self.now)

    def connection(self) -> Account:
        return self.budget.account(lambda: None, known=True)

    def ask(
        self, owner: Account, rows: int, session_id: int = 0, epoch: int = 0, first: int = 0
    ) -> tuple[FetchSession | None, ErrorCode]:
        partitions = [FetchPartition(partition=first + each) for each in range(rows)]
        request = FetchRequest(
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic="t", partitions=partitions)] if rows else [],
        )
        session, _, error = self.sessions.resolve(request, list(asks_of(request)), owner)
        return session, error


def test_a_session_is_its_connections_and_ends_with_it() -> None:
    house = House()
    mine, yours = house.connection(), house.connection()
    session, _ = house.ask(mine, 5)
    assert session is not None
    assert house.budget.held_bytes == 5 * ROW_BYTES
    assert house.ask(yours, 0, session.session_id, 1) == (None, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert house.ask(yours, 1, session.session_id, -1) == (None, ErrorCode.NONE)  # ends nobody else's
    assert house.ask(mine, 0, session.session_id, 1) == (session, ErrorCode.NONE)
    house.sessions.forget(mine)
    house.sessions.forget(mine)
    assert (len(house.sessions), house.sessions.rows, house.budget.held_bytes) == (0, 0, 0)


def test_a_connection_has_few_sessions() -> None:
    house = House()
    sessions = FetchSessions(1000, MAX_ROWS, house.connection(), lambda: 0.0)
    house.sessions = sessions
    mine = house.connection()
    found = [house.ask(mine, 5)[0] for _ in range(20)]
    assert all(found)
    assert len(sessions) == 4
    assert sessions.rows == 20


def test_what_has_no_place_gets_none_until_others_are_unused() -> None:
    house = House()
    owners = [house.connection() for _ in range(SLOTS + 1)]
    first = [house.ask(owner, 1)[0] for owner in owners]
    assert [session is not None for session in first] == [True] * SLOTS + [False]
    house.now = UNUSED_S + 1
    assert first[0] is not None
    assert house.ask(owners[0], 0, first[0].session_id, 1)[1] is ErrorCode.NONE  # it is used
    assert house.ask(owners[-1], 1)[0] is not None
    assert first[1] is not None
    assert house.ask(owners[1], 0, first[1].session_id, 1)[1] is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert house.ask(owners[0], 0, first[0].session_id, 2)[1] is ErrorCode.NONE


def test_partitions_that_do_not_exist_count_as_long_as_they_are_kept() -> None:
    house = House()
    assert house.ask(house.connection(), MAX_SESSION_ROWS + 1) == (None, ErrorCode.NONE)
    owners = [house.connection() for _ in range(3)]
    given = [house.ask(owner, MAX_SESSION_ROWS)[0] for owner in owners]
    assert [session is not None for session in given] == [True, True, False]
    assert house.sessions.rows == MAX_ROWS


def test_a_session_that_grows_too_large_is_answered_and_ended() -> None:
    house = House()
    mine = house.connection()
    session, _ = house.ask(mine, MAX_SESSION_ROWS)
    assert session is not None
    grown, error = house.ask(mine, 1, session.session_id, 1, first=MAX_SESSION_ROWS)
    assert (grown, error) == (session, ErrorCode.NONE)
    assert house.ask(mine, 0, session.session_id, 2)[1] is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert house.budget.held_bytes == 0


def test_a_session_of_whom_more_is_named_than_any_has_ends_before_that_is_gone_through() -> None:
    house = House()
    mine = house.connection()
    session, _ = house.ask(mine, 1)
    assert session is not None
    named = house.ask(mine, MAX_SESSION_ROWS + 1, session.session_id, 1)
    assert named == (None, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert len(session.asks) == 1
    assert house.budget.held_bytes == 0


def test_forgotten_partitions_are_given_back() -> None:
    from magnetar.wire.kafka.messages.fetch_request import ForgottenTopic

    house = House()
    mine = house.connection()
    session, _ = house.ask(mine, 8)
    assert session is not None
    request = FetchRequest(
        session_id=session.session_id,
        session_epoch=1,
        topics=[],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[0, 1, 2])],
    )
    assert house.sessions.resolve(request, [], mine)[2] is ErrorCode.NONE
    assert house.budget.held_bytes == 5 * ROW_BYTES
