"""What another owner may have gone on from is never removed, though nobody can tell whether it was kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magnetar.ledger.errors import LedgerFenced
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.formats.info import path_of
from magnetar.ledger.port import Flush, LedgerPolicy
from magnetar.metadata import MemoryStore, MetadataUncertain
from magnetar.metadata.staging import Outcome, StagedCommit
from tests.ledger.entries import append, append_durably, read_all

NAME = "public/default/persistent/t-partition-0"
POLICY = LedgerPolicy(flush=Flush.os, max_ledger_entries=2)


class UncertainStore(MemoryStore):
    """Loses one answer; another owner comes before anybody asks whether that commit was kept."""

    comes: Callable[[], Awaitable[None]] | None = None

    async def _commit(self, commit: StagedCommit) -> Outcome:
        outcome, comes = await super()._commit(commit), self.comes
        if comes is not None and commit.ops[0].path == path_of(NAME):
            self.comes = None
            await comes()
            raise MetadataUncertain("the connection was lost")
        return outcome


async def test_a_ledger_that_another_owner_goes_on_with_stays(tmp_path: Path) -> None:
    store = UncertainStore()
    engine, other = (FilesEngine(tmp_path, store, RealDisk()) for _ in range(2))
    await engine.start()
    await other.start()
    log = await engine.open(NAME, POLICY)
    for n in range(2):
        await append_durably(log, b"%d" % n)

    async def take_over() -> None:
        theirs = await other.open(NAME, POLICY)
        assert len(theirs.ledgers()) == 2
        await append_durably(theirs, b"2")
        await append_durably(theirs, b"3")
        await append_durably(theirs, b"4")

    store.comes = take_over
    with pytest.raises(LedgerFenced):
        await append(log, b"in the next ledger").settled()
    await engine.close()
    await other.close()
    again = FilesEngine(tmp_path, store, RealDisk())
    await again.start()
    assert [entry.last_offset for entry in await read_all(await again.open(NAME, POLICY))] == [0, 1, 2, 3, 4]
    await again.close()
