"""The share coordinator: finds the partition of ``__share_group_state`` that has a state; its decider decides."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from magnetar.base.background import Background
from magnetar.cluster.ownership import Owned
from magnetar.coordination.decision import Decision
from magnetar.coordination.following import Following
from magnetar.coordination.log import OffsetsLog
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shard import Shard
from magnetar.coordination.shares.share_partition import ShareChanges
from magnetar.kafka.coordinators.groups import partition_of, steady_clock_ms
from magnetar.kafka.shares.state import ShareKey, ShareState
from magnetar.kafka.shares.state_decider import ShareStates
from magnetar.wire.kafka.errors import ErrorCode

T = TypeVar("T")


class ShareCoordinator:
    """All states that this broker has. Methods raise `CoordinatorRefused`, and what they did is durable on return."""

    def __init__(
        self, log: OffsetsLog, background: Background, clock: Callable[[], int] = steady_clock_ms
    ) -> None:
        self._log = log
        self._shards = [
            Shard(index, log, lambda: ShareStates(clock), clock, background, about="share groups")
            for index in range(log.partitions)
        ]
        self._following = Following(log, self._shards)

    # Life cycle.

    async def follow_ownership(self) -> None:
        """Let go of the partitions that another broker has by now, and begin to load those that have come here."""
        await self._following.follow()

    async def loaded(self) -> None:
        """Wait until every partition that this broker has is loaded."""
        await self._following.loaded()

    async def close(self) -> None:
        """Keep what was decided, then send away whoever waits."""
        await self._following.close()

    # Finding.

    def partition_of(self, key: ShareKey) -> int:
        """Return the partition that has a state, as Kafka chooses it."""
        topic_id = base64.urlsafe_b64encode(key.topic_id).rstrip(b"=").decode()
        return partition_of(f"{key.group_id}:{topic_id}:{key.partition}", len(self._shards))

    def owner(self, key: ShareKey) -> Owned | None:
        """Return the broker that has a state; None if nobody does now."""
        return self._log.owner(self.partition_of(key))

    def owners(self) -> list[Owned | None]:
        """Return the broker that has each partition of states."""
        return [self._log.owner(shard.partition) for shard in self._shards]

    def owner_of(self, text: str) -> Owned | None:
        """Return the broker that has the state of ``group:topic id:partition``; None if nobody does now."""
        return self._log.owner(partition_of(text, len(self._shards)))

    def of_groups(self, group_ids: Iterable[str]) -> Iterator[tuple[str, dict[ShareKey, ShareState]]]:
        """Yield the states of groups that are kept here; refused while some are not loaded."""
        deciders = self._deciders()
        for group_id in group_ids:
            found: dict[ShareKey, ShareState] = {}
            for decider in deciders:
                found.update(decider.of_group(group_id))
            yield group_id, found

    def _deciders(self) -> list[ShareStates]:
        """Return what knows of a state here, which most partitions of one broker alone do not."""
        found = (shard.look() for shard in self._shards if shard.is_mine)
        return [decider for decider in found if decider is not None and decider.states]

    # Asking.

    async def read(self, key: ShareKey, leader_epoch: int = -1) -> ShareState:
        """Return a state, an empty one where there is none, and note who leads from now on."""
        return await self._ask(key, lambda decider: decider.read(key, leader_epoch))

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Begin a state anew."""
        await self._ask(key, lambda decider: decider.initialize(key, state_epoch, start_offset))

    def write(
        self, key: ShareKey, state_epoch: int, leader_epoch: int, changes: ShareChanges
    ) -> asyncio.Future[ErrorCode]:
        """Take in what has become of some offsets, in this turn of the loop; await the outcome."""
        return self._shard(key).ask(
            lambda decider, token: decider.write(
                key, state_epoch, leader_epoch, changes.start_offset, changes.complete, changes.batches
            )
        )

    async def delete(self, key: ShareKey) -> None:
        """Forget a state, if there is one."""
        await self._ask(key, lambda decider: decider.delete(key))

    def forget_topic(self, topic_id: bytes) -> None:
        """Forget all states of a topic that is gone, soon."""
        for shard in self._shards:
            shard.tell(
                lambda decider: decider.delete_all(lambda key: key.topic_id == topic_id), though_loading=True
            )

    async def _ask(self, key: ShareKey, decide: Callable[[ShareStates], Decision[T]]) -> T:
        shard = self._shard(key)
        try:
            return await shard.ask(lambda decider, token: decide(decider))
        except CoordinatorRefused as refused:
            if refused.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
        await shard.reloaded()  # it takes a moment, and whoever asks would only ask again
        return await shard.ask(lambda decider, token: decide(decider))

    def _shard(self, key: ShareKey) -> Shard[ShareStates]:
        return self._shards[self.partition_of(key)]
