"""Is every copy of every entry on a cluster's bookies what was written, and is all there that the metadata names?

Nothing is fenced and nothing is changed: closed ledgers, which never change, are read from *each* bookie that is to
have them, by the client without a JVM (`magnetar.ledger.bookkeeper.closed`). Ledgers that are open are counted and left
out: brokers are writing them, or recovery closes them when a broker opens the topic.

Brokers may run meanwhile. What was damaged in a topic whose list of ledgers changed while it was read is looked at
again by the new list: retention deletes ledgers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from magnetar.admin.errors import AdminError, Invalid, NotThere, Unreachable
from magnetar.base.errors import BrokerError
from magnetar.cluster.cluster_ownership import BROKERS
from magnetar.doctor.ledgers import REPAIR, Finding, Gravity, Report, lost_ranges
from magnetar.ledger.bookkeeper.bookie_login import BookieLogin
from magnetar.ledger.bookkeeper.bookie_tls import BookieTls
from magnetar.ledger.bookkeeper.closed import (
    BookieConnections,
    BookieUnreachable,
    ClosedLedger,
    EntryCopy,
    decode_metadata,
    entry_in,
    metadata_path,
)
from magnetar.ledger.errors import LedgerCorrupt, LedgerError
from magnetar.ledger.formats.cursor_info import decode_cursor, decode_state
from magnetar.ledger.formats.info import ROOT, ManagedLedgerInfo, decode_info
from magnetar.ledger.port import LedgerSummary
from magnetar.ledger.tiers.objects import CLUSTER_ID, DELETIONS
from magnetar.logs.storage.cluster import bookies_address, zookeeper_address
from magnetar.metadata import MetadataError, MetadataStore
from magnetar.metadata.parts import get_value
from magnetar.metadata.zookeeper_security import InvalidZooKeeperConfig, ZooKeeperSecurity
from magnetar.records.entry import decode_entry
from magnetar.records.errors import RecordsError

CUT = "magnetar.cut"
"""Property of a ledger whose list has fewer entries than bookies do: those behind were given up by a repair."""
_SESSION_S = 10
_TRIES = 5
_LEDGERS = "/ledgers"
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """Where a cluster is and how it is come to, as a broker's file has it."""

    metadata: str
    """``zk:HOST:PORT,HOST:PORT/PATH``."""
    bookkeeper: str = ""
    """Where bookies are known if that is elsewhere, as ``bookkeeperMetadataServiceUri`` has it."""
    client_config: str = ""
    tls: BookieTls | None = None
    password: bytes = b""
    """Of ledgers."""
    login: BookieLogin | None = None
    """At bookies, which the client without a JVM does not know."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Entries ``[first, end)`` of a ledger of which no copy is whole, and the offsets that they held."""

    first: int
    end: int
    first_offset: int
    next_offset: int
    why: str


@dataclass(slots=True)
class BadCopies:
    """What one bookie lacks of a ledger, or has otherwise than it was written."""

    bookie: str
    first: int
    last: int
    count: int
    error: LedgerError


@dataclass(slots=True)
class LookedAt:
    """What a ledger was found to be, entry by entry."""

    entries: int = 0
    bytes: int = 0
    bad: dict[tuple[str, bool], BadCopies] = field(default_factory=dict)
    """By bookie, and whether it could be reached."""
    holes: list[Hole] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """(entry id, offset that was due) of entries whose offset does not follow the one before."""
    next_offset: int = -1
    unreached: bool = False
    """Whether a hole may be none: a bookie that is to have a copy does not answer."""

    def saw_bad(self, entry_id: int, copy: EntryCopy) -> None:
        """Take note of a copy that is not whole."""
        assert copy.error is not None
        key = copy.bookie, isinstance(copy.error, BookieUnreachable)
        found = self.bad.get(key)
        if found is None:
            self.bad[key] = BadCopies(copy.bookie, entry_id, entry_id, 1, copy.error)
        else:
            found.last, found.count = entry_id, found.count + 1


