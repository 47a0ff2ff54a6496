"""ShareFetch: records for a member of a share group, to hold for a while and say what became of them (KIP-932)."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING

from magnetar.auth import Right
from magnetar.auth import may as allowed
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.handlers.leaders import TELLS_LEADER, Misled, tell_leaders
from magnetar.kafka.handlers.share_acknowledging import (
    Refusal,
    Said,
    acknowledge,
    message_of,
    said_in,
    serve,
)
from magnetar.kafka.shares.serving import Given, ServedShare, WantedRecords
from magnetar.kafka.shares.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    SharedPartition,
    ShareSession,
    check_member,
    check_rows,
)
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.share_fetch_request import ShareFetchRequest
from magnetar.wire.kafka.messages.share_fetch_response import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.shares.shares import Shares

_RECORD_LIMIT = 1
"""The mode of acquiring in which no record more is given than was asked for (KIP-1206)."""
_MAX_ANSWER_BYTES = 4 << 20
_MAX_PARTITION_BYTES = 1 << 20
_MIN_ROOM = 64 << 10
_MAX_WAIT_MS = 60_000
_LOOK_FOR_ROOM_S = 0.05

Rows = dict[SharedPartition, PartitionData]


async def share_fetch(request: ShareFetchRequest, context: RequestContext) -> ShareFetchResponse:
    """Take in what the member says, then give it records, or wait for some until ``max_wait_ms``."""
    shares = await context.kafka.shares.get()
    try:
        check_rows(request.topics)
        check_rows(request.forgotten_topics_data)
        said = said_in(request.topics)
        session = _session(request, context, shares, said)
    except CoordinatorRefused as refused:
        return ShareFetchResponse(error_code=refused.code, error_message=message_of(refused))
    rows: Rows = {}
    done = await acknowledge(context, shares, *session.key, said, renews=request.is_renew_ack)
    for where, outcome in done.items():
        row = _row(rows, where)
        row.acknowledge_error_code, row.acknowledge_error_message = outcome
    if request.share_session_epoch == FINAL_EPOCH:
        shares.sessions.end(session)
    elif not request.is_renew_ack:
        await _Fetching(request, context, shares, session, rows).run()
        if request.share_session_epoch == INITIAL_EPOCH:  # the first answer tells of all, as Kafka's does
            async for where in paced(session.partitions):
                _row(rows, where)
    return await _answer(context, shares, session, rows)


def _session(
    request: ShareFetchRequest, context: RequestContext, shares: Shares, said: list[Said]
) -> ShareSession:
    """Return the session that the request belongs to, with what it adds and forgets."""
    check_member(request.group_id, request.member_id)
    assert request.group_id is not None
    assert request.member_id is not None
    asks = request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records
    if request.is_renew_ack and max(asks) > 0:
        raise CoordinatorRefused(ErrorCode.INVALID_REQUEST, "Who renews asks for nothing else.")
    key = SessionKey(request.group_id, request.member_id)
    if request.share_session_epoch == INITIAL_EPOCH:
        if said:
            raise CoordinatorRefused(
                ErrorCode.INVALID_REQUEST, "Nothing can be acknowledged in the first request of a session."
            )
        session = shares.sessions.begin(key, context.account)
    else:
        session = shares.sessions.go_on(key, request.share_session_epoch)
    if request.share_session_epoch != FINAL_EPOCH:
        shares.sessions.add(session, _partitions(request.topics, "partition_index"))
        forgotten = request.forgotten_topics_data
        shares.sessions.drop(session, _partitions(forgotten, None))
    return session


def _partitions(topics: Iterable[object], field: str | None) -> list[SharedPartition]:
    return [
        SharedPartition(topic.topic_id, row if field is None else getattr(row, field))  # type: ignore[attr-defined]
        for topic in topics
        for row in topic.partitions  # type: ignore[attr-defined]
    ]


class _Fetching:
    """One request for records of a session's partitions."""

    def __init__(
        self,
        request: ShareFetchRequest,
        context: RequestContext,
        shares: Shares,
        session: ShareSession,
        rows: Rows,
    ) -> None:
        self._request = request
        self._context = context
        self._shares = shares
        self._session = session
        self._rows = rows
        self._strict = request.share_acquire_mode == _RECORD_LIMIT
        self._records = 0
        self._bytes = 0
        self._failed = False
        self._served: dict[SharedPartition, ServedShare] = {}

    async def run(self) -> None:
        """Fill the rows of what there is now or, while there is nothing, of what comes."""
        memory = self._context.kafka.broker.serving.memory
        while memory.is_full and not self._session.deserted:  # noqa: ASYNC110 - others do not take their answers
            await asyncio.sleep(_LOOK_FOR_ROOM_S)
        if self._request.max_records <= 0:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + min(max(self._request.max_wait_ms, 0), _MAX_WAIT_MS) / 1000
        news = asyncio.Event()
        wake = news.set
        waits: dict[ServedShare, None] = {}
        self._session.on_deserted.append(wake)
        try:
            while not self._session.deserted:
                news.clear()
                await self._find()
                for served in self._served.values():
                    if served not in waits:
                        served.wait(wake)
                        waits[served] = None
                await self._take_all()
                if self._records or self._failed or loop.time() >= until:
                    return
                try:
                    async with asyncio.timeout_at(until):
                        await news.wait()
                except TimeoutError:
                    return
                login = self._context.login
                if login is not None:
                    login.check(ShareFetchRequest.API_KEY)
        finally:
            self._session.on_deserted.remove(wake)
            for served in waits:
                served.leave(wake)

    async def _find(self) -> None:
        """Have each partition of the session at work, as far as the member may read it."""
        async for where in paced(list(self._session.partitions)):
            known = self._served.get(where)
            if known is not None and not known.is_gone and self._context.access is None:
                continue
            found = (
                await serve(self._context, self._shares, self._session.key.group_id, where)
                if self._may_read(where)
                else Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            )
            if isinstance(found, Refusal):
                self._served.pop(where, None)
                self._fail(where, found)
            else:
                self._served[where] = found

    def _may_read(self, where: SharedPartition) -> bool:
        topic = self._context.kafka.broker.get_by_id(where.topic_id)
        return topic is None or allowed(self._context.access, Right.consume, topic.name)

    def _fail(self, where: SharedPartition, why: Refusal) -> None:
        row = _row(self._rows, where)
        row.error_code, row.error_message = why
        self._failed = True

    async def _take_all(self) -> None:
        request = self._request
        if request.max_bytes <= 0:
            return  # as from Kafka, whatever max_records says: who wants no byte waits, and gets no record
        most = min(
            request.max_bytes,
            _MAX_ANSWER_BYTES,
            max(self._context.kafka.broker.serving.memory.room_bytes, _MIN_ROOM),
        )
        async for where in paced(list(self._served)):
            room = most - self._bytes
            if self._records >= request.max_records or (self._records and room < min(_MIN_ROOM, most)):
                break
            wanted = WantedRecords(
                request.max_records - self._records, max(min(room, _MAX_PARTITION_BYTES), 1), self._strict
            )
            try:
                given = await self._served[where].take(
                    self._session.key.member_id, wanted, lambda: not self._session.deserted
                )
            except Exception as error:
                self._fail(where, Refusal.of(error))
            else:
                if given.runs:
                    self._put(where, given)
        self._session.turn(where for where, row in self._rows.items() if row.acquired_records)

    def _put(self, where: SharedPartition, given: Given) -> None:
        row = _row(self._rows, where)
        row.records = given.batches
        row.acquired_records = acquired(given, 0 if self._strict else self._request.batch_size)
        size = sum(map(len, given.batches))
        self._records += given.records
        self._bytes += size
        figures = self._served[where].partition.figures
        figures.fetches += 1
        figures.bytes_out += size
        figures.messages_out += given.records


