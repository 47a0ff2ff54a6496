"""One work queue for the workers of both protocols: a share group and a Shared subscription of one name, linked.

The share partition's books record which holder has which offsets. Kafka's side keeps the books; a subscription
*claims* what it sends, reports what was acknowledged and releases what was not. To the books, all its consumers are one
holder; the subscription knows which consumer has what. This module is all that the two sides know of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.base.errors import BrokerError

if TYPE_CHECKING:
    from magnetar.coordination.shares.share_partition import Standing, StateBatch
    from magnetar.topics.topic import Topic


class QueueBusy(BrokerError):
    """A share group cannot work through a partition: consumers of a subscription of its name read it already."""


class Claimed(NamedTuple):
    """The part of a claimed entry that a subscription may send."""

    done: int
    """The messages that are done, as a set of bits."""
    deliveries: int
    """How often the remaining ones were delivered to any worker, this time included."""


class Workers(Protocol):
    """A subscription that works through a queue."""

    def changed(self, batches: Sequence[StateBatch]) -> None:
        """A worker is done with some offsets, or has released them."""
        ...

    def lost(self) -> None:
        """The books were reset: nothing is claimed in them any more, and members of the group hold nothing."""
        ...


class WorkQueue(Protocol):
    """One partition of a share group. Arguments are the first and the last offset; changes are durable soon."""

    @property
    def start_offset(self) -> int:
        """Everything before it is done."""
        ...

    def standing(self, first: int, last: int) -> Standing:
        """Return whether all that is left of these offsets may be claimed."""
        ...

    def done_within(self, first: int, last: int) -> int:
        """Return which of these offsets are done, as a set of bits."""
        ...

    def claim(self, first: int, last: int) -> Claimed:
        """Acquire what is left of these offsets, until it is accepted or released."""
        ...

    def accept(self, first: int, last: int) -> None:
        """Accept these offsets, whichever worker has them."""
        ...

    def give_back(self, first: int, last: int) -> None:
        """Release what was claimed of these offsets."""
        ...

    def give_all_back(self) -> None:
        """Release everything that was claimed."""
        ...

    def leave(self) -> None:
        """Release everything, and leave the queue."""
        ...


class ShareQueues(Protocol):
    """The operations that Kafka's side offers. Names are those of groups; raises ``BrokerError`` or ``LedgerError``."""

    async def open(self, name: str, topic: Topic, index: int) -> bool:
        """Load a share group's books of a partition and join the subscription; return False if it has no books."""
        ...

    async def has_books(self, name: str, topic: Topic, index: int) -> bool:
        """True if a share group has books for a partition."""
        ...

    async def move(self, name: str, topic: Topic, index: int, offset: int) -> None:
        """Reset the books to an offset, durable on return."""
        ...

    async def forget(self, name: str, topic: Topic, index: int) -> None:
        """Delete the books, durable on return."""
        ...


class Subscriptions(Protocol):
    """The operations that Pulsar's side offers. Names are those of subscriptions."""

    async def beginning(self, name: str, topic: Topic, index: int) -> int | None:
        """Return the first offset that the subscription of that name is not done with; None if it does not exist."""
        ...

    async def join(self, name: str, topic: Topic, index: int, queue: WorkQueue) -> Workers | None:
        """Attach the subscription to a queue from which nothing was taken yet; raise `QueueBusy`."""
        ...

    def is_used(self, name: str, topic: Topic, index: int) -> bool:
        """True if the subscription has consumers."""
        ...

    def moving_with_group(
        self, name: str, topic: Topic, index: int, offset: int
    ) -> AbstractAsyncContextManager[None]:
        """Move the subscription, too: both begin at the offset once this context is left."""
        ...


class NoSubscriptions:
    """Stands in where Pulsar is not served."""

    async def beginning(self, name: str, topic: Topic, index: int) -> int | None:
        """Return None."""
        return None

    async def join(self, name: str, topic: Topic, index: int, queue: WorkQueue) -> Workers | None:
        """Return None."""
        return None

    def is_used(self, name: str, topic: Topic, index: int) -> bool:
        """Return False."""
        return False

    def moving_with_group(
        self, name: str, topic: Topic, index: int, offset: int
    ) -> AbstractAsyncContextManager[None]:
        """Move nothing."""
        return nullcontext()


class LinkedQueues:
    """One per broker: both sides register here what they do for each other."""

    def __init__(self, is_linked: Callable[[str], bool]) -> None:
        self.is_linked = is_linked
        """Whether a group and a subscription of this name are linked."""
        self.shares: ShareQueues | None = None
        self.subscriptions: Subscriptions = NoSubscriptions()
