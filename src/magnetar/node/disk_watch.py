"""Looks after the room that is left for ledgers: stops producers before the last of it, and says what takes it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from magnetar.auth import Access
from magnetar.base.slices import sliced
from magnetar.figures.figures import Family, FigureTable
from magnetar.ledger.room import Reserve, Room, Space, space_of
from magnetar.node.broker import Broker
from magnetar.node.conditions import Condition

LOOK_S = 1.0
_PART = 20  # of the file system, where settings give no number
_MOST = 256 << 20
_INODES_PART, _MOST_INODES = 100, 1000
_LARGEST = 5
_NAMED = (
    ("total_bytes", "magnetar_disk_size_bytes", "Size of the data directory's file system."),
    ("free_bytes", "magnetar_disk_free_bytes", "What is left there for the broker."),
    ("total_inodes", "magnetar_disk_inodes", "Inodes of that file system; 0 where it has no number of them."),
    ("free_inodes", "magnetar_disk_free_inodes", "What is left of them."),
)
_REFUSED = Family(
    "magnetar_disk_refuses_producers", "gauge", "1 while producers are refused, for too little is left."
)
_RESERVE = Family("magnetar_disk_reserve_bytes", "gauge", "What producers may not take of it.")
_log = logging.getLogger("magnetar.broker")


def reserve_of(space: Space, least_free_bytes: int) -> Reserve:
    """Return what producers may not use: ``least_free_bytes``, or if that is negative a part of the file system."""
    if least_free_bytes == 0:
        return Reserve(0, 0)
    size = least_free_bytes if least_free_bytes > 0 else min(space.total_bytes // _PART, _MOST)
    return Reserve(size, min(space.total_inodes // _INODES_PART, _MOST_INODES))


class DiskWatch:
    """Looks once a second, and immediately when what was written between two looks has used the room up."""

    def __init__(
        self, broker: Broker, room: Room, root: Path, look: Callable[[Path], Space] = space_of
    ) -> None:
        self._broker = broker
        self._room = room
        self._root = root
        self._look = look
        self._reserve = Reserve(0, 0)
        self._soon = asyncio.Event()

    async def start(self) -> None:
        """Look once, then again and again."""
        self._room.on_refused.append(self._refused)
        try:
            await self.look()
        except OSError as error:  # a directory that has gone is found out by the next write
            _log.error("what is left in the file system of %s cannot be read: %s", self._root, error)
        self._broker.background.repeat("looking after the room on the disk", self._pause, self.look)
        self._broker.figures.sources.append(self.figures)

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._soon.wait(), LOOK_S)
        except TimeoutError:
            pass
        self._soon.clear()

    def _refused(self) -> None:
        # In a turn of its own: it is called during a write.
        asyncio.get_running_loop().call_soon(self._tell_refused)

    def _tell_refused(self) -> None:
        self._soon.set()
        for told in self._broker.events.room_used_up:
            told()

    async def look(self) -> None:
        """See what there is, and have producers refused or taken by that."""
        room, conditions = self._room, self._broker.health.conditions
        space = await asyncio.to_thread(self._look, self._root)
        self._reserve = reserve_of(space, self._broker.settings.node.disk_min_free_bytes)
        room.looked(space, self._reserve)
        more = await self._largest() if room.refusal and conditions.is_due(Condition.DISK) else ""
        conditions.note(Condition.DISK, room.refusal, more=more)

    async def _largest(self) -> str:
        """Return what takes the room, in words."""
        sizes: dict[str, int] = {}
        async for topic in sliced(self._broker.topics()):
            for index in range(topic.partitions):
                figures = self._broker.logs.open_logs.figures(topic, index)
                bounds = None if figures is None else figures.bounds
                if bounds is not None:
                    sizes[topic.kafka_name] = sizes.get(topic.kafka_name, 0) + bounds.size
        largest = sorted(sizes.items(), key=lambda each: -each[1])[:_LARGEST]
        parts = await asyncio.to_thread(_parts, self._root)
        space = self._room.space
        assert space is not None
        own = sum(parts.values())
        others = max(space.total_bytes - space.free_bytes - own, 0)
        named = [f"{name} {size:,}" for name, size in parts.items()]
        topics = [f"{name} {size:,}" for name, size in largest]
        return (
            f"of {space.total_bytes:,} bytes the data directory has {own:,} ({', '.join(named)}), all else {others:,}; "
            f"largest topics: {', '.join(topics) or 'none that is known'}. Delete topics, shorten retention.ms or "
            "retention.bytes, or give the file system more; producers are taken again by themselves"
        )

    def figures(self, access: Access | None) -> Iterator[FigureTable | None]:
        """Yield what is left; see `magnetar.figures.figures.Source`."""
        space = self._room.space
        if space is None:
            return
        for field, name, text in _NAMED:
            yield FigureTable((Family(name, "gauge", text),), [("", getattr(space, field))])
        yield FigureTable((_RESERVE,), [("", self._reserve.bytes)])
        yield FigureTable((_REFUSED,), [("", int(bool(self._room.refusal)))])


def _parts(root: Path) -> dict[str, int]:
    """Return how much each part of a data directory takes, the largest first; what goes meanwhile is left out."""
    sizes: dict[str, int] = {}
    for folder, _, names in os.walk(root):
        part = Path(folder).relative_to(root).parts
        for name in names:
            try:
                found = os.lstat(os.path.join(folder, name))
            except OSError:
                continue
            kind = part[0] if part else name.partition(".")[0]
            sizes[kind] = sizes.get(kind, 0) + found.st_blocks * 512
    return dict(sorted(sizes.items(), key=lambda each: -each[1]))
