"""The sockets of the proxy's Kafka side: each feeds a `ProxiedClient`, and all of them share one budget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from magnetar.client.forwarding import ForwardingConnection
from magnetar.client.security import ClientSecurity
from magnetar.kafka.settings import KafkaSettings
from magnetar.kafka.shares.sessions import ShareSessions
from magnetar.proxy.figures import RelayFigures
from magnetar.proxy.kafka.brokers import Brokers, name_of
from magnetar.proxy.kafka.client import ProxiedClient
from magnetar.proxy.kafka.delegated import DelegatedBrokers
from magnetar.proxy.kafka.login import ProxyLogin
from magnetar.proxy.kafka.relay import Relay
from magnetar.proxy.kafka.rewriting import Place
from magnetar.proxy.kafka.routes import Routes
from magnetar.proxy.kafka.sharing import Sharings
from magnetar.proxy.kafka.upstreams import Upstreams
from magnetar.proxy.settings import ProxySettings
from magnetar.records.compression import Buffer
from magnetar.serving.connections import Connections
from magnetar.serving.fetch_sessions import ROW_BYTES, FetchSessions
from magnetar.serving.idle_poll import IdlePoll
from magnetar.serving.listeners import Listener
from magnetar.serving.memory import MIN_BYTES, Account, MemoryBudget
from magnetar.serving.reading import Reading, ReadingState
from magnetar.serving.unread import Unread, UnreadWatch, descriptor_of, end_if_stuck
from magnetar.serving.writing import write_parts
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.frames import KafkaFrameReader, scratch_buffer

_WRITE_HIGH_BYTES = 64 << 10
_SESSIONS_PART = 4
_MAX_SHARE_SESSIONS = 10_000


class KafkaProxy:
    """All of Kafka's clients of one proxy."""

    def __init__(
        self,
        settings: Settings,
        security: ClientSecurity,
        memory: MemoryBudget,
        connections: Connections,
        figures: RelayFigures,
    ) -> None:
        """``security`` is how brokers are connected to by who is nobody in particular."""
        self.settings = settings
        self.memory = memory
        self.counted = connections
        self.figures = figures
        self.clients: set[ProxiedSocket] = set()
        self.scratch = scratch_buffer()
        own = settings.of(ProxySettings)
        self._own = own
        self.brokers = Brokers(
            [_address(each) for each in own.proxy_bootstrap_servers],
            security,
            connect_s=own.proxy_connect_timeout_ms / 1000,
            request_s=own.proxy_request_timeout_ms / 1000,
            idle=own.proxy_idle_connections,
            opened=self._opened,
        )
        """As who is nobody in particular sees them."""
        self._named: dict[bytes, Brokers] = {}
        self._routes_of: WeakValueDictionary[str, Routes] = WeakValueDictionary()
        """By user of SCRAM, whose connections share nothing else."""
        self._sessions = FetchSessions(
            settings.of(KafkaSettings).max_incremental_fetch_session_cache_slots,
            settings.connections.memory_requests_bytes // _SESSIONS_PART // ROW_BYTES,
            memory.account(lambda: None, known=True),
        )
        self._sharings = Sharings(
            ShareSessions(
                lambda: _MAX_SHARE_SESSIONS,
                memory.account(lambda: None, known=True),
                lambda session: None,
            )
        )
        self.idle_poll = IdlePoll(settings.connections.idle_poll_time_us / 1e6)
        self._unread = UnreadWatch(self.memory, lambda: self.clients, self._look_at_all)

    def start(self) -> None:
        """Begin to look for brokers and clients that do not go on."""
        self._unread.start()

    def _look_at_all(self, now: float) -> None:
        longest = self.settings.connections.connections_max_idle_ms / 1000
        for each in list(self.clients):
            each.client.upstreams.look(now)
            if longest > 0 and now - each.last_heard > longest:
                each.give_up("it was idle for too long")
            else:
                end_if_stuck(self.memory, each, now)
        for name, brokers in list(self._named.items()):
            brokers.look(now)
            if not brokers.clients and not brokers.is_used:
                brokers.close()
                del self._named[name]
        self.brokers.look(now)

    def named(self, mechanism: str, said: Sequence[bytes]) -> Brokers:
        """Return the brokers as who has said this sees them: one for all who say the same."""
        name = name_of(mechanism, said)
        found = self._named.get(name)
        if found is None:
            found = self._named[name] = self.brokers.named(self.brokers.renamed(mechanism, said))
        return found

    def delegated(self, mechanism: str, user: str, own: ForwardingConnection) -> Brokers:
        """Return the brokers as one client sees them whom SCRAM has let in as ``user`` on its ``own`` connection."""
        routes = self._routes_of.setdefault(user, Routes())
        security = self.brokers.renamed(mechanism, ())
        lifetime_ms = self._own.proxy_delegation_token_lifetime_ms
        return DelegatedBrokers(self.brokers, security, own, routes, lifetime_ms)

    def client(self, socket: ProxiedSocket, listener: Listener, peer: str, reading: Reading) -> ProxiedClient:
        """Return what goes on with a new client."""
        upstreams = Upstreams(None if listener.sasl else self.brokers)
        login = ProxyLogin(self.brokers, self.named, self.delegated, upstreams) if listener.sasl else None
        place = Place(self._own.proxy_node_id, listener.advertised.host, listener.advertised.port)
        return ProxiedClient(
            upstreams,
            login,
            lambda client: Relay(
                upstreams,
                place,
                self.figures,
                self._sessions,
                client.account,
                self.brokers.request_s,
                self._sharings,
            ),
            peer,
            socket.frames,
            socket.send,
            socket.end,
            socket.account,
            reading.look,
            self.settings.of(KafkaSettings).socket_request_max_bytes,
        )

    def connection(self, listener: Listener) -> ProxiedSocket:
        """Return what talks to one client."""
        return ProxiedSocket(self, listener)

    def _opened(self, connection: ForwardingConnection) -> None:
        self.figures.connections += 1
        connection.heard = self.idle_poll.heard

    def close(self) -> None:
        """Let every client and every broker go."""
        self._unread.close()
        for each in list(self.clients):
            each.client.close()
        for brokers in (self.brokers, *self._named.values()):
            brokers.close()


