"""How far named readers are, told from one protocol to the other: Kafka's groups and Pulsar's subscriptions.

Kafka's side says what groups commit; whoever keeps cursors takes that over now and then. Where an operator moves such
a cursor, or a name is *linked* (``linked.subscriptions``) and Pulsar's consumers acknowledge, the group follows.
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
    """How it stands with a group, and with what it reads of one partition."""

    is_active: bool
    """Whether it has members."""
    is_share: bool
    """Whether it is a share group, which commits nothing (see `magnetar.coordination.shares.linked`)."""
    committed: int | None
    """The offset that it would go on with."""


UNKNOWN = GroupStanding(is_active=True, is_share=False, committed=None)
"""Of a group whose coordinator cannot tell now: it may have members."""


class Groups(Protocol):
    """What Kafka's side does for others, whichever broker coordinates the group."""

    async def look(self, read: Read) -> GroupStanding:
        """Tell how it stands with a group now."""
        ...

    async def move(self, read: Read, offset: int, *, though_active: bool = False) -> None:
        """Commit for a group, durable on return; raise `GroupIsActive` unless ``though_active``, or `BrokerError`."""
        ...

    async def forget(self, read: Read) -> None:
        """Forget what a group committed for a partition; raise `GroupIsActive`, or `BrokerError`."""
        ...


class Progress:
    """One broker's. Nothing is kept until somebody is ``listening``."""

    def __init__(self, linked: tuple[str, ...] = ()) -> None:
        self.groups: Groups | None = None
        self.listening = False
        self.joining: list[Callable[[str], None]] = []
        """Each is called when a member joins a linked group, at its coordinator."""
        self._linked = frozenset(linked)
        self._news: dict[Read, int | None] = {}

    @property
    def links(self) -> bool:
        """Whether any names are linked."""
        return bool(self._linked)

    def is_linked(self, name: str) -> bool:
        """Whether a group and a subscription of this name share one progress."""
        return name in self._linked or "*" in self._linked

    def joining_group(self, group: str) -> None:
        """Somebody is about to join a group."""
        if self.listening and self.is_linked(group):
            for told in self.joining:
                told(group)

    def committed(self, group: str, topic: str, partition: int, offset: int | None) -> None:
        """Note what a group committed; None if that was forgotten."""
        if self.listening:
            self._news[Read(group, topic, partition)] = offset

    def take(self) -> dict[Read, int | None]:
        """Return what was committed since this was last asked: the newest of each."""
        news, self._news = self._news, {}
        return news
