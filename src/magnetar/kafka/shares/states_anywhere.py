"""The states of share partitions, whichever broker keeps them: the share coordinator here, or another broker's.

Others are asked as Kafka's brokers ask each other (KIP-932): Read-, Initialize-, Write-, DeleteShareGroupState. While
a state is on its way from one broker to another, whoever asks waits a while.

Of one state's writes one is on its way at a time, and the next takes all that came meanwhile: they arrive in the order
in which they were decided. What is written twice, as nobody knows whether it arrived, says the same twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from magnetar.base.background import Background
from magnetar.cluster.ownership import Ownership
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shares.runs import RecordState
from magnetar.coordination.shares.share_partition import ShareChanges, StateBatch
from magnetar.kafka.other_brokers import OtherBrokers, OtherBrokerSilent
from magnetar.kafka.shares.state import UNSET, ShareKey, ShareState
from magnetar.kafka.shares.state_coordinator import ShareCoordinator
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode

_READ_PATIENCE_S = 2.0
_WRITE_PATIENCE_S = 20.0
"""How long a state may be on its way. Less than Kafka's clients wait for an answer (30 s); a broker that died is out of
its cluster before that."""
_PAUSE_S = 0.05
_AT_ONCE = 16
"""Groups that one broker is asked for side by side: it is asked for one with each request."""
ON_ITS_WAY = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""What is said of a state, or of a group, that is being moved or loaded: ask again."""
T = TypeVar("T")


@dataclass(slots=True)
class _Write:
    state_epoch: int
    leader_epoch: int
    changes: ShareChanges
    kept: asyncio.Future[ErrorCode]


@dataclass(slots=True)
class _Writing:
    """What is to be written of one state."""

    waiting: list[_Write] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class KnownState(NamedTuple):
    """What operators are told of a state."""

    start_offset: int
    leader_epoch: int
    complete: int
    """How many offsets from there on are done with; negative if nobody knows."""