OnCopies = Callable[[int, Sequence[EntryCopy]], None]


def look_at(
    bookies: BookieConnections,
    closed: ClosedLedger,
    entries: int,
    first_offset: int,
    last_offset: int,
    on_copies: OnCopies = lambda entry_id, copies: None,
) -> LookedAt:
    """Read every copy of a ledger's first ``entries``; ``first_offset`` is -1 where offsets do not matter.

    ``on_copies`` is called with the copies of each entry that are not all whole, in order.
    """
    found = LookedAt(next_offset=first_offset)
    hole, why = -1, ""
    for entry_id, copies in enumerate(bookies.copies(closed, 0, entries)):
        whole = next((each for each in copies if each.error is None), None)
        if whole is None or any(each.error is not None for each in copies):
            for each in copies:
                if each.error is not None:
                    found.saw_bad(entry_id, each)
            on_copies(entry_id, copies)
        if whole is None:
            found.unreached |= any(isinstance(each.error, BookieUnreachable) for each in copies)
            if hole < 0:
                hole, why = entry_id, "; ".join(str(each.error) for each in copies)
            continue
        entry = entry_in(closed, whole.stored)
        found.entries += 1
        found.bytes += len(entry)
        if first_offset >= 0:
            base, behind = _offsets(closed.ledger_id, entry_id, entry)
            if hole >= 0:
                found.holes.append(Hole(hole, entry_id, found.next_offset, base, why))
            elif base != found.next_offset:
                found.gaps.append((entry_id, found.next_offset))
            found.next_offset = behind
        elif hole >= 0:
            found.holes.append(Hole(hole, entry_id, -1, -1, why))
        hole = -1
    if hole >= 0:
        found.holes.append(Hole(hole, entries, found.next_offset, last_offset + 1, why))
        found.next_offset = last_offset + 1
    return found


def _offsets(ledger_id: int, entry_id: int, data: memoryview) -> tuple[int, int]:
    """Return the offset of an entry's first record, and the one behind its last."""
    try:
        entry = decode_entry(data)
    except RecordsError as error:
        raise LedgerCorrupt(f"entry {entry_id} of ledger {ledger_id} was written so: {error}") from error
    return entry.base_offset, entry.broker.index + 1


@dataclass(slots=True)
class ClusterLog:
    """A managed ledger as it stands in the metadata."""

    path: str
    version: int
    info: ManagedLedgerInfo

    @property
    def name(self) -> str:
        return self.path.removeprefix(ROOT + "/")

    def ledgers(self) -> Iterator[tuple[LedgerSummary, bool]]:
        """Yield what lies on bookies, and whether its offsets go on."""
        if self.info.compacted is not None:
            yield self.info.compacted.ledger, False
        for each in self.info.ledgers:
            if not each.compacted and not each.offloaded:
                yield each, each.first_offset >= 0


@dataclass(slots=True)
class _Tally:
    logs: int = 0
    ledgers: int = 0
    open: int = 0
    entries: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: _Tally) -> None:
        self.logs += other.logs
        self.ledgers += other.ledgers
        self.open += other.open
        self.entries += other.entries
        self.bytes += other.bytes
        self.findings += other.findings


