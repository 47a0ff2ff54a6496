"""How much is left for a share group: the ends of its partitions, asked of whichever brokers lead them (KIP-1226)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from magnetar.kafka.errors import code_for
from magnetar.kafka.handlers.list_offsets import LATEST
from magnetar.kafka.other_brokers import OtherBrokerSilent
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.shares.shares import Shares
    from magnetar.kafka.shares.states_anywhere import KnownState
    from magnetar.topics.topic import Topic
    from magnetar.wire.kafka.messages.describe_share_group_offsets_response import (
        DescribeShareGroupOffsetsResponsePartition,
    )


class _Wanted(NamedTuple):
    topic: Topic
    partition: int
    asked: list[tuple[DescribeShareGroupOffsetsResponsePartition, KnownState]]


class Lags:
    """Those of one answer. Each partition's end is asked for once, however many rows want it."""

    def __init__(self, context: RequestContext, shares: Shares) -> None:
        self._context = context
        self._shares = shares
        self._wanted: dict[tuple[bytes, int], _Wanted] = {}

    def want(self, row: DescribeShareGroupOffsetsResponsePartition, topic: Topic, state: KnownState) -> None:
        """Have a row told how much is left after a state."""
        index = row.partition_index
        wanted = self._wanted.setdefault((topic.topic_id, index), _Wanted(topic, index, []))
        wanted.asked.append((row, state))

    async def fill(self) -> None:
        """Fill all rows, with an error where the end cannot be had now."""
        ownership = self._context.kafka.broker.cluster.ownership
        by_node: dict[int, list[_Wanted]] = {}
        async for wanted in paced(self._wanted.values()):
            owner = ownership.owner(wanted.topic.name, wanted.partition)
            if owner is None or owner.node_id == ownership.node_id:
                await self._here(wanted)
            else:
                by_node.setdefault(owner.node_id, []).append(wanted)
        await asyncio.gather(*(self._there(node_id, those) for node_id, those in by_node.items()))

    async def _here(self, wanted: _Wanted) -> None:
        try:
            partition = await self._context.kafka.partitions.get(wanted.topic, wanted.partition)
        except Exception as error:
            await _refuse(wanted, code_for(error))
        else:
            await _tell(wanted, partition.log.high_watermark)

    async def _there(self, node_id: int, those: list[_Wanted]) -> None:
        from magnetar.wire.kafka.messages.list_offsets_request import (
            ListOffsetsPartition,
            ListOffsetsRequest,
            ListOffsetsTopic,
        )

        topics: dict[str, list[_Wanted]] = {}
        for wanted in those:
            topics.setdefault(wanted.topic.kafka_name, []).append(wanted)
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=each.partition, timestamp=LATEST)
                        for each in rows
                    ],
                )
                for name, rows in topics.items()
            ],
        )
        try:
            answer = await self._shares.others.ask(node_id, request)
        except OtherBrokerSilent as silent:
            for wanted in those:
                await _refuse(wanted, ErrorCode.LEADER_NOT_AVAILABLE, str(silent))
            return
        for topic in answer.topics:
            told = {each.partition_index: each for each in topic.partitions}
            for wanted in topics[topic.name]:
                found = told[wanted.partition]
                if found.error_code:
                    await _refuse(wanted, ErrorCode(found.error_code))
                else:
                    await _tell(wanted, found.offset)


async def _tell(wanted: _Wanted, end: int) -> None:
    async for row, state in paced(wanted.asked):
        row.lag = max(end - state.start_offset - max(state.complete, 0), 0)


async def _refuse(wanted: _Wanted, code: ErrorCode, why: str | None = None) -> None:
    async for row, _ in paced(wanted.asked):
        row.error_code, row.error_message = code, why
