"""What applications work on comes little by little: they are killed in the middle of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

_AT_ONCE, _PAUSE_S = 50, 0.05


class Flow(threading.Thread):
    """Has ``write`` write numbers from the first to the last, some at a time, 1,000 a second at most."""

    def __init__(self, write: Callable[[int, int], None], numbers: int) -> None:
        super().__init__(daemon=True)
        self._write = write
        self._numbers = numbers
        self.written = 0
        self._ends = False

    def run(self) -> None:
        while self.written < self._numbers and not self._ends:
            end = min(self.written + _AT_ONCE, self._numbers)
            self._write(self.written, end)
            self.written = end
            time.sleep(_PAUSE_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True
        self.join()
