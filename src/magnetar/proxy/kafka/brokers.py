"""The cluster as clients of one name see it: connections of that name to its brokers, and who leads what.

A connection belongs to one client at a time, for a broker serves a connection's requests in their order: a long poll of
one client would hold up all others. What a client leaves behind is kept for the next one of the same name.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from magnetar.base.slices import batched
from magnetar.client.errors import BrokerUnreachable, ClientError, NoConnection
from magnetar.client.forwarding import ForwardingConnection, answer_to
from magnetar.client.security import ClientSecurity, Login
from magnetar.client.settings import ClientSettings
from magnetar.proxy.kafka.apart import Apart, may_have_many_rows
from magnetar.proxy.kafka.request import framed, read_answer
from magnetar.proxy.kafka.routes import Address, Routes, TopicKey
from magnetar.serving.pace import paced
from magnetar.wire.kafka.header import RequestHeader
from magnetar.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from magnetar.wire.kafka.message import Message
    from magnetar.wire.kafka.messages.metadata_response import MetadataResponse

_IDLE_S = 120.0
_ASKED_AT_ONCE = 500
"""Topics, or keys: so long others of the same name wait who ask, too."""
_WITH_KEYS = 4  # of FindCoordinator, the first
_WITH_IDS = 12  # of Metadata


class NoCoordinator(ClientError):
    """Nobody coordinates a key now, or who asks may not know: ``code`` is Kafka's."""

    def __init__(self, code: int) -> None:
        super().__init__(f"no coordinator: error {code}")
        self.code = code


@dataclass(frozen=True, slots=True)
class SaidAgain(ClientSecurity):
    """Logs in with the words that a client has logged in with; ``said`` are all of them."""

    said: tuple[bytes, ...] = field(default=(), repr=False)

    def login(self) -> Login:
        for each in self.said:  # noqa: UP028 - what the broker says is sent here, and a tuple takes nothing
            yield each


