"""A slice of a ledger: what one Spark task reads. Cut on the driver, where only this is needed; read on the executors.

Planning needs no kernel, and loading one takes longer than most plans: `magnetar.pipeline.slice_reader` reads.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from magnetar.pipeline.compiler_pages import let_go_of_compiler
from magnetar.pipeline.ledger_part import LedgerPart
from magnetar.pipeline.port import RecordQuery, Slice

if TYPE_CHECKING:
    import pyarrow as pa

EARLIER_LEDGERS = 64
"""So many ledgers before a slice are looked into for the first pieces of its large messages."""


@dataclass(frozen=True)
class LedgerSlice(LedgerPart):
    """A part of a ledger that Spark hands to a task."""

    def read(self, ask: RecordQuery) -> Iterator[pa.RecordBatch]:
        from magnetar.pipeline.slice_reader import SliceReader

        settle()
        return SliceReader(self, ask).batches()


def read_slice(piece: Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Return the slice's records; raise ``LedgerCorrupt`` naming ledger, entry and byte of what is damaged."""
    return piece.read(RecordQuery(tuple(columns)))


def settle() -> None:
    """Take what was imported out of the garbage collector's sight, and the compiler out of memory.

    Spark's workers collect garbage after every task, and after every query that they planned. That takes 70 ms with
    all that numba brings along, which is longer than half a slice takes to decode. Machine code may be loaded
    later than the rest, so that it is done once more then.
    """
    _settle("magnetar.records.kernels.arrow" in sys.modules)


@cache
def _settle(compiled: bool) -> None:
    gc.freeze()
    if compiled:
        let_go_of_compiler()
