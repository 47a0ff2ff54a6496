"""Key_Shared subscriptions: all messages of a key go to one consumer at a time, in order.

A key's hash chooses the consumer: consumers divide the hashes among them (auto-split), or bring ranges (sticky). When
that changes because somebody came or went, a hash *drains* first: as long as its old consumer has entries of it, new
ones wait (PIP-379). An entry that must wait, for that or because its consumer has no room, makes all later ones of its
hash wait behind it; when too many wait, reading stops.

Kafka's producers put all keys of a partition into one batch, and a consumer takes an entry whole. Such an entry has the
hashes of all its keys, and waits as long as consumers differ that have entries of them. Where one consumer has some, it
goes there, so that nobody waits for acknowledgements on every change of the first key; otherwise the first key chooses.
"""

from __future__ import annotations

from magnetar.ledger.cursors.cursor import Cursor
from magnetar.ledger.port import Position
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.consumer import Consumer, PendingAck
from magnetar.pulsar.dispatch.deliveries import Delivery, Place, sticky_hash, sticky_hashes
from magnetar.pulsar.dispatch.keys import Division, divided
from magnetar.pulsar.dispatch.outbox import Outbox
from magnetar.pulsar.dispatch.pieces import Replay
from magnetar.pulsar.dispatch.reading import Readings
from magnetar.pulsar.dispatch.shared import Shared
from magnetar.records.sticky_keys import EVERY_HASH

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
        """By hash: the entries that may not go yet; one of several hashes is there under each."""
        self._places: dict[Place, Replay] = {}
        """All of these entries."""
        self._waiting_hashes = 0
        """How many hashes they have, each counted by itself."""
        self._several_wait = 0
        """How many of them have several."""
        self._late: dict[Place, tuple[int, ...]] = {}
        """The hashes of delayed entries."""

    @property
    def any_order(self) -> bool:
        return self._any_order

    @property
    def reads_keys(self) -> bool:
        return True

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
        self._places.clear()
        self._waiting_hashes = self._several_wait = 0
        self._late.clear()

    # -- sending

    def _may_send(self) -> bool:
        if not super()._may_send():
            return False
        self._release()
        return True

    def _release(self) -> None:
        """Have entries sent again that need not wait any more."""
        if self._several_wait:
            self._release_in_order()
            return
        if EVERY_HASH in self._held:
            ready = [each for each in self._waiting if self._taker((each,)) is not None]
        else:
            ready = [each for each in self._waiting if self._taker_of_one(each) is not None]
        for key_hash in ready:
            freed = self._waiting.pop(key_hash)
            self._waiting_hashes -= len(freed)
            for place, replay in freed.items():
                del self._places[place]
                self._again_later(place, replay)

    def _release_in_order(self) -> None:
        """Do so where entries of several hashes wait: each only if no earlier one of its hashes waits on."""
        still: set[int] = set()
        for place in sorted(self._places):
            replay = self._places[place]
            behind = bool(still) and (
                EVERY_HASH in replay.hashes or EVERY_HASH in still or not still.isdisjoint(replay.hashes)
            )
            if behind or self._taker(replay.hashes) is None:
                still.update(replay.hashes)
            else:
                self._waits_no_more(place)
                self._again_later(place, replay)

    def _waits_behind(self, place: Place, hashes: tuple[int, ...]) -> bool:
        """Whether an earlier entry of one of these hashes waits."""
        if not self._waiting:
            return False
        if len(hashes) == 1 and not self._several_wait:
            return hashes[0] in self._waiting
        if EVERY_HASH in hashes:
            return any(each < place for each in self._places)
        among = (self._waiting.get(each, ()) for each in (*hashes, EVERY_HASH))
        return any(each < place for places in among for each in places)

    def _taker(self, hashes: tuple[int, ...]) -> Consumer | None:
        """Return who may get the next entry of these hashes now."""
        if len(hashes) == 1 and EVERY_HASH not in self._held:
            return self._taker_of_one(hashes[0])
        consumer = self._keys.owner(hashes[0])
        if consumer is not None and not self._any_order:
            consumer = self._taker_of_several(hashes, consumer)
        return consumer if consumer is not None and self._has_room(consumer) else None

    def _taker_of_one(self, key_hash: int) -> Consumer | None:
        consumer = self._keys.owner(key_hash)
        if consumer is None or not self._has_room(consumer):
            return None
        held = self._held.get(key_hash)
        if held is not None and held[0] is not consumer and not self._any_order:
            return None
        return consumer

    def _taker_of_several(self, hashes: tuple[int, ...], chosen: Consumer) -> Consumer | None:
        if EVERY_HASH in hashes:
            holders = [each for each in self.consumers if each.pending]
        else:
            held = [self._held.get(each) for each in (*hashes, EVERY_HASH)]
            holders = list({each[0]: None for each in held if each is not None})
        if not holders or holders == [chosen]:
            return chosen
        # Ranges are what a consumer asked for, and a single key goes back to its consumer once it is drained.
        may_follow = len(hashes) > 1 and len(holders) == 1 and self.division is not Division.RANGES
        return holders[0] if may_follow else None

    def _send_ahead(self) -> bool:
        outbox = self._new_outbox()
        while (
            self._ahead and not self.is_blocked and not outbox.is_full and self._waiting_hashes < _MAX_WAITING
        ):
            delivery = self._ahead.popleft()
            keys = delivery.keys
            hashes = (sticky_hash(delivery.metadata),) if keys is None else keys.distinct
            if self._is_early(delivery):
                self._late[delivery.place] = hashes
                continue
            consumer = self._choose(delivery, hashes)
            if consumer is None:
                self._wait(delivery.place, Replay(delivery.last_offset, hashes))
            else:
                self._hand(delivery, hashes, consumer, outbox)
        outbox.send()
        return not self._ahead or outbox.is_full

    def _choose(self, delivery: Delivery, hashes: tuple[int, ...]) -> Consumer | None:
        return None if self._waits_behind(delivery.place, hashes) else self._taker(hashes)

    def _stuck(self, delivery: Delivery, replay: Replay) -> bool:
        self._wait(delivery.place, replay)
        return False

    def _wait(self, place: Place, replay: Replay) -> None:
        for each in replay.hashes:
            self._waiting.setdefault(each, {})[place] = replay
        self._places[place] = replay
        self._waiting_hashes += len(replay.hashes)
        self._several_wait += len(replay.hashes) > 1

    def _waits_no_more(self, place: Place) -> None:
        replay = self._places.pop(place)
        for each in replay.hashes:
            places = self._waiting[each]
            del places[place]
            if not places:
                del self._waiting[each]
        self._waiting_hashes -= len(replay.hashes)
        self._several_wait -= len(replay.hashes) > 1

    def _hand(self, delivery: Delivery, hashes: tuple[int, ...], consumer: Consumer, outbox: Outbox) -> None:
        super()._hand(delivery, hashes, consumer, outbox)
        for each in hashes:
            held = self._held.get(each)
            self._held[each] = (consumer, 1 + (held[1] if held is not None else 0))

    def _hashes_in(self, delivery: Delivery) -> tuple[int, ...]:
        return sticky_hashes(delivery)

    def _hashes_of(self, place: Place) -> tuple[int, ...]:
        return self._late.pop(place)

    def _forget(self, place: Place) -> None:
        super()._forget(place)
        if place in self._places:
            self._waits_no_more(place)

    def skip_to(self, position: Position) -> int:
        for place in [each for each in self._places if each <= position]:
            self._waits_no_more(place)
        return super().skip_to(position)

    # -- acknowledging, and asking for it again

    def _acknowledged(self, place: Place, pending: PendingAck) -> None:
        self._unhold(pending.hashes)

    def _let_go(self, place: Place, pending: PendingAck) -> None:
        self._unhold(pending.hashes)
        super()._let_go(place, pending)

    def _unhold(self, hashes: tuple[int, ...]) -> None:
        for each in hashes:
            held = self._held.pop(each, None)
            if held is not None and held[1] > 1:
                self._held[each] = (held[0], held[1] - 1)
