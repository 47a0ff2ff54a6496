"""The ledgers that hold a partition, as an operator sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.ledger.port import LedgerSummary


HERE = "here"


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One ledger. Times in ms; ``last_offset`` is -1 where nobody has looked into the open one yet."""

    ledger: int
    first_offset: int
    last_offset: int
    entries: int
    size: int
    max_timestamp: int
    created: int
    sealed: bool
    lies: str = HERE
    """Where it lies: here, in tiered storage, or both."""


@dataclass(frozen=True, slots=True)
class PartitionLedgers:
    """The ledgers of a partition, oldest first, and what may be read of them."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    flush: str
    ledgers: tuple[LedgerRow, ...]


def shown(summary: LedgerSummary) -> LedgerRow:
    """Return what an operator wants to know of a ledger."""
    return LedgerRow(
        ledger=summary.ledger_id,
        first_offset=summary.first_offset,
        last_offset=summary.last_offset,
        entries=summary.entries,
        size=summary.size,
        max_timestamp=summary.max_timestamp,
        created=summary.created_ms,
        sealed=summary.sealed,
        lies=_lies(summary),
    )


def _lies(summary: LedgerSummary) -> str:
    offload = summary.offload
    if offload is None or not offload.complete:
        return HERE
    place = offload.place.get("bucket") or offload.place.get("path") or ""
    there = f"{offload.driver} {place}".rstrip()
    return there if offload.deleted else f"{HERE}, {there}"
