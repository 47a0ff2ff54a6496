"""What this broker asks the others of its cluster, over their Kafka listeners, as Kafka's brokers ask each other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from magnetar.base.errors import BrokerError
from magnetar.kafka.settings import KafkaSettings
from magnetar.node.broker import Broker
from magnetar.wire.kafka.mechanisms import BETWEEN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.client.async_connection import AsyncConnection
    from magnetar.client.settings import ClientSettings
    from magnetar.serving.listeners import Listener
    from magnetar.wire.kafka.message import Message

_TIMEOUT_S = 10.0


class OtherBrokerSilent(BrokerError):
    """Another broker cannot be asked, or does not answer: it may have died, or this broker does not know it yet."""


class _Way(NamedTuple):
    """A connection: to whom, as who, and what for."""

    node_id: int
    home: str
    about: str = ""


class OtherBrokers:
    """Connections to the other brokers, each made when it is first needed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._listener: Listener | None = None
        self._connections: dict[_Way, AsyncConnection] = {}
        self._making: dict[_Way, asyncio.Lock] = {}

    def serves(self, listeners: Sequence[Listener]) -> None:
        """Choose where others are asked, by the names of this broker's own listeners: a cluster's brokers are alike."""
        wanted = self._broker.settings.of(KafkaSettings).inter_broker_listener_name
        self._listener = next((each for each in listeners if each.name == wanted), None)
        if self._listener is None and listeners:
            # Without TLS where there is such a listener, as Kafka's security.inter.broker.protocol has it.
            self._listener = min(listeners, key=lambda each: (each.tls, each.sasl))

    async def ask(self, node_id: int, request: Message, home: str = "") -> Any:
        """Return a broker's answer to a request, in the newest version. Raise `OtherBrokerSilent`.

        Whether the request was carried out is not known then. ``home`` is the namespace of a tenant whose transactions
        it is about.
        """
        return await self._in_task(_Way(node_id, home), request, None)

    async def question(self, node_id: int, about: str, asked: bytes) -> bytes:
        """Return a broker's answer to what Kafka has no words for. Raise `OtherBrokerSilent`.

        Answers come in order, so each matter has a connection of its own: none waits for another.
        """
        from magnetar.wire.kafka.between_brokers import BetweenBrokersRequest

        answer = await self._in_task(_Way(node_id, "", about), BetweenBrokersRequest(about, asked), 0)
        given: bytes = answer.answer
        return given

    async def _in_task(self, way: _Way, request: Message, version: int | None) -> Any:
        # In a task: Produce, which asks too, runs in none, and a time limit wants one.
        return await self._broker.background.once(
            "asking another broker",
            self._ask(way, request, version),
            about=way.node_id,
            answers=(OtherBrokerSilent,),
        )

    async def _ask(self, way: _Way, request: Message, version: int | None) -> Any:
        from magnetar.client.errors import ClientError

        try:
            connection = await self._connection(way)
            return await connection.call(request, version)
        except ClientError as error:
            raise OtherBrokerSilent(f"broker {way.node_id}: {error}") from None

    async def _connection(self, way: _Way) -> AsyncConnection:
        known = self._connections.get(way)
        if known is not None and not known.closed:
            return known
        from magnetar.client.async_connection import AsyncConnection

        node_id = way.node_id
        async with self._making.setdefault(way, asyncio.Lock()):
            known = self._connections.get(way)
            if known is not None and not known.closed:
                return known
            if self._listener is None:
                raise OtherBrokerSilent(
                    "brokers ask each other over a listener for Kafka's clients: none is set"
                )
            info = next(
                (each for each in self._broker.cluster.ownership.brokers() if each.node_id == node_id),
                None,
            )
            endpoint = None if info is None else info.endpoints.get(self._listener.name)
            if endpoint is None:
                raise OtherBrokerSilent(
                    f"broker {node_id} has told of no listener {self._listener.name} for Kafka's clients"
                )
            made = await AsyncConnection.connect(
                endpoint.host, endpoint.port, self._settings(self._listener, way.home)
            )
            self._connections[way] = made
            return made

    def _settings(self, listener: Listener, home: str) -> ClientSettings:
        from magnetar.client.security import ClientSecurity
        from magnetar.client.settings import ClientSettings

        broker = self._broker
        files = broker.settings.security
        # Where clients may be anybody in particular, brokers are, whatever the listener asks of clients.
        proves = listener.sasl or files.knows_clients
        security = ClientSecurity(
            tls=listener.tls,
            trusted=files.tls_trust_certs_file_path or None if listener.tls else None,
            certificate=files.tls_certificate_file_path or None if listener.tls else None,
            key=files.tls_key_file_path or None if listener.tls else None,
            mechanism=BETWEEN_BROKERS if proves else None,
            username=home or "broker",
            password=broker.security.scram.password_of_brokers if proves else "",
        )
        return ClientSettings(
            (),
            client_id=f"broker-{broker.cluster.ownership.node_id}",
            request_timeout_s=_TIMEOUT_S,
            security=security,
        )

    async def close(self) -> None:
        """Close all connections."""
        for each in self._connections.values():
            each.close()
        self._connections.clear()
