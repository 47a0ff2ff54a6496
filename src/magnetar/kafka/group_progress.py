"""Kafka's groups as the rest of the broker sees them: whether somebody is there, and how far they are.

A group's coordinator may be another broker than the one that has a partition which it reads; that one is asked, of many
groups in one message of JSON:

    asked     [[group, topic, partition, ...], ...]
    answered  [{"is": answer} or {"error": why}, ...]
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from magnetar.base.errors import BrokerError
from magnetar.base.questions import Questions
from magnetar.coordination.progress import UNKNOWN, GroupIsActive, GroupStanding, Read
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.facts import MOVED_BY_PULSAR, Committer, OffsetCommit
from magnetar.kafka.coordinators.groups import GroupCoordinator
from magnetar.node.broker import Broker
from magnetar.wire.kafka.errors import ErrorCode

LOOK, MOVE, FORGET = "groups.look", "groups.move", "groups.forget"
_NEWEST_COMMIT_VERSION = 9
_AT_ONCE = 500
_Row = list[Any]


class GroupProgress:
    """Implements `magnetar.coordination.progress.Groups` on a coordinator, and asks those of other brokers."""

    def __init__(self, broker: Broker, groups: GroupCoordinator) -> None:
        self._broker = broker
        self._groups = groups
        self._asked = Questions(broker.background, "asking about groups", self._ask, _AT_ONCE)
        self._answer(LOOK, 0, self._look)
        self._answer(MOVE, 2, self._move)
        self._answer(FORGET, 0, self._forget)

    async def look(self, read: Read) -> GroupStanding:
        """Tell how it stands with a group now; one that is not loaded yet may have members."""
        there = self._elsewhere(read.group)
        if there is None:
            return await self._look(read)
        try:
            answer = await self._asked.ask((there, LOOK), list(read))
        except BrokerError:
            return UNKNOWN
        return GroupStanding(*answer["is"]) if "is" in answer else UNKNOWN

    async def move(self, read: Read, offset: int, *, though_active: bool = False) -> None:
        """Commit for a group; raise `GroupIsActive` if it has members, or is not loaded yet."""
        there = self._elsewhere(read.group)
        if there is None:
            await self._move(read, offset, though_active)
        else:
            await self._have_done(there, MOVE, [*read, offset, though_active])

    async def forget(self, read: Read) -> None:
        """Forget what a group committed for a partition; raise `GroupIsActive`."""
        there = self._elsewhere(read.group)
        if there is None:
            await self._forget(read)
        else:
            await self._have_done(there, FORGET, list(read))

    def _elsewhere(self, group: str) -> int | None:
        """Return the broker that coordinates a group; None if it is this one, or nobody: then it is refused here."""
        owner = self._groups.owner_of(group)
        return (
            None
            if owner is None or owner.node_id == self._broker.cluster.ownership.node_id
            else owner.node_id
        )

    # -- of groups that are coordinated here

    async def _look(self, read: Read) -> GroupStanding:
        try:
            is_active = bool(self._groups.describe(read.group).members)
        except CoordinatorRefused as refused:
            is_active = refused.code != ErrorCode.GROUP_ID_NOT_FOUND
        try:
            is_share = self._groups.share_group(read.group) is not None
            found = self._groups.committed(read.group).get(read.topic, {}).get(read.partition)
        except CoordinatorRefused:
            return UNKNOWN._replace(is_active=is_active)
        return GroupStanding(is_active, is_share, None if found is None else found.offset)

    async def _move(self, read: Read, offset: int, though_active: bool) -> None:
        topic = self._broker.topic(read.topic)
        commit = OffsetCommit(topic.kafka_name, topic.topic_id, read.partition, offset, -1, MOVED_BY_PULSAR)
        who = Committer(is_broker=though_active)
        try:
            await self._groups.commit(read.group, who, [commit], _NEWEST_COMMIT_VERSION, tell=False)
        except CoordinatorRefused as refused:
            raise GroupIsActive(
                f"group {read.group} has members; it can be moved when they left"
            ) from refused

    async def _forget(self, read: Read) -> None:
        partition = read.topic, read.partition
        try:
            (code,) = await self._groups.delete_offsets(read.group, [partition], tell=False)
        except CoordinatorRefused as refused:
            code = refused.code
        if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            raise GroupIsActive(f"Kafka group {read.group} has members; its offsets stay")

    # -- asking other brokers, and answering them

    async def _have_done(self, node_id: int, about: str, row: _Row) -> None:
        answer = await self._asked.ask((node_id, about), row)
        if "error" in answer:
            raise GroupIsActive(answer["error"])

    async def _ask(self, whom: tuple[int, str], rows: Sequence[_Row]) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = await self._broker.cluster.between.ask(*whom, list(rows))
        return answers

    def _answer(self, about: str, more: int, one: Callable[..., Awaitable[Any]]) -> None:
        """Have what others ask be answered; ``more`` fields follow group, topic and partition."""

        def read(asked: object) -> list[_Row]:
            if not isinstance(asked, list) or len(asked) > _AT_ONCE:
                raise ValueError
            if not all(_is_row(row, more) for row in asked):
                raise ValueError
            return asked

        async def answered(row: _Row) -> dict[str, Any]:
            try:
                return {"is": await one(Read(*row[:3]), *row[3:])}
            except BrokerError as error:
                return {"error": str(error)}

        async def answers(rows: list[_Row]) -> list[dict[str, Any]]:
            return await asyncio.gather(*map(answered, rows))

        self._broker.cluster.between.answer(about, read, answers)


def _is_row(row: object, more: int) -> bool:
    if not isinstance(row, list) or len(row) != 3 + more:
        return False
    kinds = (str, str, int, int, bool)[: len(row)]
    return all(type(field) is kind for field, kind in zip(row, kinds, strict=True))