class ClusterLedgers:
    """The ledgers of a cluster's topics, by its metadata."""

    def __init__(self, store: MetadataStore, ledgers: MetadataStore, root: str, place: ClusterPlace) -> None:
        """``ledgers`` is the store that bookies are known in, ``root`` the path of ledgers there."""
        self.store = store
        self.place = place
        self.connections = BookieConnections(place.tls)
        self._ledgers = ledgers
        self._root = root

    async def closed(self, ledger_id: int) -> tuple[bool, ClosedLedger | None]:
        """Return whether BookKeeper knows a ledger, and where it lies if it is closed."""
        stored = await self._ledgers.get(metadata_path(self._root, ledger_id))
        return stored is not None, None if stored is None else decode_metadata(ledger_id, stored.value)

    async def paths(self) -> list[str]:
        """Return where managed ledgers stand in the metadata."""
        found = []
        for tenant in await self.store.children(ROOT):
            for namespace in await self.store.children(f"{ROOT}/{tenant}"):
                path = f"{ROOT}/{tenant}/{namespace}/persistent"
                found += [f"{path}/{topic}" for topic in await self.store.children(path)]
        return found

    async def log(self, path: str) -> ClusterLog | None:
        """Return what stands there, None if nothing does; raise ``LedgerCorrupt``."""
        stored = await self.store.get(path)
        return (
            None if stored is None else ClusterLog(path, stored.version, decode_info(stored.value, name=path))
        )

    async def brokers(self) -> list[str]:
        """Return the addresses of those that live."""
        return list(await self.store.children(BROKERS))

    # -- verify

    async def verify(self) -> Report:
        """Look at everything."""
        tally = _Tally()
        paths = await self.paths()
        for path in paths:
            tally.add(await self._settled(path, self._look_at_log))
            for name in await self.store.children(path):
                tally.add(await self._settled(f"{path}/{name}", self._look_at_cursor))
        await self._look_at_tiers(paths, tally)
        return Report(
            self.place.metadata,
            tally.open > 0,
            tally.logs,
            tally.ledgers,
            tally.entries,
            tally.bytes,
            tuple(tally.findings),
            tally.open,
        )

    async def _settled(self, path: str, look: Callable[[str], Awaitable[_Tally]]) -> _Tally:
        """Look at what a node names until it did not change meanwhile, or nothing is wrong."""
        for tries_left in reversed(range(_TRIES)):
            before = await self.store.get(path)
            found = await look(path)
            if not tries_left or not any(each.gravity is Gravity.damage for each in found.findings):
                break
            now = await self.store.get(path)
            if now is None:
                return _Tally()
            if before is not None and now.version == before.version:
                break
        return found

    async def _look_at_log(self, path: str) -> _Tally:
        tally = _Tally()
        try:
            log = await self.log(path)
        except LedgerCorrupt as error:
            tally.findings.append(
                Finding(Gravity.damage, path, -1, str(error), "restore the node from a backup")
            )
            return tally
        if log is None:
            return tally
        tally.logs = 1
        self._continuity(log, tally)
        for summary, has_offsets in log.ledgers():
            await self._look_at_ledger(log, summary, has_offsets, tally)
        return tally

    def _continuity(self, log: ClusterLog, tally: _Tally) -> None:
        """Offsets go on from one ledger to the next, but for what repairs gave up."""
        lost, due = lost_ranges(log.info), -1
        for each in log.info.ledgers:
            if due >= 0 and each.first_offset > due and (due, each.first_offset) not in lost:
                what = f"offsets {due} to {each.first_offset - 1} are missing before it"
                self._say(tally, Gravity.damage, log, each, what, "look for the ledger before it in a copy")
            due = each.last_offset + 1 if each.sealed and each.first_offset >= 0 else -1

    async def _look_at_ledger(
        self, log: ClusterLog, summary: LedgerSummary, has_offsets: bool, tally: _Tally
    ) -> None:
        give_up = (
            f"'{REPAIR} --drop-damaged' gives up offsets {summary.first_offset} to {summary.last_offset}"
        )
        lost = {"first_offset": summary.first_offset, "last_offset": summary.last_offset}
        try:
            is_known, closed = await self.closed(summary.ledger_id)
        except LedgerCorrupt as error:
            self._say(tally, Gravity.damage, log, summary, str(error), "it cannot be looked at from here")
            return
        if not is_known:
            what = "the ledger is gone: BookKeeper's metadata know nothing of it"
            do = f"restore its node in ZooKeeper from a backup, or {give_up}"
            self._say(tally, Gravity.damage, log, summary, what, do, **lost)
            return
        if closed is None:
            tally.open += 1
            return
        tally.ledgers += 1
        there = closed.last_entry + 1
        due = summary.entries if summary.sealed else there
        if there != due and CUT not in summary.properties:
            what = f"holds {there} entries, and the metadata knows {due}"
            self._say(tally, Gravity.damage, log, summary, what, f"report this; {give_up}", **lost)
        try:
            found = await asyncio.to_thread(
                look_at,
                self.connections,
                closed,
                min(there, due),
                summary.first_offset if has_offsets else -1,
                summary.last_offset,
            )
        except LedgerCorrupt as error:
            self._say(tally, Gravity.damage, log, summary, str(error), "report this: it was written so")
            return
        tally.entries += found.entries
        tally.bytes += found.bytes
        self._judge(tally, log, summary, found)

    def _judge(self, tally: _Tally, log: ClusterLog, summary: LedgerSummary, found: LookedAt) -> None:
        for hole in found.holes:
            entries = _entries(hole.first, hole.end - 1)
            if found.unreached:
                do = "start the bookies that are to have copies, and look again"
            else:
                do = f"restore a bookie's disk from a copy, or '{REPAIR} --drop-damaged' gives up what was in it"
                if hole.next_offset > hole.first_offset >= 0:
                    do += f": offsets {hole.first_offset} to {hole.next_offset - 1}"
            self._say(
                tally, Gravity.damage, log, summary, f"{entries}: no copy is whole: {hole.why}", do,
                entry=hole.first, first_offset=hole.first_offset, last_offset=hole.next_offset - 1,
            )  # fmt: skip
        for entry_id, due in found.gaps:
            what = f"entry {entry_id} does not go on with offset {due}"
            self._say(
                tally, Gravity.damage, log, summary, what, "report this: it was written so", entry=entry_id
            )
        for (bookie, is_away), bad in found.bad.items():
            if is_away:
                what = f"{bad.count} copies on {bookie} were not looked at: {bad.error}"
                do = "start it; if it is gone for good, BookKeeper's autorecovery makes other copies"
            else:
                what = (
                    f"{bad.count} copies on {bookie} are not whole, first of entry {bad.first}: {bad.error}"
                )
                do = f"'{REPAIR}' writes them again from another bookie's, where one is whole"
            self._say(tally, Gravity.wear, log, summary, what, do, entry=bad.first)

    def _say(
        self,
        tally: _Tally,
        gravity: Gravity,
        log: ClusterLog,
        summary: LedgerSummary,
        what: str,
        do: str,
        **more: int,
    ) -> None:
        file = f"ledger {summary.ledger_id} of {log.name}"
        tally.findings.append(
            Finding(gravity, file, -1, what, do, log=log.path, ledger=summary.ledger_id, **more)
        )

    async def _look_at_cursor(self, path: str) -> _Tally:
        """The state of a subscription may lie in a ledger."""
        tally = _Tally()
        stored = await get_value(self.store, path)
        if stored is None:
            return tally
        do = "restore a bookie's disk from a copy, or end the subscription"
        try:
            cursor = decode_cursor(stored.value, name=path)
            if cursor.ledger_id < 0:
                return tally
            is_known, closed = await self.closed(cursor.ledger_id)
            if not is_known:
                raise LedgerCorrupt(
                    f"the state of cursor {path} lay in ledger {cursor.ledger_id}, and it is gone"
                )
            if closed is None:
                tally.open += 1
                return tally
            tally.ledgers += 1
            if closed.last_entry >= 0:
                last = await asyncio.to_thread(self.connections.entry, closed, closed.last_entry)
                decode_state(bytes(last), cursor, name=path)
        except LedgerError as error:
            tally.findings.append(Finding(Gravity.damage, path, -1, str(error), do, log=path))
        return tally

    async def _look_at_tiers(self, paths: Sequence[str], tally: _Tally) -> None:
        """Check what lies in tiered storage."""
        logs: dict[str, ManagedLedgerInfo] = {}
        for path in paths:
            try:
                log = await self.log(path)
            except LedgerCorrupt:
                continue  # which has been told
            if log is not None and any(each.offload is not None for each in log.info.ledgers):
                logs[path] = log.info
        if not logs:
            return
        from magnetar.doctor.ledgers_tiers import Tiering

        notes = [each.value for each in (await self.store.get_tree(DELETIONS)).values()]
        cluster = await self.store.get(CLUSTER_ID)
        tiering = Tiering(logs, notes, "" if cluster is None else cluster.value.decode())
        for path, info in logs.items():
            for summary in info.ledgers:
                if summary.offload is not None and summary.offload.complete:
                    await self._look_at_tier(ClusterLog(path, -1, info), summary, tiering.check, tally)

    async def _look_at_tier(
        self,
        log: ClusterLog,
        summary: LedgerSummary,
        check: Callable[[LedgerSummary], tuple[int, int]],
        tally: _Tally,
    ) -> None:
        from magnetar.ledger.bookkeeper.closed import as_file

        try:
            entries, size = await asyncio.to_thread(check, as_file(summary))
        except LedgerCorrupt as error:
            do = "restore the object from a copy of the bucket"
            if not summary.offloaded:
                do = "offload it again: it is on bookies"
            self._say(tally, Gravity.damage, log, summary, f"tiered storage: {error}", do)
        except LedgerError as error:
            do = "make it reachable from here: keys for S3 are looked for in the environment"
            self._say(tally, Gravity.damage, log, summary, f"it cannot be checked: {error}", do)
        else:
            if summary.offloaded:
                tally.ledgers, tally.entries, tally.bytes = (
                    tally.ledgers + 1,
                    tally.entries + entries,
                    tally.bytes + size,
                )


