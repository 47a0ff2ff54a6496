"""Fetch, from as many brokers as lead what one client follows: sessions are the proxy's, long polls the brokers'.

Each broker is asked for its partitions, and may wait with its answer as the client allows. The first that has something
is enough for an answer; what the others were asked *stays asked*, and is taken up by the client's next Fetch if that
wants the same of them. So a broker without news is asked once in ``max_wait_ms``, however often another one has some.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from magnetar.client.errors import ClientError
from magnetar.client.forwarding import ForwardingConnection, answer_to
from magnetar.proxy.kafka.apart import Apart
from magnetar.proxy.kafka.request import framed, read_answer
from magnetar.proxy.kafka.routes import Routes, TopicKey
from magnetar.serving.fetch_sessions import (
    INVALID_SESSION,
    FetchedPartition,
    FetchSession,
    FetchSessions,
    asks_of,
)
from magnetar.serving.memory import Account
from magnetar.serving.pace import MANY_ROWS, paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.header import RequestHeader
from magnetar.wire.kafka.messages.fetch_request import FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from magnetar.wire.kafka.primitives import ZERO_UUID

Key = tuple[TopicKey, int]
MOVED = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_LEADER_EPOCH}
)
"""What says that somebody else is to be asked."""
_LONGEST_WAIT_MS = 60_000
MOST_BYTES = 1 << 20
"""That one answer is to hold: it lies in memory until it is sent, and larger ones leave the processor's caches."""
_LIMITS = Struct(">i")
_MAX_BYTES_AT, _MAX_BYTES_AT_SINCE_15 = 12, 8


@dataclass(slots=True, eq=False)
class _Asked:
    """What one broker was asked, and has or has not answered."""

    connection: ForwardingConnection
    asks: dict[Key, Any]
    """What was asked of each partition, as the request had it."""
    isolation_level: int
    answer: asyncio.Future[memoryview]

    @property
    def size(self) -> int:
        """Of an answer that has come and was not taken."""
        came = self.answer.done() and self.answer.exception() is None
        return len(self.answer.result()) if came else 0


@dataclass(slots=True, eq=False)
class _Known:
    """Of a partition, as it was last told."""

    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1


