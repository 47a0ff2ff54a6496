"""ShareFetch and ShareAcknowledge (KIP-932), of as many brokers as lead what one member's session follows.

A member has one session, with the proxy, which has one with each leader, in the member's name, on a connection of its
own: a broker's session ends with its connection, and what the member holds there is free again then. What comes of the
member on another connection of its client goes that same way, as requests are to arrive in the order of their numbers.

What a broker gives is held by the member from then on, so nothing is asked for that is not passed on with the answer at
hand. With several leaders each is asked for its part, and for a moment at a time while none of them has anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar

from magnetar.client.errors import ClientError
from magnetar.client.forwarding import ForwardingConnection, answer_to
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.shares.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MAX_EPOCH,
    SessionKey,
    SharedPartition,
    ShareSession,
    ShareSessions,
    check_member,
    check_rows,
)
from magnetar.proxy.kafka.apart import Apart
from magnetar.proxy.kafka.fetching import MOST_BYTES, MOVED
from magnetar.proxy.kafka.request import framed, read_answer
from magnetar.proxy.kafka.routes import Routes, TopicKey
from magnetar.serving.memory import Account
from magnetar.serving.pace import MANY_ROWS, paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.header import RequestHeader
from magnetar.wire.kafka.messages import share_acknowledge_request as acknowledging
from magnetar.wire.kafka.messages import share_acknowledge_response as acknowledged
from magnetar.wire.kafka.messages import share_fetch_request as fetching
from magnetar.wire.kafka.messages import share_fetch_response as fetched

T = TypeVar("T")
_MOMENT_MS = 50
_LONGEST_WAIT_MS = 60_000
Where = SharedPartition
Said = dict[Where, Any]
"""What a member says of records, by partition, as it came."""


@dataclass(slots=True, eq=False)
class _Leading:
    """A member's session with one leader."""

    epoch: int = INITIAL_EPOCH
    partitions: set[Where] = field(default_factory=set)

    def next_epoch(self) -> int:
        """Return the number of the next request."""
        epoch = self.epoch
        self.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        return epoch


