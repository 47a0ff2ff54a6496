"""Who registers a restored topic: the broker that runs on its data directory, or this process where none does."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

from magnetar.admin.address import SOCKET
from magnetar.admin.adopting import adopt_all, reserve_for
from magnetar.admin.client import ask
from magnetar.admin.errors import AdminError, Unreachable
from magnetar.admin.manifest import Log, Manifest, Reserved
from magnetar.admin.plain import plain
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.files.half_copy import METADATA, HalfACopy, refuse_half_a_copy
from magnetar.ledger.port import LedgerSummary
from magnetar.metadata import DirectoryInUse, MetadataError, SqliteStore
from magnetar.node.broker import Broker
from magnetar.settings.settings import Settings

T = TypeVar("T")


class DirectoryRegistrar:
    """Has a restore's ledgers registered by the broker that runs on a data directory, or does it where none runs."""

    def __init__(self, data: Path) -> None:
        self._data = data.absolute()

    def reserve(self, topic: str, partitions: int, ledgers: int) -> tuple[int, ...]:
        """Return the ids; raise `AdminError`."""
        asked = Manifest(topic, partitions, {}, ledgers)

        async def alone(broker: Broker) -> Reserved:
            return await reserve_for(broker, asked)

        return self._have("reserve-ledgers", asked, alone).ledgers

    def adopt(
        self,
        topic: str,
        partitions: int,
        configs: Mapping[str, str],
        logs: Mapping[int, Sequence[LedgerSummary]],
    ) -> None:
        """Make the topic; raise `AdminError`."""
        made = tuple(Log(partition, tuple(ledgers)) for partition, ledgers in logs.items())
        asked = Manifest(topic, partitions, dict(configs), sum(len(each.ledgers) for each in made), made)
        self._have("adopt-ledgers", asked, lambda broker: adopt_all(broker, asked))

    def _have(self, question: str, asked: Manifest, alone: Callable[[Broker], Awaitable[T]]) -> T:
        if (self._data / SOCKET).exists():
            try:
                return cast(T, self._ask(question, asked))
            except Unreachable:
                pass  # what a killed broker left; the lock below knows better
        return asyncio.run(self._alone(alone))

    def _ask(self, question: str, asked: Manifest) -> object:
        with tempfile.NamedTemporaryFile("w", dir=self._data, prefix="restore-", suffix=".json") as file:
            json.dump(plain(asked), file)
            file.flush()
            return ask(self._data, question, manifest=file.name)

    async def _alone(self, work: Callable[[Broker], Awaitable[T]]) -> T:
        """Be the directory's broker for a moment, without listening."""
        self._data.mkdir(parents=True, exist_ok=True)
        try:
            refuse_half_a_copy(self._data)
            store = SqliteStore(self._data / METADATA)
        except DirectoryInUse as error:
            raise AdminError(f"{self._data} is in use, but its broker does not answer: {error}") from error
        except HalfACopy as error:
            raise AdminError(str(error), error.next_step) from error
        except MetadataError as error:
            raise AdminError(f"the metadata cannot be read: {error}") from error
        engine = FilesEngine(self._data, store, RealDisk())
        try:
            await engine.start()
            broker = Broker(Settings(), store, engine)
            await broker.start()
            return await work(broker)
        except (LedgerError, MetadataError) as error:
            raise AdminError(str(error)) from error
        finally:
            await engine.close()
            await store.close()
