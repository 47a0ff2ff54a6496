"""What a log keeps to whose ledgers are in tiered storage, whatever else they lie on."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from magnetar.ledger.port import CompactionRules, ManagedLedger, Position, StoredEntry
from magnetar.ledger.tiers.deletions import ROOT
from magnetar.ledger.tiers.place import TierPlace
from magnetar.ledger.tiers.tiers import TierSettings, open_store
from magnetar.records.entry import latest_timestamp
from tests.ledger.entries import NOW_MS, read_all
from tests.offload.house import NAME, filled, sealed


class House(Protocol):
    """An engine with tiered storage."""

    now_ms: int
    metadata: Any
    engine: Any

    async def log(self, **policy: object) -> ManagedLedger: ...

    async def reopen(self) -> None: ...


class Steps(ABC):
    """Counts steps: what comes before or after something that changes anything outside of the process."""

    def __init__(self, fatal: int) -> None:
        self.fatal = fatal
        self.taken = 0

    @abstractmethod
    def step(self) -> None:
        """Take one, or do what is due at the fatal one."""

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any) -> Any:
            self.step()
            result = call(*given)
            self.step()
            return result

        return called

    def around_async(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        async def called(*given: Any) -> Any:
            self.step()
            result = await call(*given)
            self.step()
            return result

        return called


async def offloaded(log: ManagedLedger, place: TierPlace) -> None:
    """Move all sealed ledgers."""
    for ledger_id in sealed(log):
        await log.offload(ledger_id, place)
    await log.delete_local(sealed(log))
    assert all(each.offloaded for each in log.ledgers() if each.sealed and each.entries)


def plain(entries: list[StoredEntry]) -> list[tuple[int, int, int, bytes]]:
    return [(each.ledger_id, each.entry_id, each.last_offset, bytes(each.data)) for each in entries]


def objects(place: TierPlace) -> list[str]:
    return [each.key for each in open_store(place, TierSettings()).listed()]


async def check_reads(log: ManagedLedger, before: list[StoredEntry]) -> None:
    """All verbs that read find what was there ``before``, a thousand entries."""
    found = plain(before)
    assert plain(await read_all(log)) == found
    assert plain(await read_all(log, max_bytes=1)) == found
    for number in (0, 1, 199, 200, 555, 999):
        ledger_id, entry_id, last, data = found[number]
        entry = await log.entry(Position(ledger_id, entry_id))
        assert (entry.last_offset, bytes(entry.data)) == (last, data)
        by_time = await log.find_by_time(latest_timestamp(before[number].data))
        assert by_time is not None
        assert by_time[:3] == found[number][:3]
        by_half = await log.find_first(lambda entry, least=last: entry.last_offset >= least)  # type: ignore[misc]
        assert by_half is not None
        assert by_half.last_offset == last
        assert await log.offset_behind(Position(ledger_id, entry_id)) == last + 1
        (one, *_) = await log.read(last, max_bytes=1)
        assert one[:3] == found[number][:3]
    latest = await log.find_max_timestamp()
    assert latest is not None
    assert latest[:3] == found[-1][:3]


async def check_readers_meanwhile(house: House, place: TierPlace, gone: Callable[[], Awaitable[Any]]) -> None:
    """Readers that come while local copies go see all; ``gone`` waits a while for the removal."""
    log = await house.log()
    await filled(log, 1000)
    found = plain(await read_all(log))
    for ledger_id in sealed(log):
        await log.offload(ledger_id, place)

    async def positions() -> list[tuple[int, int, int, bytes]]:
        return plain([await log.entry(Position(each[0], each[1])) for each in found])

    async def times() -> list[StoredEntry | None]:
        return [await log.find_by_time(NOW_MS + 10 * number) for number in range(0, 1000, 7)]

    readers = [asyncio.ensure_future(work) for work in (read_all(log), read_all(log, max_bytes=900))]
    at_positions, by_time = asyncio.ensure_future(positions()), asyncio.ensure_future(times())
    for ledger_id in sealed(log):
        await log.delete_local([ledger_id])
        await gone()
    for reader in readers:
        assert plain(await reader) == found
    assert await at_positions == found
    assert all(each is not None for each in await by_time)


async def check_overtaken(
    log: ManagedLedger, how: str, ledger_id: int, found: list[tuple[int, int, int, bytes]]
) -> None:
    """A read that began before the copy here went, of all or of the entry 77, finds what was ``found``."""
    if how == "read":
        assert plain(await read_all(log)) == found
    elif how == "entry":
        assert plain([await log.entry(Position(ledger_id, 77))]) == [found[77]]
    else:
        by_time = await log.find_by_time(NOW_MS + 10 * 77)
        assert by_time is not None
        assert plain([by_time]) == [found[77]]


async def check_compaction(house: House, place: TierPlace) -> None:
    """Compaction reads what lies there, and its objects go."""
    log = await house.log()
    await filled(log, 400)
    await offloaded(log, place)
    assert await log.compact(CompactionRules(replaces=True, null_keys=True))
    assert log.compacted is not None
    assert log.compacted.ledger.entries == 400
    assert all(each.compacted and each.offload is None for each in log.ledgers() if each.entries)
    assert objects(place)
    await house.engine.delete_doomed()
    assert not objects(place)
    assert len(await log.read_compacted(0, max_bytes=1 << 30)) > 0


async def check_goes(house: House, place: TierPlace, how: str) -> None:
    """Objects go with the ledgers that they are of: by retention, trim, or with the log, be it open or closed."""
    log = await house.log(retention_ms=1000)
    await filled(log, 600)
    await offloaded(log, place)
    kept = 0
    assert len(objects(place)) == 6
    if how == "retention":
        house.now_ms = NOW_MS + 10 * 450
        await log.retain(house.now_ms)
        kept = 4
    elif how == "trim":
        await log.trim(log.ledgers()[1].first_offset)
        kept = 4
    else:
        if how == "delete closed":
            await house.reopen()
        await house.engine.delete(NAME)
    await house.reopen()  # as after a crash between the two
    await house.engine.delete_doomed()
    assert len(objects(place)) == kept
    assert await house.metadata.children(ROOT) == []
    if kept:
        log = await house.log()
        assert (await read_all(log))[0].last_offset >= log.log_start_offset > 0
