"""Fetch sessions (KIP-227): a consumer names its partitions once, then only what changed goes over the wire.

A session belongs to its connection: it ends with it, and no other client can use it. The number of sessions and of
their partitions is limited; where there is no room, a session that was not used for two minutes is evicted, otherwise
the new client gets none (as in Kafka: ``max.incremental.fetch.session.cache.slots``,
``min.incremental.fetch.session.eviction.ms``). That consumer then names all partitions each time.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from magnetar.serving.memory import Account
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest

INVALID_SESSION = 0
FULL_EPOCH = 0  # asks for a new session
FINAL_EPOCH = -1  # asks for no session
MAX_EPOCH = 0x7FFFFFFF
ROW_BYTES = 400
"""The memory that a partition takes in a session, about."""
MAX_SESSION_ROWS = 10_000
"""The most partitions of a session. All of them are visited at each fetch, however small the request is."""
UNUSED_S = 120.0
_MAX_OF_ONE = 4
"""The most sessions of a connection; no client uses more than one."""


@dataclass(slots=True)
class FetchedPartition:
    """One partition of a fetch, and what the consumer last received about it."""

    topic: str
    topic_id: bytes
    partition: FetchPartition
    high_watermark: int = -2
    log_start_offset: int = -2
    error_code: int = 0


@dataclass(slots=True, eq=False)
class FetchSession:
    """The partitions that one consumer follows, in its order."""

    session_id: int
    owner: Account | None
    epoch: int = 1
    used_at: float = 0.0
    asks: dict[tuple[str, bytes, int], FetchedPartition] = field(default_factory=dict)

    def update(self, request: FetchRequest, named: list[FetchedPartition]) -> None:
        """Apply what the request adds, changes and removes."""
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self.asks.pop((forgotten.topic, forgotten.topic_id, index), None)
        for ask in named:
            key = (ask.topic, ask.topic_id, ask.partition.partition)
            known = self.asks.get(key)
            if known is None:
                self.asks[key] = ask
            else:
                known.partition = ask.partition

    def turn(self, answered: list[FetchedPartition]) -> None:
        """Move partitions that were answered with records to the end, so that every partition gets its turn."""
        for ask in answered:
            key = (ask.topic, ask.topic_id, ask.partition.partition)
            if self.asks.pop(key, None) is not None:
                self.asks[key] = ask


class FetchSessions:
    """All sessions of a broker, the least recently used first.

    A connection is identified by its account. The memory of sessions is charged to ``account``, which they share: they
    have a bound of their own, and a consumer of many partitions is not one that takes much at a time.
    """

    def __init__(
        self, slots: int, max_rows: int, account: Account, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._slots = slots
        self._account = account
        self._max_rows = max_rows
        self._clock = clock
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._of: dict[Account | None, list[FetchSession]] = {}
        self.rows = 0
        """Partitions in all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(
        self, request: FetchRequest, named: list[FetchedPartition], owner: Account | None
    ) -> tuple[FetchSession | None, list[FetchedPartition], ErrorCode]:
        """Return the session (None for a fetch without one), the partitions to answer, and what is wrong.

        ``named`` are those that the request names.
        """
        session = self._sessions.get(request.session_id)
        if session is not None and session.owner is not owner:
            session = None
        if request.session_epoch == FINAL_EPOCH or request.session_epoch == FULL_EPOCH:
            if session is not None:
                self._remove(session)
            if request.session_epoch == FINAL_EPOCH or not named or not self._make_room(len(named), owner):
                return None, named, ErrorCode.NONE
            session = self._create(owner)
        elif session is None:
            return None, [], ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        elif session.epoch != request.session_epoch:
            return None, [], ErrorCode.INVALID_FETCH_SESSION_EPOCH
        elif len(named) > MAX_SESSION_ROWS:
            # No session has so many; a client that begins again gets none. Visiting them first took 0.1 s.
            self._remove(session)
            return None, [], ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        else:
            self._sessions.move_to_end(request.session_id)
            session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.used_at = self._clock()
        before = len(session.asks)
        session.update(request, named)
        self._count(len(session.asks) - before)
        asks = list(session.asks.values())
        if len(asks) > before and (self.rows > self._max_rows or len(asks) > MAX_SESSION_ROWS):
            # It has grown beyond the limit: this fetch is answered, then the client has to begin again, and gets none.
            self._remove(session)
        return session, asks, ErrorCode.NONE

    def forget(self, owner: Account) -> None:
        """End the sessions of a connection that has ended."""
        for session in list(self._of.get(owner, ())):
            self._remove(session)

    def take_back(self, session: FetchSession) -> None:
        """Remove a session whose id is not sent to its client."""
        if session.session_id in self._sessions:
            self._remove(session)

    def _make_room(self, rows: int, owner: Account | None) -> bool:
        """Return whether there may be one more session, of so many partitions."""
        if rows > MAX_SESSION_ROWS:
            return False
        own = self._of.get(owner, [])
        if len(own) >= _MAX_OF_ONE:
            self._remove(own[0])
        unused_since = self._clock() - UNUSED_S
        while self._sessions and not self._has_room(rows):
            oldest = next(iter(self._sessions.values()))
            if oldest.used_at > unused_since:
                return False
            self._remove(oldest)
        return self._has_room(rows)

    def _has_room(self, rows: int) -> bool:
        return len(self._sessions) < self._slots and self.rows + rows <= self._max_rows

    def _create(self, owner: Account | None) -> FetchSession:
        session_id = _any_id()
        while session_id in self._sessions:
            session_id = _any_id()
        session = self._sessions[session_id] = FetchSession(session_id, owner)
        self._of.setdefault(owner, []).append(session)
        return session

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.session_id]
        self._count(-len(session.asks))
        own = self._of[session.owner]
        own.remove(session)
        if not own:
            del self._of[session.owner]

    def _count(self, rows: int) -> None:
        self.rows += rows
        self._account.charge(rows * ROW_BYTES)


def asks_of(request: FetchRequest) -> Iterator[FetchedPartition]:
    """Yield the partitions that a request names, in its order."""
    for topic in request.topics:
        for each in topic.partitions:
            yield FetchedPartition(topic.topic, topic.topic_id, each)


def _any_id() -> int:
    """Return a positive int32 that cannot be guessed."""
    return int.from_bytes(os.urandom(4), "big") & 0x7FFFFFFF or 1
