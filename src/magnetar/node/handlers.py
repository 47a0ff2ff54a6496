"""The port through which protocols serve the broker core, and how handlers are found.

A handler is found by the name of its protocol: among the built-in ones, in the directory of the setting
``protocol.handler.directory``, and in the entry-point group ``magnetar.protocol_handlers`` of installed packages.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from magnetar.base.errors import HandlerError
from magnetar.base.setting import HandlerSettings
from magnetar.node.broker import Broker
from magnetar.serving.listeners import Listener
from magnetar.settings.built_in import BUILT_IN, loaded, settings_of
from magnetar.settings.settings import Settings
from magnetar.topics.topic import Topic

ENTRY_POINT_GROUP = "magnetar.protocol_handlers"


class ProtocolHandler(ABC):
    """Serves one protocol. Made once per broker, without arguments. The broker's service calls the verbs in this order:

    ============== ==================================================================================================
    initialize     settings are known, nothing runs yet
    needs          others that start first; they are loaded and asked the same
    listeners      all that are wanted are known before anything is opened
    start          of those that are needed first, otherwise in the order of ``messaging.protocols``
    serves         its listeners are open, each with its port; connections come from now on
    new_connection once for each client
    ready, released, acquired: at any time in between
    drain          no listener of any handler takes clients any more; in the reverse order of ``start``
    close          every handler has been drained; again in the reverse order of ``start``
    ============== ==================================================================================================
    """

    protocol_name: ClassVar[str]
    """What the setting ``messaging.protocols`` calls it."""
    settings: ClassVar[tuple[type[HandlerSettings], ...]] = ()
    """What it adds to the broker's settings: frozen dataclasses, found again by ``settings.of(TYPE)``."""
    offers: ClassVar[tuple[type, ...]] = ()
    """What it adds to ``broker.offers`` when it starts, for handlers that name it in `needs`."""

    @abstractmethod
    def initialize(self, settings: Settings) -> None:
        """Take what concerns it from the settings; raise `InvalidConfig` for what cannot be."""

    def needs(self) -> Sequence[str]:
        """Return the protocols whose handlers must start before it, whether or not they have listeners."""
        return ()

    def listeners(self) -> Sequence[Listener]:
        """Return where it wants to serve, by its settings; raise `InvalidConfig`. The service opens and closes them.

        A listener that asks for TLS brings its context. Limits of connections are kept by who answers `new_connection`:
        see `magnetar.serving.connections`.
        """
        return ()

    @abstractmethod
    async def start(self, broker: Broker) -> None:
        """Get ready to serve; when this returns, connections may come."""

    def serves(self, listeners: Sequence[Listener]) -> None:  # noqa: B027 - most need not know
        """Learn which listeners are its own, with their ports, once they are open."""

    @abstractmethod
    def new_connection(self, listener: Listener) -> asyncio.BaseProtocol:
        """Return what talks to one client that connected to ``listener``."""

    def ready(self) -> Sequence[str]:
        """Return what it still waits for before it serves everybody, in words; nothing once it is ready."""
        return ()

    async def acquired(self, topic: Topic) -> None:  # noqa: B027 - most open topics when they are asked for
        """Learn that this broker owns a topic from now on."""

    async def released(self, topic: Topic) -> None:  # noqa: B027
        """Give up what it keeps open of a topic, and send its clients away: another broker will own it."""

    async def drain(self) -> None:  # noqa: B027 - who has no clients has nothing to do
        """Answer what is in hand and let every client go; what clients use is still there."""

    @abstractmethod
    async def close(self) -> None:
        """Keep what is to be kept, and give up everything; those who needed it have been closed."""


def asked_for(settings: Settings) -> list[str]:
    """Return the handlers that ``messaging.protocols`` names, and those that are built in and have listeners set."""
    asking = [
        protocol
        for protocol in BUILT_IN
        if any(settings.of(part).asks_to_serve for part in settings_of(protocol))
    ]
    return list(dict.fromkeys([*settings.node.messaging_protocols, *asking]))


def arranged(settings: Settings) -> list[ProtocolHandler]:
    """Return the handlers that the settings ask for, initialized, each behind those it needs.

    Raises `HandlerError` that names what is missing or broken, or what needs itself, and `InvalidConfig`.
    """
    directory = settings.node.protocol_handler_directory
    done: dict[str, ProtocolHandler] = {}
    begun: list[str] = []

    def arrange(handlers: Sequence[type[ProtocolHandler]]) -> None:
        for kind in handlers:
            name = kind.protocol_name
            if name in done:
                continue
            if name in begun:
                raise HandlerError(f"handlers need each other: {' needs '.join([*begun, name])}")
            begun.append(name)
            handler = kind()
            handler.initialize(settings)
            arrange(find_handlers(handler.needs(), directory))
            begun.pop()
            done[name] = handler

    arrange(find_handlers(asked_for(settings), directory))
    return list(done.values())


def parts_of(settings: Settings) -> list[type[HandlerSettings]]:
    """Return what handlers that are not built in add to the settings, of those that ``messaging.protocols`` names."""
    names = [each for each in settings.node.messaging_protocols if each not in BUILT_IN]
    if not names:
        return []
    found = find_handlers(names, settings.node.protocol_handler_directory)
    return [part for handler in found for part in handler.settings]


def find_handlers(names: Iterable[str], directory: str = "") -> list[type[ProtocolHandler]]:
    """Return the class that serves each protocol; raise `HandlerError` that names what is missing or broken."""
    found = _from_directory(Path(directory)) if directory else {}
    handlers = []
    for name in dict.fromkeys(names):
        handler = found.get(name) or _installed(name)
        if handler.protocol_name != name:
            raise HandlerError(
                f"the handler found for protocol {name!r}, {handler.__name__}, serves {handler.protocol_name!r}"
            )
        handlers.append(handler)
    return handlers


def _installed(name: str) -> type[ProtocolHandler]:
    target = BUILT_IN[name].handler if name in BUILT_IN else _entry_point(name)
    if target is None:
        raise HandlerError(
            f"no handler for protocol {name!r}: it is not built in, not in protocol.handler.directory, "
            f"and no installed package offers it as {ENTRY_POINT_GROUP}"
        )
    try:
        return _checked(loaded(target), target)
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
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(source):
        return known  # its settings are found by their types: there must be one of each
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