@dataclass(slots=True, eq=False)
class Fetching:
    """The fetches of one client. ``connect`` gives a connection to a broker (None: any) that nobody else uses."""

    sessions: FetchSessions
    account: Account
    connect: Callable[[int | None], Awaitable[ForwardingConnection]]
    let_go: Callable[[ForwardingConnection], None]
    """Takes back a connection that is free."""
    within_s: float
    _asked: dict[int | None, _Asked] = field(default_factory=dict)
    _known: dict[Key, _Known] = field(default_factory=dict)
    _free: dict[int | None, ForwardingConnection] = field(default_factory=dict)
    _gathered: int = 0
    """What some brokers have answered, while it is waited for the others."""

    @property
    def connections(self) -> list[ForwardingConnection]:
        """All that are in use."""
        return [*(each.connection for each in self._asked.values()), *self._free.values()]

    @property
    def held_bytes(self) -> int:
        """Answers that have come and that the client has not asked for again."""
        return self._gathered + sum(each.size for each in self._asked.values())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is asked of any broker, so that a fetch may go by another way."""
        return not self._asked

    def close(self) -> None:
        """Give up what is asked."""
        for each in self._asked.values():
            each.connection.close()
        self._asked.clear()
        for connection in self._free.values():
            self.let_go(connection)
        self._free.clear()

    async def fetch(
        self,
        apart: Apart,
        request: FetchRequest,
        header: RequestHeader,
        routes: Routes,
        find_leaders: Callable[[Iterable[TopicKey]], Awaitable[None]],
        *,
        has_many_rows: bool = False,
    ) -> FetchResponse:
        """Answer a client's Fetch. Raises `ClientError` if no broker can be asked at all."""
        named = await apart.do(has_many_rows, _named, request)
        session, asks, error = self.sessions.resolve(request, named, self.account)
        if error:
            return FetchResponse(error_code=error, session_id=INVALID_SESSION)
        many = has_many_rows or len(asks) > MANY_ROWS
        keys, unknown = await apart.do(many, _keys, asks, routes.knows)
        if unknown:
            await find_leaders(unknown)
        of_owner = await apart.do(many, _by_owner, keys, asks, routes.leader)
        for owner in [owner for owner in self._asked if owner not in of_owner]:
            if self._asked[owner].answer.done():
                self._take_back(owner)
        waiting = [
            (owner, await self._ask(apart, many, owner, wanted, request, header, len(of_owner)))
            for owner, wanted in of_owner.items()
        ]
        rows: dict[Key, PartitionData] = {}
        if many:
            apart.keep(rows)
        try:
            await self._gather(apart, many, rows, waiting, of_owner, request, header)
        finally:
            self._gathered = 0  # what goes out now is counted where it goes out
        async for topic in paced(await apart.do(many, _moved, rows)):
            routes.forget(topic)
        answer_all = session is None or request.session_epoch <= 0
        answer, served = await apart.do(many, self._answer, session, asks, keys, rows, answer_all)
        if session is not None:
            session.turn(served)
        return answer

    # -- asking

    async def _ask(
        self,
        apart: Apart,
        many: bool,
        owner: int | None,
        wanted: dict[Key, FetchedPartition],
        request: FetchRequest,
        header: RequestHeader,
        owners: int,
    ) -> _Asked | None:
        """Return what the broker is asked: what it was asked before, if that will do; None if it is not there."""
        before = self._asked.get(owner)
        if before is not None and await apart.do(many, self._will_do, before, wanted, request):
            return before
        if before is not None:
            if before.answer.done():
                self._take_back(owner)
            else:
                before.connection.close()  # its broker gives up what nobody waits for
                del self._asked[owner]
        connection = self._free.pop(owner, None)
        try:
            if connection is None or connection.closed:
                connection = await self.connect(owner)
        except ClientError:
            return None
        asks: dict[Key, Any] = {}
        asked = await apart.do(many, self._request, wanted, request, owners, asks)
        frame = await apart.do(many, framed, header, asked)
        wait_s = min(asked.max_wait_ms, _LONGEST_WAIT_MS) / 1000
        made = self._asked[owner] = _Asked(
            connection,
            asks,
            request.isolation_level,
            answer_to(connection, frame, within_s=self.within_s + wait_s),
        )
        return made

    def _request(
        self, wanted: dict[Key, FetchedPartition], request: FetchRequest, owners: int, asks: dict[Key, Any]
    ) -> FetchRequest:
        """Return what one broker is asked; ``asks`` gets what of each partition."""
        asks.update((key, ask.partition) for key, ask in wanted.items())
        # Who follows a partition is told how long it is at once: an answer must have each partition, with news or not.
        is_new = any(key not in self._known for key in wanted)
        return FetchRequest(
            max_wait_ms=0 if is_new else request.max_wait_ms,
            min_bytes=min(request.min_bytes, 1) if owners > 1 else request.min_bytes,
            max_bytes=max(min(request.max_bytes, MOST_BYTES) // owners, 1),
            isolation_level=request.isolation_level,
            session_id=INVALID_SESSION,
            session_epoch=-1,
            topics=_topics(wanted.values()),
            rack_id=request.rack_id,
        )

    def _will_do(self, before: _Asked, wanted: dict[Key, FetchedPartition], request: FetchRequest) -> bool:
        return before.isolation_level == request.isolation_level and all(
            before.asks.get(key) == ask.partition for key, ask in wanted.items()
        )

    def _take_back(self, owner: int | None) -> None:
        """What was asked of a broker has been answered: its connection is free."""
        asked = self._asked.pop(owner)
        if asked.connection.closed:
            return
        if owner is None or owner in self._free:
            self.let_go(asked.connection)
        else:
            self._free[owner] = asked.connection

    # -- answers

    async def _gather(
        self,
        apart: Apart,
        many: bool,
        rows: dict[Key, PartitionData],
        waiting: Sequence[tuple[int | None, _Asked | None]],
        of_owner: dict[int | None, dict[Key, FetchedPartition]],
        request: FetchRequest,
        header: RequestHeader,
    ) -> None:
        """Put the rows of the brokers that have answered into ``rows`` until there is enough; none of the others."""
        size, has_failed = 0, False
        left = dict(waiting)
        while True:
            for owner, asked in list(left.items()):
                if asked is not None and not asked.answer.done():
                    continue
                del left[owner]
                wanted = of_owner[owner]
                if asked is None:
                    found = await apart.do(many, _failed, wanted)
                else:
                    found = await self._rows(apart, many, owner, asked, header)
                more, failed = await apart.do(many, _put, rows, found, wanted)
                size += more
                has_failed = has_failed or failed
            if not left or has_failed:
                return
            if size >= max(request.min_bytes, 1) and await apart.do(many, self._all_known, of_owner):
                return
            pending = [asked.answer for asked in left.values() if asked is not None]
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)

    def _all_known(self, of_owner: dict[int | None, dict[Key, FetchedPartition]]) -> bool:
        return all(key in self._known for wanted in of_owner.values() for key in wanted)

    async def _rows(
        self, apart: Apart, many: bool, owner: int | None, asked: _Asked, header: RequestHeader
    ) -> dict[Key, PartitionData]:
        """Take a broker's answer."""
        failure = asked.answer.exception()
        self._gathered += asked.size
        self._take_back(owner)
        if failure is not None:
            return await apart.do(many, _failed, asked.asks)
        return await apart.do(many, self._read, header, asked.answer.result(), asked.asks)

    def _read(
        self, header: RequestHeader, frame: memoryview, asks: dict[Key, Any]
    ) -> dict[Key, PartitionData]:
        answer = read_answer(header, frame)
        if answer.error_code:
            return _failed(asks, answer.error_code)
        rows: dict[Key, PartitionData] = {}
        for topic in answer.responses:
            name: TopicKey = topic.topic_id if topic.topic_id != ZERO_UUID else topic.topic
            for row in topic.partitions:
                key = (name, row.partition_index)
                rows[key] = row
                if not row.error_code:
                    self._known[key] = _Known(
                        row.high_watermark, row.last_stable_offset, row.log_start_offset
                    )
        return rows

    def _answer(
        self,
        session: FetchSession | None,
        asks: list[FetchedPartition],
        keys: list[Key],
        rows: dict[Key, PartitionData],
        answer_all: bool,
    ) -> tuple[FetchResponse, list[FetchedPartition]]:
        """Lay out the rows by topic, in a session only those that say something new; and return who got records."""
        topics: dict[tuple[str, bytes], list[PartitionData]] = {}
        served = []
        for key, ask in zip(keys, asks, strict=True):
            row = rows.get(key) or self._without_news(key)
            row.current_leader = None
            row.preferred_read_replica = -1
            news = row.records or row.error_code or row.diverging_epoch is not None
            known = (ask.high_watermark, ask.log_start_offset, ask.error_code)
            now = (row.high_watermark, row.log_start_offset, row.error_code)
            ask.high_watermark, ask.log_start_offset, ask.error_code = now
            if row.records:
                served.append(ask)
            if answer_all or news or known != now:
                topics.setdefault((ask.topic, ask.topic_id), []).append(row)
        if len(self._known) > 2 * len(asks) + 100:
            wanted = set(keys)
            self._known = {key: known for key, known in self._known.items() if key in wanted}
        answer = FetchResponse(
            session_id=session.session_id if session is not None else INVALID_SESSION,
            responses=[
                FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions)
                for (name, topic_id), partitions in topics.items()
            ],
        )
        return answer, served

    def _without_news(self, key: Key) -> PartitionData:
        known = self._known.get(key) or _Known()
        return PartitionData(
            partition_index=key[1],
            high_watermark=known.high_watermark,
            last_stable_offset=known.last_stable_offset,
            log_start_offset=known.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )


