"""Whose a key's hash is on a Key_Shared subscription: consumers stand on a ring, halve each other's hashes, or bring
ranges of their own."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from enum import Enum
from itertools import pairwise
from operator import itemgetter
from typing import Protocol

from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.errors import ConsumerAssignError
from magnetar.records.sticky_keys import HASH_RANGE, hash_of_key

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
        """Return who has a hash."""


def divided(division: Division) -> Keys:
    """Return hashes that nobody has yet."""
    kinds: dict[Division, type[Keys]] = {
        Division.RING: Ring,
        Division.HALVES: Halves,
        Division.RANGES: HashRanges,
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
        """Return who has a hash."""
        if not self._points:
            return None
        place = bisect_left(self._points, key_hash)
        return self._owners[self._points[place % len(self._points)]][0]


def _points(consumer: Consumer) -> list[int]:
    return [hash_of_key(f"{consumer.name}\0{number}".encode()) for number in range(_POINTS)]


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
        """Return who has a hash."""
        if not self._stretches:
            return None
        return self._stretches[bisect_left(self._stretches, key_hash, key=lambda stretch: stretch[0])][1]


class HashRanges:
    """Sticky: each consumer brings the ranges of hashes that it wants, and none may overlap.

    So there are never more of them than hashes; they are kept in order, and looked up by halving.
    """

    def __init__(self) -> None:
        self._rows: list[_Row] = []
        self._checked: tuple[Consumer, list[_Row], list[_Row]] | None = None
        """Who was let in last, the rows at that time, and with its own."""

    def check(self, consumer: Consumer) -> None:
        """Raise ``ConsumerAssignError`` for ranges that are missing, cannot be, or are taken."""
        self._with(consumer)

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in; raise what `check` raises."""
        self._rows = self._with(consumer)
        self._checked = None

    def _with(self, consumer: Consumer) -> list[_Row]:
        """Return all rows with those of a consumer, who is asked about, and then let in, in one go."""
        if self._checked is not None and self._checked[0] is consumer and self._checked[1] is self._rows:
            return self._checked[2]
        if not consumer.hash_ranges:
            raise ConsumerAssignError("The subscription is of mode STICKY, the consumer of AUTO_SPLIT.")
        check_count(len(consumer.hash_ranges))
        for start, end in consumer.hash_ranges:
            if not 0 <= start <= end < HASH_RANGE:
                raise ConsumerAssignError(f"Range [{start}, {end}] is not in [0, {HASH_RANGE - 1}].")
        mine = [(start, end, consumer) for start, end in consumer.hash_ranges]
        rows = sorted(self._rows + mine, key=_place)
        for before, after in pairwise(rows):
            if after[0] <= before[1]:
                raise ConsumerAssignError(
                    f"Range conflict: [{after[0]}, {after[1]}] overlaps [{before[0]}, {before[1]}]."
                )
        self._checked = consumer, self._rows, rows
        return rows

    def remove(self, consumer: Consumer) -> None:
        """Let a consumer go."""
        self._rows = [row for row in self._rows if row[2] is not consumer]
        self._checked = None

    def owner(self, key_hash: int) -> Consumer | None:
        """Return who has a hash; nobody may."""
        at = bisect_right(self._rows, key_hash, key=_place) - 1
        if at >= 0 and key_hash <= self._rows[at][1]:
            return self._rows[at][2]
        return None


_Row = tuple[int, int, Consumer]
_place = itemgetter(0)


def check_count(ranges: int) -> None:
    """Raise ``ConsumerAssignError`` for more ranges than there are hashes: they overlap, whatever they are."""
    if ranges > HASH_RANGE:
        raise ConsumerAssignError(f"{ranges} ranges of {HASH_RANGE} hashes overlap.")