class Brokers:
    """The brokers, for clients of one name. ``security`` is how connections of that name are opened."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        security: ClientSecurity,
        *,
        connect_s: float,
        request_s: float,
        idle: int,
        opened: Callable[[ForwardingConnection], None] = lambda connection: None,
        routes: Routes | None = None,
    ) -> None:
        self.routes = routes or Routes()
        self.request_s = request_s
        self.clients = 0
        """How many clients of this name there are."""
        self.make_tokens = False
        """Whether it is known that they make delegation tokens."""
        self._bootstrap = list(bootstrap)
        self._settings = ClientSettings(
            bootstrap=(), client_id="magnetar-proxy", request_timeout_s=connect_s, security=security
        )
        self._max_idle = idle
        self._opened = opened
        self._idle: dict[Address, list[ForwardingConnection]] = {}
        self._asker: ForwardingConnection | None = None
        self._asking = asyncio.Lock()

    def named(self, security: ClientSecurity) -> Brokers:
        """Return the same brokers for clients of another name."""
        return Brokers(
            self._bootstrap,
            security,
            connect_s=self.connect_s,
            request_s=self.request_s,
            idle=self._max_idle,
            opened=self._opened,
        )

    @property
    def connect_s(self) -> float:
        """How long a broker may take to let in."""
        return self._settings.request_timeout_s

    async def security(self) -> ClientSecurity:
        """Return how connections of this name are opened, as it is now."""
        return self._settings.security

    def renamed(self, mechanism: str, said: Sequence[bytes]) -> ClientSecurity:
        """Return how connections are opened for who has said this by a mechanism of SASL."""
        own = self._settings.security
        return SaidAgain(
            tls=own.tls,
            trusted=own.trusted,
            certificate=own.certificate,
            key=own.key,
            any_name=own.any_name,
            mechanism=mechanism,
            said=tuple(said),
        )

    # -- connections

    async def connect(self, address: Address) -> ForwardingConnection:
        """Return a connection to a broker for one client alone. Raises `ClientError`."""
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            if not connection.closed:
                return connection
        return await self._open(address)

    async def _open(self, address: Address) -> ForwardingConnection:
        settings = replace(self._settings, security=await self.security())
        made: ForwardingConnection = await ForwardingConnection.connect(*address, settings)  # type: ignore[assignment]
        made.keep_logged_in(made.session_ms, self.security)
        self._opened(made)
        return made

    async def connect_anywhere(self) -> tuple[ForwardingConnection, Address]:
        """Return a connection to some broker, and where it is; raise `NoConnection` if none answers."""
        errors: list[str] = []
        for address in self.addresses():
            try:
                return await self.connect(address), address
            except NoConnection as error:
                errors.append(str(error))
        raise NoConnection("; ".join(errors) or "no broker is known")

    def addresses(self) -> Iterable[Address]:
        """Return where brokers may be: those that are known, the controller first, then those that settings name."""
        known = self.routes.nodes
        first = [known[self.routes.controller]] if self.routes.controller in known else []
        return dict.fromkeys((*first, *known.values(), *self._bootstrap))

    def give_back(self, connection: ForwardingConnection, address: Address, now: float) -> None:
        """Keep a connection for the next client, if nothing is under way on it; close it otherwise."""
        idle = self._idle.setdefault(address, [])
        if connection.closed or connection.in_flight or len(idle) >= self._max_idle:
            connection.finish()
            return
        connection.used_at = now
        connection.on_change = lambda: None
        connection.read(True)
        idle.append(connection)

    def look(self, now: float) -> None:
        """Close what has been idle for long."""
        for address, idle in list(self._idle.items()):
            for each in [each for each in idle if each.closed or now - each.used_at > _IDLE_S]:
                idle.remove(each)
                each.finish()
            if not idle:
                del self._idle[address]

    @property
    def is_used(self) -> bool:
        """Whether connections are kept for who comes next."""
        return bool(self._idle)

    def close(self) -> None:
        """Close all that is kept."""
        for idle in self._idle.values():
            for each in idle:
                each.finish()
        self._idle.clear()
        if self._asker is not None:
            self._asker.close()
            self._asker = None

    # -- questions of the proxy's own

    async def find_leaders(self, topics: Iterable[TopicKey], seen: int) -> None:
        """Ask who leads the partitions of topics, unless others have asked since ``Routes.changes`` was ``seen``."""
        for some in batched(list(topics), _ASKED_AT_ONCE):
            async with self._asking:
                if self.routes.changes != seen and all(self.routes._leaders.get(each) for each in some):
                    continue
                by_id = any(isinstance(each, bytes) for each in some)
                asked = [
                    MetadataRequestTopic(name=each) if isinstance(each, str) else _by_id(each)
                    for each in some
                ]
                request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
                with Apart() as apart:
                    await self.learn(await self._ask(apart, request, _WITH_IDS if by_id else None))

    async def find_nodes(self) -> None:
        """Ask which brokers there are, and which is the controller."""
        async with self._asking:
            with Apart() as apart:
                request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
                self.routes.learn(await self._ask(apart, request))

    async def learn(self, answer: MetadataResponse) -> None:
        """Take note of what a broker told of brokers and topics."""
        topics, answer.topics = answer.topics, []
        async for topic in paced(topics):
            self.routes.learn_topic(topic)
        self.routes.learn(answer)
        answer.topics = topics

    async def find_coordinator(self, kind: int, key: str) -> int:
        """Return the node that coordinates a key; ask if it is not known. Raises `NoCoordinator`."""
        known = self.routes.coordinator(kind, key)
        if known is not None:
            return known
        async with self._asking:
            known = self.routes.coordinator(kind, key)
            if known is not None:
                return known
            (found,) = await self._coordinators(kind, [key])
        if found.error_code:
            raise NoCoordinator(found.error_code)
        node: int = found.node_id
        return node

    async def find_coordinators(self, kind: int, keys: Iterable[str]) -> dict[str, int | None]:
        """Return the nodes that coordinate keys, None where nobody does now; those that are not known are asked for,
        some at a time, and others may ask in between."""
        routes = self.routes
        found: dict[str, int | None] = {}
        async for key in paced(keys):
            found[key] = routes.coordinator(kind, key)
        unknown = [key for key, node in found.items() if node is None]
        for some in batched(unknown, _ASKED_AT_ONCE):
            async with self._asking:
                for each in await self._coordinators(kind, some):
                    if not each.error_code:
                        found[each.key] = each.node_id
        return found

    async def _coordinators(self, kind: int, keys: Sequence[str]) -> list[Any]:
        """Ask who coordinates keys, and take note of it."""
        with Apart() as apart:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
            answer = await self._ask(apart, request, _WITH_KEYS)
            async for each in paced(answer.coordinators):
                if not each.error_code:
                    self.routes.learn_coordinator(kind, each.key, each.node_id, each.host, each.port)
            return list(answer.coordinators)

    async def _ask(self, apart: Apart, request: Message, version: int | None = None) -> Any:
        """Return the answer of some broker; ask another one if one cannot be reached."""
        for attempt in range(2):
            if self._asker is None or self._asker.closed:
                self._asker, _ = await self.connect_anywhere()
            try:
                return await self._asked(apart, self._asker, request, version)
            except BrokerUnreachable:
                if attempt:
                    raise
        raise AssertionError

    async def _asked(
        self, apart: Apart, asker: ForwardingConnection, request: Message, version: int | None
    ) -> Any:
        version = asker.version_of(type(request)) if version is None else version
        header = RequestHeader(request.API_KEY, version, 0, self._settings.client_id)
        await asker.until_writable()
        within_s = self._settings.request_timeout_s
        try:
            async with asyncio.timeout(within_s):
                frame = await answer_to(asker, framed(header, request), within_s=within_s)
        except TimeoutError:
            asker.close()
            raise BrokerUnreachable(f"{asker.place} did not answer in time") from None
        return await apart.do(may_have_many_rows(len(frame)), read_answer, header, frame)


def _by_id(topic_id: bytes) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=None, topic_id=topic_id)


def name_of(mechanism: str, said: Sequence[bytes]) -> bytes:
    """Return what tells apart who has said what by which mechanism."""
    digest = hashlib.sha256(mechanism.encode())
    for each in said:
        digest.update(len(each).to_bytes(8, "big") + each)
    return digest.digest()
