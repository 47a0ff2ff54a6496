"""Produce: batches go to their leaders, as they came, and are never sent twice.

A client knows better than the proxy what may be sent again: it numbers its batches, or does not. So what became of a
batch is told to it in Kafka's words, of which each client knows what to do:

    the leader is another one             what the leader said, and the proxy has learned who it is
    no connection to the leader           NOT_LEADER_OR_FOLLOWER: nothing was sent
    the connection broke, or no answer    REQUEST_TIMED_OUT: it may have been stored, or not
    a batch before it met one of these    NOT_LEADER_OR_FOLLOWER, until that one comes again (`AwaitedBatches`)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from magnetar.client.errors import ClientError
from magnetar.client.forwarding import ForwardingConnection
from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.kafka.rows import PartitionRows
from magnetar.proxy.kafka.apart import Apart
from magnetar.proxy.kafka.awaited_batches import AwaitedBatches
from magnetar.proxy.kafka.fetching import MOVED
from magnetar.proxy.kafka.relay import Relay
from magnetar.proxy.kafka.request import ProxiedRequest, as_it_came, framed, written
from magnetar.proxy.kafka.rewriting import leaders
from magnetar.proxy.kafka.routes import TopicKey
from magnetar.proxy.kafka.spreading import (
    Row,
    cut_partitions,
    join_partitions,
    partitions_of,
    topic_key,
    unknown_topics,
)
from magnetar.records.compression import Buffer
from magnetar.serving.eager import Eager
from magnetar.serving.pace import MANY_ROWS, paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.header import RequestHeader, decode_response_header
from magnetar.wire.kafka.malformed import TooManyElements
from magnetar.wire.kafka.messages import ApiKey
from magnetar.wire.kafka.messages.produce_request import ProduceRequest, TopicProduceData
from magnetar.wire.kafka.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from magnetar.wire.kafka.primitives import MAX_REQUEST_ELEMENTS

_MORE_S = 300.0
"""Of what a producer may say that a broker may take; more it does not get."""
_ASKED, _ANSWERED = ROUTE_BY_KEY[ApiKey.PRODUCE].asked, ROUTE_BY_KEY[ApiKey.PRODUCE].answered
_PLAIN = Apart()
"""Of all requests with few rows: nothing of them is done apart."""
_NOBODY = -1
"""Who has the batches that are not sent."""
Owner = int | None


class _Parts:
    """The parts of one request, and what came of each."""

    __slots__ = ("all_told", "apart", "came", "has_many_rows", "left", "parts", "request")

    def __init__(
        self,
        request: ProxiedRequest,
        parts: dict[Owner, ProduceRequest],
        apart: Apart,
        *,
        has_many_rows: bool = False,
    ) -> None:
        self.request = request
        self.parts = parts
        self.apart = apart
        self.has_many_rows = has_many_rows
        self.left = len(parts)
        self.came: dict[Owner, memoryview | str | None] = {}
        """An answer, why there is none, or None where nothing was sent."""
        self.all_told: asyncio.Future[None] | None = None
        """Who waits until all parts are answered, if somebody does."""


def with_few_rows(header: RequestHeader, body: memoryview) -> ProduceRequest | None:
    """Return a request, or None if it has so many rows that it is read elsewhere (`BatchRelay.run`)."""
    try:
        return ProduceRequest.decode(body, header.api_version, max_elements=MANY_ROWS)
    except TooManyElements:
        return None


class BatchRelay:
    """The batches of one client. ``answered`` takes a request's answer, ``failed`` what stands against one."""

    def __init__(
        self,
        relay: Relay,
        answered: Callable[[ProxiedRequest, Sequence[Buffer]], None],
        failed: Callable[[ProxiedRequest, Exception], None],
    ) -> None:
        self._relay = relay
        self._answered = answered
        self._failed = failed
        self._under_way = 0
        self._moves = 0
        """What `Routes.moves` was when the batches that are under way were sent."""
        self._awaited = AwaitedBatches()
        self._drained = asyncio.Event()
        self._drained.set()

    def begin(self, request: ProxiedRequest, frame: memoryview, produce: ProduceRequest) -> bool:
        """Send a request at once if its leaders are known and take it; otherwise `run` is to be awaited."""
        routes = self._relay.routes
        if self._under_way and routes.moves != self._moves:
            return False
        owners: dict[int, ForwardingConnection] = {}
        for topic, index in partitions_of(_rows(_ASKED), produce):
            owner = routes.leader(topic, index)
            if owner is None or (topic, index) in self._awaited:
                return False
            if owner not in owners:
                connection = self._relay.upstreams.ready(owner)
                if connection is None:
                    return False
                owners[owner] = connection
        if len(owners) == 1:
            ((owner, connection),) = owners.items()
            self._send(_Parts(request, {owner: produce}, _PLAIN), [(owner, connection, frame)], routes.moves)
        elif owners:
            parts = cut_partitions(_rows(_ASKED), produce, routes.leader)
            header = request.header
            self._send(
                _Parts(request, parts, _PLAIN),
                [
                    (owner, owners[owner], framed(header, part))
                    for owner, part in parts.items()
                    if owner is not None
                ],
                routes.moves,
            )
        else:
            return False  # of nothing: whoever answers
        return True

    async def run(
        self, request: ProxiedRequest, frame: memoryview, body: memoryview, produce: ProduceRequest | None
    ) -> None:
        """Find out who leads, connect, and send. ``produce`` is None if it has many rows: then all of it is done here,
        to its end."""
        with Apart() as apart:
            many = produce is None
            if produce is None:
                version = request.header.api_version
                decode = partial(ProduceRequest.decode, body, version, max_elements=MAX_REQUEST_ELEMENTS)
                produce = await apart.do(many, decode)
            routes = self._relay.routes
            # Of an older batch and a newer one, sent to two leaders of a partition, the newer one may come first.
            await self._drained.wait()
            unknown = await apart.do(many, unknown_topics, _rows(_ASKED), produce, routes.knows)
            if unknown:
                await self._relay.find_leaders(unknown)
            early = await self._early(produce)
            moves = routes.moves

            def owner_of(topic: TopicKey, index: int) -> Owner:
                return _NOBODY if (topic, index) in early else routes.leader(topic, index)

            parts = await apart.do(many, cut_partitions, _rows(_ASKED), produce, owner_of) or {None: produce}
            reached: list[tuple[Owner, ForwardingConnection, memoryview]] = []
            sent = _Parts(request, parts, apart, has_many_rows=many)
            for owner, part in parts.items():
                connection = None if owner == _NOBODY else await self._reach(owner, part)
                if connection is None:
                    sent.left -= 1
                    sent.came[owner] = None
                    continue
                whole = len(parts) == 1
                reached.append(
                    (
                        owner,
                        connection,
                        frame if whole else await apart.do(many, framed, request.header, part),
                    )
                )
            if many and produce.acks:
                sent.all_told = asyncio.get_running_loop().create_future()
            self._send(sent, reached, moves)
            if sent.all_told is not None:
                await sent.all_told
                self._answered(request, await self._finish_apart(sent))

    async def _early(self, produce: ProduceRequest) -> set[Row]:
        """Return the partitions whose batches are to be refused, for one before them is due."""
        early: set[Row] = set()
        if self._awaited:
            async for row, records in paced(_batches(produce)):
                if self._awaited.is_early(row, records):
                    early.add(row)
        return early

    async def _reach(self, owner: Owner, part: ProduceRequest) -> ForwardingConnection | None:
        try:
            return await self._relay.upstreams.reach(owner)
        except ClientError:
            async for topic in paced(part.topic_data):
                self._forget(topic)
            return None

    # -- sending

    def _send(
        self,
        sent: _Parts,
        reached: list[tuple[Owner, ForwardingConnection, memoryview]],
        moves: int,
    ) -> None:
        """``moves`` is `Routes.moves` from before it was looked who leads."""
        produce = next(iter(sent.parts.values()))
        within_s = self._relay.within_s + min(max(produce.timeout_ms, 0) / 1000, _MORE_S)
        self._moves = moves
        self._begun()
        for owner, connection, frame in reached:
            if produce.acks:
                connection.forward(frame, partial(self._told, sent, owner), within_s=within_s)
            else:
                connection.forward(frame, None, within_s=within_s)
        sent.request.placed = True
        if not produce.acks:
            self._ended()
            self._answered(sent.request, ())
        elif not reached:
            self._all_told(sent)

    def _begun(self) -> None:
        self._under_way += 1
        self._drained.clear()

    def _ended(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._drained.set()

    # -- answers

    def _told(self, sent: _Parts, owner: Owner, frame: memoryview | None, error: ClientError | None) -> None:
        if sent.request.parts is not None:
            return
        sent.left -= 1
        if frame is None:
            self._relay.figures.broken += 1
            if not sent.has_many_rows:
                for topic in sent.parts[owner].topic_data:
                    self._forget(topic)
        sent.came[owner] = str(error) if frame is None else frame
        if not sent.left:
            self._all_told(sent)

    def _all_told(self, sent: _Parts) -> None:
        if sent.all_told is not None:
            if not sent.all_told.done():
                sent.all_told.set_result(None)
            return
        header = sent.request.header
        try:
            told, has_failed = [], False
            for owner, came in sent.came.items():
                each = _read(header, came, sent.parts[owner])
                told.append(each)
                has_failed = has_failed or bool(each.failures)
            if has_failed:
                Eager(self._finish(sent, told), partial(self._finished, sent))
                return
            self._ended()
            if len(told) == 1 and isinstance(came, memoryview):
                self._answered(sent.request, as_it_came(header, came))
            else:
                self._answered(sent.request, self._written(header, told, False))
        except Exception as failure:  # of an answer that cannot be read
            self._finished(sent, (), failure)

    def _finished(self, sent: _Parts, parts: Sequence[Buffer], failure: BaseException | None) -> None:
        if isinstance(failure, Exception):
            self._failed(sent.request, failure)
        else:
            self._answered(sent.request, parts)

    async def _finish_apart(self, sent: _Parts) -> Sequence[Buffer]:
        """Return the parts of an answer with many rows."""
        header = sent.request.header
        told = []
        for owner, came in sent.came.items():
            part = sent.parts[owner]
            if isinstance(came, str):
                async for topic in paced(part.topic_data):
                    self._forget(topic)
            told.append(await sent.apart.do(True, _read, header, came, part))
        if len(told) == 1 and isinstance(came, memoryview) and not told[0].failures:
            self._ended()
            return as_it_came(header, came)
        return await self._finish(sent, told)

    async def _finish(self, sent: _Parts, told: list[_Told]) -> Sequence[Buffer]:
        """Take note of what was refused; return the parts of the answer."""
        failed: dict[Row, int] = {}
        try:
            for answer, failures in told:
                async for row, each in paced(failures):
                    failed[row] = each.error_code
                    if each.error_code in MOVED:
                        self._relay.moved(row[0], each, answer.node_endpoints)
            if not _WAIT_FOR.isdisjoint(failed.values()):
                for part in sent.parts.values():
                    async for row, records in paced(_batches(part)):
                        if failed.get(row) in _WAIT_FOR:
                            self._awaited.refused(row, records)
        finally:
            self._ended()
        many = sent.has_many_rows
        return await sent.apart.do(many, self._written, sent.request.header, told, many)

    def _written(self, header: RequestHeader, told: list[_Told], has_many_rows: bool) -> Sequence[Buffer]:
        answers = [each.answer for each in told]
        answer = answers[0] if len(answers) == 1 else join_partitions(_rows(_ANSWERED), answers)
        leaders(answer, self._relay.place)
        if header.api_version < _FIRST_WITH_HINTS:
            answer.node_endpoints = []
        return written(header, answer, has_many_rows=has_many_rows)

    def _forget(self, topic: TopicProduceData) -> None:
        self._relay.routes.forget(topic_key(_rows(_ASKED), topic))


_FIRST_WITH_HINTS = 10
_WAIT_FOR = MOVED | {ErrorCode.REQUEST_TIMED_OUT}
"""After these a producer sends a batch again, and those behind it must not overtake it."""


def _batches(produce: ProduceRequest) -> Iterator[tuple[Row, Buffer | None]]:
    for topic in produce.topic_data:
        key = topic_key(_rows(_ASKED), topic)
        for each in topic.partition_data:
            yield (key, each.index), each.records


def _rows(rows: Any) -> PartitionRows:
    assert isinstance(rows, PartitionRows)
    return rows


class _Told(NamedTuple):
    """An answer, and the rows of it that have failed."""

    answer: ProduceResponse
    failures: list[tuple[Row, PartitionProduceResponse]]


def _read(header: RequestHeader, came: memoryview | str | None, part: ProduceRequest) -> _Told:
    """Return a broker's answer; if none came, what stands for it."""
    if isinstance(came, memoryview):
        _, body = decode_response_header(came, ApiKey.PRODUCE, header.api_version)
        answer = ProduceResponse.decode(body, header.api_version)
    else:
        answer = _unanswered(part, came)
    failures = []
    for topic in answer.responses:
        for row in topic.partition_responses:
            if row.error_code:
                failures.append(((topic_key(_rows(_ANSWERED), topic), row.index), row))
    return _Told(answer, failures)


def _unanswered(part: ProduceRequest, why: str | None) -> ProduceResponse:
    """Return the answer of a broker that gives none; ``why`` is None if it was not asked."""
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER if why is None else ErrorCode.REQUEST_TIMED_OUT
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=each.index,
                        error_code=code,
                        base_offset=-1,
                        log_append_time_ms=-1,
                        log_start_offset=-1,
                        error_message=why,
                    )
                    for each in topic.partition_data
                ],
            )
            for topic in part.topic_data
        ]
    )
