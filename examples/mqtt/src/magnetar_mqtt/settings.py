"""The settings of the handler "mqtt"; the broker merges them from file, environment and flags as its own."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import HandlerSettings, setting
from magnetar.base.values import Kind, at_least, between


@dataclass(frozen=True, slots=True)
class MqttSettings(HandlerSettings):
    """MQTT."""

    mqtt_listeners: tuple[str, ...] = setting(
        ("mqtt://127.0.0.1:1883",),
        Kind.LIST,
        "Addresses to serve MQTT on, mqtt://HOST:PORT or mqtts://HOST:PORT each; port 0 chooses a free one.",
    )
    mqtt_advertised_listeners: tuple[str, ...] = setting(
        (), Kind.LIST, "Addresses that are told in broker.json, in the order of mqtt.listeners."
    )
    mqtt_max_packet_size: int = setting(
        1 << 20,
        Kind.INT,
        "Largest packet of a client; a larger one ends the connection before it is read.",
        unit="bytes",
        rule=between(1024, 256 << 20),
    )
    mqtt_receive_maximum: int = setting(
        1000,
        Kind.INT,
        "Messages of one client that may wait to be stored before it is read on.",
        rule=between(1, 65535),
    )
    mqtt_connect_timeout_ms: int = setting(
        10_000, Kind.INT, "How long a client may take to say CONNECT.", unit="ms", rule=at_least(1)
    )
    mqtt_untaken_timeout_ms: int = setting(
        60_000,
        Kind.INT,
        "How long a client may take nothing of what it is sent before it is let go.",
        unit="ms",
        rule=at_least(1),
    )
