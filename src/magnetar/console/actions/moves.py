"""What a group or a subscription would read again, or pass over, where it is moved: records, and of how long."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from magnetar.base.errors import BrokerError
from magnetar.console.actions.action import ActionOutcome, Doing, ShownTable
from magnetar.console.rendering import as_duration
from magnetar.ledger.errors import LedgerError
from magnetar.records.entry import index_of
from magnetar.records.errors import RecordsError

_MOST_ROWS = 200
_MOST_READ = 32
"""Partitions whose records are looked at for their times."""
_COLUMNS = ("Partition", "#From offset", "#To offset", "", "#Records", "#Of a time of")


class ReaderMove(NamedTuple):
    """The way of a reader in one partition; ``before`` None is nowhere yet, or not known."""

    topic: str
    partition: int
    before: int | None
    after: int | None

    @property
    def records(self) -> int:
        """Return how many are passed over, or, if negative, read again."""
        return 0 if self.before is None or self.after is None else self.after - self.before


async def moves_table(doing: Doing, moves: Sequence[ReaderMove]) -> ActionOutcome:
    """Return what moving would do, partition by partition."""
    again = sum(-each.records for each in moves if each.records < 0)
    skipped = sum(each.records for each in moves if each.records > 0)
    rows = []
    for number, each in enumerate(moves[:_MOST_ROWS]):
        seconds = await _seconds(doing, each) if number < _MOST_READ and each.records else None
        kind = "read again" if each.records < 0 else "skipped" if each.records > 0 else "stays"
        if each.before is None:
            kind = "begins"
        rows.append(
            (
                f"{each.topic}-{each.partition}",
                each.before,
                each.after,
                kind,
                f"{abs(each.records):,}",
                None if seconds is None else as_duration(seconds),
            )
        )
    says = f"{again:,} records would be read again, {skipped:,} skipped, in {len(moves):,} partitions."
    if len(moves) > _MOST_ROWS:
        says += f" The first {_MOST_ROWS}:"
    return ActionOutcome(says, ShownTable(_COLUMNS, rows))


def moved(moves: Sequence[ReaderMove], links: Sequence[tuple[str, str]]) -> ActionOutcome:
    """Return what moving has done."""
    again = sum(-each.records for each in moves if each.records < 0)
    skipped = sum(each.records for each in moves if each.records > 0)
    rows = [(f"{each.topic}-{each.partition}", each.before, each.after) for each in moves[:_MOST_ROWS]]
    says = f"{again:,} records will be read again, {skipped:,} are skipped, in {len(moves):,} partitions."
    return ActionOutcome(says, ShownTable(("Partition", "#From offset", "#To offset"), rows), links)


async def _seconds(doing: Doing, move: ReaderMove) -> float | None:
    """Return how much time passed from the first of the records to the last; None if that cannot be read here."""
    assert move.before is not None
    assert move.after is not None
    first, last = sorted((move.before, move.after))
    broker = doing.ask.services.broker
    topic = broker.get(move.topic)
    if topic is None:
        return None
    with suppress(BrokerError, LedgerError, RecordsError):
        opened = await broker.logs.open_logs.open(topic, move.partition)
        times = []
        for offset in (first, last - 1):
            at = max(offset, opened.log.log_start_offset)
            entries = await opened.log.read(at, max_bytes=1) if at < opened.log.high_watermark else []
            if not entries:
                return None
            times.append(index_of(entries[0].data).broker_timestamp)
        return max(times[1] - times[0], 0) / 1000
    return None
