"""The settings of the schema registry. Names are KoP's and Starlight for Kafka's."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import HandlerSettings, setting
from magnetar.base.values import Kind, between


@dataclass(frozen=True, slots=True)
class SchemaRegistrySettings(HandlerSettings):
    """Schemas in Confluent's way."""

    kop_schema_registry_enable: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether the schema registry is served, on the host of the first Kafka listener, if schema.registry.listeners "
        "does not say where.",
    )
    kop_schema_registry_port: int = setting(
        8001,
        Kind.INT,
        "Port of the schema registry that kop.schema.registry.enable asks for; 0 chooses a free one.",
        rule=between(0, 65535),
    )
    schema_registry_listeners: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Addresses to serve the schema registry on, http://HOST:PORT or https://HOST:PORT each; empty for none.",
    )
    kafka_apply_avro_schema_on_decode: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether Kafka consumers get what Pulsar producers wrote with an Avro or JSON schema in the form that "
        "Confluent's serializers write: after a zero byte and the schema's id in the schema registry.",
    )

    @property
    def asks_to_serve(self) -> bool:
        return self.kop_schema_registry_enable or bool(self.schema_registry_listeners)
