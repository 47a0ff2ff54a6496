"""What is being made under an id, of a producer or a consumer: one thing at a time.

A client gives its producers and consumers ids, and sends what concerns them without waiting: it closes what takes too
long to come, and tries again under the same id. So for each id that something is made for:

    nothing  --begin-->  under way  --done, failed-->  nothing (what was made stands in the connection's table)
    under way  --begin-->  refused, as by Pulsar: who asks tries again
    under way  --close-->  closed: it is cancelled, and says nothing more
    closed  --begin-->  under way, from when what was closed has ended
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from magnetar.pulsar.errors import PulsarError
from magnetar.wire.pulsar.pulsar_pb2 import ServerError


class _Making:
    __slots__ = ("ended", "is_closed", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        """None until its first turn."""
        self.is_closed = False
        self.ended = asyncio.get_running_loop().create_future()


class Ids:
    """The ids of one kind on one connection; ``kind`` is for people."""

    __slots__ = ("_kind", "_last")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._last: dict[int, _Making] = {}

    def __len__(self) -> int:
        return len(self._last)

    def begin(self, number: int, work: Callable[[], Coroutine[Any, Any, None]]) -> Coroutine[Any, Any, None]:
        """Return what makes something under an id, to be run in a task of its own; raise ``PulsarError``."""
        before = self._last.get(number)
        if before is not None and not before.is_closed:
            raise PulsarError(
                f"{self._kind} is already present on the connection", ServerError.ServiceNotReady
            )
        made = self._last[number] = _Making()
        return self._run(number, made, before, work)

    async def _run(
        self,
        number: int,
        made: _Making,
        before: _Making | None,
        work: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        made.task = asyncio.current_task()
        try:
            if before is not None and not before.ended.done():
                await asyncio.wait([before.ended])
            if not made.is_closed:
                await work()
        finally:
            made.ended.set_result(None)
            if self._last.get(number) is made:
                del self._last[number]

    def close(self, number: int) -> bool:
        """Cancel what is under way; tell whether there was something."""
        made = self._last.get(number)
        if made is None or made.is_closed:
            return False
        made.is_closed = True
        if made.task is not None:
            made.task.cancel()
        return True
