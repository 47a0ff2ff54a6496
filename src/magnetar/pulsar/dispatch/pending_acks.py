"""What open transactions have acknowledged in one subscription: neither done with, nor to be sent to anybody.

An entry that one transaction has acknowledged no other one may (TransactionConflict), nor the same twice; of a batch
that goes for each message. The rules are those of Pulsar's PendingAckHandleImpl.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from magnetar.coordination.transactions import Ack, TxnId
from magnetar.ledger.cursors.cursor import Cursor
from magnetar.ledger.port import Position
from magnetar.pulsar.dispatch.consumer import PendingAck
from magnetar.pulsar.dispatch.deliveries import Place
from magnetar.pulsar.errors import TransactionConflict

_ALL = -1
"""The set of all messages of an entry, however many these are."""


class PendingAcks:
    """Those of one subscription of a topic."""

    def __init__(self, where: str) -> None:
        """``where`` is how the subscription is called when something stands against an acknowledgement."""
        self._where = where
        self._entries: dict[Place, dict[TxnId, int]] = {}
        """By entry and transaction: which messages are acknowledged."""
        self.cumulative: tuple[TxnId, Ack] | None = None
        """Up to where one transaction has acknowledged everything."""
        self.had: dict[Place, PendingAck] = {}
        """What consumers of whole entries knew of them when they acknowledged."""

    def __len__(self) -> int:
        return len(self._entries)

    # -- acknowledging

    def take(self, txn: TxnId, acks: Sequence[Ack], cursor: Cursor) -> None:
        """Set aside all that a transaction acknowledges; raise ``TransactionConflict``, and nothing has changed."""
        taken: list[Ack] = []
        try:
            for each in acks:
                self._check(txn, each, cursor)
                self.put(txn, each)
                taken.append(each)
        except TransactionConflict:
            self.drop(txn, taken)
            raise

    def put(self, txn: TxnId, ack: Ack) -> None:
        """Note what a transaction is known to have acknowledged."""
        if ack.cumulative:
            self.cumulative = txn, ack
        else:
            held = self._entries.setdefault(ack[:2], {})
            held[txn] = held.get(txn, 0) | _messages(ack)

    def drop(self, txn: TxnId, acks: Sequence[Ack]) -> None:
        """What a transaction acknowledged is not set aside any more: it counts, or it does not."""
        for each in acks:
            if each.cumulative:
                if self.cumulative is not None and self.cumulative[0] == txn:
                    self.cumulative = None
                continue
            held = self._entries.get(each[:2])
            if held is None or txn not in held:
                continue
            held[txn] &= ~_messages(each)
            if not held[txn]:
                del held[txn]
            if not held:
                del self._entries[each[:2]]

    def _check(self, txn: TxnId, ack: Ack, cursor: Cursor) -> None:
        place = Position(*ack[:2])
        if ack.cumulative:
            self._check_cumulative(txn, ack, cursor)
            return
        if cursor.is_done_with(place):
            raise self._conflict(txn, f"try to ack message:{place[0]}:{place[1]} already acked before.")
        messages = _messages(ack)
        left = cursor.partly.get(ack[:2])
        if left is not None and messages != _ALL and messages & ~left:
            raise self._conflict(txn, f"try to ack batch message:{place[0]}:{place[1]} already acked before.")
        if any(messages & held for held in self._entries.get(ack[:2], {}).values()):
            raise self._conflict(txn, f"try to ack message:{place[0]}:{place[1]} in pending ack status.")

    def _check_cumulative(self, txn: TxnId, ack: Ack, cursor: Cursor) -> None:
        place = ack[:2]
        what = f"try to cumulative batch ack position: {place[0]}:{place[1]} within range of"
        if place <= cursor.mark_delete_position:
            raise self._conflict(txn, f"{what} cursor's markDeletePosition: {cursor.mark_delete_position}")
        if self.cumulative is None:
            return
        other, before = self.cumulative
        further = place > before[:2] or (
            place == before[:2] and _messages(before) != _ALL and bool(_messages(ack) & ~_messages(before))
        )
        if other != txn or not further:
            raise self._conflict(txn, f"{what} current currentPosition: {before[0]}:{before[1]}")

    def _conflict(self, txn: TxnId, what: str) -> TransactionConflict:
        return TransactionConflict(f"[{self._where}] Transaction:{txn} {what}")

    # -- sending

    def without(self, place: Place, messages: int, remaining: int | None) -> int | None:
        """Return which of an entry's messages may be sent, of those that ``remaining`` says (None: all of them)."""
        taken = 0
        for held in self._entries.get(place, {}).values():
            taken |= held
        if self.cumulative is not None and place <= self.cumulative[1][:2]:
            taken |= _ALL if place < self.cumulative[1][:2] else _messages(self.cumulative[1])
        if not taken:
            return remaining
        return ((1 << messages) - 1 if remaining is None else remaining) & ~taken

    def covers(self, place: Place, messages: int, remaining: int | None) -> bool:
        """Whether nothing of an entry may be sent."""
        return self.without(place, messages, remaining) == 0

    # -- figures

    def entries(self) -> Iterator[Place]:
        """Yield the entries that are set aside one by one."""
        return iter(self._entries)

    def state_of(self, place: Place) -> str:
        """Return what Pulsar's admin calls the state of an entry here, but for what the cursor says."""
        if place in self._entries or (self.cumulative is not None and place <= self.cumulative[1][:2]):
            return "PendingAck"
        return "NotInPendingAck"


def _messages(ack: Ack) -> int:
    """Return the set of messages that are acknowledged."""
    return _ALL if ack.remaining is None else ((1 << ack.messages) - 1) & ~ack.remaining
