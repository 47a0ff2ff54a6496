"""How long the event loop of a broker or a proxy is busy at a stretch, by the processor's time.

``python -m tests.hostile.turns FILE standalone ...`` is ``magnetar standalone ...`` whose loop is looked at each
millisecond: it writes to FILE how much of the processor's time its thread has had between two looks, at most. That is
no more than two turns of the loop. A client outside cannot tell: it has to be given the processor before it notices
that it was answered, and all that while the loop goes on with something else.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
from collections.abc import Coroutine
from pathlib import Path
from time import thread_time
from typing import Any

LOOK_S = 0.001
_SECONDS = struct.Struct("<d")


class LongestTurn:
    """One number in a file that the process and a test share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    @property
    def seconds(self) -> float:
        """The longest so far."""
        return float(_SECONDS.unpack_from(self._shared)[0])

    def note(self, seconds: float) -> None:
        """It was busy for so long."""
        if seconds > self.seconds:
            _SECONDS.pack_into(self._shared, 0, seconds)

    def forget(self) -> None:
        """Forget it, for the next measurement."""
        _SECONDS.pack_into(self._shared, 0, 0.0)


async def _looked_at(main: Coroutine[Any, Any, Any], longest: LongestTurn) -> Any:
    loop = asyncio.get_running_loop()
    last = thread_time()

    def look() -> None:
        nonlocal last
        longest.note(thread_time() - last)
        loop.call_later(LOOK_S, look)
        last = thread_time()

    look()
    return await main


def main(path: str, *arguments: str) -> None:
    import uvloop

    run, longest = uvloop.run, LongestTurn(Path(path))
    uvloop.run = lambda main, **more: run(_looked_at(main, longest), **more)  # type: ignore[assignment]
    from magnetar.cli.main import main as magnetar

    sys.argv = ["magnetar", *arguments]
    magnetar()


if __name__ == "__main__":
    main(*sys.argv[1:])
