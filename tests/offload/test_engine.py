"""A log whose ledgers lie in tiered storage is read as before, whoever reads it and how; and it goes when it is due."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from magnetar.ledger.errors import CannotOffload, LedgerCorrupt, TierFailed
from magnetar.ledger.files.ledger_file import LedgerFile
from magnetar.ledger.formats.info import decode_info, path_of
from magnetar.ledger.tiers.place import TierPlace
from tests.ledger.entries import read_all
from tests.offload.house import NAME, SMALL, TieredHouse, filled, sealed
from tests.offload.promises import (
    check_compaction,
    check_goes,
    check_overtaken,
    check_readers_meanwhile,
    check_reads,
    objects,
    offloaded,
    plain,
)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[TieredHouse]:
    house = TieredHouse(tmp_path / "data")
    (tmp_path / "data").mkdir()
    await house.begin()
    yield house
    await house.end()


async def test_everything_is_read_as_before(house: TieredHouse, place: TierPlace) -> None:
    log = await house.log()
    await filled(log, 1000)
    before = await read_all(log)
    await offloaded(log, place)
    for _ in range(2):
        await check_reads(log, before)
        assert 0 < house.engine.tiers.cache.size <= SMALL.cache_bytes
        await house.reopen()
        log = await house.log()
    assert len(list(house.root.glob("ledgers/*/*.ledger"))) == 1, "the open one"


async def test_readers_that_come_while_local_copies_go_see_all(house: TieredHouse, place: TierPlace) -> None:
    await check_readers_meanwhile(house, place, lambda: asyncio.sleep(0.01))


@pytest.mark.parametrize("how", ["read", "read_entry", "find"])
async def test_a_file_that_goes_within_a_read_is_read_there(
    house: TieredHouse, place: TierPlace, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await house.log()
    await filled(log, 200)
    (first,) = sealed(log)
    found = plain(await read_all(log))
    await log.offload(first, place)
    original = getattr(LedgerFile, how)

    async def overtaken(ledger: LedgerFile, *given: Any, **named: Any) -> Any:
        monkeypatch.setattr(LedgerFile, how, original)
        await log.delete_local([first])
        await house.engine.shared.work.ended()
        return await original(ledger, *given, **named)

    monkeypatch.setattr(LedgerFile, how, overtaken)
    verb = {"read": "read", "read_entry": "entry", "find": "find_by_time"}[how]
    await check_overtaken(log, verb, first, found)
    assert getattr(LedgerFile, how) is original, "it was overtaken"


async def test_what_is_open_compacted_or_unknown_is_not_offloaded(
    house: TieredHouse, place: TierPlace
) -> None:
    log = await house.log()
    await filled(log, 100)
    (first,) = sealed(log)
    await log.delete_local([first])  # it is not there yet, so it stays here
    assert not log.ledgers()[0].offloaded
    for wrong in (first + 10_000, log.ledgers()[-1].ledger_id if len(log.ledgers()) > 1 else -1):
        with pytest.raises(CannotOffload):
            await log.offload(wrong, place)
    with pytest.raises(CannotOffload, match="needs a"):
        await log.offload(first, TierPlace(place.driver))
    with pytest.raises(CannotOffload, match="no driver 'azureblob'"):
        await log.offload(first, TierPlace("azureblob", "b"))
    assert log.ledgers()[0].offload is None, "what cannot be is told before anything is noted"


async def test_compaction_reads_what_lies_there_and_its_objects_go(
    house: TieredHouse, place: TierPlace
) -> None:
    await check_compaction(house, place)


@pytest.mark.parametrize("how", ["retention", "trim", "delete", "delete closed"])
async def test_objects_go_with_what_they_are_of(house: TieredHouse, place: TierPlace, how: str) -> None:
    await check_goes(house, place, how)


async def test_what_is_referred_to_is_never_deleted(house: TieredHouse, place: TierPlace) -> None:
    """A note that should not be there is not followed."""
    from magnetar.ledger.tiers.deletions import note_of

    log = await house.log()
    await filled(log, 200)
    await offloaded(log, place)
    stored = await house.metadata.get(path_of(NAME))
    assert stored is not None
    await house.metadata.commit(note_of(NAME, decode_info(stored.value).ledgers))
    await house.engine.delete_doomed()
    assert len(objects(place)) == 2
    assert len(await read_all(log)) == 200


class Interrupted(Exception):
    """Stands for a crash."""


@pytest.mark.parametrize("step", ["before data", "within data", "before index", "before commit"])
async def test_an_attempt_that_ends_halfway_leaves_nothing_behind(
    house: TieredHouse, place: TierPlace, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await house.log()
    await filled(log, 200)
    found = plain(await read_all(log))
    (first,) = sealed(log)
    store = house.engine.tiers.store(place)
    put, calls = store.put, 0

    def failing(key: str, pieces: Any, attributes: Any) -> None:
        nonlocal calls
        calls += 1
        if step == "before data" or (step == "before index" and calls == 2):
            raise TierFailed("the store is down")
        if step == "within data":
            put(key, _torn(pieces), attributes)
        put(key, pieces, attributes)

    def _torn(pieces: Any) -> Any:
        yield next(iter(pieces))
        raise Interrupted

    monkeypatch.setattr(store, "put", failing)
    if step == "before commit":
        monkeypatch.setattr(store, "size", lambda key: 7)
    with pytest.raises((TierFailed, Interrupted)):
        await log.offload(first, place)
    attempt = log.ledgers()[0].offload
    assert attempt is not None
    assert not attempt.complete
    assert plain(await read_all(log)) == found
    await log.delete_local([first])
    await house.reopen()  # another process: it knows the attempt by the list of ledgers alone
    log = await house.log()
    assert plain(await read_all(log)) == found
    await log.offload(first, place)
    again = log.ledgers()[0].offload
    assert again is not None
    assert again.uuid != attempt.uuid
    await house.engine.delete_doomed()
    assert sorted(objects(place)) == [f"{again.uuid}-ledger-{first}", f"{again.uuid}-ledger-{first}-index"]
    await log.delete_local([first])
    assert plain(await read_all(log)) == found


async def test_local_files_that_a_crash_left_are_removed(house: TieredHouse, place: TierPlace) -> None:
    log = await house.log()
    await filled(log, 200)
    left = {path: path.read_bytes() for path in house.root.glob(f"ledgers/*/{sealed(log)[0]:016x}.*")}
    assert len(left) == 2
    found = plain(await read_all(log))
    await offloaded(log, place)
    await house.end()
    for path, data in left.items():
        path.write_bytes(data)
    await house.begin()
    assert plain(await read_all(await house.log())) == found
    await house.engine.shared.work.ended()
    assert not [path for path in left if path.exists()]


async def test_damage_there_is_refused_wherever_it_is(house: TieredHouse, tmp_path: Path) -> None:
    place = TierPlace("filesystem", path=str(tmp_path / "tiers"))
    log = await house.log()
    await filled(log, 200)
    found = plain(await read_all(log))
    await offloaded(log, place)
    data, index = (
        sorted((tmp_path / "tiers").glob("*-ledger-?")),
        sorted((tmp_path / "tiers").glob("*-index")),
    )
    refused = 0
    for path in (*data, *index):
        whole = path.read_bytes()
        step = max(len(whole) // 40, 1)
        for at in range(3, len(whole), step):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            refused += await is_refused(house, found)
        path.write_bytes(whole[: len(whole) // 2])
        assert await is_refused(house, found)
        path.unlink()
        assert await is_refused(house, found)
        path.write_bytes(whole)
    assert refused > 60
    assert not await is_refused(house, found)


async def is_refused(house: TieredHouse, found: list[Any]) -> bool:
    """Whether a reader is refused; otherwise it must have read what was written."""
    await house.reopen()
    try:
        read = plain(await read_all(await house.log()))
    except LedgerCorrupt as error:
        return "-ledger-" in str(error)  # the object is named
    assert read == found
    return False


async def test_a_damaged_ledger_is_not_offloaded(house: TieredHouse, place: TierPlace) -> None:
    log = await house.log()
    await filled(log, 200)
    (path,) = house.root.glob(f"ledgers/*/{sealed(log)[0]:016x}.ledger")
    whole = path.read_bytes()
    path.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    with pytest.raises(LedgerCorrupt, match="is damaged, so the ledger is not offloaded"):
        await log.offload(sealed(log)[0], place)
    assert not [key for key in objects(place) if key.endswith("-index")]
