"""A share partition as a Pulsar subscription works through it: `magnetar.coordination.shares.linked.WorkQueue`.

What its consumers say of very many entries one by one is made durable together, some milliseconds later; their cursor
is not quicker. Kafka's limit of deliveries is not theirs: what they give back is never archived, as in Pulsar, where a
consumer's dead letter policy says when it was enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from magnetar.coordination.shares.linked import Claimed, Workers
from magnetar.coordination.shares.share_partition import SharePartition, Standing, StateBatch

HOLDER = "\0 consumers of the linked subscription"
"""No member has such an id: see ``check_member``."""
_DELAY_S = 0.005


class LentShare:
    """See the module."""

    def __init__(self, machine: SharePartition, settle: Callable[[], None]) -> None:
        """``settle`` has what changed made durable soon, and wakes who waits for records."""
        self.records = 0
        """How many offsets its consumers hold."""
        self._machine = machine
        self._settle = settle
        self._workers: Workers | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, workers: Workers) -> None:
        """Have a subscription hear of what changes."""
        self._workers = workers

    @property
    def is_used(self) -> bool:
        """Whether there is a subscription."""
        return self._workers is not None

    # What the subscription asks.

    @property
    def start_offset(self) -> int:
        return self._machine.start_offset

    def standing(self, first: int, last: int) -> Standing:
        return self._machine.standing(first, last)

    def done_within(self, first: int, last: int) -> int:
        return self._machine.done_within(first, last)

    def claim(self, first: int, last: int) -> Claimed:
        given = self._machine.claim(HOLDER, first, last)
        self.records += sum(run.records for run in given)
        deliveries = max((run.deliveries for run in given), default=1)
        return Claimed(self._machine.done_within(first, last), deliveries)

    def accept(self, first: int, last: int) -> None:
        self.records -= self._machine.accept(first, last, HOLDER)
        self._settle_soon()

    def give_back(self, first: int, last: int) -> None:
        self.records -= self._machine.unclaim(HOLDER, first, last)
        self._settle_soon()

    def give_all_back(self) -> None:
        if self.records and self._machine.end_offset > self._machine.start_offset:
            self.give_back(self._machine.start_offset, self._machine.end_offset - 1)
        self.records = 0

    def leave(self) -> None:
        self.give_all_back()
        self._workers = None

    # What the share partition says.

    def tell(self, batches: Sequence[StateBatch]) -> None:
        """Some offsets have changed their state."""
        if self._workers is not None:
            self._workers.changed(batches)

    def count(self) -> None:
        """Retention took some offsets: count anew."""
        self.records = sum(run.records for run in self._machine.held_by(HOLDER))

    def end(self) -> None:
        """The books are thrown away."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.lost()

    def _settle_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_DELAY_S, self._settle_now)

    def _settle_now(self) -> None:
        self._timer = None
        self._settle()
