"""The groups of one partition, of all kinds under their one name, and how a name goes from one kind to another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from magnetar.kafka.coordinators.consumer.facts import facts_of, group_end
from magnetar.kafka.coordinators.consumer.group import ConsumerGroup
from magnetar.kafka.coordinators.decision import Fact
from magnetar.kafka.coordinators.facts import group_fact
from magnetar.kafka.coordinators.group import ClassicGroup
from magnetar.kafka.coordinators.refused import CoordinatorRefused
from magnetar.kafka.coordinators.share.group import ShareGroup
from magnetar.kafka.coordinators.streams.group import StreamsGroup
from magnetar.wire.kafka.errors import ErrorCode

AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup


def gives_way(group: AnyGroup) -> bool:
    """Whether a group of another kind may take its name: a share group never gives it, as in Kafka."""
    return group.is_empty and not isinstance(group, ShareGroup)


class Kinds:
    """All groups by their ids. ``forget`` lets go of a group's timers."""

    def __init__(self, groups: dict[str, AnyGroup], forget: Callable[[AnyGroup], None]) -> None:
        self.groups = groups
        self._forget = forget

    def consumer(self, group_id: str, *, create: bool) -> tuple[ConsumerGroup, tuple[Fact, ...]]:
        """Return the consumer group of that name, and the facts that end what had the name before.

        An empty group of another kind gives way, and leaves its offsets.
        """
        known = self.groups.get(group_id)
        if isinstance(known, ConsumerGroup):
            return known, ()
        if not create:
            raise CoordinatorRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        if known is None:
            return ConsumerGroup(group_id), ()
        if not isinstance(known, ClassicGroup) or not known.is_empty:
            raise CoordinatorRefused(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        assert isinstance(known, ClassicGroup)
        ended = (group_fact(group_id, None),) if known.stored is not None else ()
        return ConsumerGroup(group_id, offsets=known.offsets), ended

    def share(self, group_id: str, *, create: bool) -> ShareGroup:
        """Return the share group of that name; one of another kind gives way to none."""
        known = self.groups.get(group_id)
        if isinstance(known, ShareGroup):
            return known
        if known is None and create:
            return ShareGroup(group_id)
        raise CoordinatorRefused(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Share group {group_id} not found."
            if known is None
            else f"Group {group_id} is not a share group.",
        )

    def streams(self, group_id: str, *, create: bool) -> tuple[StreamsGroup, tuple[Fact, ...]]:
        """Return the streams group of that name, and the facts that end what had the name before.

        An empty classic group gives way, and leaves its offsets.
        """
        known = self.groups.get(group_id)
        if isinstance(known, StreamsGroup):
            return known, ()
        if known is None and create:
            return StreamsGroup(group_id), ()
        if known is None or not create or not isinstance(known, ClassicGroup) or not known.is_empty:
            raise CoordinatorRefused(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Streams group {group_id} not found."
                if known is None
                else f"Group {group_id} is not a streams group.",
            )
        ended = (group_fact(group_id, None),) if known.stored is not None else ()
        return StreamsGroup(group_id, offsets=known.offsets), ended

    def take(self, group: AnyGroup) -> None:
        """Give the group its name, whatever had it before."""
        known = self.groups.get(group.group_id)
        if known is not group:
            if known is not None:
                self._forget(known)
            self.groups[group.group_id] = group

    def end(self, group: AnyGroup) -> Iterable[Fact]:
        """Forget a group, and return the facts of its end."""
        facts = list(end_of(group))
        self._forget(group)
        self.groups.pop(group.group_id, None)
        return facts


def end_of(group: AnyGroup) -> Iterable[Fact]:
    """Return the facts of a group's end, but for its offsets'."""
    if isinstance(group, ShareGroup):
        from magnetar.kafka.coordinators.share import facts

        return facts.group_end(group)
    if isinstance(group, StreamsGroup):
        from magnetar.kafka.coordinators.streams import facts as streams_facts

        return streams_facts.group_end(group)
    return group_end(group) if isinstance(group, ConsumerGroup) else (group_fact(group.group_id, None),)


def facts_about(group: AnyGroup) -> Iterable[Fact]:
    """Return the facts that make a group what it is, but for its offsets."""
    if isinstance(group, ShareGroup):
        from magnetar.kafka.coordinators.share import facts

        return facts.facts_of(group)
    if isinstance(group, StreamsGroup):
        from magnetar.kafka.coordinators.streams import facts as streams_facts

        return streams_facts.facts_of(group)
    if isinstance(group, ConsumerGroup):
        return facts_of(group)
    return () if group.stored is None else (group_fact(group.group_id, group.stored),)
