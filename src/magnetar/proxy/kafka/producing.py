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
from typing import Any

from magnetar.client.errors import ClientError
from magnetar.client.forwarding import ForwardingConnection
from magnetar.kafka.pace import MANY_ROWS
from magnetar.proxy.kafka.apis import APIS, PartitionRows
from magnetar.proxy.kafka.awaited_batches import AwaitedBatches
from magnetar.proxy.kafka.fetching import MOVED, framed
from magnetar.proxy.kafka.relay import Relay
from magnetar.proxy.kafka.request import ProxiedRequest, as_it_came, written
from magnetar.proxy.kafka.rewriting import leaders
from magnetar.proxy.kafka.routes import TopicKey
from magnetar.proxy.kafka.spreading import Row, cut_partitions, join_partitions, partitions_of, topic_key
from magnetar.records.compression import Buffer
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.header import decode_response_header
from magnetar.wire.kafka.malformed import TooManyElements
from magnetar.wire.kafka.messages import ApiKey
from magnetar.wire.kafka.messages.produce_request import ProduceRequest
from magnetar.wire.kafka.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from magnetar.wire.kafka.primitives import MAX_REQUEST_ELEMENTS

_MORE_S = 300.0
"""Of what a producer may say that a broker may take; more it does not get."""
_ASKED, _ANSWERED = APIS[ApiKey.PRODUCE].asked, APIS[ApiKey.PRODUCE].answered
_NOBODY = -1
"""Who has the batches that are not sent."""
Owner = int | None


class _Parts:
    """The parts of one request, and what came of each."""

    __slots__ = ("answers", "left", "parts", "request")

    def __init__(self, request: ProxiedRequest, parts: dict[Owner, ProduceRequest]) -> None:
        self.request = request
        self.parts = parts
        self.left = len(parts)
        self.answers: list[ProduceResponse] = []


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

    def begin(self, request: ProxiedRequest, frame: memoryview, body: memoryview) -> bool:
        """Send a request at once if its leaders are known and take it; otherwise `run` is to be awaited."""
        try:
            produce = ProduceRequest.decode(body, request.header.api_version, max_elements=MANY_ROWS)
        except TooManyElements:
            return False
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
            self._send(_Parts(request, {owner: produce}), [(owner, connection, frame)])
        elif owners:
            parts = cut_partitions(_rows(_ASKED), produce, routes.leader)
            header = request.header
            self._send(
                _Parts(request, parts),
                [
                    (owner, owners[owner], framed(header, part))
                    for owner, part in parts.items()
                    if owner is not None
                ],
            )
        else:
            return False  # of nothing: whoever answers
        return True

    async def run(self, request: ProxiedRequest, frame: memoryview, body: memoryview) -> None:
        """Find out who leads, connect, and send."""
        produce = await self._decoded(request, body)
        routes = self._relay.routes
        # Of an older batch and a newer one, sent to two leaders of a partition, the newer one may come first.
        await self._drained.wait()
        unknown = {
            key for key, index in partitions_of(_rows(_ASKED), produce) if not routes.knows(key, index)
        }
        if unknown:
            await self._relay.find_leaders(unknown)
        awaited = _batches(produce) if self._awaited else ()
        early = {row for row, records in awaited if self._awaited.is_early(row, records)}

        def owner_of(topic: TopicKey, index: int) -> Owner:
            return _NOBODY if (topic, index) in early else routes.leader(topic, index)

        parts = cut_partitions(_rows(_ASKED), produce, owner_of) or {None: produce}
        reached: list[tuple[Owner, ForwardingConnection, memoryview]] = []
        sent = _Parts(request, parts)
        for owner, part in parts.items():
            connection = None if owner == _NOBODY else await self._reach(owner, part)
            if connection is None:
                sent.left -= 1
                sent.answers.append(_failed(part, ErrorCode.NOT_LEADER_OR_FOLLOWER))
                continue
            reached.append((owner, connection, frame if len(parts) == 1 else framed(request.header, part)))
        self._send(sent, reached)

    async def _reach(self, owner: Owner, part: ProduceRequest) -> ForwardingConnection | None:
        try:
            return await self._relay.upstreams.reach(owner)
        except ClientError:
            self._forget(part)
            return None

    async def _decoded(self, request: ProxiedRequest, body: memoryview) -> ProduceRequest:
        version = request.header.api_version
        try:
            return ProduceRequest.decode(body, version, max_elements=MANY_ROWS)
        except TooManyElements:
            decode = partial(ProduceRequest.decode, body, version, max_elements=MAX_REQUEST_ELEMENTS)
            return await asyncio.get_running_loop().run_in_executor(None, decode)

    # -- sending

    def _send(self, sent: _Parts, reached: list[tuple[Owner, ForwardingConnection, memoryview]]) -> None:
        produce = next(iter(sent.parts.values()))
        within_s = self._relay.within_s + min(max(produce.timeout_ms, 0) / 1000, _MORE_S)
        self._moves = self._relay.routes.moves
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
        elif not sent.left:
            self._finish(sent, None)

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
        part = sent.parts[owner]
        sent.left -= 1
        try:
            if frame is None:
                self._relay.figures.broken += 1
                self._forget(part)
                sent.answers.append(_failed(part, ErrorCode.REQUEST_TIMED_OUT, str(error)))
            else:
                header = sent.request.header
                _, body = decode_response_header(frame, ApiKey.PRODUCE, header.api_version)
                sent.answers.append(ProduceResponse.decode(body, header.api_version))
            if not sent.left:
                self._finish(sent, frame)
        except Exception as failure:  # of an answer that cannot be read
            self._ended()
            self._failed(sent.request, failure)

    def _finish(self, sent: _Parts, frame: memoryview | None) -> None:
        header = sent.request.header
        failed: dict[Row, int] = {}
        for answer in sent.answers:
            failed.update(self._note_failures(answer))
        if not _WAIT_FOR.isdisjoint(failed.values()):
            for part in sent.parts.values():
                for row, records in _batches(part):
                    if failed.get(row) in _WAIT_FOR:
                        self._awaited.refused(row, records)
        self._ended()
        if len(sent.parts) == 1 and frame is not None and not failed:
            self._answered(sent.request, as_it_came(header, frame))
            return
        answer = (
            sent.answers[0] if len(sent.answers) == 1 else join_partitions(_rows(_ANSWERED), sent.answers)
        )
        leaders(answer, self._relay.place)
        if header.api_version < _FIRST_WITH_HINTS:
            answer.node_endpoints = []
        self._answered(sent.request, written(header, answer))

    def _note_failures(self, answer: ProduceResponse) -> dict[Row, int]:
        """Take note of who leads what is not led by who was asked; return why rows have failed."""
        failed: dict[Row, int] = {}
        for topic in answer.responses:
            for row in topic.partition_responses:
                if not row.error_code:
                    continue
                key = topic_key(_rows(_ANSWERED), topic)
                failed[key, row.index] = row.error_code
                if row.error_code in MOVED:
                    self._relay.moved(key, row, answer.node_endpoints)
        return failed

    def _forget(self, part: ProduceRequest) -> None:
        for topic in part.topic_data:
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


def _failed(part: ProduceRequest, code: int, why: str | None = None) -> ProduceResponse:
    """Return the answer of a broker that gives none."""
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
