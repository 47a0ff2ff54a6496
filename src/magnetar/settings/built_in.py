"""What comes with the broker, as entry points: handlers, which the core imports by these names alone, and storage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import NamedTuple, cast

from magnetar.base.setting import HandlerSettings


class EntryPoint(NamedTuple):
    """Where a handler is found, and apart from it, for they are read at every start, its settings."""

    handler: str
    settings: tuple[str, ...]


# Looking into every installed package takes tens of milliseconds of each start; our own need no such search.
BUILT_IN = {
    "kafka": EntryPoint(
        "magnetar.kafka.handler:KafkaProtocolHandler",
        (
            "magnetar.kafka.settings:KafkaSettings",
            "magnetar.kafka.coordinators.settings:GroupSettings",
            "magnetar.kafka.coordinators.share.settings:ShareSettings",
            "magnetar.kafka.coordinators.streams.settings:StreamsSettings",
        ),
    ),
    "pulsar": EntryPoint(
        "magnetar.pulsar.handler:PulsarProtocolHandler",
        ("magnetar.pulsar.settings:PulsarSettings", "magnetar.pulsar.limit_settings:PulsarLimitSettings"),
    ),
    "admin": EntryPoint("magnetar.admin.handler:AdminHandler", ("magnetar.admin.settings:AdminSettings",)),
    "schema-registry": EntryPoint(
        "magnetar.schema_registry.handler:SchemaRegistryHandler",
        ("magnetar.schema_registry.settings:SchemaRegistrySettings",),
    ),
}
CONSOLE = "magnetar.console.app:make_console"
"""What makes the application of the console; loaded by the first request for it."""
MCP = "magnetar.console.mcp:make_mcp"
"""The same of MCP."""
METADATA_STORES = {
    "sqlite": "magnetar.logs.storage.embedded:SqliteStores",
    "memory": "magnetar.logs.storage.embedded:MemoryStores",
    "zk": "magnetar.logs.storage.cluster:ZooKeeperStores",
}
"""By the scheme of ``metadata.url``."""
STORAGE_ENGINES = {
    "files": "magnetar.logs.storage.embedded:FilesEngines",
    "memory": "magnetar.logs.storage.embedded:MemoryEngines",
    "bookkeeper": "magnetar.logs.storage.cluster:BookKeeperEngines",
}
"""By the scheme of ``storage.url``."""


def scheme_of(url: str) -> str:
    """Return what stands before the first colon, by which it is found who opens a URL."""
    return url.partition(":")[0]


def loaded(target: str) -> object:
    """Return what ``module:name`` means; raise ``ImportError`` or ``AttributeError``."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


@cache
def settings_of(protocol: str) -> tuple[type[HandlerSettings], ...]:
    """Return the parts that a built-in handler adds to the settings."""
    return tuple(cast(type[HandlerSettings], loaded(target)) for target in BUILT_IN[protocol].settings)


def all_settings() -> Sequence[type[HandlerSettings]]:
    """Return those of all built-in handlers, started or not, and of what else comes with the broker."""
    beside = (
        "cluster:ClusterSettings",
        "load:LoadSettings",
        "offload:OffloadSettings",
    )
    return [
        *(part for protocol in BUILT_IN for part in settings_of(protocol)),
        *(cast(type[HandlerSettings], loaded(f"magnetar.settings.{name}")) for name in beside),
    ]
