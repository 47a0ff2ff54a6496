"""Reads that storage failed: counted, logged, and remembered for `why`. Clients are answered, and try again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from magnetar.base.some_lines import OneLineEach
from magnetar.figures.figures import LogFigures
from magnetar.kafka.partitions.formats import Batch
from magnetar.ledger.errors import (
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    OffsetOutOfRange,
    TierFailed,
    TierObjectMissing,
)
from magnetar.records.batch import read_header
from magnetar.records.errors import RecordsError

_lines = OneLineEach(logging.getLogger("magnetar.kafka"))
EXPECTED = LedgerClosed, LedgerFenced, OffsetOutOfRange
"""What clients learn from: the partition moved, or what they ask for is not kept."""
_OF_TIERS = TierFailed, TierObjectMissing


class ReadFailure(NamedTuple):
    """The last read that failed. The error itself would keep all that it went through."""

    at_ms: int
    offset: int
    """What was asked for."""
    kind: str
    message: str
    in_tier: bool
    """Whether it was tiered storage that failed."""

    def is_over(self, batches: Sequence[Batch]) -> bool:
        """Whether these batches hold what could not be read."""
        if not batches:
            return False
        return read_header(batches[0]).base_offset <= self.offset <= read_header(batches[-1]).last_offset


def read_failed(
    topic: str, index: int, figures: LogFigures, now_ms: int, offset: int, error: Exception
) -> ReadFailure:
    """Count and log that ``offset`` of a partition cannot be read: a line a minute for each topic."""
    in_tier = isinstance(error, _OF_TIERS)
    figures.failed_tier_reads += in_tier
    known = isinstance(error, LedgerError | RecordsError)
    _lines.error(
        topic, "%s-%d: offset %d cannot be read, and clients that ask for it are told so: %s%s", topic, index, offset,
        "" if known else f"{type(error).__name__}: ", error, exc_info=None if known else error,
    )  # fmt: skip
    return ReadFailure(now_ms, offset, type(error).__name__, str(error), in_tier)
