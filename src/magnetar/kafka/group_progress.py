"""Kafka's groups as the rest of the broker sees them: whether somebody is there, and how far they are."""

from __future__ import annotations

from magnetar.broker.core import Broker
from magnetar.broker.progress import GroupIsActive, Read
from magnetar.kafka.coordinators.facts import MOVED_BY_PULSAR, Committer, OffsetCommit
from magnetar.kafka.coordinators.groups import GroupCoordinator
from magnetar.kafka.coordinators.refused import CoordinatorRefused
from magnetar.wire.kafka.errors import ErrorCode

_NEWEST_COMMIT_VERSION = 9


class GroupProgress:
    """Implements `magnetar.broker.progress.Groups` on a coordinator."""

    def __init__(self, broker: Broker, groups: GroupCoordinator) -> None:
        self._broker = broker
        self._groups = groups

    def is_active(self, group: str) -> bool:
        """Whether the group has members; one that is not loaded yet may have some."""
        try:
            return bool(self._groups.describe(group).members)
        except CoordinatorRefused as refused:
            return refused.code != ErrorCode.GROUP_ID_NOT_FOUND

    def is_share(self, group: str) -> bool:
        """Whether it is a share group, whose books are kept otherwise (`magnetar.broker.shares.linked`)."""
        try:
            return self._groups.share_group(group) is not None
        except CoordinatorRefused:
            return False

    def committed(self, read: Read) -> int | None:
        """Return the offset that a group would go on with, or None."""
        try:
            found = self._groups.committed(read.group).get(read.topic, {}).get(read.partition)
        except CoordinatorRefused:
            return None
        return None if found is None else found.offset

    async def move(self, read: Read, offset: int, *, though_active: bool = False) -> None:
        """Commit for a group; raise `GroupIsActive` if it has members, or is not loaded yet."""
        topic = self._broker.topic(read.topic)
        commit = OffsetCommit(topic.kafka_name, topic.topic_id, read.partition, offset, -1, MOVED_BY_PULSAR)
        who = Committer(is_broker=though_active)
        try:
            await self._groups.commit(read.group, who, [commit], _NEWEST_COMMIT_VERSION, tell=False)
        except CoordinatorRefused as refused:
            raise GroupIsActive(
                f"group {read.group} has members; it can be moved when they left"
            ) from refused

    async def forget(self, read: Read) -> None:
        """Forget what a group committed for a partition; raise `GroupIsActive`."""
        try:
            await self._groups.delete_offsets(read.group, [(read.topic, read.partition)], tell=False)
        except CoordinatorRefused as refused:
            if refused.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise GroupIsActive(f"group {read.group} has members; its offsets stay") from refused
