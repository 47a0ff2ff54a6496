"""The sockets of the proxy to Pulsar clients; each has one to a broker, `magnetar.proxy.pulsar.broker_side`.

    FIRST     CONNECT has not come whole
    OPENING   a broker is being connected to
    LOOKUPS   bytes pass; what the broker answers to lookups is told in other words
    THROUGH   bytes pass
    ENDED     it is over

Neither side is read while the other does not take what it is sent, so little is kept of each.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from typing import cast

from magnetar.proxy.figures import PassingFigures
from magnetar.proxy.pulsar.broker_side import WRITE_HIGH_BYTES, BrokerSide, close_soon
from magnetar.proxy.pulsar.handshake import (
    BrokerPlace,
    FrameEnds,
    is_allowed,
    parse_target,
    passed_on,
    read_connect,
    refused,
    whole_size,
)
from magnetar.proxy.settings import ProxySettings
from magnetar.pulsar.settings import PulsarSettings
from magnetar.records.framing import scratch_buffer
from magnetar.serving.connections import Connections
from magnetar.serving.listeners import Listener
from magnetar.serving.memory import MIN_BYTES, Account, MemoryBudget
from magnetar.serving.unread import Unread, UnreadWatch, descriptor_of, end_if_stuck
from magnetar.settings.settings import Settings
from magnetar.wire.pulsar.frames import FRAME_PADDING_BYTES, BadFrame
from magnetar.wire.pulsar.pulsar_pb2 import ServerError

_NARROW_BYTES = 16 << 10
"""Received at a stretch while memory is short, and then on its way to the client's broker."""
_MAX_TOLD = 10_000
_log = logging.getLogger("magnetar.proxy")


class PassingState(Enum):
    """What a client's connection is at."""

    FIRST = auto()
    OPENING = auto()
    LOOKUPS = auto()
    THROUGH = auto()
    ENDED = auto()


class PulsarProxy:
    """All of Pulsar's clients of one proxy."""

    def __init__(
        self,
        settings: Settings,
        memory: MemoryBudget,
        connections: Connections,
        figures: PassingFigures,
        tls: Callable[[], ssl.SSLContext],
    ) -> None:
        """``tls`` gives what brokers are spoken to with, where their URL asks for TLS."""
        own = settings.of(ProxySettings)
        self.settings = own
        self.memory = memory
        self.counted = connections
        self.figures = figures
        self.most_bytes = settings.of(PulsarSettings).pulsar_max_message_size + FRAME_PADDING_BYTES
        self.first_within_s = settings.of(PulsarSettings).keep_alive_interval_ms / 1000
        self.clients: set[PulsarClient] = set()
        self.scratch = memoryview(scratch_buffer())
        urls = [each.strip() for each in own.broker_service_url.split(",") if each.strip()]
        self._brokers = [parse_target(each) for each in urls]
        self._context = tls() if any(each.startswith("pulsar+ssl://") for each in urls) else None
        self._named: OrderedDict[BrokerPlace, None] = OrderedDict()
        """Brokers that answers to lookups named."""
        self._next = 0
        self._unread = UnreadWatch(
            self.memory, lambda: self.clients, self._look_at_all, waits=self._clients_wait
        )

    def start(self) -> None:
        """Begin to look for clients that hold others up."""
        self._unread.start()

    def _clients_wait(self) -> bool:
        """Whether any waits for memory, of the proxy's or of its broker's."""
        return self.memory.is_short or any(each.unread_descriptor >= 0 for each in self.clients)

    def _look_at_all(self, now: float) -> None:
        """End clients that hold others up. Of some that do nothing more has gone out without a word."""
        for each in list(self.clients):
            each.look()
            end_if_stuck(self.memory, each, now)

    def names(self, target: BrokerPlace) -> None:
        """A broker of the cluster has named another one."""
        self._named[target] = None
        self._named.move_to_end(target)
        if len(self._named) > _MAX_TOLD:
            self._named.popitem(last=False)

    def may_reach(self, target: BrokerPlace) -> bool:
        """Whether clients may be connected to this place: it must be a broker's of the cluster."""
        return (
            target in self._named
            or target in self._brokers
            or is_allowed(
                target,
                self.settings.broker_proxy_allowed_host_names,
                self.settings.broker_proxy_allowed_target_ports,
            )
        )

    async def connect(self, target: BrokerPlace | None, protocol: BrokerSide) -> None:
        """Connect to a broker, None: to any. Raises ``OSError``."""
        found = [target] if target is not None else self._in_turn()
        error: OSError = ConnectionError("no broker is known")
        for each in found:
            try:
                async with asyncio.timeout(self.settings.proxy_connect_timeout_ms / 1000):
                    await asyncio.get_running_loop().create_connection(
                        lambda: protocol, each.host, each.port, ssl=self._context
                    )
            except OSError as failure:  # TimeoutError is one
                error = failure
            else:
                return
        raise error

    def _in_turn(self) -> list[BrokerPlace]:
        at = self._next = (self._next + 1) % max(len(self._brokers), 1)
        return [*self._brokers[at:], *self._brokers[:at]]

    def connection(self, listener: Listener) -> PulsarClient:
        """Return what talks to one client."""
        return PulsarClient(self, is_tls=listener.context is not None)

    def close(self) -> None:
        """Let every client go."""
        self._unread.close()
        for each in list(self.clients):
            each.end()