@dataclass(slots=True, eq=False)
class _Member:
    """What is known of a member's session, beside what it follows."""

    leaders: dict[int, _Leading] = field(default_factory=dict)
    owners: dict[Where, int | None] = field(default_factory=dict)
    seen: int = -1
    """Of `Routes.changes`; -1 if the owners are to be looked up anew."""
    turn: int = 0
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it is looked through or changed, which may be in a thread."""
    on_others: bool = False
    """Whether requests come on other connections, too: they are not to wait behind one that waits for records."""

    def follow(self, partitions: Iterable[Where], leader: Callable[[TopicKey, int], int | None]) -> None:
        """Take note of who leads what the session follows."""
        self.owners = {each: leader(*each) for each in partitions}
        for owner in self.owners.values():
            if owner is not None:
                self.leaders.setdefault(owner, _Leading())

    def cut(self, said: Said) -> dict[int, Said]:
        """Return by leader what is said of what it gave."""
        found: dict[int, Said] = {}
        for where, batches in said.items():
            for owner, leading in self.leaders.items():
                if where in leading.partitions:
                    found.setdefault(owner, {})[where] = batches
        return found


class Sharings:
    """The share sessions of all clients, and who keeps each."""

    def __init__(self, sessions: ShareSessions) -> None:
        self.sessions = sessions
        self.keepers: dict[SessionKey, Sharing] = {}


class Sharing:
    """The share sessions of one connection. ``connect`` gives a connection to a broker that nobody else uses."""

    def __init__(
        self,
        sharings: Sharings,
        account: Account,
        connect: Callable[[int | None], Awaitable[ForwardingConnection]],
        within_s: float,
    ) -> None:
        self.held_bytes = 0
        """What some leaders have answered, while it is waited for the others."""
        self._sessions = sharings.sessions
        self._keepers = sharings.keepers
        self._account = account
        self._connect = connect
        self._within_s = within_s
        self._members: dict[SessionKey, _Member] = {}
        self._user: Routes | None = None
        """What is known of brokers is one user's."""
        self._connections: dict[int, ForwardingConnection] = {}

    def close(self) -> None:
        """The client is gone: end the connections, and with them all that its members hold."""
        self._sessions.forget(self._account)
        for key in self._members:
            if self._keepers.get(key) is self:
                del self._keepers[key]
        self._members.clear()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def keeper_of(self, request: Any, routes: Routes) -> Sharing:
        """Return who keeps the session of a request: the same user's on another connection, or else this one."""
        self._user = routes
        key = SessionKey(request.group_id or "", request.member_id or "")
        keeper = self._keepers.get(key)
        if keeper is None or keeper is self or keeper._user is not routes:
            return self
        if request.share_session_epoch == INITIAL_EPOCH:
            del self._keepers[key], keeper._members[key]
            return self
        keeper._members[key].on_others = True
        return keeper

    # -- the two APIs. They raise `ClientError` where nobody knows what became of what a member said.

    async def fetch(
        self,
        apart: Apart,
        request: fetching.ShareFetchRequest,
        header: RequestHeader,
        routes: Routes,
        find_leaders: Callable[[Iterable[TopicKey]], Awaitable[None]],
    ) -> fetched.ShareFetchResponse:
        """Answer a ShareFetch."""
        try:
            many = check_rows(request.topics) + check_rows(request.forgotten_topics_data) > MANY_ROWS
            said = await apart.do(many, _said, request.topics)
            session, member = self._session(request, said)
            self._follow(request, session, member)
            many = many or len(session.partitions) > MANY_ROWS
        except CoordinatorRefused as refused:
            return fetched.ShareFetchResponse(error_code=refused.code, error_message=str(refused))
        time = asyncio.get_running_loop().time
        until = time() + min(max(request.max_wait_ms, 0), _LONGEST_WAIT_MS) / 1000
        rows: dict[Where, Any] = {}
        if many:
            apart.keep(rows)
        answer = fetched.ShareFetchResponse()
        wait_ms = 0
        while True:
            await self._find(apart, many, session, member, routes, find_leaders)
            async with member.alone:
                parts = await apart.do(many, _fetches, request, member, said, wait_ms)
                await apart.do(many, _answer_here, rows, member, said)
            said = {}  # once is enough
            refused_by = await self._gather(apart, many, header, parts, member, routes, rows, answer)
            if refused_by is not None:
                self._forget(session)
                return fetched.ShareFetchResponse(
                    error_code=refused_by.error_code, error_message=refused_by.error_message
                )
            has_news = await apart.do(many, _has_news, rows)
            only_says = request.max_records <= 0 or request.share_session_epoch == FINAL_EPOCH
            if has_news or only_says or session.deserted or time() >= until:
                break
            if not parts:
                await asyncio.sleep(_MOMENT_MS / 1000)
            left_ms = max(int((until - time()) * 1000), 0)
            waits_alone = len(parts) == 1 and not member.on_others
            wait_ms = left_ms if waits_alone else min(left_ms, _MOMENT_MS)
        if request.share_session_epoch == FINAL_EPOCH:
            self._forget(session)
        answer.responses = await apart.do(many, _by_topic, rows, fetched.ShareFetchableTopicResponse)
        return answer

    async def acknowledge(
        self,
        apart: Apart,
        request: acknowledging.ShareAcknowledgeRequest,
        header: RequestHeader,
        routes: Routes,
    ) -> acknowledged.ShareAcknowledgeResponse:
        """Answer a ShareAcknowledge."""
        final = request.share_session_epoch == FINAL_EPOCH
        try:
            many = check_rows(request.topics) > MANY_ROWS
            said = await apart.do(many, _said, request.topics)
            if request.share_session_epoch == INITIAL_EPOCH:
                raise CoordinatorRefused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session, member = self._session(request, said)
        except CoordinatorRefused as refused:
            return acknowledged.ShareAcknowledgeResponse(error_code=refused.code, error_message=str(refused))
        async with member.alone:
            parts = await apart.do(many, _acknowledgements, request, member, said, final)
        rows = await apart.do(many, _not_held, said)
        answer = acknowledged.ShareAcknowledgeResponse()
        refused_by = await self._gather(apart, many, header, parts, member, routes, rows, answer)
        if refused_by is not None or final:
            self._forget(session)
        if refused_by is not None:
            return acknowledged.ShareAcknowledgeResponse(
                error_code=refused_by.error_code, error_message=refused_by.error_message
            )
        answer.responses = await apart.do(many, _by_topic, rows, acknowledged.ShareAcknowledgeTopicResponse)
        return answer

    # -- sessions

    def _session(self, request: Any, said: Said) -> tuple[ShareSession, _Member]:
        check_member(request.group_id, request.member_id)
        key = SessionKey(request.group_id, request.member_id)
        if request.share_session_epoch != INITIAL_EPOCH:
            if key not in self._members:  # it is another user's, if anybody's
                raise CoordinatorRefused(ErrorCode.SHARE_SESSION_NOT_FOUND)
            return self._sessions.go_on(key, request.share_session_epoch), self._members[key]
        if said:
            raise CoordinatorRefused(
                ErrorCode.INVALID_REQUEST, "Nothing can be acknowledged in the first request of a session."
            )
        session = self._sessions.begin(key, self._account)
        before = self._members.get(key, _Member())
        member = self._members[key] = _Member({owner: _Leading() for owner in before.leaders})
        self._keepers[key] = self
        return session, member

    def _follow(self, request: fetching.ShareFetchRequest, session: ShareSession, member: _Member) -> None:
        if request.share_session_epoch == FINAL_EPOCH:
            return
        added = self._sessions.add(
            session,
            [
                Where(topic.topic_id, row.partition_index)
                for topic in request.topics
                for row in topic.partitions
            ],
        )
        dropped = self._sessions.drop(
            session,
            [
                Where(topic.topic_id, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ],
        )
        if added or dropped:
            member.seen = -1

    def _forget(self, session: ShareSession) -> None:
        self._sessions.end(session)
        self._members.pop(session.key, None)
        if self._keepers.get(session.key) is self:
            del self._keepers[session.key]

    async def _find(
        self,
        apart: Apart,
        many: bool,
        session: ShareSession,
        member: _Member,
        routes: Routes,
        find_leaders: Callable[[Iterable[TopicKey]], Awaitable[None]],
    ) -> None:
        """Know who leads what the session follows."""
        if member.seen == routes.changes:
            return
        partitions = list(session.partitions)
        unknown = await apart.do(many, _unknown, partitions, routes.knows)
        if unknown:
            await find_leaders(unknown)
        member.seen = routes.changes
        async with member.alone:
            await apart.do(many, member.follow, partitions, routes.leader)

    # -- asking

    async def _gather(
        self,
        apart: Apart,
        many: bool,
        header: RequestHeader,
        parts: dict[int, Any],
        member: _Member,
        routes: Routes,
        rows: dict[Where, Any],
        answer: Any,
    ) -> Any | None:
        """Ask each leader for its part, and put what they answer together; give what one refused as a whole."""
        waits = [self._ask(apart, many, header, owner, part, member, routes) for owner, part in parts.items()]
        refused = None
        try:
            for each in await asyncio.gather(*waits):
                if each is None:
                    continue
                if each.error_code:
                    refused = each
                    continue
                answer.acquisition_lock_timeout_ms = each.acquisition_lock_timeout_ms
                answer.throttle_time_ms = max(answer.throttle_time_ms, each.throttle_time_ms)
                async for topic_id in paced(await apart.do(many, _take, each, rows)):
                    routes.forget(topic_id)
                    member.seen = -1
        finally:
            self.held_bytes = 0
        return refused

    async def _ask(
        self,
        apart: Apart,
        many: bool,
        header: RequestHeader,
        owner: int,
        part: Any,
        member: _Member,
        routes: Routes,
    ) -> Any | None:
        """Return what a leader answers; None if it is not there, and nothing was said to it."""
        try:
            connection = self._connections.get(owner)
            if connection is None or connection.closed:
                if part.share_session_epoch != INITIAL_EPOCH:
                    raise ClientError(f"the share session with broker {owner} has ended")
                connection = self._connections[owner] = await self._connect(owner)
            return await self._answered(apart, many, connection, header, part)
        except ClientError:
            gone = self._connections.pop(owner, None)
            if gone is not None:
                gone.close()
            for each in list(self._members.values()):  # it was every member's
                leading = each.leaders.pop(owner, None)
                each.seen = -1
                async for where in paced(() if leading is None else leading.partitions):
                    routes.forget(where.topic_id)
            if await apart.do(many, _said, part.topics):
                raise
            return None

    async def _answered(
        self, apart: Apart, many: bool, connection: ForwardingConnection, header: RequestHeader, part: Any
    ) -> Any:
        wait_s = getattr(part, "max_wait_ms", 0) / 1000
        frame = await apart.do(many, framed, header, part)
        came = await answer_to(connection, frame, within_s=self._within_s + wait_s)
        self.held_bytes += len(came)
        return await apart.do(many, read_answer, header, came)


def _unknown(partitions: Iterable[Where], knows: Callable[[TopicKey, int], bool]) -> dict[TopicKey, None]:
    """Return the topics of which a partition is not known."""
    return {each.topic_id: None for each in partitions if not knows(*each)}


def _answer_here(rows: dict[Where, Any], member: _Member, said: Said) -> None:
    """Answer what no leader is asked."""
    for where in said.keys() - {each for part in member.cut(said).values() for each in part}:
        rows[where] = _fetch_row(where, acknowledge_error_code=ErrorCode.INVALID_RECORD_STATE)
    for where, owner in member.owners.items():
        if owner is None:
            rows[where] = _fetch_row(where, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _has_news(rows: dict[Where, Any]) -> bool:
    return any(row.acquired_records or row.error_code for row in rows.values())


def _take(answer: Any, rows: dict[Where, Any]) -> dict[bytes, None]:
    """Put what a leader answers into ``rows``; return the topics of which it leads no more what was thought."""
    moved: dict[bytes, None] = {}
    for topic in answer.responses:
        for row in topic.partitions:
            where = Where(topic.topic_id, row.partition_index)
            row.current_leader = type(row.current_leader)()
            if row.error_code in MOVED or row.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                moved[topic.topic_id] = None
            known = rows.get(where)
            if (
                known is not None
                and hasattr(row, "acknowledge_error_code")
                and not row.acknowledge_error_code
            ):
                row.acknowledge_error_code = known.acknowledge_error_code
                row.acknowledge_error_message = known.acknowledge_error_message
            rows[where] = row
    return moved


def _acknowledgements(
    request: acknowledging.ShareAcknowledgeRequest, member: _Member, said: Said, final: bool
) -> dict[int, Any]:
    """Return by leader what it is told."""
    cut = member.cut(said)
    return {
        owner: _copied(
            request,
            share_session_epoch=FINAL_EPOCH if final else leading.next_epoch(),
            topics=_topics(
                cut.get(owner, {}), acknowledging.AcknowledgeTopic, acknowledging.AcknowledgePartition
            ),
        )
        for owner, leading in member.leaders.items()
        if leading.epoch != INITIAL_EPOCH and (final or owner in cut)
    }


def _not_held(said: Said) -> dict[Where, Any]:
    return {
        where: acknowledged.PartitionData(
            partition_index=where.partition,
            error_code=ErrorCode.INVALID_RECORD_STATE,
            current_leader=acknowledged.LeaderIdAndEpoch(),
        )
        for where in said
    }


def _fetches(
    request: fetching.ShareFetchRequest, member: _Member, said: Said, wait_ms: int
) -> dict[int, fetching.ShareFetchRequest]:
    """Return by leader what it is asked for; its session follows by then what it leads."""
    cut = member.cut(said)
    epoch = request.share_session_epoch
    if epoch == FINAL_EPOCH or request.is_renew_ack:
        return {
            owner: _copied(
                request,
                share_session_epoch=FINAL_EPOCH if epoch == FINAL_EPOCH else leading.next_epoch(),
                topics=_topics(cut.get(owner, {}), fetching.FetchTopic, fetching.FetchPartition),
                forgotten_topics_data=[],
            )
            for owner, leading in member.leaders.items()
            if leading.epoch != INITIAL_EPOCH and (epoch == FINAL_EPOCH or owner in cut)
        }
    wanted: dict[int, set[Where]] = {owner: set() for owner in member.leaders}
    for where, owner in member.owners.items():
        if owner is not None:
            wanted[owner].add(where)
    parts: dict[int, fetching.ShareFetchRequest] = {}
    member.turn += 1
    count = max(len(wanted), 1)
    for number, (owner, following) in enumerate(wanted.items()):
        leading = member.leaders[owner]
        added, dropped = following - leading.partitions, leading.partitions - following
        records = (request.max_records + (number + member.turn) % count) // count
        asks = bool(following) and records > 0
        leading.partitions = following
        parts[owner] = _copied(
            request,
            share_session_epoch=leading.next_epoch(),
            max_wait_ms=wait_ms if asks else 0,
            # Who wants no bytes gets no records; who wants some has a first one from each, however large.
            max_bytes=max(min(request.max_bytes, MOST_BYTES) // count, 1)
            if asks and request.max_bytes
            else 0,
            max_records=records if asks else 0,
            topics=_topics(
                {**dict.fromkeys(added, ()), **cut.get(owner, {})},
                fetching.FetchTopic,
                fetching.FetchPartition,
            ),
            forgotten_topics_data=[
                fetching.ForgottenTopic(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in _of_topics((each, each.partition) for each in dropped)
            ],
        )
    return parts


def _copied(request: Any, **other: Any) -> Any:
    made = copy(request)
    for name, value in other.items():
        setattr(made, name, value)
    return made


def _said(topics: Iterable[Any]) -> Said:
    return {
        Where(topic.topic_id, row.partition_index): row.acknowledgement_batches
        for topic in topics
        for row in topic.partitions
        if row.acknowledgement_batches
    }


def _of_topics(rows: Iterable[tuple[Where, T]]) -> Iterable[tuple[bytes, list[T]]]:
    found: dict[bytes, list[T]] = {}
    for where, row in rows:
        found.setdefault(where.topic_id, []).append(row)
    return found.items()


def _topics(rows: Said, topic: Any, partition: Any) -> list[Any]:
    made = {
        where: partition(partition_index=where.partition, acknowledgement_batches=list(batches))
        for where, batches in rows.items()
    }
    return _by_topic(made, topic)


def _by_topic(rows: dict[Where, Any], topic: Any) -> list[Any]:
    return [topic(topic_id=topic_id, partitions=some) for topic_id, some in _of_topics(rows.items())]


def _fetch_row(where: Where, **codes: Any) -> fetched.PartitionData:
    return fetched.PartitionData(
        partition_index=where.partition, current_leader=fetched.LeaderIdAndEpoch(), records=b"", **codes
    )