class ProxiedSocket(asyncio.BufferedProtocol):
    """One client's socket."""

    def __init__(self, proxy: KafkaProxy, listener: Listener) -> None:
        self._proxy = proxy
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        settings = proxy.settings.of(KafkaSettings)
        self.frames = KafkaFrameReader(
            settings.sasl_server_max_receive_size, proxy.scratch, proxy.memory.lending
        )
        self._transport: Any = None
        self._is_lost = False
        self._is_full = False
        self._unsent = 0
        self._went_on_at = self.last_heard = 0.0
        self._peer = ""
        self._descriptor = -1
        self._reading: Reading
        self.account: Account
        self.client: ProxiedClient

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) else "local"
        self._descriptor = descriptor_of(transport)
        proxy = self._proxy
        self.account = proxy.memory.account(
            self._resumed, known=not self._listener.sasl, missing=lambda: self.frames.missing_bytes
        )
        queued = proxy.settings.of(KafkaSettings).queued_max_requests
        self._reading = Reading(queued, self.account.may_take_more, self._switch)
        self.client = proxy.client(self, self._listener, self._peer, self._reading)
        self.last_heard = self._went_on_at = self._loop.time()
        proxy.clients.add(self)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        if not proxy.counted.came(self._peer):
            self.client.refuse("too many connections")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self.frames.buffer_updated(nbytes)
        self.last_heard = self._loop.time()
        if self.frames.waiting:
            self._went_on_at = self.last_heard
        self.client.go_on()
        self._proxy.idle_poll.heard(nbytes)

    def _resumed(self) -> None:
        """There is room again, for what comes from the client and from brokers."""
        self.client.read_answers()
        self.client.go_on()

    def _switch(self, on: bool) -> None:
        if self._transport.is_closing():
            return
        if on:
            self._transport.resume_reading()
        else:
            self._went_on_at = self._loop.time()
            self._transport.pause_reading()

    def send(self, parts: Sequence[Buffer]) -> None:
        """Write answers to the client."""
        if self._is_lost:
            return
        write_parts(self._transport, parts, whole=self._listener.tls)
        self.last_heard = self._loop.time()
        if self._is_full:
            self._count_unsent()

    def _count_unsent(self) -> None:
        unsent = self._transport.get_write_buffer_size() if self._is_full else 0
        counted, self._unsent = self._unsent, unsent
        self.account.charge(unsent - counted)

    def pause_writing(self) -> None:
        self._is_full = True
        self._went_on_at = self._loop.time()
        self._count_unsent()
        self.client.pause()

    def resume_writing(self) -> None:
        self._is_full = False
        self._count_unsent()
        self.client.resume()

    @property
    def unread_descriptor(self) -> int:
        return -1 if self._is_lost or self._reading.state is ReadingState.READING else self._descriptor

    def left(self, socket: Unread) -> None:
        """The client has gone; what it had sent whole is still to be read, unless its end took that along."""
        if socket.ends_amid(self.frames.missing_bytes, tls=self._listener.tls):
            self._transport.abort()

    def waits_since(self, since: float) -> bool:
        is_short = self._reading.state is ReadingState.SHORT and self._went_on_at < since
        return is_short and self.frames.held_bytes > 0

    def is_stuck(self, since: float) -> bool:
        """Whether it holds much, and for so long it is the client that does not go on."""
        is_read = self._reading.state is ReadingState.READING
        waits = self._is_full or (is_read and self.frames.is_amid_frame)
        return waits and self._went_on_at < since and self.account.held_bytes > MIN_BYTES

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._reading.end()
        self._proxy.counted.left(self._peer)
        self._loop.call_soon(self._take_leave)

    def _take_leave(self) -> None:
        self.client.hang_up()
        self._close_account()

    def end(self) -> None:
        """Close it."""
        self._reading.end()
        self._transport.close()
        self._close_account()

    def _close_account(self) -> None:
        if self._is_lost and self.client.has_ended:
            self._proxy.clients.discard(self)
            self.frames.close()
            self.account.close()

    def give_up(self, why: str) -> None:
        """End it whether or not the client takes what it was to be sent."""
        self.client.refuse(why)
        self._transport.abort()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    return host.strip("[]"), int(port)
