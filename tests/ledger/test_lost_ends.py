"""A ledger that lost its end with the power: no other message gets the place of a lost one, so none is passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.ledger.cursors.cursor import Start
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.formats.layout import HEADER_BYTES, ledger_path
from magnetar.ledger.port import Flush, LedgerPolicy, ManagedLedger, Position
from magnetar.metadata import MemoryStore
from magnetar.records.batch import decode_records
from tests.ledger.entries import append_durably, payload, read_all

NAME = "public/default/persistent/t"
POLICY = LedgerPolicy(flush=Flush.os)


async def booted(home: Path, metadata: MemoryStore, boot: str) -> tuple[FilesEngine, ManagedLedger]:
    engine = FilesEngine(home, metadata, RealDisk(), boot=lambda: boot)
    await engine.start()
    return engine, await engine.open(NAME, POLICY)


def values(entries: list[bytes]) -> list[bytes | None]:
    return [record.value for each in entries for record in decode_records(each)]


@pytest.mark.parametrize("left", [0, 1, 3])
@pytest.mark.parametrize("opened", ["before", "after", "killed"])
async def test_messages_in_the_place_of_lost_ones_are_not_passed_over(
    tmp_path: Path, left: int, opened: str
) -> None:
    """With flush=os what was acknowledged by a subscription may be lost with the power; what comes after it is not."""
    metadata = MemoryStore()
    engine, log = await booted(tmp_path, metadata, "one")
    cursors = await log.cursors()
    cursor = await cursors.open("s", Start.earliest)
    ends = [HEADER_BYTES]
    for number in range(6):
        place = (await append_durably(log, b"old %d" % number)).position
        ends.append(log.size())
    cursor.mark_delete(Position(place.ledger_id, 3))
    cursor.delete(Position(place.ledger_id, 5))
    await cursors.save()
    path = ledger_path(tmp_path, place.ledger_id)
    path.write_bytes(path.read_bytes()[: ends[left]])

    engine, log = await booted(tmp_path, metadata, "two")
    assert log.log_end_offset == left
    cursors = await log.cursors()
    if opened == "before":
        assert (await cursors.open("s")).backlog() == 0
    if opened == "killed":  # after something else was noted in the metadata
        await log.ledger_list.change(lambda info: True)  # type: ignore[attr-defined]
        engine, log = await booted(tmp_path, metadata, "two")
        cursors = await log.cursors()
    places = [(await append_durably(log, b"new %d" % number)).position for number in range(7)]
    assert {each.ledger_id for each in places}.isdisjoint({place.ledger_id})
    cursor = await cursors.open("s")
    assert cursor.backlog() == 7
    found = await cursor.read()
    assert values([payload(each) for each in found]) == [b"new %d" % number for number in range(7)]
    cursor.mark_delete(places[2])
    assert cursor.backlog() == 4
    everything = [payload(each) for each in await read_all(log)]
    assert values(everything) == [b"old %d" % n for n in range(left)] + [b"new %d" % n for n in range(7)]
    await engine.close()

    engine, log = await booted(tmp_path, metadata, "three")  # a clean end: the ledger goes on
    assert (await append_durably(log, b"more")).position == Position(places[0].ledger_id, 7)
    assert (await (await log.cursors()).open("s")).backlog() == 5
    await engine.close()


async def test_a_kill_loses_nothing_and_the_ledger_goes_on(tmp_path: Path) -> None:
    metadata = MemoryStore()
    engine, log = await booted(tmp_path, metadata, "one")
    first = (await append_durably(log, b"1")).position
    engine, log = await booted(tmp_path, metadata, "one")
    assert (await append_durably(log, b"2")).position == Position(first.ledger_id, 1)
    await engine.close()


async def test_a_cursor_in_a_ledger_that_was_let_go_goes_on_behind_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that lost its end takes those behind it along."""
    metadata = MemoryStore()
    engine, log = await booted(tmp_path, metadata, "one")

    async def not_yet(*_: object) -> None: ...

    monkeypatch.setattr(log.checkpoints, "_seal", not_yet)  # type: ignore[attr-defined]
    log.policy = LedgerPolicy(flush=Flush.os, max_ledger_entries=2)
    cursors = await log.cursors()
    cursor = await cursors.open("s", Start.earliest)
    places = [(await append_durably(log, b"old %d" % number)).position for number in range(3)]
    cursor.mark_delete(places[-1])
    await cursors.save()
    first = ledger_path(tmp_path, places[0].ledger_id)
    whole = first.read_bytes()
    first.write_bytes(whole[: len(whole) - 5])

    engine, log = await booted(tmp_path, metadata, "two")
    assert log.log_end_offset == 1
    cursor = await (await log.cursors()).open("s")
    assert (cursor.mark_delete_position, cursor.backlog()) == (places[0], 0)
    await append_durably(log, b"new")
    assert values([payload(each) for each in await cursor.read()]) == [b"new"]
    await engine.close()
