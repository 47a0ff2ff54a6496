"""What a persistent subscription is done with: entries, parts of batches, and everything up to an entry.

Consumers acknowledge one message at a time; the cursor takes ranges. What comes within a few milliseconds is joined.
Which messages of a batch remain is never more than the batch has, and of all batches together bounded: a batch beyond
that comes again whole, as all do where parts of batches do not count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from magnetar.base.slices import PacedTurns
from magnetar.ledger.cursors.cursor import Cursor
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.looking import base_offset, looked_at
from magnetar.ledger.port import ManagedLedger, Position
from magnetar.pulsar.dispatch.deliveries import Place
from magnetar.pulsar.errors import PulsarError
from magnetar.wire.pulsar.pulsar_pb2 import ServerError

if TYPE_CHECKING:
    from magnetar.pulsar.dispatch.pending_acks import PendingAcks

_DELAY_S = 0.005
_MAX_WAITING = 1000
_MAX_PARTLY = 10_000  # batches, as many as the cursor keeps
_MAX_PARTLY_BYTES = 8 << 20
_MAX_SIZES = 10_000
_log = logging.getLogger("magnetar.pulsar")


class Acknowledgements:
    """Those of one subscription, on their way to its cursor."""

    def __init__(
        self, log: ManagedLedger, cursor: Cursor, name: str, turns: PacedTurns, *, within_batches: bool
    ) -> None:
        """``turns`` are those in which acknowledgements of very many subscriptions become known to their cursors."""
        self.partly: dict[Place, int] = cursor.partly
        """Of batches acknowledged in part: the set of indexes that remain."""
        self.in_transactions: PendingAcks | None = None
        """What open transactions acknowledged; None where there are none."""
        self._log = log
        self._cursor = cursor
        self._name = name
        self._turns = turns
        self._within_batches = within_batches
        self._sizes: dict[Place, int] = {}
        self._partly_bytes = (
            0  # at most so many: what the cursor passes over is taken off when there is no room
        )
        self._waiting: set[Place] = set()
        self._timer: asyncio.TimerHandle | None = None

    def check(self, place: Place) -> None:
        """Raise ``PulsarError`` unless there is, or was, such an entry."""
        for ledger in self._log.ledgers():
            if ledger.ledger_id == place[0]:
                if 0 <= place[1] < ledger.entries:
                    return
                break
            if place[0] < ledger.ledger_id:  # of a ledger that was let go
                return
        raise PulsarError(f"{self._log.name} has no entry {place[0]}:{place[1]}", ServerError.MetadataError)

    # -- how many messages entries have

    def sent(self, place: Place, messages: int) -> None:
        """Note how many messages a batch has that goes out: parts of it may be acknowledged soon."""
        self._sizes[place] = messages
        if len(self._sizes) > _MAX_SIZES:
            del self._sizes[next(iter(self._sizes))]

    def batch_size(self, place: Place) -> int | None:
        """Return how many messages an entry has, None where only storage knows."""
        return self._sizes.get(place)

    async def stored_batch_size(self, place: Place) -> int:
        """Return how many messages an entry has; raise ``PulsarError`` for none, or ``LedgerError``."""
        self.check(place)
        entry = await self._log.entry(Position(*place))
        messages = entry.last_offset - await looked_at(entry, base_offset) + 1
        self.sent(place, messages)
        return messages

    def remaining(self, place: Place, messages: int) -> int | None:
        """Return which messages of an entry may be sent, None for all."""
        remaining, held = self.partly.get(place), self.in_transactions
        return remaining if held is None else held.without(place, messages, remaining)

    # -- being done

    def done(self, place: Place) -> None:
        """Be done with an entry."""
        self.partly.pop(place, None)
        self._waiting.add(place)
        if len(self._waiting) >= _MAX_WAITING:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_DELAY_S, self._turns.add, self.flush)

    def is_done(self, place: Place) -> bool:
        """Whether an entry is done with, whole."""
        return place in self._waiting or self._cursor.is_done_with(Position(*place))

    def done_but(self, place: Place, remaining: int) -> bool:
        """Be done with a batch but for the messages that ``remaining`` says; tell whether any of them is left."""
        if remaining and not self._within_batches:
            return True
        known = self.partly.get(place)
        remaining = remaining if known is None else known & remaining
        if not remaining:
            return False
        self.check(place)
        self._note(place, remaining)
        return True

    def _note(self, place: Place, remaining: int) -> None:
        """Keep what remains of a batch, if there is room for it."""
        if place not in self.partly:
            size = remaining.bit_length() // 8
            if len(self.partly) >= _MAX_PARTLY or not self._has_room(size):
                return
            self._partly_bytes += size
        self.partly[place] = remaining
        self._cursor.keep()

    def _has_room(self, size: int) -> bool:
        if self._partly_bytes + size > _MAX_PARTLY_BYTES:
            self._partly_bytes = sum(each.bit_length() // 8 for each in self.partly.values())
        return self._partly_bytes + size <= _MAX_PARTLY_BYTES

    def done_up_to(self, place: Place, remaining: int | None) -> None:
        """Be done with everything up to an entry, of that one's batch with all but ``remaining``."""
        self.check(place)
        self.flush()
        if remaining:
            if self._within_batches:
                self._note(place, self.partly.get(place, remaining) & remaining)
            self._cursor.mark_delete(Position(place[0], place[1] - 1))
        else:
            self._cursor.mark_delete(Position(*place))
        self._forget_parts(place)

    def skip_to(self, position: Position) -> None:
        """Be done with everything up to ``position``, whoever has it."""
        self.flush()
        self._cursor.mark_delete(position)
        self._forget_parts(self._cursor.mark_delete_position)

    def flush(self) -> None:
        """Have the cursor know of all of them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            waiting, self._waiting = self._waiting, set()
            try:
                self._cursor.delete_ranges(_runs(waiting))
            except LedgerError as error:
                # They are delivered again after a restart, as those are that a crash took.
                _log.error("acknowledgements of %s on %s are not kept: %s", self._name, self._log.name, error)

    # -- parts of batches

    def first_remaining(self, mark: Position) -> int:
        """Return how many messages of the entry right behind ``mark`` are done with, before the first that is not."""
        remaining = self.partly.get((mark.ledger_id, mark.entry_id + 1), 0)
        return (remaining & -remaining).bit_length() - 1 if remaining else 0

    def forget_part(self, position: Position) -> None:
        """Have a batch that was acknowledged in part come whole again."""
        self.partly.pop((position.ledger_id, position.entry_id), None)
        self._cursor.keep()

    def begin_within(self, position: Position, remaining: int) -> None:
        """Begin anew inside a batch, with those messages of it that ``remaining`` says."""
        self._note((position.ledger_id, position.entry_id), remaining)

    def _forget_parts(self, before: Place) -> None:
        for place in [each for each in self.partly if each < before]:
            del self.partly[place]


def _runs(places: Iterable[Place]) -> list[tuple[Position, Position]]:
    """Join entries that follow each other into ranges, from first to last."""
    runs: list[tuple[Position, Position]] = []
    for ledger_id, entry_id in sorted(places):
        if runs and runs[-1][1].ledger_id == ledger_id and runs[-1][1].entry_id + 1 == entry_id:
            runs[-1] = runs[-1][0], Position(ledger_id, entry_id)
        else:
            runs.append((Position(ledger_id, entry_id), Position(ledger_id, entry_id)))
    return runs
