"""Committed offsets: commit, fetch, delete, expire. Pure decisions.

Each method gives a `Decision`, or raises `CoordinatorRefused` and then has changed nothing. Topics come under their one
name; the caller answers for topics that do not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from magnetar.coordination.decision import Decision, Fact, Marker, Transaction
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.classic import ClassicGroups
from magnetar.kafka.coordinators.facts import NO_TIMESTAMP, Committed, Committer, OffsetCommit, offset_fact
from magnetar.kafka.coordinators.group import ClassicGroup
from magnetar.kafka.coordinators.kinds import AnyGroup, Kinds
from magnetar.kafka.coordinators.pending import Name, PendingOffsets
from magnetar.wire.kafka.errors import ErrorCode

_GROUP_NOT_FOUND_SINCE = 9

TopicPartition = tuple[str, int]


class GroupOffsets:
    """The committed offsets of one partition's groups."""

    def __init__(self, classic: ClassicGroups, kinds: Kinds) -> None:
        self._classic = classic
        self._kinds = kinds
        self._settings = classic.settings
        self.pending = PendingOffsets()

    def commit(
        self,
        group_id: str,
        who: Committer,
        commits: Sequence[OffsetCommit],
        api_version: int,
        now_ms: int,
        *,
        transaction: Transaction | None = None,
    ) -> Decision[list[ErrorCode]]:
        """Store offsets, those of a transaction as pending; the answer has one code per commit."""
        group = self._kinds.groups.get(group_id)
        if group is None:
            if who.generation >= 0:
                late = api_version >= _GROUP_NOT_FOUND_SINCE
                raise CoordinatorRefused(
                    ErrorCode.GROUP_ID_NOT_FOUND if late else ErrorCode.ILLEGAL_GENERATION
                )
            group = ClassicGroup(group_id, since_ms=now_ms)
        group.check_committer(who, commits, api_version, in_transaction=transaction is not None)
        self._classic.touch(group_id, who.member_id, now_ms)
        codes = []
        facts = []
        for commit in commits:
            if len(commit.metadata) > self._settings.offset_metadata_max_bytes:
                codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            codes.append(ErrorCode.NONE)
            expires_ms = NO_TIMESTAMP if who.retention_ms < 0 else now_ms + who.retention_ms
            kept = Committed(
                commit.offset, commit.leader_epoch, commit.metadata, now_ms, expires_ms, commit.topic_id
            )
            name = Name(group_id, commit.topic, commit.partition)
            facts.append(offset_fact(*name, kept)._replace(transaction=transaction))
            if transaction is not None:
                self.pending.add(transaction, name, kept)
                continue
            self.pending.overrule(name)
            group.offsets.setdefault(commit.topic, {})[commit.partition] = kept
            # A group without members begins with its first offset.
            self._kinds.groups.setdefault(group_id, group)
        return Decision(tuple(facts), codes)

    def end_transaction(self, marker: Marker) -> Decision[dict[Name, Committed]]:
        """Commit a transaction's offsets, or discard them; the answer has the offsets that count from now on.

        A marker that comes late must not end the producer's next transaction.
        """
        producer_id, epoch = marker.transaction
        held = self.pending.epoch_of(producer_id)
        if held is not None and (epoch < held or (epoch == held and marker.bumps_epoch)):
            raise CoordinatorRefused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} is at epoch {held}, and a marker of {epoch} too old",
            )
        return Decision((marker,), self.apply_end(marker))

    def apply_end(self, marker: Marker) -> dict[Name, Committed]:
        """Apply a marker, without stating it; return the offsets that count from now on."""
        ended = self.pending.end(marker.transaction, committed=marker.committed)
        if not marker.committed:
            return {}
        for name, committed in ended.items():
            self.apply(*name, committed)
        return ended

    def apply(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        """Store an offset, without stating it."""
        group = self._kinds.groups.get(group_id)
        if group is None:
            group = self._kinds.groups[group_id] = ClassicGroup(group_id)
        offsets = group.offsets.get(topic)
        if offsets is None:
            offsets = group.offsets[topic] = {}
        offsets[partition] = committed

    def fetch(
        self, group_id: str, member_id: str = "", epoch: int = -1
    ) -> Mapping[str, Mapping[int, Committed]]:
        """Return what a group committed, by topic and partition; nothing for an unknown group. Read-only."""
        group = self._kinds.groups.get(group_id)
        if group is None:
            return {}
        group.check_fetcher(member_id, epoch)
        return group.offsets

    def delete(self, group_id: str, partitions: Sequence[TopicPartition]) -> Decision[list[ErrorCode]]:
        """Delete offsets of topics that no member reads; the answer has one code per partition."""
        group = self._find(group_id)
        group.check_deletes_offsets()
        codes = []
        facts: list[Fact] = []
        for topic, partition in partitions:
            if group.is_subscribed_to(topic):
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            codes.append(ErrorCode.NONE)
            facts += self._drop(group, topic, [partition])
        return Decision(tuple(facts), codes)

    def delete_group(self, group_id: str) -> Decision[ErrorCode]:
        """Delete a group without members, and all it committed."""
        group = self._find(group_id)
        if not group.is_empty:
            raise CoordinatorRefused(ErrorCode.NON_EMPTY_GROUP)
        return Decision(tuple(self._drop_group(group)), ErrorCode.NONE)

    def delete_topic(self, topic: str) -> Decision[None]:
        """Delete what all groups committed for a topic that is gone."""
        facts: list[Fact] = []
        for group in self._kinds.groups.values():
            facts += self._drop(group, topic, list(group.offsets.get(topic, ())))
        facts += self._drop_pending(self.pending.of_topic(topic))
        return Decision(tuple(facts), None)

    def expire(self, now_ms: int) -> Decision[None]:
        """Delete offsets that have expired, and empty groups that have none left (KIP-211).

        An offset stays while an open transaction has committed another one of its name: to delete it would take both.
        """
        facts: list[Fact] = []
        for group in list(self._kinds.groups.values()):
            for topic, partitions in list(group.offsets.items()):
                gone = [
                    partition
                    for partition, kept in partitions.items()
                    if self._is_over(group, topic, kept, now_ms)
                    and not self.pending.holds(Name(group.group_id, topic, partition))
                ]
                facts += self._drop(group, topic, gone)
            if (
                group.gives_way
                and not group.offsets
                and not (group.awaits_members or self.pending.of_group(group.group_id))
            ):
                facts += self._drop_group(group)
        return Decision(tuple(facts), None)

    def _is_over(self, group: AnyGroup, topic: str, kept: Committed, now_ms: int) -> bool:
        since_ms = group.idle_since_ms(topic, kept)
        if since_ms is None:
            return False
        if kept.expire_timestamp != NO_TIMESTAMP:
            return now_ms >= kept.expire_timestamp
        return now_ms - since_ms >= self._settings.offsets_retention_ms

    def _drop_group(self, group: AnyGroup) -> Iterator[Fact]:
        for topic, partitions in list(group.offsets.items()):
            yield from self._drop(group, topic, list(partitions))
        yield from self._drop_pending(self.pending.of_group(group.group_id))
        yield from self._kinds.end(group)

    def _drop(self, group: AnyGroup, topic: str, partitions: Sequence[int]) -> Iterator[Fact]:
        kept = group.offsets.get(topic, {})
        for partition in partitions:
            name = Name(group.group_id, topic, partition)
            waited = self.pending.overrule(name)
            if kept.pop(partition, None) is not None or waited:
                yield offset_fact(*name, None)
        if not kept:
            group.offsets.pop(topic, None)

    def _drop_pending(self, names: Sequence[Name]) -> Iterator[Fact]:
        for name in names:
            self.pending.overrule(name)
            yield offset_fact(*name, None)

    def _find(self, group_id: str) -> AnyGroup:
        group = self._kinds.groups.get(group_id)
        if group is None:
            raise CoordinatorRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group
