"""One work queue for the workers of both protocols: a share group and a Shared subscription of one name, linked.

The share partition's books say who has what. Kafka's side keeps them; a subscription *claims* what it sends, says what
was acknowledged and gives back what was not. Its consumers are one holder to the books: which of them has what, the
subscription knows. How the two find each other is all that they know of each other.
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
    """A share group cannot work through a partition: consumers of a subscription of its name read it in their way."""


class Claimed(NamedTuple):
    """What a subscription may send of an entry that it claimed."""

    done: int
    """The messages that are done with, as a set of bits."""
    deliveries: int
    """How often those that are left were given to anybody, this time included."""


class Workers(Protocol):
    """A subscription that works through a queue."""

    def changed(self, batches: Sequence[StateBatch]) -> None:
        """Somebody is done with some offsets, or has given them back."""
        ...

    def lost(self) -> None:
        """The books begin anew: what was claimed in them is not, and members of the group hold nothing."""
        ...


class WorkQueue(Protocol):
    """One partition of a share group. Offsets are given from the first to the last; what changes is durable soon."""

    @property
    def start_offset(self) -> int:
        """Everything before it is done with."""
        ...

    def standing(self, first: int, last: int) -> Standing:
        """Return whether all that is left of these may be claimed."""
        ...

    def done_within(self, first: int, last: int) -> int:
        """Return which of these are done with, as a set of bits."""
        ...

    def claim(self, first: int, last: int) -> Claimed:
        """Have what is left of these, until it is accepted or given back."""
        ...

    def accept(self, first: int, last: int) -> None:
        """Be done with these, whoever has them."""
        ...

    def give_back(self, first: int, last: int) -> None:
        """Let go of what was claimed of these."""
        ...

    def give_all_back(self) -> None:
        """Let go of everything that was claimed."""
        ...

    def leave(self) -> None:
        """Let go of everything, for good."""
        ...


class ShareQueues(Protocol):
    """What Kafka's side does. Names are those of groups; raises ``BrokerError`` or ``LedgerError``."""

    async def open(self, name: str, topic: Topic, index: int) -> bool:
        """Have a share group's books of a partition at work, if it has any: tell that; the subscription is joined."""
        ...

    async def has_books(self, name: str, topic: Topic, index: int) -> bool:
        """Whether a share group has worked through a partition."""
        ...

    async def move(self, name: str, topic: Topic, index: int, offset: int) -> None:
        """Begin the books anew at an offset, durable on return."""
        ...

    async def forget(self, name: str, topic: Topic, index: int) -> None:
        """Forget the books, durable on return."""
        ...


class Subscriptions(Protocol):
    """What Pulsar's side does. Names are those of subscriptions."""

    async def beginning(self, name: str, topic: Topic, index: int) -> int | None:
        """Return the first offset that the subscription of that name is not done with; None if there is none."""
        ...

    async def join(self, name: str, topic: Topic, index: int, queue: WorkQueue) -> Workers | None:
        """Have the subscription work through a queue that nothing was taken from yet; raises `QueueBusy`."""
        ...

    def is_used(self, name: str, topic: Topic, index: int) -> bool:
        """Whether the subscription has consumers."""
        ...

    def moving_with_group(
        self, name: str, topic: Topic, index: int, offset: int
    ) -> AbstractAsyncContextManager[None]:
        """A group's books begin at an offset once this is left, and so does the subscription."""
        ...


class NoSubscriptions:
    """Where Pulsar is not served."""

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
    """One broker's: where both sides say what they do for each other."""

    def __init__(self, is_linked: Callable[[str], bool]) -> None:
        self.is_linked = is_linked
        """Whether a group and a subscription of this name are one."""
        self.shares: ShareQueues | None = None
        self.subscriptions: Subscriptions = NoSubscriptions()
