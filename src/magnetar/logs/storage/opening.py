"""From the settings to an open store and its engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from magnetar.base.errors import InvalidConfig
from magnetar.base.setting import HandlerSettings
from magnetar.ledger.port import LedgerEngine
from magnetar.logs.storage.factories import Factory, MetadataStoreFactory, StorageEngineFactory
from magnetar.logs.storage.upgrading import upgrade
from magnetar.metadata.lock import DirectoryLock
from magnetar.metadata.port import MetadataStore
from magnetar.settings.built_in import METADATA_STORES, STORAGE_ENGINES, loaded, scheme_of
from magnetar.settings.settings import Settings

_STORES_GROUP = "magnetar.metadata_stores"
_ENGINES_GROUP = "magnetar.storage_engines"
F = TypeVar("F", bound=Factory)


class Storage(NamedTuple):
    """``engine`` has not been started. They are closed in this order: engine, store, lock."""

    lock: DirectoryLock
    """On the broker's own data directory, whatever else is kept elsewhere."""
    store: MetadataStore
    engine: LedgerEngine


async def open_storage(settings: Settings) -> Storage:
    """Open what the settings name, or nothing, and lock the data directory.

    Raises `InvalidConfig`, ``MetadataError`` (of which one is ``NewerFormat``) or ``LedgerError``; ``OSError`` for a
    directory that cannot be used.
    """
    stores, engines = _stores(settings)(), _engines(settings)()
    directory = Path(settings.node.data_dir).absolute()
    held = DirectoryLock(directory)
    try:
        url = settings.node.metadata_url
        store = await stores.open(url, settings, held)
        try:
            await upgrade(store, str(directory) if url == "sqlite:" else url)
            engine = await engines.open(settings.node.storage_url, settings, held, store)
            return Storage(held, store, engine)
        except BaseException:
            await store.close()
            raise
    except BaseException:
        held.release()
        raise


def parts_of(settings: Settings) -> list[type[HandlerSettings]]:
    """Return what the store and the engine that the settings name add to them; raise `InvalidConfig`."""
    return list(dict.fromkeys((*_stores(settings).settings, *_engines(settings).settings)))


def _stores(settings: Settings) -> type[MetadataStoreFactory]:
    url = settings.node.metadata_url
    return _found("metadata.url", url, METADATA_STORES, _STORES_GROUP, MetadataStoreFactory)  # type: ignore[type-abstract]


def _engines(settings: Settings) -> type[StorageEngineFactory]:
    url = settings.node.storage_url
    return _found("storage.url", url, STORAGE_ENGINES, _ENGINES_GROUP, StorageEngineFactory)  # type: ignore[type-abstract]


def _found(setting: str, url: str, built_in: Mapping[str, str], group: str, kind: type[F]) -> type[F]:
    """Return what opens ``url``; raise `InvalidConfig` that says what is missing or broken."""
    scheme = scheme_of(url)
    # Looking into every installed package takes tens of milliseconds of each start; our own need no such search.
    target = built_in.get(scheme) or _entry_point(group, scheme)
    if target is None:
        raise InvalidConfig(
            f"{setting}={url}: nothing opens {scheme!r}: it is none of {', '.join(built_in)}, "
            f"and no installed package offers it as {group}"
        )
    try:
        factory = loaded(target)
    except (ImportError, AttributeError) as error:
        raise InvalidConfig(f"{setting}={url}: {target} cannot be loaded: {error}") from error
    if not (isinstance(factory, type) and issubclass(factory, kind)):
        raise InvalidConfig(f"{setting}={url}: {target} is no {kind.__name__}")
    if factory.__abstractmethods__:
        missing = ", ".join(sorted(factory.__abstractmethods__))
        raise InvalidConfig(f"{setting}={url}: {target} does not say how to {missing}")
    return factory


def _entry_point(group: str, scheme: str) -> str | None:
    from importlib.metadata import entry_points

    return next((point.value for point in entry_points(group=group, name=scheme)), None)
