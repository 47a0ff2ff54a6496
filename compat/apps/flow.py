"""What applications work on comes little by little: they are killed in the middle of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

from confluent_kafka import Producer
from waiting import same

from apps.topics import until

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


class Records(Flow):
    """Numbers that become records of a topic."""

    def __init__(self, address: str, topic: str, numbers: int) -> None:
        super().__init__(self._say, numbers)
        self._topic = topic
        self._refused: list[object] = []
        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})

    def _say(self, begin: int, end: int) -> None:
        for number in range(begin, end):
            self._producer.produce(self._topic, b"%d" % number, on_delivery=self._told)
        self._producer.poll(0)

    def _told(self, error: object, _: object) -> None:
        if error:
            self._refused.append(error)

    def end(self) -> None:
        """Wait until all are written and acknowledged."""
        until(
            "all records to be said", lambda: self.written == self._numbers and self._producer.flush(10) == 0
        )
        same(self._refused, [], "records that were not acknowledged")
