"""What one open partition needs of the registry of all that are open (`magnetar.pulsar.topics`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

FindBooks = Callable[[], Awaitable[bool]]
"""Has the books of a linked subscription at work; returns whether there are any."""


Partition = TypeVar("Partition", contravariant=True)


class OpenTopics(Protocol[Partition]):
    """The registry, as a partition sees it."""

    def is_groups(self, topic: Partition, name: str) -> bool:
        """Return whether a subscription is a Kafka group's alone."""

    def find_books(self, topic: Partition, name: str) -> FindBooks | None:
        """Return what has the books at work that a linked subscription shares with a Kafka share group."""

    def stirred(self, topic: Partition) -> None:
        """Note that something is left to do of a partition: to be stored, to be held to limits."""

    def closed(self, topic: Partition) -> None:
        """Note that its log closes; called in the turn of the loop in which that is decided."""


class Unregistered:
    """For a partition that is open by itself: no groups, no linked subscriptions, nothing that sweeps."""

    def is_groups(self, topic: object, name: str) -> bool:
        return False

    def find_books(self, topic: object, name: str) -> FindBooks | None:
        return None

    def stirred(self, topic: object) -> None:
        pass

    def closed(self, topic: object) -> None:
        pass
