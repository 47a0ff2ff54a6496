"""One MQTT client's socket: bytes in and out, who it is, and when it is let go.

It is not read on while too many of its messages wait to be stored, while it does not take what it is sent, or while
clients together hold as much memory as there may be. It is let go of when it is silent for one and a half times its
keep alive, when it takes nothing for ``mqtt.untaken.timeout.ms``, or when it has not said CONNECT in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, cast

import mqtt5

from magnetar.auth import Access
from magnetar.auth.authentication import AuthenticationFailed, Principal
from magnetar.serving.listeners import Listener
from magnetar_mqtt.packets import Packets, Refused
from magnetar_mqtt.session import Session
from magnetar_mqtt.settings import MqttSettings

if TYPE_CHECKING:
    from magnetar_mqtt.handler import MqttHandler

_WRITE_HIGH_BYTES = 1 << 20
_STRANGERS_PACKET_BYTES = 64 << 10
_OLD_VERSION = b"\x20\x02\x00\x01"  # CONNACK of MQTT 3: unacceptable protocol version
_Code, _ConnAck = mqtt5.DisconnectReasonCode, mqtt5.ConnAckReasonCode
_log = logging.getLogger("magnetar.mqtt")


class Connection(asyncio.Protocol):
    """Begins with a stranger; after CONNECT there is a `Session`, whose packets one task deals with in their order."""

    def __init__(self, handler: MqttHandler, listener: Listener) -> None:
        self._handler = handler
        self._broker = handler.broker
        self._listener = listener
        self._own = self._broker.settings.of(MqttSettings)
        self._packets = Packets(min(_STRANGERS_PACKET_BYTES, self._own.mqtt_max_packet_size))
        self._queue: deque[tuple[mqtt5.Packet, int]] = deque()
        self._more = asyncio.Event()
        self._session: Session | None = None
        self._worker: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport
        self._host = ""
        self._who: tuple[str, str] | None = None
        self._keep_alive_s = 0.0
        self._heard_at = self._begun_at = asyncio.get_running_loop().time()
        self._untaken_since: float | None = None
        self._is_ending = self._has_left = False
        known = not self._broker.security.authentication.enabled
        self._account = self._broker.serving.memory.account(self._read_or_not, known=known)

    # The socket's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked: the transports that uvloop does TLS with are no instances of asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        peer = self._transport.get_extra_info("peername")
        self._host = peer[0] if peer else "local"
        self._handler.connections.add(self)
        if not self._broker.serving.connections.came(self._host):
            self._give_up("too many connections")
            return
        self._worker = asyncio.ensure_future(self._work())

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
        self._heard_at = asyncio.get_running_loop().time()
        self._account.charge(len(data))
        self._packets.feed(data)
        if self._who is None and not self._queue:
            if not self._packets.begins_with_connect():
                self._leave("what it says is no CONNECT")
                return
            if self._packets.old_version():
                self._send(_OLD_VERSION)
                self._leave("it speaks an MQTT before version 5")
                return
        self._cut()

    def _cut(self) -> None:
        try:
            for packet, size in self._packets.cut():
                self._queue.append((packet, size))
                if isinstance(packet, mqtt5.ConnectPacket):
                    break  # what follows may be larger than a stranger's
        except Refused as refused:
            self.end(refused)
        self._more.set()
        self._read_or_not()

    def pause_writing(self) -> None:
        self._untaken_since = asyncio.get_running_loop().time()
        if self._session is not None:
            self._session.takes(False)
        self._read_or_not()

    def resume_writing(self) -> None:
        self._untaken_since = None
        if self._session is not None:
            self._session.takes(True)
        self._read_or_not()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_ending = True
        self._more.set()
        self._broker.serving.connections.left(self._host)
        self._handler.connections.discard(self)

    def _read_or_not(self) -> None:
        if self._is_ending:
            return
        waiting = len(self._queue) + (self._session.waiting if self._session is not None else 0)
        may = (
            waiting < self._own.mqtt_receive_maximum
            and self._untaken_since is None
            and self._account.may_take_more()
        )
        if may:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def look(self, now_s: float) -> None:
        """Let go of the client if its time is up."""
        if self._untaken_since is not None:
            if now_s - self._untaken_since > self._own.mqtt_untaken_timeout_ms / 1000:
                self._give_up("it takes nothing of what it is sent")
        elif self._session is None:
            if now_s - self._begun_at > self._own.mqtt_connect_timeout_ms / 1000:
                self._give_up("it does not say CONNECT")
        elif 0 < self._keep_alive_s < now_s - self._heard_at and self._transport.is_reading():
            self.end(Refused(_Code.KEEP_ALIVE_TIMEOUT, "it was silent for longer than its keep alive"))

    # The client's side.

    async def _work(self) -> None:
        try:
            while not self._is_ending or self._queue:
                await self._more.wait()
                self._more.clear()
                await self._take()
        except Refused as refused:
            self.end(refused)
        except Exception as error:
            _log.exception("connection from %s failed", self._host)
            self.end(Refused(_Code.UNSPECIFIED_ERROR, str(error)))
        finally:
            await self._close_session()
            self._account.close()

    async def _take(self) -> None:
        packets = [packet for packet, _ in self._queue]
        size = sum(size for _, size in self._queue)
        self._queue.clear()
        if not packets:
            return
        try:
            if self._session is None:
                await self._connect(packets.pop(0))
            if any(isinstance(each, mqtt5.ConnectPacket) for each in packets):
                raise Refused(_Code.PROTOCOL_ERROR, "a second CONNECT")
            leaves = next((i for i, e in enumerate(packets) if isinstance(e, mqtt5.DisconnectPacket)), None)
            if self._session is not None and packets:
                await self._session.take(packets[:leaves])
            if leaves is not None:
                last = packets[leaves]
                self._has_left = getattr(last, "reason_code", 0) != _Code.DISCONNECT_WITH_WILL_MESSAGE
                self._leave("it took its leave", quietly=True)
        finally:
            # What waits to be durable is in the log's buffers; here it is not kept any more.
            self._account.charge(-size)
        if not self._is_ending:
            self._cut()

    async def _connect(self, packet: mqtt5.Packet) -> None:
        if not isinstance(packet, mqtt5.ConnectPacket):
            raise Refused(_Code.PROTOCOL_ERROR, "the first packet is no CONNECT")
        will = packet.will
        if packet.authentication_method is not None:
            return self._refuse(_ConnAck.BAD_AUTHENTICATION_METHOD, "there is no enhanced authentication")
        if will is not None and (will.retain or will.qos == mqtt5.QoS.EXACTLY_ONCE):
            code = _ConnAck.RETAIN_NOT_SUPPORTED if will.retain else _ConnAck.QUALITY_NOT_SUPPORTED
            return self._refuse(code, "a will is stored as any message: with QoS 0 or 1, and not retained")
        try:
            principal = await self._prove(packet)
        except AuthenticationFailed as error:
            delay_ms = self._broker.settings.security.connection_failed_authentication_delay_ms
            await asyncio.sleep(delay_ms / 1000)  # guessing must not be quick
            return self._refuse(_ConnAck.BAD_USER_NAME_OR_PASSWORD, str(error))
        self._account.login()
        access = self._broker.security.authorization.access(principal.role)
        client_id = packet.client_id or self._handler.new_client_id()
        self._welcome(packet, access, principal.role, client_id)
        return None

    async def _prove(self, packet: mqtt5.ConnectPacket) -> Principal:
        authentication = self._broker.security.authentication
        if not authentication.enabled:
            return authentication.anonymous()
        if packet.password is None:
            tls = self._transport.get_extra_info("ssl_object")
            certificate = tls.getpeercert() if tls is not None else None
            if certificate and "tls" in authentication.methods:
                return authentication.by_certificate(certificate)
            return authentication.anonymous()
        # As Kafka's clients say it: a token in place of the password, or a user with a password.
        try:
            password = packet.password.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("the password is not UTF-8") from None
        if "token" in authentication.methods and (
            password.startswith("token:") or "basic" not in authentication.methods
        ):
            return authentication.authenticate("token", password)
        return await authentication.prove("basic", f"{packet.username or ''}:{password}", address=self._host)

    def _welcome(
        self,
        packet: mqtt5.ConnectPacket,
        access: Access | None,
        role: str,
        client_id: str,
    ) -> None:
        if self._is_ending:
            return
        self._session = Session(
            self._broker, packet, client_id, access, self._send, self.end, self._read_or_not
        )
        self._session.takes(self._untaken_since is None)
        self._packets.allow(self._own.mqtt_max_packet_size)
        idle_s = self._broker.settings.connections.connections_max_idle_ms / 1000
        self._keep_alive_s = packet.keep_alive * 1.5 or max(idle_s, 0)
        # A client that comes again takes the place of what is left of its former connection.
        self._who = role, client_id
        former = self._handler.clients.get(self._who)
        self._handler.clients[self._who] = self
        if former is not None:
            former.end(Refused(_Code.SESSION_TAKEN_OVER, "its client has connected again"))
        self._send(
            mqtt5.ConnAckPacket(
                session_expiry_interval=0 if packet.session_expiry_interval else None,
                assigned_client_id=None if packet.client_id else client_id,
                receive_max=self._own.mqtt_receive_maximum,
                max_qos=mqtt5.QoS.AT_LEAST_ONCE,
                retain_available=False,
                max_packet_size=self._own.mqtt_max_packet_size,
                subscription_id_available=False,
                shared_subscription_available=False,
            ).write()
        )

    def _refuse(self, code: mqtt5.ConnAckReasonCode, why: str) -> None:
        self._send(mqtt5.ConnAckPacket(reason_code=code, reason_str=why).write())
        self._leave(why)

    # Its end.

    def _send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def end(self, refused: Refused) -> None:
        """Tell the client why it is let go of, and do that."""
        if self._is_ending:
            return
        if self._session is not None:
            self._send(mqtt5.DisconnectPacket(reason_code=refused.code, reason_str=str(refused)).write())
        self._leave(str(refused))

    def _leave(self, why: str, *, quietly: bool = False) -> None:
        if not quietly:
            _log.warning("connection from %s closed: %s", self._host, why)
        self._is_ending = True
        self._more.set()
        self._transport.close()

    def _give_up(self, why: str) -> None:
        _log.warning("connection from %s closed: %s", self._host, why)
        self._is_ending = True
        self._more.set()
        self._transport.abort()

    async def _close_session(self) -> None:
        if self._who is not None and self._handler.clients.get(self._who) is self:
            del self._handler.clients[self._who]
        if self._session is not None:
            with contextlib.suppress(Refused):
                await self._session.close(with_will=not self._has_left)

    async def drain(self) -> None:
        """Have what came stored and acknowledged, then say that the broker ends."""
        self._transport.pause_reading()
        session = self._session
        while session is not None and session.pending:
            await asyncio.wait(session.pending)
        self.end(Refused(_Code.SERVER_SHUTTING_DOWN, "the broker ends"))
        if self._worker is not None:
            await asyncio.wait([self._worker])
