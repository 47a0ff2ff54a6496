"""A slice of a ledger: what one Spark task reads. Cut on the driver, where only this is needed; read on the executors.

Planning needs no kernel, and loading one takes longer than most plans: `magnetar.pipeline.slice_reader` reads.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from magnetar.pipeline.compiler_pages import let_go_of_compiler
from magnetar.pipeline.port import Ask, Slice

if TYPE_CHECKING:
    import pyarrow as pa

EARLIER_LEDGERS = 64
"""So many ledgers before a slice are looked into for the first pieces of its large messages."""


class ChunkedLog(NamedTuple):
    """What a slice has to know of its log to put large messages together (`magnetar.pipeline.chunked`).

    The bound of a message, the first offset that is there, and the ledgers before.
    """

    most_bytes: int
    first_offset: int
    earlier: tuple[int, ...] = ()


NEVER = ChunkedLog(0, 0)


@dataclass(frozen=True)
class LedgerSlice(Slice):
    """The records of ``[low, high)`` in bytes ``[start, end)`` of one ledger, which begin with entry ``entry_id``."""

    root: str
    ledger_id: int
    start: int
    end: int
    entry_id: int
    later: tuple[int, ...] = ()
    """The ledgers behind this one, in which transactions of this slice may end; only for read_committed."""
    chunked: ChunkedLog = NEVER

    def read(self, ask: Ask) -> Iterator[pa.RecordBatch]:
        from magnetar.pipeline.slice_reader import SliceReader

        settle()
        return SliceReader(self, ask).batches()


def read_slice(piece: Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Give the slice's records; raise ``LedgerCorrupt`` naming ledger, entry and byte of what is damaged."""
    return piece.read(Ask(tuple(columns)))


@cache
def settle() -> None:
    """Take what was imported out of the garbage collector's sight, and the compiler out of memory.

    Spark's workers collect garbage after every task, and after every query that they planned. That takes 70 ms with
    all that numba brings along, which is longer than half a slice takes to decode.
    """
    gc.freeze()
    let_go_of_compiler()
