"""The groups of one partition, of all kinds under their one name, and how a name goes from one kind to another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from magnetar.coordination.decision import Fact
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.facts import group_fact
from magnetar.kafka.coordinators.group import ClassicGroup
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from magnetar.kafka.coordinators.consumer.group import ConsumerGroup
    from magnetar.kafka.coordinators.share.group import ShareGroup
    from magnetar.kafka.coordinators.streams.group import StreamsGroup

AnyGroup: TypeAlias = "ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup"


# Of these a broker loads the modules of those kinds alone that it has, so that none is asked for by its class.


def is_consumer(group: AnyGroup | None) -> TypeIs[ConsumerGroup]:
    """Whether it is a group of the consumer protocol (KIP-848)."""
    return group is not None and group.kind == "consumer"


def is_share(group: AnyGroup | None) -> TypeIs[ShareGroup]:
    """Whether it is a share group (KIP-932)."""
    return group is not None and group.kind == "share"


def is_streams(group: AnyGroup | None) -> TypeIs[StreamsGroup]:
    """Whether it is a group of the streams protocol (KIP-1071)."""
    return group is not None and group.kind == "streams"


def gives_way(group: AnyGroup) -> bool:
    """Whether a group of another kind may take its name: a share group never gives it, as in Kafka."""
    return group.is_empty and not is_share(group)


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
        if is_consumer(known):
            return known, ()
        if not create:
            raise CoordinatorRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        from magnetar.kafka.coordinators.consumer.group import ConsumerGroup

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
        """Return the share group of that name; of other kinds only what stands for a linked subscription gives way."""
        known = self.groups.get(group_id)
        if is_share(known):
            return known
        if create and (known is None or (isinstance(known, ClassicGroup) and known.is_shadow)):
            from magnetar.kafka.coordinators.share.group import ShareGroup

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
        if is_streams(known):
            return known, ()
        from magnetar.kafka.coordinators.streams.group import StreamsGroup

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
    if is_share(group):
        from magnetar.kafka.coordinators.share import facts

        return facts.group_end(group)
    if is_streams(group):
        from magnetar.kafka.coordinators.streams import facts as streams_facts

        return streams_facts.group_end(group)
    if is_consumer(group):
        from magnetar.kafka.coordinators.consumer import facts as consumer_facts

        return consumer_facts.group_end(group)
    return (group_fact(group.group_id, None),)


def facts_about(group: AnyGroup) -> Iterable[Fact]:
    """Return the facts that make a group what it is, but for its offsets."""
    if is_share(group):
        from magnetar.kafka.coordinators.share import facts

        return facts.facts_of(group)
    if is_streams(group):
        from magnetar.kafka.coordinators.streams import facts as streams_facts

        return streams_facts.facts_of(group)
    if is_consumer(group):
        from magnetar.kafka.coordinators.consumer import facts as consumer_facts

        return consumer_facts.facts_of(group)
    return () if group.stored is None else (group_fact(group.group_id, group.stored),)