def within_bounds(frame: memoryview, body: memoryview, version: int, max_bytes: int) -> memoryview:
    """Return a Fetch that asks for no more than `MOST_BYTES` in all; ``max_bytes`` is what it asks for."""
    if max_bytes <= MOST_BYTES:
        return frame
    at = (
        len(frame)
        - len(body)
        + (_MAX_BYTES_AT if version < _FIRST_WITHOUT_REPLICA else _MAX_BYTES_AT_SINCE_15)
    )
    changed = bytearray(frame)
    _LIMITS.pack_into(changed, at, MOST_BYTES)
    return memoryview(changed).toreadonly()


_FIRST_WITHOUT_REPLICA = 15


def _named(request: FetchRequest) -> list[FetchedPartition]:
    return list(asks_of(request))


def _keys(
    asks: list[FetchedPartition], knows: Callable[[TopicKey, int], bool]
) -> tuple[list[Key], dict[TopicKey, None]]:
    """Return the partitions, and the topics of which one is not known."""
    keys = [(_topic_of(ask), ask.partition.partition) for ask in asks]
    return keys, {topic: None for topic, partition in keys if not knows(topic, partition)}


def _by_owner(
    keys: list[Key], asks: list[FetchedPartition], leader: Callable[[TopicKey, int], int | None]
) -> dict[int | None, dict[Key, FetchedPartition]]:
    found: dict[int | None, dict[Key, FetchedPartition]] = {}
    for key, ask in zip(keys, asks, strict=True):
        found.setdefault(leader(*key), {})[key] = ask
    return found


def _put(
    rows: dict[Key, PartitionData], found: dict[Key, PartitionData], wanted: dict[Key, FetchedPartition]
) -> tuple[int, bool]:
    """Put what was found and is wanted into ``rows``; return the bytes of its records, and whether one has failed."""
    size, has_failed = 0, False
    for key, row in found.items():
        if key in wanted:
            rows[key] = row
            size += len(row.records or b"")
            has_failed = has_failed or bool(row.error_code) or row.diverging_epoch is not None
    return size, has_failed


def _moved(rows: dict[Key, PartitionData]) -> dict[TopicKey, None]:
    return {topic: None for (topic, _), row in rows.items() if row.error_code in MOVED}


def _topic_of(ask: FetchedPartition) -> TopicKey:
    return ask.topic_id if ask.topic_id != ZERO_UUID else ask.topic


def _topics(asks: Iterable[FetchedPartition]) -> list[FetchTopic]:
    found: dict[tuple[str, bytes], list[Any]] = {}
    for ask in asks:
        found.setdefault((ask.topic, ask.topic_id), []).append(ask.partition)
    return [
        FetchTopic(topic=name, topic_id=topic_id, partitions=rows) for (name, topic_id), rows in found.items()
    ]


def without_leader(request: FetchRequest) -> FetchResponse:
    """Return the answer to a Fetch whose broker is not there."""
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    _refused(each.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _failed(asks: Iterable[Key], code: int = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> dict[Key, PartitionData]:
    """Return the rows of a broker that is not there: its partitions will be somewhere else."""
    return {(topic, index): _refused(index, code) for topic, index in asks}


def _refused(index: int, code: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )
