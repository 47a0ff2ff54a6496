"""What became of the transactions in a log, as whoever goes through its entries is told."""

from __future__ import annotations

from array import array
from bisect import bisect_right


class Decided:
    """What became of the transactions below a last stable offset: which of them were aborted, if anybody knows."""

    def __init__(
        self, aborted: tuple[array[int], array[int], array[int]] | None = None, stable: int = 0
    ) -> None:
        """``aborted`` are producer ids, first offsets and markers' offsets, by the latter; None: nobody knows.

        From offset ``stable`` on nobody knows, either.
        """
        self._stable = stable
        self._aborted = aborted
        self._by_producer: dict[int, tuple[list[int], list[int]]] | None = None

    @property
    def is_known(self) -> bool:
        """Whether it is known what was aborted: all else is committed then."""
        return self._aborted is not None

    def is_aborted(self, producer_id: int, offset: int) -> bool | None:
        """Tell whether what a producer's transaction wrote at an offset was aborted; None if nobody knows."""
        if self._aborted is None or offset >= self._stable:
            return None
        if self._by_producer is None:
            self._by_producer = {}
            for each, first, last in zip(*self._aborted, strict=True):
                firsts, lasts = self._by_producer.setdefault(each, ([], []))
                firsts.append(first)
                lasts.append(last)
        found = self._by_producer.get(producer_id)
        if found is None:
            return False
        at = bisect_right(found[0], offset) - 1
        return at >= 0 and offset <= found[1][at]


UNKNOWN = Decided()
