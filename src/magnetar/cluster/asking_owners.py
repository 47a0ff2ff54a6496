"""Requests about partitions of several brokers: each broker is asked once for all of its own, and again after moves."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from magnetar.base.slices import sliced
from magnetar.cluster.ownership import NotOwned, Owned, Ownership

T = TypeVar("T")
_TRIES, _PAUSE_S = 20, 0.25
"""How often to look for a partition that has moved, or that its broker does not know yet, and the pause between."""


async def ask_owners(
    ownership: Ownership,
    partitions: Iterable[T],
    owner: Callable[[T], Owned | None],
    ask: Callable[[int, Sequence[T]], Awaitable[Sequence[Any]]],
) -> dict[T, Any]:
    """Return the outcome for each partition: an answer, or the exception that it ended with.

    ``ask`` gets a broker's node id, and those of the partitions that ``owner`` finds there; partitions without an owner
    go to this broker. It returns one outcome each; after `NotOwned` the partition is looked for again, up to 20 times.
    """
    found: dict[T, Any] = dict.fromkeys(partitions)
    waiting = list(found)
    for tries in range(_TRIES):
        if tries:
            await asyncio.sleep(_PAUSE_S)
        by_owner: dict[int, list[T]] = defaultdict(list)
        async for each in sliced(waiting):
            owned = owner(each)
            by_owner[ownership.node_id if owned is None else owned.node_id].append(each)
        asking = [ask(node_id, some) for node_id, some in by_owner.items()]
        for some, outcomes in zip(by_owner.values(), await asyncio.gather(*asking), strict=True):
            found.update(zip(some, outcomes, strict=True))
        waiting = [each for each in waiting if isinstance(found[each], NotOwned)]
        if not waiting:
            break
    return found