def acquired(given: Given, batch_size: int) -> list[AcquiredRecords]:
    """Return what is held, cut where batches begin so that a row has ``batch_size`` records or few more (0: not cut).

    A member acknowledges by these rows.
    """
    rows: list[AcquiredRecords] = []
    starts = [int.from_bytes(batch[:8], "big") for batch in given.batches] if batch_size > 0 else []
    for run in given.runs:
        first = run.first
        for start in starts[bisect_right(starts, first) :]:
            if start > run.last:
                break
            if start - first >= batch_size:
                rows.append(
                    AcquiredRecords(first_offset=first, last_offset=start - 1, delivery_count=run.deliveries)
                )
                first = start
        rows.append(AcquiredRecords(first_offset=first, last_offset=run.last, delivery_count=run.deliveries))
    return rows


def _row(rows: Rows, where: SharedPartition) -> PartitionData:
    row = rows.get(where)
    if row is None:
        row = rows[where] = PartitionData(
            partition_index=where.partition, current_leader=LeaderIdAndEpoch(), records=b""
        )
    return row


async def _answer(
    context: RequestContext, shares: Shares, session: ShareSession, rows: Rows
) -> ShareFetchResponse:
    topics: dict[bytes, list[PartitionData]] = {}
    misled = []
    async for where, row in paced(rows.items()):
        topics.setdefault(where.topic_id, []).append(row)
        if row.error_code in TELLS_LEADER:
            misled.append(Misled("", where.topic_id, where.partition, row))
    settings = shares.settings_of(session.key.group_id)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=settings.group_share_record_lock_duration_ms,
        responses=[
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=await tell_leaders(context, misled, LeaderIdAndEpoch, NodeEndpoint),
    )
