"""Which part of a ledger is read, and what has to be known for that. Values, which go from the driver to executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from magnetar.pipeline.port import Slice

if TYPE_CHECKING:
    from magnetar.pipeline.offloaded import OffloadedAt


class ChunkedLog(NamedTuple):
    """What a slice has to know of its log to put large messages together (`magnetar.pipeline.chunked`).

    The bound of a message, the first offset that is there, and the ledgers before.
    """

    most_bytes: int
    log_start_offset: int
    earlier: tuple[int, ...] = ()


NEVER = ChunkedLog(0, 0)


@dataclass(frozen=True)
class LedgerPart(Slice):
    """The records of ``[low, high)`` in bytes ``[start, end)`` of one ledger, which begin with entry ``entry_id``."""

    root: str
    ledger_id: int
    start: int
    end: int
    entry_id: int
    later: tuple[int, ...] = ()
    """The ledgers behind this one, in which transactions of this slice may end; only for read_committed."""
    chunked: ChunkedLog = NEVER
    offloaded: tuple[OffloadedAt, ...] = ()
    """Where those of the ledgers that are named here lie that lie in tiered storage alone."""
