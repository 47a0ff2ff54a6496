"""Notify listeners of committed offsets: in order, and if they are very many, some in each turn of the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from magnetar.base.background import Background
from magnetar.base.collector import uncollected
from magnetar.serving.pace import MANY_ROWS, paced

Row = tuple[str, int, int | None]
"""Topic, partition, and offset, or None if that was deleted."""


class Telling:
    """Each of ``on_committed`` is called with group, topic, partition and offset (None: deleted) of every row."""

    def __init__(self, background: Background) -> None:
        self.on_committed: list[Callable[[str, str, int, int | None], None]] = []
        self._background = background
        self._waiting: deque[tuple[str, Iterable[Row]]] = deque()
        self._is_under_way = False

    def tell(self, group_id: str, rows: Iterable[Row], count: int) -> None:
        """Notify of ``count`` rows at most, immediately if they are few and none wait."""
        if count <= MANY_ROWS and not self._is_under_way:
            for topic, partition, offset in rows:
                for told in self.on_committed:
                    told(group_id, topic, partition, offset)
        else:
            self._waiting.append((group_id, rows))
            if not self._is_under_way:
                self._is_under_way = True
                self._background.once("telling of what groups committed", self._tell())

    async def _tell(self) -> None:
        try:
            with uncollected():  # what listeners retain of so many rows is no garbage
                while self._waiting:
                    group_id, rows = self._waiting.popleft()
                    async for topic, partition, offset in paced(rows):
                        for told in self.on_committed:
                            told(group_id, topic, partition, offset)
        finally:
            self._is_under_way = False
