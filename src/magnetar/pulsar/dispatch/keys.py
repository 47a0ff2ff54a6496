"""Whose a key's hash is on a Key_Shared subscription: consumers stand on a ring, halve each other's hashes, or bring
ranges of their own."""

from __future__ import annotations

from bisect import bisect_left, insort
from enum import Enum
from typing import Protocol

from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import HASH_RANGE
from magnetar.pulsar.dispatch.murmur import murmur3_32
from magnetar.pulsar.errors import ConsumerAssignError

_POINTS = 100
"""How often a consumer stands on the ring, as in Pulsar."""


class Division(Enum):
    """How the consumers of a Key_Shared subscription divide the hashes of keys among them."""

    RING = "ring"
    HALVES = "halves"
    RANGES = "ranges"


class Keys(Protocol):
    """Who has which hashes."""

    def check(self, consumer: Consumer) -> None:
        """Raise ``ConsumerAssignError`` for a consumer that may not come in."""

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in."""

    def remove(self, consumer: Consumer) -> None:
        """Let a consumer go."""

    def owner(self, key_hash: int) -> Consumer | None:
        """Give who has a hash."""


def divided(division: Division) -> Keys:
    """Give hashes that nobody has yet."""
    kinds: dict[Division, type[Keys]] = {
        Division.RING: Ring,
        Division.HALVES: Halves,
        Division.RANGES: Ranges,
    }
    return kinds[division]()


def _check_auto_split(consumer: Consumer) -> None:
    if consumer.hash_ranges:
        raise ConsumerAssignError("The subscription is of mode AUTO_SPLIT, the consumer of STICKY.")


class Ring:
    """Auto-split: each consumer stands at many points, and has the hashes up to each of them."""

    def __init__(self) -> None:
        self._points: list[int] = []
        self._owners: dict[int, list[Consumer]] = {}

    def check(self, consumer: Consumer) -> None:
        """Raise ``ConsumerAssignError`` for a consumer that wants ranges."""
        _check_auto_split(consumer)

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in."""
        for point in _points(consumer):
            owners = self._owners.setdefault(point, [])
            if not owners:
                insort(self._points, point)
            owners.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Let a consumer go."""
        for point in _points(consumer):
            owners = self._owners.get(point, [])
            if consumer in owners:
                owners.remove(consumer)
                if not owners:
                    del self._owners[point]
                    self._points.remove(point)

    def owner(self, key_hash: int) -> Consumer | None:
        """Give who has a hash."""
        if not self._points:
            return None
        place = bisect_left(self._points, key_hash)
        return self._owners[self._points[place % len(self._points)]][0]


def _points(consumer: Consumer) -> list[int]:
    return [
        (murmur3_32(f"{consumer.name}\0{number}".encode()) & 0x7FFFFFFF) % HASH_RANGE
        for number in range(_POINTS)
    ]


class Halves:
    """Auto-split without a ring, as Pulsar did it before: who comes takes half of the longest stretch of hashes.

    Few keys are spread more evenly than by a ring, and consumers less: three have a half and two quarters.
    """

    def __init__(self) -> None:
        self._stretches: list[tuple[int, Consumer]] = []
        """The last hash of each stretch, in order, and who has it."""

    def check(self, consumer: Consumer) -> None:
        """Raise ``ConsumerAssignError`` for a consumer that wants ranges."""
        _check_auto_split(consumer)

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in: it has the first half of what was the longest stretch."""
        if not self._stretches:
            self._stretches.append((HASH_RANGE, consumer))
            return
        ends = [end for end, _ in self._stretches]
        sizes = [end - before for before, end in zip([0, *ends], ends, strict=False)]
        longest = sizes.index(max(sizes))
        self._stretches.insert(longest, (ends[longest] - sizes[longest] // 2, consumer))

    def remove(self, consumer: Consumer) -> None:
        """Let a consumer go: its neighbour has its stretch."""
        kept = [stretch for stretch in self._stretches if stretch[1] is not consumer]
        if kept and kept[-1][0] < HASH_RANGE:
            kept[-1] = HASH_RANGE, kept[-1][1]
        self._stretches = kept

    def owner(self, key_hash: int) -> Consumer | None:
        """Give who has a hash."""
        if not self._stretches:
            return None
        return self._stretches[bisect_left(self._stretches, key_hash, key=lambda stretch: stretch[0])][1]


class Ranges:
    """Sticky: each consumer brings the ranges of hashes that it wants, and none may overlap."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, Consumer]] = []

    def check(self, consumer: Consumer) -> None:
        """Raise ``ConsumerAssignError`` for ranges that are missing, cannot be, or are taken."""
        if not consumer.hash_ranges:
            raise ConsumerAssignError("The subscription is of mode STICKY, the consumer of AUTO_SPLIT.")
        taken = [(start, end) for start, end, _ in self._ranges]
        for start, end in consumer.hash_ranges:
            if not 0 <= start <= end < HASH_RANGE:
                raise ConsumerAssignError(f"Range [{start}, {end}] is not in [0, {HASH_RANGE - 1}].")
            for other_start, other_end in taken:
                if start <= other_end and other_start <= end:
                    raise ConsumerAssignError(
                        f"Range conflict: [{start}, {end}] overlaps [{other_start}, {other_end}]."
                    )
            taken.append((start, end))

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in."""
        for start, end in consumer.hash_ranges:
            insort(self._ranges, (start, end, consumer), key=lambda row: row[0])

    def remove(self, consumer: Consumer) -> None:
        """Let a consumer go."""
        self._ranges = [row for row in self._ranges if row[2] is not consumer]

    def owner(self, key_hash: int) -> Consumer | None:
        """Give who has a hash; nobody may."""
        for start, end, consumer in self._ranges:
            if start <= key_hash <= end:
                return consumer
        return None
