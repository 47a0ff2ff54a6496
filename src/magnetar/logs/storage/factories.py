"""The ports by which metadata stores and storage engines are opened. What they promise then stands in their own ports.

A factory serves the URLs of one scheme: what stands before the first colon, as in ``sqlite:`` and ``zk://host:2181``.
It is built in, or an installed package offers it in the entry-point group ``magnetar.metadata_stores`` or
``magnetar.storage_engines``, under the name of its scheme. It may bring settings of its own, as a handler does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from magnetar.base.setting import HandlerSettings
from magnetar.ledger.port import LedgerEngine
from magnetar.metadata.lock import DirectoryLock
from magnetar.metadata.port import MetadataStore
from magnetar.settings.settings import Settings


class Factory(ABC):
    """Made without arguments, once for each broker."""

    scheme: ClassVar[str]
    settings: ClassVar[tuple[type[HandlerSettings], ...]] = ()
    """What it adds to the broker's settings: frozen dataclasses, found again by ``settings.of(TYPE)``."""


class MetadataStoreFactory(Factory):
    """Opens metadata stores."""

    @abstractmethod
    async def open(self, url: str, settings: Settings, held: DirectoryLock) -> MetadataStore:
        """Return the store at ``url``, ready to be asked; ``held`` is the broker's own data directory.

        Raises `InvalidConfig` for a URL that cannot be, and ``MetadataError``.
        """


class StorageEngineFactory(Factory):
    """Makes storage engines."""

    @abstractmethod
    async def open(
        self, url: str, settings: Settings, held: DirectoryLock, store: MetadataStore
    ) -> LedgerEngine:
        """Return an engine on this store that has not been started yet; ``held`` is the broker's own data directory.

        Raises `InvalidConfig` for a URL, or a store, that it cannot work with, and ``LedgerError``.
        """
