"""Whose a key's hash is on a Key_Shared subscription: consumers stand on a ring, or bring ranges of their own."""

from __future__ import annotations

from bisect import bisect_left, insort

from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import HASH_RANGE
from magnetar.pulsar.dispatch.murmur import murmur3_32
from magnetar.pulsar.errors import ConsumerAssignError

_POINTS = 100
"""How often a consumer stands on the ring, as in Pulsar."""


class Ring:
    """Auto-split: each consumer stands at many points, and has the hashes up to each of them."""

    def __init__(self) -> None:
        self._points: list[int] = []
        self._owners: dict[int, list[Consumer]] = {}

    def check(self, consumer: Consumer) -> None:
        """Raise ``ConsumerAssignError`` for a consumer that wants ranges."""
        if consumer.hash_ranges:
            raise ConsumerAssignError("The subscription is of mode AUTO_SPLIT, the consumer of STICKY.")

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