def _entries(first: int, last: int) -> str:
    return f"entry {first}" if first == last else f"entries {first} to {last}"


def verify_cluster(place: ClusterPlace) -> Report:
    """Return what every copy of every closed ledger is found to be. Raises `AdminError`."""
    return connected(place, ClusterLedgers.verify)


def connected(place: ClusterPlace, what: Callable[[ClusterLedgers], Awaitable[Answer]]) -> Answer:
    """Do something with a cluster's ledgers; raise `AdminError` where it cannot be reached."""
    try:
        return asyncio.run(_connected(place, what))
    except (BrokerError, InvalidZooKeeperConfig) as error:
        raise Invalid(str(error), "As metadataStoreUrl has it: zk:HOST:PORT,HOST:PORT/PATH.") from error
    except MetadataError as error:
        raise Unreachable(
            f"the metadata at {place.metadata} cannot be used: {error}",
            "Is ZooKeeper running, does it have a majority, and is this what metadataStoreUrl says?",
        ) from error
    except LedgerError as error:
        raise AdminError(str(error)) from error


async def _connected(place: ClusterPlace, what: Callable[[ClusterLedgers], Awaitable[Answer]]) -> Answer:
    address = zookeeper_address(place.metadata)
    ledgers = bookies_address(place.bookkeeper) or address
    security = ZooKeeperSecurity.read(place.client_config)
    try:
        from magnetar.metadata.zookeeper import ZooKeeperStore
    except ImportError as error:
        raise AdminError("kazoo is not installed", "pip install 'magnetar[cluster]'") from error
    stores: list[ZooKeeperStore] = []

    async def opened(hosts: str, root: str) -> None:
        stores.append(await ZooKeeperStore.open(hosts, root, session_seconds=_SESSION_S, security=security))

    try:
        await opened(address.hosts, "")
        # To open a store makes the path that it lies below: not one that nobody meant.
        parent, _, name = address.root.rpartition("/")
        if name and name not in await stores[0].children(parent or "/"):
            raise NotThere(
                f"there is nothing at {place.metadata}",
                "Look at the path behind the hosts: it is what metadataStoreUrl has.",
            )
        await stores.pop().close()
        await opened(address.hosts, address.root)
        await opened(ledgers.hosts, ledgers.root)
        found = ClusterLedgers(stores[0], stores[1], _LEDGERS, place)
        with found.connections:
            return await what(found)
    finally:
        for each in stores:
            await each.close()
