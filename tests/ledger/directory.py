"""Small data directories with everything in them, for tests of damage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.port import Flush, LedgerPolicy
from magnetar.metadata import SqliteStore
from tests.ledger.entries import append_durably, payload, prepared, read_all

T = TypeVar("T")
LOGS = [f"public/default/persistent/t-partition-{n}" for n in range(3)]
POLICY = LedgerPolicy(max_ledger_entries=12)
Content = dict[str, list[tuple[int, bytes]]]


def with_engine(data: Path, work: Callable[[FilesEngine], Awaitable[T]]) -> T:
    """Open the directory as a broker does, work, and close it in order."""

    async def run() -> T:
        store = SqliteStore(data / "metadata.sqlite")
        try:
            engine = FilesEngine(data, store, RealDisk())
            await engine.start()
            try:
                return await work(engine)
            finally:
                await engine.close()
        finally:
            store.blocking.close()

    return asyncio.run(run())


def fill(data: Path) -> None:
    """Three logs of two sealed ledgers and an open one, with snapshots and a journal that was used."""

    async def work(engine: FilesEngine) -> None:
        for name in LOGS:
            log = await prepared(await engine.open(name, POLICY))
            log.take_snapshot = lambda: b"kept"
            for n in range(31):
                await append_durably(log, b"%d of %s" % (n, name.encode()), b"x" * (n * 40), b"y")
        lazy = await prepared(await engine.open(LOGS[0] + "0", LedgerPolicy(flush=Flush.os)))
        await append_durably(lazy, b"alone")
        for _ in range(200):
            if all(each.sealed for log in engine.opened() for each in log.ledgers()[:-1]):
                return
            await asyncio.sleep(0.01)

    with_engine(data, work)


def content(data: Path) -> Content:
    """Return every (last offset, batch) of every log, as a reader gets it."""

    async def work(engine: FilesEngine) -> Content:
        found: Content = {}
        for name in (*LOGS, LOGS[0] + "0"):
            log = await prepared(await engine.open(name, POLICY))
            found[name] = [(entry.last_offset, payload(entry)) for entry in await read_all(log)]
        return found

    return with_engine(data, work)