class StatesAnywhere:
    """Methods raise `CoordinatorRefused`, and what they did is durable on return."""

    def __init__(
        self,
        here: ShareCoordinator,
        others: OtherBrokers,
        ownership: Ownership,
        background: Background,
        home: str = "",
    ) -> None:
        """``home`` is the namespace of a tenant whose groups these are."""
        self._here = here
        self._others = others
        self._ownership = ownership
        self._background = background
        self._home = home
        self._writing: dict[ShareKey, _Writing] = {}

    # One state.

    async def read(self, key: ShareKey, leader_epoch: int = UNSET) -> ShareState:
        """Return a state, an empty one where there is none, and note who leads from now on.

        What was to be written before is in it.
        """
        while (writing := self._writing.get(key)) is not None:
            await writing.over.wait()

        async def there(node_id: int) -> ShareState:
            return await self._read(node_id, key, leader_epoch)

        return await self._ask(key, _READ_PATIENCE_S, lambda: self._here.read(key, leader_epoch), there)

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Begin a state anew."""
        from magnetar.wire.kafka.messages import initialize_share_group_state_request as wire

        async def there(node_id: int) -> None:
            row = wire.PartitionData(
                partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
            )
            await self._ask_one(
                node_id,
                wire.InitializeShareGroupStateRequest(
                    group_id=key.group_id,
                    topics=[wire.InitializeStateData(topic_id=key.topic_id, partitions=[row])],
                ),
            )

        await self._ask(
            key, _WRITE_PATIENCE_S, lambda: self._here.initialize(key, state_epoch, start_offset), there
        )

    async def delete(self, key: ShareKey) -> None:
        """Forget a state, if there is one."""
        from magnetar.wire.kafka.messages import delete_share_group_state_request as wire

        async def there(node_id: int) -> None:
            row = wire.PartitionData(partition=key.partition)
            try:
                await self._ask_one(
                    node_id,
                    wire.DeleteShareGroupStateRequest(
                        group_id=key.group_id,
                        topics=[wire.DeleteStateData(topic_id=key.topic_id, partitions=[row])],
                    ),
                )
            except CoordinatorRefused as refused:
                if refused.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise  # a topic that is gone has no states

        await self._ask(key, _WRITE_PATIENCE_S, lambda: self._here.delete(key), there)

    async def _read(self, node_id: int, key: ShareKey, leader_epoch: int) -> ShareState:
        from magnetar.wire.kafka.messages import read_share_group_state_request as wire

        row = wire.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        request = wire.ReadShareGroupStateRequest(
            group_id=key.group_id, topics=[wire.ReadStateData(topic_id=key.topic_id, partitions=[row])]
        )
        try:
            found = await self._ask_one(node_id, request)
        except CoordinatorRefused as refused:
            if refused.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            # There is such a topic, or nobody would ask: the other one has not heard of it yet.
            raise CoordinatorRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(refused)) from None
        batches = (
            StateBatch(
                each.first_offset, each.last_offset, RecordState(each.delivery_state), each.delivery_count
            )
            for each in found.state_batches
        )
        return ShareState(found.state_epoch, leader_epoch, found.start_offset, 0, tuple(batches))

    async def _ask_one(self, node_id: int, request: Any) -> Any:
        """Return the only row of an answer."""
        answer = await self._others.ask(node_id, request, self._home)
        row = answer.results[0].partitions[0]
        code = ErrorCode(row.error_code)
        if code is not ErrorCode.NONE:
            raise CoordinatorRefused(code, row.error_message or "")
        return row

    async def _ask(
        self,
        key: ShareKey,
        patience_s: float,
        here: Callable[[], Awaitable[T]],
        there: Callable[[int], Awaitable[T]],
    ) -> T:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + patience_s
        while True:
            owner = self._here.owner(key)
            try:
                if owner is None:
                    raise CoordinatorRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                if owner.node_id == self._ownership.node_id:
                    return await here()
                return await there(owner.node_id)
            except OtherBrokerSilent as silent:
                refused = CoordinatorRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(silent))
            except CoordinatorRefused as error:
                if error.code not in ON_ITS_WAY:
                    raise
                refused = error
            if loop.time() >= until_s:
                raise refused
            await asyncio.sleep(_PAUSE_S)

    # Writing.

    def write(
        self, key: ShareKey, state_epoch: int, leader_epoch: int, changes: ShareChanges
    ) -> asyncio.Future[ErrorCode]:
        """Take in what has become of some offsets, in this turn of the loop; await the outcome."""
        writing = self._writing.get(key)
        if writing is None:
            owner = self._here.owner(key)
            if owner is not None and owner.node_id == self._ownership.node_id:
                return self._here.write(key, state_epoch, leader_epoch, changes)
            writing = self._writing[key] = _Writing()
            self._background.once("keeping a share partition's state", self._write_all(key, writing))
        kept: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        writing.waiting.append(_Write(state_epoch, leader_epoch, changes, kept))
        return kept

    async def _write_all(self, key: ShareKey, writing: _Writing) -> None:
        waiting = writing.waiting
        try:
            while waiting:
                now = _alike(waiting)
                del waiting[: len(now)]
                try:
                    await self._write(key, now)
                except CoordinatorRefused as refused:
                    # What came meanwhile is of the same books, which are thrown away by now.
                    for each in (*now, *waiting):
                        if not each.kept.done():
                            each.kept.set_exception(refused)
                    waiting.clear()
                except BaseException:
                    waiting += now
                    raise
                else:
                    for each in now:
                        if not each.kept.done():
                            each.kept.set_result(ErrorCode.NONE)
        finally:
            del self._writing[key]
            writing.over.set()
            for each in waiting:  # this broker ends
                each.kept.cancel()

    async def _write(self, key: ShareKey, writes: list[_Write]) -> None:
        from magnetar.wire.kafka.messages import write_share_group_state_request as wire

        first, last = writes[0], writes[-1]
        batches = [batch for each in writes for batch in each.changes.batches]
        changes = ShareChanges(last.changes.start_offset, last.changes.complete, tuple(batches))

        async def here() -> None:
            await self._here.loaded()
            await self._here.write(key, first.state_epoch, first.leader_epoch, changes)

        async def there(node_id: int) -> None:
            row = wire.PartitionData(
                partition=key.partition,
                state_epoch=first.state_epoch,
                leader_epoch=first.leader_epoch,
                start_offset=changes.start_offset,
                delivery_complete_count=changes.complete,
                state_batches=[
                    wire.StateBatch(
                        first_offset=each.first,
                        last_offset=each.last,
                        delivery_state=each.state,
                        delivery_count=each.deliveries,
                    )
                    for each in batches
                ],
            )
            await self._ask_one(
                node_id,
                wire.WriteShareGroupStateRequest(
                    group_id=key.group_id,
                    topics=[wire.WriteStateData(topic_id=key.topic_id, partitions=[row])],
                ),
            )

        await self._ask(key, _WRITE_PATIENCE_S, here, there)

    # Whole groups.

    async def of_group(self, group_id: str) -> dict[ShareKey, KnownState]:
        """Return what is known of a group's states, wherever they are; refused while somebody does not say."""
        return (await self.of_groups((group_id,)))[group_id]

    async def of_groups(self, group_ids: Collection[str]) -> dict[str, dict[ShareKey, KnownState]]:
        """Return what is known of each group's states; who has which partition is asked once for all of them."""
        await self._here.loaded()
        owners = self._here.owners()
        found = {}
        async for group_id, states in paced(self._here.of_groups(group_ids)):
            found[group_id] = {
                key: KnownState(state.start_offset, state.leader_epoch, state.complete)
                for key, state in states.items()
            }
        nodes = {owner.node_id for owner in owners if owner is not None} - {self._ownership.node_id}
        await _all_of(
            self._add(node_id, groups)
            for node_id in nodes
            for groups in [iter(found.items())]
            for _ in range(min(_AT_ONCE, len(found)))
        )
        if None in owners or owners != self._here.owners():
            raise CoordinatorRefused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "Some states are on their way to another broker."
            )
        return found

    async def _add(self, node_id: int, groups: Iterator[tuple[str, dict[ShareKey, KnownState]]]) -> None:
        """Ask a broker for one group after the other, beside others who do."""
        for group_id, states in groups:
            states.update(await self._of_group(node_id, group_id))

    async def _of_group(self, node_id: int, group_id: str) -> dict[ShareKey, KnownState]:
        from magnetar.wire.kafka.messages.read_share_group_state_summary_request import (
            ReadShareGroupStateSummaryRequest,
        )

        try:
            answer = await self._others.ask(
                node_id, ReadShareGroupStateSummaryRequest(group_id=group_id), self._home
            )
        except OtherBrokerSilent as silent:
            raise CoordinatorRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(silent)) from None
        found = {}
        for topic in answer.results:
            for row in topic.partitions:
                if row.error_code:
                    raise CoordinatorRefused(ErrorCode(row.error_code), row.error_message or "")
                key = ShareKey(group_id, topic.topic_id, row.partition)
                found[key] = KnownState(row.start_offset, row.leader_epoch, row.delivery_complete_count)
        return found


async def _all_of(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all side by side; raise what the first raises that fails, and end the others then."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for each in tasks:
            each.cancel()


def _alike(writes: list[_Write]) -> list[_Write]:
    """Return the first ones that were written in the same epochs."""
    first = writes[0]
    epochs = first.state_epoch, first.leader_epoch
    count = next(
        (n for n, each in enumerate(writes) if (each.state_epoch, each.leader_epoch) != epochs), len(writes)
    )
    return writes[:count]
