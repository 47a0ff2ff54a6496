"""All requests but Produce: to whom they go, once more where a broker is the wrong one, and what clients are told.

What was sent is sent again only if it merely asks, or if the broker has refused it as not its own: then it has done
nothing. Everything else whose outcome nobody knows ends the client's connection, which it understands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from functools import partial
from typing import Any

from magnetar.client.errors import BrokerUnreachable, ClientError, NoConnection
from magnetar.client.forwarding import ForwardingConnection, answer_to
from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.kafka.route import Route
from magnetar.kafka.rows import KeyRows, PartitionRows, Way
from magnetar.proxy.figures import RelayFigures
from magnetar.proxy.kafka.apart import Apart, may_have_many_rows
from magnetar.proxy.kafka.brokers import NoCoordinator
from magnetar.proxy.kafka.delegated import GONE, LoginEnded
from magnetar.proxy.kafka.fetching import MOVED, Fetching, within_bounds, without_leader
from magnetar.proxy.kafka.listing import listed, node_asked_for, of_any_node
from magnetar.proxy.kafka.login import not_asked_for
from magnetar.proxy.kafka.request import ProxiedRequest, as_it_came, framed, read_answer, written
from magnetar.proxy.kafka.rewriting import OF_BROKERS, REWRITTEN, Place, leaders
from magnetar.proxy.kafka.routes import Routes, TopicKey
from magnetar.proxy.kafka.sharing import Sharing, Sharings
from magnetar.proxy.kafka.spreading import (
    cut_keys,
    cut_partitions,
    join_keys,
    join_partitions,
    keys_of,
    partitions_of,
    says,
    topic_key,
    unknown_topics,
)
from magnetar.proxy.kafka.upstreams import Upstreams
from magnetar.records.compression import Buffer
from magnetar.serving.fetch_sessions import FetchSessions
from magnetar.serving.memory import Account
from magnetar.serving.pace import MANY_ROWS, paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.header import RequestHeader, decode_response_header
from magnetar.wire.kafka.messages import ApiKey, request_class
from magnetar.wire.kafka.messages.api_versions_response import ApiVersionsResponse
from magnetar.wire.kafka.messages.fetch_request import FetchRequest
from magnetar.wire.kafka.messages.fetch_response import FetchResponse
from magnetar.wire.kafka.primitives import MAX_REQUEST_ELEMENTS

_APART_BYTES = 64 << 10
_LONGEST_WAIT_MS = 60_000
_WITHOUT_END_S = 1e9
"""Of what waits for others, whose end its client waits for or not."""
_WAITS_FOR_OTHERS = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
_AGAIN = frozenset(
    {
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DELETE_RECORDS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.OFFSET_FETCH,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_TRANSACTIONS,
    }
)
"""By rows, and as good when done twice."""
_OF_TOKENS = frozenset(
    {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
)
"""What nobody may do who was let in by a token (KIP-48)."""
_NO_SESSION = -1
Answered = Callable[[ProxiedRequest, Sequence[Buffer]], None]
Failed = Callable[[ProxiedRequest, Exception], None]


class Relay:
    """The requests of one client. ``place`` is what it is told of brokers."""

    def __init__(
        self,
        upstreams: Upstreams,
        place: Place,
        figures: RelayFigures,
        sessions: FetchSessions,
        account: Account,
        within_s: float,
        sharings: Sharings,
    ) -> None:
        self.upstreams = upstreams
        self.place = place
        self.figures = figures
        self.within_s = within_s
        self._account = account
        self._sessions = sessions
        self._fetching = Fetching(sessions, account, upstreams.connect, upstreams.let_go, within_s)
        self._sharing = Sharing(sharings, account, upstreams.connect, within_s)

    @property
    def routes(self) -> Routes:
        """Who leads what, as far as is known."""
        return self.upstreams.brokers.routes

    @property
    def held_bytes(self) -> int:
        """Answers that have come and are not asked for yet."""
        return self._fetching.held_bytes + self._sharing.held_bytes

    def close(self) -> None:
        """Give up what is asked."""
        self._fetching.close()
        self._sharing.close()
        self._sessions.forget(self._account)

    async def find_leaders(self, topics: Iterable[TopicKey]) -> None:
        """Ask who leads the partitions of topics."""
        self.figures.questions += 1
        await self.upstreams.brokers.find_leaders(topics, self.routes.changes)

    def moved(self, topic: TopicKey, row: Any, nodes: Sequence[Any]) -> None:
        """A broker has said of a row that another one leads its partition, and maybe who that is."""
        self.figures.moved += 1
        index = row.index if hasattr(row, "index") else row.partition_index
        hint = row.current_leader
        if hint is not None and hint.leader_id >= 0 and any(n.node_id == hint.leader_id for n in nodes):
            self.routes.learn_hint(topic, index, hint, nodes)
        else:
            self.routes.forget(topic)

    # -- Fetch of one broker, which most are

    def begin(
        self, request: ProxiedRequest, frame: memoryview, body: memoryview, answered: Answered, failed: Failed
    ) -> bool:
        """Send a Fetch without session whose partitions have one leader as it came; otherwise do nothing."""
        if request.header.api_key != ApiKey.FETCH or len(frame) > _APART_BYTES or not self._fetching.is_idle:
            return False
        fetch = FetchRequest.decode(body, request.header.api_version)
        if fetch.session_epoch != _NO_SESSION or fetch.session_id:
            return False
        owner: int | None = None
        routes = self.routes
        for topic, index in partitions_of(_partition_rows(ROUTE_BY_KEY[ApiKey.FETCH].asked), fetch):
            leader = routes.leader(topic, index)
            if leader is None or owner not in (None, leader):
                return False
            owner = leader
        connection = None if owner is None else self.upstreams.ready(owner)
        if connection is None:
            return False
        wait_s = min(max(fetch.max_wait_ms, 0), _LONGEST_WAIT_MS) / 1000
        told = partial(self._fetched, request, fetch, answered, failed)
        frame = within_bounds(frame, body, request.header.api_version, fetch.max_bytes)
        connection.forward(frame, told, within_s=self.within_s + wait_s)
        return True

    def _fetched(
        self,
        request: ProxiedRequest,
        fetch: FetchRequest,
        answered: Answered,
        failed: Failed,
        frame: memoryview | None,
        error: ClientError | None,
    ) -> None:
        header = request.header
        if frame is None:
            self.figures.broken += 1
            for topic, _ in partitions_of(_partition_rows(ROUTE_BY_KEY[ApiKey.FETCH].asked), fetch):
                self.routes.forget(topic)
            answered(request, written(header, without_leader(fetch)))
            return
        try:
            _, body = decode_response_header(frame, ApiKey.FETCH, header.api_version)
            answer = FetchResponse.decode(body, header.api_version)
            has_moved = False
            for told in answer.responses:
                for row in told.partitions:
                    if row.error_code in MOVED:
                        has_moved = True
                        key = topic_key(_partition_rows(ROUTE_BY_KEY[ApiKey.FETCH].answered), told)
                        self.moved(key, row, answer.node_endpoints)
            if has_moved:
                leaders(answer, self.place)
                answered(request, written(header, answer))
            else:
                answered(request, as_it_came(header, frame))
        except Exception as failure:
            failed(request, failure)

    # -- everything else

    async def answer(self, header: RequestHeader, frame: memoryview, body: memoryview) -> Sequence[Buffer]:
        """Return the parts of a request's answer. Raises `ClientError` where there can be none."""
        with Apart() as apart:
            return await self._answer(apart, header, frame, body)

    async def _answer(
        self, apart: Apart, header: RequestHeader, frame: memoryview, body: memoryview
    ) -> Sequence[Buffer]:
        api = ROUTE_BY_KEY[header.api_key]
        if header.api_key == ApiKey.API_VERSIONS:
            return await self._api_versions(header, frame, body)
        if header.api_key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            return not_asked_for(header, body)
        if header.api_key == ApiKey.FETCH:
            request = await _decoded(apart, header, body)
            many = may_have_many_rows(len(body))
            fetched = await self._fetching.fetch(
                apart, request, header, self.routes, self.find_leaders, has_many_rows=many
            )
            return await _written(apart, many, header, fetched)
        if header.api_key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
            return await self._shared(apart, header, body)
        if header.api_key == ApiKey.DESCRIBE_CONFIGS:
            return await self._configs(apart, header, frame, body)
        if header.api_key in _OF_TOKENS and self.upstreams.own is not None:
            return await self._by_own(header, frame, self.upstreams.own)
        if api.way is Way.ANY:
            return await self._passed(apart, header, frame, self._anybody)
        if api.way is Way.CONTROLLER:
            return await self._passed(apart, header, frame, self._controller)
        if api.way is Way.EVERY:
            return await self._every(apart, header, frame, api)
        request = await _decoded(apart, header, body)
        if api.way is Way.COORDINATOR or header.api_version < api.rows_from:
            key = getattr(request, api.key)
            if key is None:
                return await self._passed(apart, header, frame, self._anybody)
            return await self._passed(apart, header, frame, partial(self._coordinator, api.kind, key))
        return await self._by_rows(apart, header, frame, request, api)

    async def _by_own(
        self, header: RequestHeader, frame: memoryview, own: ForwardingConnection
    ) -> Sequence[Buffer]:
        if own.closed:
            raise LoginEnded(GONE)
        return as_it_came(header, await self._asked(own, frame, header))

    async def _shared(self, apart: Apart, header: RequestHeader, body: memoryview) -> Sequence[Buffer]:
        asked = await _decoded(apart, header, body)
        answer: Any
        sharing = self._sharing.keeper_of(asked, self.routes)
        if header.api_key == ApiKey.SHARE_FETCH:
            answer = await sharing.fetch(apart, asked, header, self.routes, self.find_leaders)
        else:
            answer = await sharing.acknowledge(apart, asked, header, self.routes)
        many = may_have_many_rows(len(body)) or len(answer.responses) > MANY_ROWS
        return await _written(apart, many, header, answer)

    async def _configs(
        self, apart: Apart, header: RequestHeader, frame: memoryview, body: memoryview
    ) -> Sequence[Buffer]:
        """Tell of the one broker that clients know what the controller tells of itself."""
        request = await _decoded(apart, header, body)
        own, many = str(self.place.node_id), may_have_many_rows(len(body))
        names_it = await apart.do(many, _names, request.resources, own)
        controller = await self._controller(False) if names_it else None
        if controller is None:
            return await self._passed(apart, header, frame, self._anybody)
        await apart.do(many, _rename, request.resources, own, str(controller))
        asked = await apart.do(many, framed, header, request)
        found = await self._try(header, asked, controller, may_fail=False)
        assert found is not None
        answer = await _read(apart, header, found)
        many = may_have_many_rows(len(found))
        await apart.do(many, _rename, answer.results, str(controller), own)
        return await _written(apart, many, header, answer)

    async def _anybody(self, again: bool) -> int | None:
        if again:
            await self.upstreams.brokers.find_nodes()
        return None

    async def _controller(self, again: bool) -> int | None:
        if again or self.routes.controller not in self.routes.nodes:
            await self.upstreams.brokers.find_nodes()
        controller = self.routes.controller
        return controller if controller in self.routes.nodes else None

    async def _coordinator(self, kind: int, key: str, again: bool) -> int | None:
        if again:
            self.routes.forget_coordinator(kind, key)
        try:
            return await self.upstreams.brokers.find_coordinator(kind, key)
        except NoCoordinator:
            return None  # whoever is asked says so in the words of this API

    async def _passed(
        self,
        apart: Apart,
        header: RequestHeader,
        frame: memoryview,
        choose: Callable[[bool], Awaitable[int | None]],
    ) -> Sequence[Buffer]:
        """Pass a request on to one broker; once more if that is not there, or not the right one."""
        api = ROUTE_BY_KEY[header.api_key]
        looks = header.api_key in REWRITTEN or api.way is not Way.ANY
        for again in (False, True):
            found = await self._try(header, frame, await choose(again), may_fail=not again)
            if found is None:
                continue
            if not looks:
                return as_it_came(header, found)
            answer = await _read(apart, header, found)
            if not again and await apart.do(may_have_many_rows(len(found)), says, answer, _ELSEWHERE):
                self.figures.moved += 1
                continue
            return await self._retold(apart, header, found, answer)
        raise AssertionError

    async def _try(
        self, header: RequestHeader, frame: memoryview, node: int | None, *, may_fail: bool
    ) -> memoryview | None:
        """Return a broker's answer; None if there is none, and the request may be sent again."""
        try:
            connection = await self.upstreams.reach(node)
        except NoConnection:
            if may_fail:
                return None  # nothing was sent
            raise
        try:
            return await self._asked(connection, frame, header)
        except BrokerUnreachable:
            self.figures.broken += 1
            if may_fail and ROUTE_BY_KEY[header.api_key].asks:
                return None
            raise

    async def _asked(
        self, connection: ForwardingConnection, frame: memoryview, header: RequestHeader
    ) -> memoryview:
        within_s = _WITHOUT_END_S if header.api_key in _WAITS_FOR_OTHERS else self.within_s
        return await answer_to(connection, frame, within_s=within_s)

    # -- rows

    async def _by_rows(
        self, apart: Apart, header: RequestHeader, frame: memoryview, request: Any, api: Route
    ) -> Sequence[Buffer]:
        """Ask each broker for its rows; once more for all of them if some were not its own and that does no harm."""
        many = may_have_many_rows(len(frame))
        for again in (False, True):
            parts = await self._cut(apart, many, request, api, again=again)
            if len(parts) == 1:
                frames = dict.fromkeys(parts, frame)
            else:
                frames = {owner: await apart.do(many, framed, header, part) for owner, part in parts.items()}
            may_ask_again = not again and header.api_key in _AGAIN
            found = await asyncio.gather(
                *(self._try(header, each, owner, may_fail=may_ask_again) for owner, each in frames.items())
            )
            there = [each for each in found if each is not None]
            if len(there) < len(found):
                continue
            answers = [await _read(apart, header, each) for each in there]
            has_many = may_have_many_rows(sum(map(len, there)))
            if may_ask_again and await apart.do(has_many, _any_says, answers, _ELSEWHERE):
                self.figures.moved += 1
                continue
            if len(answers) == 1:
                return as_it_came(header, there[0])
            if isinstance(api.answered, PartitionRows):
                joined = await apart.do(has_many, join_partitions, api.answered, answers)
            else:
                joined = await apart.do(has_many, join_keys, _key_rows(api.answered), answers)
            return await _written(apart, has_many, header, joined)
        raise AssertionError

    async def _cut(
        self, apart: Apart, many: bool, request: Any, api: Route, *, again: bool
    ) -> dict[int | None, Any]:
        routes = self.routes
        if isinstance(api.asked, PartitionRows):
            knows = _knows_nothing if again else routes.knows
            unknown = await apart.do(many, unknown_topics, api.asked, request, knows)
            if again:
                async for topic in paced(unknown):
                    routes.forget(topic)
            if unknown:
                await self.find_leaders(unknown)
            return await apart.do(many, cut_partitions, api.asked, request, routes.leader) or {None: request}
        asked = _key_rows(api.asked)
        keys = await apart.do(many, keys_of, asked, request)
        if again:
            async for key in paced(keys):
                routes.forget_coordinator(api.kind, key)
        owners = await self.upstreams.brokers.find_coordinators(api.kind, keys)
        return await apart.do(many, cut_keys, asked, request, owners.__getitem__) or {None: request}

    async def _every(
        self, apart: Apart, header: RequestHeader, frame: memoryview, api: Route
    ) -> Sequence[Buffer]:
        await self.upstreams.brokers.find_nodes()
        found = await asyncio.gather(
            *(self._try(header, frame, node, may_fail=False) for node in tuple(self.routes.nodes))
        )
        there = [each for each in found if each is not None]
        answers = [await _read(apart, header, each) for each in there]
        many = may_have_many_rows(sum(map(len, there)))
        joined = await apart.do(many, join_keys, _key_rows(api.answered), answers)
        return await _written(apart, many, header, joined)

    # -- answers

    async def _api_versions(
        self, header: RequestHeader, frame: memoryview, body: memoryview
    ) -> Sequence[Buffer]:
        wanted = node_asked_for(header, body)
        if wanted is not None:
            if not self.routes.cluster_id:
                await self.upstreams.brokers.find_nodes()
            if (wanted.cluster_id, wanted.node_id) != (self.routes.cluster_id, self.place.node_id):
                return written(header, ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED))
            frame = of_any_node(header, wanted)
        connection = await self.upstreams.reach(None)
        return listed(header, await self._asked(connection, frame, header))

    async def _retold(
        self, apart: Apart, header: RequestHeader, found: memoryview, answer: Any
    ) -> Sequence[Buffer]:
        """Return an answer as clients of the proxy are told it; what it says of brokers is kept."""
        tell = REWRITTEN.get(header.api_key)
        if tell is None:
            return as_it_came(header, found)
        if header.api_key == ApiKey.METADATA:
            await self.upstreams.brokers.learn(answer)
        elif header.api_key == ApiKey.DESCRIBE_CLUSTER:
            self.routes.learn_cluster(answer)
        many = may_have_many_rows(len(found))
        await apart.do(many, tell, answer, self.place)
        return await _written(apart, many, header, answer)


