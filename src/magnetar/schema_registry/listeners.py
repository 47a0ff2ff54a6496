"""Where the schema registry is served: ``http://HOST:PORT`` and ``https://HOST:PORT``."""

from __future__ import annotations

from magnetar.schema_registry.settings import SchemaRegistrySettings
from magnetar.serving.listeners import Listener
from magnetar.serving.url_listeners import HTTP, url_listeners
from magnetar.settings.settings import Settings


def parse_registry_listeners(settings: Settings) -> tuple[Listener, ...]:
    """Return where the schema registry is to be served, or raise `InvalidConfig`; none where nothing is set."""
    own = settings.of(SchemaRegistrySettings)
    served = list(own.schema_registry_listeners)
    if own.kop_schema_registry_enable and not served:
        served.append(f"http://{_kafkas_host(settings)}:{own.kop_schema_registry_port}")
    return url_listeners("schema.registry", served, (), HTTP, settings)


def _kafkas_host(settings: Settings) -> str:
    # By name, for the registry lies below the handler that these listeners belong to.
    first = settings.value("listeners")
    return first[0].partition("://")[2].rpartition(":")[0] if isinstance(first, tuple) and first else ""
