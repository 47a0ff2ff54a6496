"""What is done now and then for very many things is done in slices: nobody waits for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from time import perf_counter
from typing import TypeVar

SLICE_S = 0.002
"""That such work holds the event loop at a stretch, about, in seconds."""
T = TypeVar("T")


async def sliced(things: Iterable[T]) -> AsyncIterator[T]:
    """Yield a copy of ``things`` one by one, and between two of them, now and then, the event loop a turn.

    So a thing may be gone when it comes.
    """
    began = perf_counter()
    for thing in list(things):
        yield thing
        if perf_counter() - began > SLICE_S:
            await asyncio.sleep(0)
            began = perf_counter()


def batched(things: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Return ``things`` in parts of ``most`` at most."""
    return (things[at : at + most] for at in range(0, len(things), most))