async def _read(apart: Apart, header: RequestHeader, frame: memoryview) -> Any:
    return await apart.do(may_have_many_rows(len(frame)), read_answer, header, frame)


async def _decoded(apart: Apart, header: RequestHeader, body: memoryview) -> Any:
    message = request_class(header.api_key)
    decode = partial(message.decode, body, header.api_version, max_elements=MAX_REQUEST_ELEMENTS)
    return await apart.do(may_have_many_rows(len(body)), decode)


async def _written(apart: Apart, many: bool, header: RequestHeader, answer: Any) -> Sequence[Buffer]:
    return await apart.do(many, partial(written, has_many_rows=many), header, answer)


def _any_says(answers: Sequence[Any], codes: Container[int]) -> bool:
    return any(says(each, codes) for each in answers)


def _knows_nothing(topic: TopicKey, partition: int) -> bool:
    return False


def _names(resources: Iterable[Any], broker: str) -> bool:
    return any(row.resource_type in OF_BROKERS and row.resource_name == broker for row in resources)


def _rename(resources: Iterable[Any], before: str, after: str) -> None:
    for row in resources:
        if row.resource_type in OF_BROKERS and row.resource_name == before:
            row.resource_name = after


_ELSEWHERE = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)


def _partition_rows(rows: Any) -> PartitionRows:
    assert isinstance(rows, PartitionRows)
    return rows


def _key_rows(rows: Any) -> KeyRows:
    assert isinstance(rows, KeyRows)
    return rows
