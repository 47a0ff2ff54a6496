"""Key_Shared subscriptions: all messages of a key go to one consumer at a time, in order.

A key's hash chooses the consumer: consumers have points on a ring (auto-split), or ranges of their own (sticky). When
that changes because somebody came or went, a hash *drains* first: as long as its old consumer has entries of it, new
ones wait (PIP-379). An entry that must wait, for that or because its consumer has no room, makes all later ones of its
hash wait behind it; when too many wait, reading stops.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from magnetar.ledger.cursor import Cursor
from magnetar.pulsar.dispatch.consumer import Consumer, Pending
from magnetar.pulsar.dispatch.deliveries import HASH_RANGE, Delivery, Place, sticky_hash
from magnetar.pulsar.dispatch.murmur import murmur3_32
from magnetar.pulsar.dispatch.shared import Replay, Shared
from magnetar.pulsar.dispatch.subscription import Outbox, Readings, SubType
from magnetar.pulsar.errors import ConsumerAssignError

_POINTS = 100
"""How often a consumer stands on the ring, as in Pulsar."""
_MOST_WAITING = 2000


class Ring:
    """Auto-split: each consumer stands at many points, and has the hashes up to each of them."""

    def __init__(self) -> None:
        self._points: list[int] = []
        self._owners: dict[int, list[Consumer]] = {}

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
        """Raise ``ConsumerAssignError`` for ranges that cannot be, or are taken."""
        if not consumer.hash_ranges:
            raise ConsumerAssignError("Ranges for KeyShared policy must not be empty.")
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


class KeyShared(Shared):
    """See the module."""

    sub_type: SubType = SubType.Key_Shared

    def __init__(
        self, name: str, cursor: Cursor, readings: Readings, *, sticky: bool, any_order: bool
    ) -> None:
        super().__init__(name, cursor, readings)
        self.sticky = sticky
        self._any_order = any_order
        self._keys: Ring | Ranges = Ranges() if sticky else Ring()
        self._held: dict[int, tuple[Consumer, int]] = {}
        """By hash: who has entries of it, and how many."""
        self._waiting: dict[int, dict[Place, Replay]] = {}
        """By hash: the entries that may not go yet."""
        self._waiting_entries = 0
        self._late: dict[Place, int] = {}
        """The hashes of delayed entries."""

    # -- consumers

    def check(self, consumer: Consumer) -> None:
        if bool(consumer.hash_ranges) != self.sticky:
            mine, its = ("STICKY", "AUTO_SPLIT") if self.sticky else ("AUTO_SPLIT", "STICKY")
            raise ConsumerAssignError(f"The subscription is of mode {mine}, the consumer of {its}.")
        if isinstance(self._keys, Ranges):
            self._keys.check(consumer)

    def _added(self, consumer: Consumer) -> None:
        self._keys.add(consumer)
        super()._added(consumer)

    def _removed(self, consumer: Consumer) -> None:
        self._keys.remove(consumer)
        super()._removed(consumer)

    def rewind(self) -> None:
        super().rewind()
        self._held.clear()
        self._waiting.clear()
        self._waiting_entries = 0
        self._late.clear()

    # -- sending

    def _may_send(self) -> bool:
        if not super()._may_send():
            return False
        self._release()
        return True

    def _release(self) -> None:
        """Have entries sent again that need not wait any more."""
        for key_hash in [each for each in self._waiting if self._owner(each) is not None]:
            freed = self._waiting.pop(key_hash)
            self._waiting_entries -= len(freed)
            for place, replay in freed.items():
                self._again_later(place, replay)

    def _owner(self, key_hash: int) -> Consumer | None:
        """Give who may get a hash's next entry now."""
        consumer = self._keys.owner(key_hash)
        if consumer is None or not self._has_room(consumer):
            return None
        held = self._held.get(key_hash)
        if held is not None and held[0] is not consumer and not self._any_order:
            return None
        return consumer

    def _send_ahead(self) -> bool:
        outbox = self._new_outbox()
        while (
            self._ahead
            and not self.is_blocked
            and not outbox.is_full
            and self._waiting_entries < _MOST_WAITING
        ):
            delivery = self._ahead.popleft()
            key_hash = sticky_hash(delivery.metadata)
            if self._is_early(delivery):
                self._late[delivery.place] = key_hash
                continue
            consumer = None if key_hash in self._waiting else self._owner(key_hash)
            if consumer is None:
                self._wait(delivery.place, Replay(delivery.last_offset, key_hash))
            else:
                self._hand(delivery, key_hash, consumer, outbox)
        outbox.send()
        return not self._ahead or outbox.is_full

    def _choose(self, delivery: Delivery, key_hash: int) -> Consumer | None:
        return None if key_hash in self._waiting else self._owner(key_hash)

    def _stuck(self, delivery: Delivery, replay: Replay) -> bool:
        self._wait(delivery.place, replay)
        return False

    def _wait(self, place: Place, replay: Replay) -> None:
        self._waiting.setdefault(replay.key_hash, {})[place] = replay
        self._waiting_entries += 1

    def _hand(self, delivery: Delivery, key_hash: int, consumer: Consumer, outbox: Outbox) -> None:
        super()._hand(delivery, key_hash, consumer, outbox)
        held = self._held.get(key_hash)
        self._held[key_hash] = (consumer, 1 + (held[1] if held is not None else 0))

    def _hash_of(self, place: Place) -> int:
        return self._late.pop(place, 0)

    # -- acknowledging, and asking for it again

    def _acknowledged(self, place: Place, pending: Pending) -> None:
        self._unhold(pending.key_hash)

    def _let_go(self, place: Place, pending: Pending) -> None:
        self._unhold(pending.key_hash)
        super()._let_go(place, pending)

    def _unhold(self, key_hash: int) -> None:
        held = self._held.pop(key_hash, None)
        if held is not None and held[1] > 1:
            self._held[key_hash] = (held[0], held[1] - 1)
