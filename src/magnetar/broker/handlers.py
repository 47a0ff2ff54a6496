"""The port through which protocols serve the broker core, and how handlers are found.

A handler is found by the name of its protocol: among the built-in ones, in the directory of the setting
``protocol.handler.directory``, and in the entry-point group ``magnetar.protocol_handlers`` of installed packages.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from magnetar.broker.core import Broker
from magnetar.broker.errors import HandlerError
from magnetar.broker.listeners import Listener
from magnetar.broker.settings import Settings

ENTRY_POINT_GROUP = "magnetar.protocol_handlers"
# Looking into every installed package takes tens of milliseconds of each start; our own need no such search.
_BUILT_IN = {
    "kafka": "magnetar.kafka.handler:KafkaProtocolHandler",
    "pulsar": "magnetar.pulsar.handler:PulsarProtocolHandler",
    "schema-registry": "magnetar.schema_registry.handler:SchemaRegistryHandler",
}


class ProtocolHandler(ABC):
    """Serves one protocol. Made once per broker, without arguments; the verbs are called in this order."""

    protocol_name: ClassVar[str]
    """What the setting ``messaging.protocols`` calls it."""

    def accept(self, name: str) -> bool:
        """Whether this handler serves the protocol of that name."""
        return name.lower() == self.protocol_name

    @abstractmethod
    def initialize(self, settings: Settings) -> None:
        """Take what concerns it from the settings; raise `InvalidConfig` for what cannot be."""

    @abstractmethod
    async def start(self, broker: Broker) -> None:
        """Get ready to serve; when this returns, connections may come."""

    @abstractmethod
    def new_connection(self, listener: Listener) -> asyncio.BaseProtocol:
        """Give what talks to one client that connected to ``listener``."""

    def serves(self, listeners: Sequence[Listener]) -> None:  # noqa: B027 - most need not know
        """Learn which listeners are its own, with their ports, once they are open."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what is in hand and let every client go."""


def load_handlers(names: Iterable[str], directory: str = "") -> list[ProtocolHandler]:
    """Give one handler for each protocol; raise `HandlerError` that names what is missing or broken."""
    found = _from_directory(Path(directory)) if directory else {}
    handlers = []
    for name in dict.fromkeys(names):
        handler = (found.get(name) or _installed(name))()
        if not handler.accept(name):
            raise HandlerError(
                f"the handler found for protocol {name!r}, {type(handler).__name__}, does not accept it"
            )
        handlers.append(handler)
    return handlers


def _installed(name: str) -> type[ProtocolHandler]:
    target = _BUILT_IN.get(name) or _entry_point(name)
    if target is None:
        raise HandlerError(
            f"no handler for protocol {name!r}: it is not built in, not in protocol.handler.directory, "
            f"and no installed package offers it as {ENTRY_POINT_GROUP}"
        )
    module_name, _, class_name = target.partition(":")
    try:
        return _checked(getattr(importlib.import_module(module_name), class_name), target)
    except (ImportError, AttributeError) as error:
        raise HandlerError(
            f"the handler for protocol {name!r}, {target}, cannot be loaded: {error}"
        ) from error


def _entry_point(name: str) -> str | None:
    from importlib.metadata import entry_points

    return next((point.value for point in entry_points(group=ENTRY_POINT_GROUP, name=name)), None)


def _from_directory(directory: Path) -> dict[str, type[ProtocolHandler]]:
    if not directory.is_dir():
        raise HandlerError(f"protocol.handler.directory: {directory} is not a directory")
    found: dict[str, type[ProtocolHandler]] = {}
    for path in sorted(directory.iterdir()):
        source = path / "__init__.py" if path.is_dir() else path
        if source.suffix != ".py" or not source.is_file() or path.name.startswith("_"):
            continue
        for handler in _handlers_in(_load(path.stem, source)):
            if handler.protocol_name in found:
                raise HandlerError(f"{source}: protocol {handler.protocol_name!r} already has a handler")
            found[handler.protocol_name] = handler
    return found


def _load(stem: str, source: Path) -> ModuleType:
    name = f"magnetar_handlers_{stem}"
    spec = importlib.util.spec_from_file_location(name, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A package imports its own modules by this name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        # It is somebody else's code: whatever it raises, the operator must learn which file did.
        raise HandlerError(f"{source} cannot be loaded: {error!r}") from error
    return module


def _handlers_in(module: ModuleType) -> list[type[ProtocolHandler]]:
    return [
        _checked(each, f"{module.__file__}:{each.__name__}")
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, ProtocolHandler) and each.__module__ == module.__name__
    ]


def _checked(handler: object, where: str) -> type[ProtocolHandler]:
    if not (isinstance(handler, type) and issubclass(handler, ProtocolHandler)):
        raise HandlerError(f"{where} is not a ProtocolHandler")
    missing = sorted(handler.__abstractmethods__)
    if not isinstance(getattr(handler, "protocol_name", None), str):
        missing.append("protocol_name")
    if missing:
        raise HandlerError(f"{where} does not say how to {', '.join(missing)}")
    return handler
