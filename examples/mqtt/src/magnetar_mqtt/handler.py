"""The protocol handler "mqtt": found by its entry point, with listeners and settings of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar
from uuid import uuid4

from magnetar.base.setting import HandlerSettings
from magnetar.node.broker import Broker
from magnetar.node.handlers import ProtocolHandler
from magnetar.serving.listeners import Listener
from magnetar.serving.url_listeners import url_listeners, with_tls
from magnetar.settings.settings import Settings
from magnetar_mqtt.connection import Connection
from magnetar_mqtt.settings import MqttSettings

_SCHEMES = {"mqtt": "MQTT", "mqtts": "MQTT_TLS"}
_LOOK_S = 1.0


class MqttHandler(ProtocolHandler):
    """Serves MQTT 5 on the topics that Kafka's and Pulsar's clients use."""

    protocol_name: ClassVar[str] = "mqtt"
    settings: ClassVar[tuple[type[HandlerSettings], ...]] = (MqttSettings,)

    def __init__(self) -> None:
        self._settings: Settings
        self.broker: Broker
        self.connections: set[Connection] = set()
        self.clients: dict[tuple[str, str], Connection] = {}
        """By role and client id."""
        self._look: asyncio.TimerHandle | None = None

    def initialize(self, settings: Settings) -> None:
        self._settings = settings

    def needs(self) -> Sequence[str]:
        return ("kafka",)  # messages are Kafka's records: its partitions check, store and read them

    def listeners(self) -> Sequence[Listener]:
        own = self._settings.of(MqttSettings)
        wanted = url_listeners(
            "mqtt", own.mqtt_listeners, own.mqtt_advertised_listeners, _SCHEMES, self._settings
        )
        return with_tls(wanted, self._settings)

    async def start(self, broker: Broker) -> None:
        self.broker = broker
        self._look_around()

    def new_connection(self, listener: Listener) -> asyncio.BaseProtocol:
        return Connection(self, listener)

    def new_client_id(self) -> str:
        """Return an id for a client that has none."""
        return f"magnetar-{uuid4().hex}"

    def _look_around(self) -> None:
        loop = asyncio.get_running_loop()
        for each in list(self.connections):
            each.look(loop.time())
        self._look = loop.call_later(_LOOK_S, self._look_around)

    async def drain(self) -> None:
        if self._look is not None:
            self._look.cancel()
        await asyncio.gather(*(each.drain() for each in list(self.connections)))

    async def close(self) -> None: ...
