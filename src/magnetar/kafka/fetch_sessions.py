"""Fetch sessions (KIP-227): a consumer names its partitions once, then only what changed goes over the wire."""

from __future__ import annotations

import random
from collections import OrderedDict
from dataclasses import dataclass, field

from magnetar.kafka.wire.errors import ErrorCode
from magnetar.kafka.wire.messages.fetch_request import FetchPartition, FetchRequest

INVALID_SESSION = 0
FULL_EPOCH = 0  # asks for a new session
FINAL_EPOCH = -1  # asks for no session
MAX_EPOCH = 0x7FFFFFFF


@dataclass(slots=True)
class Ask:
    """One partition of a fetch, and what the consumer was last told of it."""

    topic: str
    topic_id: bytes
    partition: FetchPartition
    high_watermark: int = -2
    log_start_offset: int = -2
    error_code: int = 0


@dataclass(slots=True)
class FetchSession:
    """The partitions that one consumer follows, in its order."""

    session_id: int
    epoch: int = 1
    asks: dict[tuple[str, bytes, int], Ask] = field(default_factory=dict)

    def update(self, request: FetchRequest) -> None:
        """Take over what the request adds, changes and forgets."""
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self.asks.pop((forgotten.topic, forgotten.topic_id, index), None)
        for ask in asks_of(request):
            key = (ask.topic, ask.topic_id, ask.partition.partition)
            known = self.asks.get(key)
            if known is None:
                self.asks[key] = ask
            else:
                known.partition = ask.partition

    def turn(self, answered: list[Ask]) -> None:
        """Move those that were answered with records to the end, so that every partition gets its turn."""
        for ask in answered:
            key = (ask.topic, ask.topic_id, ask.partition.partition)
            if self.asks.pop(key, None) is not None:
                self.asks[key] = ask


class FetchSessions:
    """All sessions of a broker, the least recently used given up first."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, request: FetchRequest) -> tuple[FetchSession | None, list[Ask], ErrorCode]:
        """Give the session (None for a fetch without one), the partitions to answer, and what is wrong."""
        if request.session_epoch == FINAL_EPOCH or request.session_epoch == FULL_EPOCH:
            self._sessions.pop(request.session_id, None)
            asks = asks_of(request)
            if request.session_epoch == FINAL_EPOCH or not asks or self._slots <= 0:
                return None, asks, ErrorCode.NONE
            session = self._create()
            session.update(request)
            return session, list(session.asks.values()), ErrorCode.NONE
        session_found = self._sessions.get(request.session_id)
        if session_found is None:
            return None, [], ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session_found.epoch != request.session_epoch:
            return None, [], ErrorCode.INVALID_FETCH_SESSION_EPOCH
        self._sessions.move_to_end(request.session_id)
        session_found.epoch = 1 if session_found.epoch == MAX_EPOCH else session_found.epoch + 1
        session_found.update(request)
        return session_found, list(session_found.asks.values()), ErrorCode.NONE

    def _create(self) -> FetchSession:
        session_id = random.randint(1, 0x7FFFFFFF)
        while session_id in self._sessions:
            session_id = random.randint(1, 0x7FFFFFFF)
        session = self._sessions[session_id] = FetchSession(session_id)
        if len(self._sessions) > self._slots:
            self._sessions.popitem(last=False)
        return session


def asks_of(request: FetchRequest) -> list[Ask]:
    """Give the partitions that a request names, in its order."""
    return [Ask(topic.topic, topic.topic_id, each) for topic in request.topics for each in topic.partitions]
