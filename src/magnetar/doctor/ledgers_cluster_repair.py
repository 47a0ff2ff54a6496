"""Mend what `magnetar.doctor.ledgers_cluster` finds in a cluster.

Without leave only what costs nothing is done, while brokers run: a copy that a bookie lacks, or has damaged, is written
again from another bookie's, byte for byte (BookKeeper's own re-replication sends the same, with the flag RECOVERY_ADD).

``drop_damaged`` gives up entries of which no copy is left. A ledger of bookies cannot be cut, so its list has fewer of
its entries then (property ``magnetar.cut``), and what is whole behind the damage moves to ledgers of its own. Offsets
stay as they are; those that are lost are reported, and noted in the list. No broker may run: it would have the list in
memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.admin.errors import AdminError, Declined
from magnetar.doctor.ledgers import Finding, Gravity
from magnetar.doctor.ledgers_cluster import (
    CUT,
    ClusterLedgers,
    ClusterLog,
    ClusterPlace,
    Hole,
    connected,
    look_at,
)
from magnetar.doctor.ledgers_repair import Repair, RepairAction
from magnetar.ledger.bookkeeper.closed import BookieConnections, BookieUnreachable, ClosedLedger, EntryCopy
from magnetar.ledger.bookkeeper.opening import INDEX
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.formats.info import encode_info
from magnetar.ledger.ledger_list import NEXT
from magnetar.ledger.port import LedgerSummary
from magnetar.logs.storage.cluster import bookies_address, zookeeper_address
from magnetar.metadata import Put
from magnetar.metadata.zookeeper_security import ZooKeeperSecurity
from magnetar.records.entry import decode_entry, latest_timestamp

if TYPE_CHECKING:
    from magnetar.ledger.bookkeeper.bookies import Bookies, Quorums

_JVM_BYTES = 256 << 20
_AT_ONCE = 64


def repair_cluster(place: ClusterPlace, *, drop_damaged: bool = False) -> Repair:
    """Mend what ``verify_cluster`` finds. Raises `AdminError`, `Declined` where a broker runs that may not."""
    try:
        return connected(place, lambda found: _Mender(found, drop_damaged=drop_damaged).run())
    finally:
        if drop_damaged:
            from magnetar.ledger.bookkeeper.jvm import end_jvm_in_order

            end_jvm_in_order()


class _Mender:
    def __init__(self, cluster: ClusterLedgers, *, drop_damaged: bool) -> None:
        self._cluster = cluster
        self._drop = drop_damaged
        self._actions: list[RepairAction] = []
        self._bookies: dict[Quorums, Bookies] = {}

    async def run(self) -> Repair:
        cluster = self._cluster
        before = await cluster.verify()
        if self._drop and any(
            each.gravity is Gravity.damage and each.ledger >= 0 for each in before.findings
        ):
            living = await cluster.brokers()
            if living:
                raise Declined(
                    f"brokers live: {', '.join(living)}",
                    "End them first: they have the lists of ledgers in memory.",
                )
        try:
            for path in dict.fromkeys(each.log for each in before.findings if each.ledger >= 0):
                log = await cluster.log(path)
                if log is not None:
                    await self._log(log, [each for each in before.findings if each.log == path])
        finally:
            for each in self._bookies.values():
                await each.close()
        if not self._actions:
            return Repair(cluster.place.metadata, (), before.findings)
        return Repair(cluster.place.metadata, tuple(self._actions), (await cluster.verify()).findings)

    async def _log(self, log: ClusterLog, findings: Sequence[Finding]) -> None:
        damaged = {each.ledger for each in findings if each.gravity is Gravity.damage}
        worn = {each.ledger for each in findings if each.gravity is Gravity.wear}
        kept: list[LedgerSummary] = []
        for summary in log.info.ledgers:
            if summary.ledger_id in worn | damaged and not summary.offloaded and not summary.compacted:
                kept += await self._ledger(log, summary, is_damaged=summary.ledger_id in damaged)
            else:
                kept.append(summary)
        compacted = log.info.compacted
        if compacted is not None and compacted.ledger.ledger_id in worn:
            await self._write_again(log, replace(compacted.ledger, first_offset=-1))
        if compacted is not None and compacted.ledger.ledger_id in damaged and self._drop:
            if any(each.compacted for each in log.info.ledgers):
                return  # it is all that there is of them
            log.info.compacted = None
            self._did(log, compacted.ledger, "let go: the history that it was made of is all there")
        elif kept == log.info.ledgers:
            return
        end = max((each.last_offset + 1 for each in log.info.ledgers), default=0)
        end = max(end, int(log.info.properties.get(NEXT, 0)))
        log.info.ledgers = kept
        log.info.properties |= {NEXT: str(end), INDEX: str(end - 1)}
        await self._cluster.store.commit([Put(log.path, encode_info(log.info), log.version)])

    async def _ledger(
        self, log: ClusterLog, summary: LedgerSummary, *, is_damaged: bool
    ) -> list[LedgerSummary]:
        """Mend one ledger; give what stands in its place."""
        is_known, closed = await self._cluster.closed(summary.ledger_id)
        if not is_known:
            if not is_damaged or not self._drop or not summary.sealed:
                return [summary]
            self._lose(log, summary, summary.first_offset, summary.last_offset + 1)
            return []
        if closed is None:
            return [summary]
        holes = await self._write_again(log, summary)
        if not summary.sealed:
            return [summary]
        count = min(summary.entries, closed.last_entry + 1)
        if count < summary.entries and CUT not in summary.properties:
            holes.append(Hole(count, summary.entries, -1, summary.last_offset + 1, "it is gone"))
        if not holes or not self._drop:
            return [summary]
        return await self._without(log, summary, closed, holes)

    async def _write_again(self, log: ClusterLog, summary: LedgerSummary) -> list[Hole]:
        """Write copies that are not whole from one that is; return of what there is none."""
        _, closed = await self._cluster.closed(summary.ledger_id)
        if closed is None:
            return []
        there = closed
        written: dict[str, int] = {}
        failed: dict[str, LedgerError] = {}
        place = self._cluster.place

        def work() -> tuple[list[Hole], bool]:
            # Connections of its own: on those that read, answers are on their way.
            with BookieConnections(place.tls) as writes:

                def mend(entry_id: int, copies: Sequence[EntryCopy]) -> None:
                    whole = next((each.stored for each in copies if each.error is None), None)
                    for each in copies:
                        away = isinstance(each.error, BookieUnreachable) or each.bookie in failed
                        if whole is None or each.error is None or away:
                            continue
                        try:
                            writes.put_copy(each.bookie, whole, place.password)
                        except LedgerError as error:
                            failed[each.bookie] = error
                        else:
                            written[each.bookie] = written.get(each.bookie, 0) + 1

                known = summary.entries if summary.sealed else there.last_entry + 1
                count = min(known, there.last_entry + 1)
                found = look_at(
                    self._cluster.connections, there, count, summary.first_offset, summary.last_offset, mend
                )
            return found.holes, found.unreached

        holes, unreached = await asyncio.to_thread(work)
        for bookie, count in written.items():
            self._did(
                log,
                summary,
                f"{count} copies written again on {bookie}, which reads them once it flushed them",
            )
        for bookie, error in failed.items():
            self._did(log, summary, f"copies on {bookie} could not be written: {error}")
        if holes and unreached and self._drop:
            raise AdminError(
                f"ledger {summary.ledger_id} of {log.name}: bookies that are to have copies do not answer",
                "Start them: what seems to be lost may be there.",
            )
        return holes

    async def _without(
        self, log: ClusterLog, summary: LedgerSummary, closed: ClosedLedger, holes: Sequence[Hole]
    ) -> list[LedgerSummary]:
        """Keep what is whole before the first hole, and copy what is behind holes into ledgers of their own."""
        kept: list[LedgerSummary] = []
        ends = [*(hole.first for hole in holes[1:]), summary.entries]
        head = holes[0].first
        due = summary.first_offset
        if head:
            cut, due = await self._described(summary, closed, 0, head)
            kept.append(
                replace(
                    cut,
                    ledger_id=summary.ledger_id,
                    properties={**summary.properties, CUT: str(summary.entries)},
                )
            )
        for hole, end in zip(holes, ends, strict=True):
            behind = hole.next_offset
            if hole.end < end:
                moved, after = await self._described(summary, closed, hole.end, end)
                moved.ledger_id = await self._moved(log, closed, hole.end, end)
                behind = moved.first_offset
                kept.append(moved)
                self._did(
                    log, moved, f"made of what is whole behind the damage in ledger {summary.ledger_id}"
                )
            else:
                after = behind
            self._lose(log, summary, due, behind)
            due = after
        return kept

    async def _described(
        self, summary: LedgerSummary, closed: ClosedLedger, first: int, end: int
    ) -> tuple[LedgerSummary, int]:
        """Return what a ledger of these entries is, and the offset behind it."""

        def read() -> LedgerSummary:
            entries = self._cluster.connections.entries(closed, first, end)
            size, latest, begin, last = 0, -1, -1, -1
            for each in entries:
                entry = decode_entry(each)
                begin = entry.base_offset if begin < 0 else begin
                last = entry.broker.index
                size, latest = size + len(each), max(latest, latest_timestamp(each))
            return replace(
                summary,
                first_offset=begin,
                last_offset=last,
                entries=end - first,
                size=size,
                max_timestamp=latest,
                offload=None,
                properties={},
            )

        found = await asyncio.to_thread(read)
        return found, found.last_offset + 1

    async def _moved(self, log: ClusterLog, closed: ClosedLedger, first: int, end: int) -> int:
        """Copy entries into a ledger of their own; return its id."""
        from magnetar.ledger.bookkeeper.streams import sent

        copies = closed.write_quorum
        bookies = await self._connected_bookies(len(closed.segments[0].bookies), copies)
        custom = {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/managed-ledger": log.name.encode(),
        }
        writer = await bookies.create(custom)
        for begin in range(first, end, _AT_ONCE):
            rows = await asyncio.to_thread(self._some, closed, begin, min(begin + _AT_ONCE, end))
            await sent(writer, [[each] for each in rows])
        await writer.close()
        return writer.ledger_id

    def _some(self, closed: ClosedLedger, first: int, end: int) -> list[bytes]:
        return [bytes(each) for each in self._cluster.connections.entries(closed, first, end)]

    async def _connected_bookies(self, ensemble: int, copies: int) -> Bookies:
        """Start BookKeeper's own client: only that makes ledgers."""
        try:
            from magnetar.ledger.bookkeeper.bookies import Bookies, Quorums
            from magnetar.ledger.bookkeeper.jars import JarsError, installed
            from magnetar.ledger.bookkeeper.jvm import quiet_jvm
        except ImportError as error:
            raise AdminError(f"{error.name} is not installed", "pip install 'magnetar[cluster]'") from error
        place = self._cluster.place
        try:
            jars = installed()
        except JarsError as error:
            raise AdminError(str(error), "Run `magnetar bookkeeper install`.") from error
        quorums = Quorums(ensemble, copies, copies)
        if quorums in self._bookies:
            return self._bookies[quorums]
        await asyncio.to_thread(quiet_jvm, jars)
        where = bookies_address(place.bookkeeper) or zookeeper_address(place.metadata)
        found = Bookies(
            where.hosts,
            where.root,
            jars,
            quorums=quorums,
            password=place.password,
            heap_bytes=_JVM_BYTES,
            direct_bytes=_JVM_BYTES,
            tls=place.tls,
            properties=ZooKeeperSecurity.read(place.client_config).for_java,
        )
        await found.connect()
        self._bookies[quorums] = found
        return found

    def _lose(self, log: ClusterLog, summary: LedgerSummary, first: int, after: int) -> None:
        if after <= first:
            return
        self._did(log, summary, f"offsets {first} to {after - 1} given up", first, after - 1)
        lost = log.info.properties.get("lost", "")
        log.info.properties["lost"] = f"{lost},{first}-{after}".lstrip(",")

    def _did(
        self, log: ClusterLog, summary: LedgerSummary, what: str, first: int = -1, last: int = -1
    ) -> None:
        file = f"ledger {summary.ledger_id} of {log.name}"
        self._actions.append(RepairAction(file, -1, what, log.path, summary.ledger_id, first, last))