class PulsarClient(asyncio.BufferedProtocol):
    """One client's socket. All of them receive into the same memory, and into little of it while there is no room."""

    def __init__(self, proxy: PulsarProxy, *, is_tls: bool) -> None:
        self._proxy = proxy
        self._is_tls = is_tls
        self._state = PassingState.FIRST
        self._transport: asyncio.Transport
        self._peer = ""
        self._first = bytearray()
        self._broker: BrokerSide | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle
        self._counted = 0
        self._ends = FrameEnds()
        self._descriptor = -1
        self._reads = self._broker_takes = True
        self._untaken_since: float | None = None
        self.account: Account

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) else "local"
        self._descriptor = descriptor_of(transport)
        self.account = self._proxy.memory.account(self.look, known=True)
        self._proxy.clients.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._proxy.first_within_s, self._first_is_late)
        if not self._proxy.counted.came(self._peer):
            self._refuse("too many connections")

    def _first_is_late(self) -> None:
        if self._state is PassingState.FIRST:
            self._refuse("it has not introduced itself in time")

    def get_buffer(self, sizehint: int) -> memoryview:
        scratch = self._proxy.scratch
        return scratch[:_NARROW_BYTES] if self._proxy.memory.lending.is_narrow else scratch

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._proxy.scratch[:nbytes])
        if self._broker is not None and self._broker.transport is not None:
            self._proxy.figures.bytes_in += nbytes
            self._ends.passed(data)
            self._broker.transport.write(data)
            if self._broker.transport.get_write_buffer_size():
                self.look()
        elif self._state is PassingState.FIRST:
            self._first += data
            try:
                self._introduce()
            except (BadFrame, ValueError) as error:
                self._refuse(str(error))
        elif self._state is PassingState.OPENING:
            self._refuse("it goes on before it is connected")

    def _introduce(self) -> None:
        size = whole_size(self._first)
        if size is None or len(self._first) < size:
            return
        if len(self._first) > size:
            raise BadFrame("it goes on before it is connected")
        command = read_connect(bytes(self._first))
        self._first.clear()
        target = None
        if command.connect.HasField("proxy_to_broker_url"):
            target = parse_target(command.connect.proxy_to_broker_url)
            if not self._proxy.may_reach(target):
                self._proxy.figures.refused += 1
                self._tell(ServerError.ServiceNotReady, "Target broker isn't allowed.")
                self._refuse(f"{target} is no broker of the cluster")
                return
        self._state = PassingState.OPENING
        self._transport.pause_reading()
        self._task = asyncio.ensure_future(self._open(target, passed_on(command)))

    async def _open(self, target: BrokerPlace | None, connect: bytes) -> None:
        broker = BrokerSide(self, self._proxy.most_bytes if target is None else None)
        try:
            await self._proxy.connect(target, broker)
        except OSError as error:
            self._tell(ServerError.ServiceNotReady, "Unable to connect to the broker")
            self._refuse(f"broker {target or ''} cannot be connected to: {error or 'it takes too long'}")
            return
        if self._state is PassingState.ENDED:
            broker.end()
            return
        assert broker.transport is not None
        self._broker = broker
        self._state = PassingState.LOOKUPS if target is None else PassingState.THROUGH
        self._proxy.figures.through += target is not None
        broker.transport.write(connect)
        self._transport.resume_reading()

    def answered_lookup(self, target: BrokerPlace | None) -> None:
        """A broker has answered a lookup, maybe by naming a broker."""
        self._proxy.figures.lookups += 1
        if target is not None:
            self._proxy.names(target)

    def write(self, data: bytes | memoryview) -> None:
        """Send the client what its broker says."""
        self._proxy.figures.bytes_out += len(data)
        self._transport.write(data)

    def broker_takes(self, takes: bool) -> None:
        """The broker takes what it is sent, or does no longer."""
        self._broker_takes = takes
        self.look()

    def look(self) -> None:
        """Count again, and read both sides as far as the other one takes what comes, and there is room for it.

        Without room, each tells when all that it was sent has gone out: others wait for the memory that it had.
        """
        self.count()
        if self._transport.is_closing() or self._broker is None:
            return
        has_room = self.account.may_take_more()
        reads = self._broker_takes and has_room
        if reads is not self._reads:
            self._reads = reads
            if reads:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
        self._broker.read(self._untaken_since is None and has_room)
        if not has_room:
            for each in (self._transport, self._broker.transport):
                if each is not None and not each.is_closing() and each.get_write_buffer_size():
                    each.set_write_buffer_limits(high=0)

    @property
    def unread_descriptor(self) -> int:
        return -1 if self._reads else self._descriptor

    def left(self, socket: Unread) -> None:
        """The client has gone. What it had sent whole is passed on still, but half a message is of no use."""
        if socket.ends_amid(self._ends.missing_bytes, tls=self._is_tls):
            self._transport.abort()
            if self._broker is not None:
                self._broker.abort()

    def is_stuck(self, since: float) -> bool:
        """Whether it holds much, and for so long it does not take what its broker says."""
        untaken = self._untaken_since is not None and self._untaken_since < since
        return untaken and self.account.held_bytes > MIN_BYTES

    def waits_since(self, since: float) -> bool:
        """It is the broker that does not go on."""
        return False

    def give_up(self, why: str) -> None:
        """End it whether or not the client takes what it was to be sent."""
        self._refuse(why)
        self._transport.abort()

    def pause_writing(self) -> None:
        self._untaken_since = asyncio.get_running_loop().time()
        self.look()

    def resume_writing(self) -> None:
        self._untaken_since = None
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self.look()

    def count(self) -> None:
        """Count what is kept for this client on both sides."""
        held = self._transport.get_write_buffer_size()
        if self._broker is not None:
            held += self._broker.held_bytes
        counted, self._counted = self._counted, held
        self.account.charge(held - counted)

    def _tell(self, code: ServerError, why: str) -> None:
        self._transport.write(refused(code, why))

    def _refuse(self, why: str) -> None:
        if self._state is not PassingState.ENDED:
            _log.warning("connection from %s closed: %s", self._peer, why)
            self.end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._descriptor = -1
        self._proxy.counted.left(self._peer)
        self._proxy.clients.discard(self)
        self.end()
        self.account.close()

    def end(self) -> None:
        """Close both sides, once what was written has gone out."""
        if self._state is PassingState.ENDED:
            return
        self._state = PassingState.ENDED
        self._timer.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        close_soon(self._transport)
        if self._broker is not None:
            self._broker.end()
