"""How far named readers are, shared between the protocols: Kafka groups and Pulsar subscriptions.

Kafka's side notes what groups commit; the owner of cursors takes that over now and then. Where an operator moves such
a cursor, or a name is *linked* (``linked.subscriptions``) and Pulsar consumers acknowledge, the group follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from magnetar.base.errors import BrokerError


class GroupIsActive(BrokerError):
    """The group has members, and what they read cannot be moved under their feet."""


class Read(NamedTuple):
    """A reader of one partition; ``topic`` by its Kafka name."""

    group: str
    topic: str
    partition: int


class GroupStanding(NamedTuple):
    """The state of a group, and of what it reads of one partition."""

    is_active: bool
    """Whether it has members."""
    is_share: bool
    """Whether it is a share group, which commits nothing (see `magnetar.coordination.shares.linked`)."""
    committed: int | None
    """The offset at which it would continue."""


UNKNOWN = GroupStanding(is_active=True, is_share=False, committed=None)
"""For a group whose coordinator cannot answer now: it may have members."""


class Groups(Protocol):
    """The operations on groups that Kafka's side offers, whichever broker coordinates the group."""

    async def look(self, read: Read) -> GroupStanding:
        """Return the state of a group now."""
        ...

    async def move(self, read: Read, offset: int, *, though_active: bool = False) -> None:
        """Commit for a group, durable on return; raise `GroupIsActive` unless ``though_active``, or `BrokerError`."""
        ...

    async def forget(self, read: Read) -> None:
        """Delete what a group committed for a partition; raise `GroupIsActive`, or `BrokerError`."""
        ...


class Progress:
    """One per broker. Nothing is retained until a listener is there (``listening``)."""

    def __init__(self, linked: tuple[str, ...] = ()) -> None:
        self.groups: Groups | None = None
        self.listening = False
        self.joining: list[Callable[[str], None]] = []
        """Each is called when a member joins a linked group, at its coordinator."""
        self._linked = frozenset(linked)
        self._news: dict[Read, int | None] = {}

    @property
    def links(self) -> bool:
        """True if any names are linked."""
        return bool(self._linked)

    def is_linked(self, name: str) -> bool:
        """True if a group and a subscription of this name share one progress."""
        return name in self._linked or "*" in self._linked

    def joining_group(self, group: str) -> None:
        """Note that a member is about to join a group."""
        if self.listening and self.is_linked(group):
            for told in self.joining:
                told(group)

    def committed(self, group: str, topic: str, partition: int, offset: int | None) -> None:
        """Note what a group committed; None if that was deleted."""
        if self.listening:
            self._news[Read(group, topic, partition)] = offset

    def take(self) -> dict[Read, int | None]:
        """Return what was committed since the last call: the newest of each."""
        news, self._news = self._news, {}
        return news
