"""Key_Shared subscriptions: all messages of a key go to one consumer at a time, in order.

A key's hash chooses the consumer: consumers divide the hashes among them (auto-split), or bring ranges (sticky). When
that changes because somebody came or went, a hash *drains* first: as long as its old consumer has entries of it, new
ones wait (PIP-379). An entry that must wait, for that or because its consumer has no room, makes all later ones of its
hash wait behind it; when too many wait, reading stops.
"""

from __future__ import annotations

from magnetar.ledger.cursor import Cursor
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.consumer import Consumer, PendingAck
from magnetar.pulsar.dispatch.deliveries import Delivery, Place, sticky_hash
from magnetar.pulsar.dispatch.keys import Division, divided
from magnetar.pulsar.dispatch.outbox import Outbox
from magnetar.pulsar.dispatch.pieces import Replay
from magnetar.pulsar.dispatch.reading import Readings
from magnetar.pulsar.dispatch.shared import Shared

_MAX_WAITING = 2000


class KeyShared(Shared):
    """See the module."""

    sub_type: SubType = SubType.Key_Shared

    def __init__(
        self, name: str, cursor: Cursor, readings: Readings, *, division: Division, any_order: bool
    ) -> None:
        super().__init__(name, cursor, readings)
        self.division = division
        self._any_order = any_order
        self._keys = divided(division)
        self._held: dict[int, tuple[Consumer, int]] = {}
        """By hash: who has entries of it, and how many."""
        self._waiting: dict[int, dict[Place, Replay]] = {}
        """By hash: the entries that may not go yet."""
        self._waiting_entries = 0
        self._late: dict[Place, int] = {}
        """The hashes of delayed entries."""

    @property
    def any_order(self) -> bool:
        return self._any_order

    # -- consumers

    def check(self, consumer: Consumer) -> None:
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
        """Return who may get a hash's next entry now."""
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
            and self._waiting_entries < _MAX_WAITING
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

    def _hash_in(self, delivery: Delivery) -> int:
        return sticky_hash(delivery.metadata)

    def _hash_of(self, place: Place) -> int:
        return self._late.pop(place, 0)

    # -- acknowledging, and asking for it again

    def _acknowledged(self, place: Place, pending: PendingAck) -> None:
        self._unhold(pending.key_hash)

    def _let_go(self, place: Place, pending: PendingAck) -> None:
        self._unhold(pending.key_hash)
        super()._let_go(place, pending)

    def _unhold(self, key_hash: int) -> None:
        held = self._held.pop(key_hash, None)
        if held is not None and held[1] > 1:
            self._held[key_hash] = (held[0], held[1] - 1)
