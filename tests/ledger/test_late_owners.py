"""A former owner, or a person, writes a cursor late: the owner goes on, and nothing acknowledged comes again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from magnetar.ledger.cursors.cursor import Cursor, Start
from magnetar.ledger.errors import LedgerError, LedgerFenced
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.formats.cursor_info import CursorInfo, cursor_path
from magnetar.ledger.port import Flush, LedgerPolicy, ManagedLedger, Position
from magnetar.metadata import ANY, Delete, MemoryStore, Put
from tests.ledger.entries import append_durably

NAME = "public/default/persistent/t-partition-0"
PATH = cursor_path(NAME, "c")
POLICY = LedgerPolicy(flush=Flush.os)


class TwoEngines:
    """Two owners on one directory and one store, as two brokers are on the same bookies and ZooKeeper."""

    def __init__(self, root: Path) -> None:
        self.store = MemoryStore()
        self.former, self.owner = (FilesEngine(root, self.store, RealDisk()) for _ in range(2))

    async def log(self, engine: FilesEngine) -> ManagedLedger:
        return await engine.open(NAME, POLICY)

    async def taken(self) -> ManagedLedger:
        """Have the owner open the log, and claim it as each owner does on bookies: by a change of its list."""
        log = await self.log(self.owner)
        await log.note_transactions()
        return log

    async def mark(self) -> Position:
        """Return where a third owner finds the cursor."""
        await self.owner.release(NAME)
        log = await self.log(self.owner)
        return (await (await log.cursors()).open("c")).mark_delete_position


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[TwoEngines]:
    made = TwoEngines(tmp_path)
    await made.former.start()
    await made.owner.start()
    yield made
    await made.former.close()
    await made.owner.close()


async def filled(log: ManagedLedger, count: int = 6) -> tuple[Cursor, list[Position]]:
    positions = [(await append_durably(log, b"%d" % n)).position for n in range(count)]
    return await (await log.cursors()).open("c", Start.earliest), positions


async def test_an_owner_goes_on_when_its_cursors_node_was_written_by_another(engines: TwoEngines) -> None:
    log = await engines.log(engines.owner)
    cursor, positions = await filled(log)
    cursors = await log.cursors()
    stored = await engines.store.get(PATH)
    assert stored is not None
    await engines.store.commit([Put(PATH, stored.value, ANY)])
    for position in positions[:4]:
        cursor.mark_delete(position)
        await cursors.save()
    assert await engines.mark() == positions[3]


async def test_an_owner_goes_on_when_its_cursors_node_was_deleted_by_another(engines: TwoEngines) -> None:
    log = await engines.log(engines.owner)
    cursor, positions = await filled(log)
    await engines.store.commit([Delete(PATH, ANY)])
    cursor.mark_delete(positions[3])
    await (await log.cursors()).save()
    assert await engines.mark() == positions[3]


async def test_the_state_of_deduplication_is_kept_beside_one_that_another_made(engines: TwoEngines) -> None:
    log = await engines.log(engines.owner)
    _, positions = await filled(log)
    cursors = await log.cursors()
    path = cursor_path(NAME, "pulsar.dedup")
    await engines.store.commit([Put(path, b"", ANY)])
    for position in positions[:2]:
        cursors.change("pulsar.dedup", lambda position=position: CursorInfo(position, properties={}))  # type: ignore[misc]
        await cursors.save()
    await engines.owner.release(NAME)
    info = await (await (await engines.log(engines.owner)).cursors()).read("pulsar.dedup")
    assert info is not None
    assert info.mark_delete == positions[1]


async def test_a_former_owner_that_closes_late_writes_nothing(engines: TwoEngines) -> None:
    before = await engines.log(engines.former)
    late, positions = await filled(before)
    late.mark_delete(positions[0])  # in memory only, as it is between two saves
    log = await engines.taken()
    cursor = await (await log.cursors()).open("c")
    cursor.mark_delete(positions[4])
    await (await log.cursors()).save()
    left = await engines.store.get(PATH)
    await engines.former.release(NAME)
    assert await engines.store.get(PATH) == left
    assert await engines.mark() == positions[4]


async def test_a_former_owner_writes_nothing_before_the_owner_has_written_either(engines: TwoEngines) -> None:
    before = await engines.log(engines.former)
    closed: list[LedgerError] = []
    before.on_closed.append(closed.append)
    late, positions = await filled(before)
    await engines.taken()
    left = await engines.store.get(PATH)
    late.mark_delete(positions[5])
    with pytest.raises(LedgerFenced):
        await (await before.cursors()).save()
    with pytest.raises(LedgerFenced):
        await (await before.cursors()).open("new")
    assert await engines.store.get(PATH) == left
    assert [type(each) for each in closed] == [LedgerFenced]


async def test_a_former_owner_deletes_no_cursor(engines: TwoEngines) -> None:
    before = await engines.log(engines.former)
    await filled(before)
    await engines.taken()
    with pytest.raises(LedgerFenced):
        await (await before.cursors()).delete("c")
    assert await engines.store.get(PATH) is not None


async def test_a_cursor_that_is_there_when_it_is_to_be_made_is_opened(engines: TwoEngines) -> None:
    log = await engines.log(engines.owner)
    cursor, positions = await filled(log)
    cursor.mark_delete(positions[2])
    cursors = await log.cursors()
    await cursors.save()
    stored = await engines.store.get(PATH)
    assert stored is not None
    await engines.store.commit([Put(cursor_path(NAME, "other"), stored.value, ANY)])
    other = await cursors.open("other", Start.latest)
    assert other.mark_delete_position == positions[2]
    other.mark_delete(positions[3])
    await cursors.save()


async def test_a_list_that_changes_meanwhile_delays_no_cursor(engines: TwoEngines) -> None:
    log = await engines.log(engines.owner)
    cursor, positions = await filled(log)
    cursors = await log.cursors()
    plain = engines.store.commit

    async def slow(ops):  # type: ignore[no-untyped-def]
        if any(op.path == PATH for op in ops) and not log.has_transactions:
            await log.note_transactions()  # a change of the list that comes first
        return await plain(ops)

    engines.store.commit = slow  # type: ignore[method-assign]
    cursor.mark_delete(positions[3])
    await cursors.save()
    assert log.has_transactions
    assert await engines.mark() == positions[3]
