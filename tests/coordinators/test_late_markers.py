"""A marker of a transaction that comes late must not end the next one of its producer (KIP-890, KIP-1228)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import (
    offset_fetch_request,
    txn_offset_commit_request,
    write_txn_markers_request,
)
from magnetar.wire.kafka.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from magnetar.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.end_txn_request import EndTxnRequest
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from tests.broker.both import Both, both

OFFSET = 100
UNSTABLE = -1, ErrorCode.UNSTABLE_OFFSET_COMMIT
SETTINGS = {"transaction_state_log_num_partitions": "1", "offsets_topic_num_partitions": "1"}


class Transactional:
    """A producer of transactions that commit offsets and nothing else; ``version`` is its ``transaction.version``."""

    def __init__(self, broker: Both, version: int) -> None:
        self.ask = broker.kafka.ask
        self.version = version
        self.producer_id = self.epoch = -1

    async def begin(self) -> None:
        asked = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        while (made := await self.ask(asked, 4)).error_code:  # noqa: ASYNC110 - it is the broker that is asked
            await asyncio.sleep(0.01)
        self.producer_id, self.epoch = made.producer_id, made.producer_epoch

    def _who(self) -> dict[str, Any]:
        return {"transactional_id": "t", "producer_id": self.producer_id, "producer_epoch": self.epoch}

    async def add(self) -> None:
        asked = AddOffsetsToTxnRequest(group_id="g", **self._who())
        while (await self.ask(asked, 3)).error_code:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)  # the transaction before is being ended

    async def commit_offset(self, offset: int) -> None:
        row = txn_offset_commit_request.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset
        )
        topic = txn_offset_commit_request.TxnOffsetCommitRequestTopic(name="orders", partitions=[row])
        asked = txn_offset_commit_request.TxnOffsetCommitRequest(group_id="g", topics=[topic], **self._who())
        assert (await self.ask(asked, 5 if self.version == 2 else 4)).topics[0].partitions[0].error_code == 0

    async def end(self) -> None:
        answer = await self.ask(EndTxnRequest(committed=True, **self._who()), 5 if self.version == 2 else 4)
        assert answer.error_code == 0
        if self.version == 2:
            self.epoch = answer.producer_epoch

    async def mark(self, epoch: int, version: int) -> ErrorCode:
        """Have the end of a transaction written as another broker would; ``version`` is that of its client."""
        topic = write_txn_markers_request.WritableTxnMarkerTopic(
            name="__consumer_offsets", partition_indexes=[0]
        )
        marker = write_txn_markers_request.WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=epoch,
            transaction_result=True,
            topics=[topic],
            transaction_version=version,
        )
        answer = await self.ask(write_txn_markers_request.WriteTxnMarkersRequest(markers=[marker]), 2)
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)

    async def fetched(self, *, stable: bool) -> tuple[int, ErrorCode]:
        topic = offset_fetch_request.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
        group = offset_fetch_request.OffsetFetchRequestGroup(group_id="g", topics=[topic])
        asked = offset_fetch_request.OffsetFetchRequest(groups=[group], require_stable=stable)
        row = (await self.ask(asked, 9)).groups[0].topics[0].partitions[0]
        return row.committed_offset, ErrorCode(row.error_code)

    async def committed(self) -> int:
        while (found := await self.fetched(stable=True))[1]:
            assert found == UNSTABLE
            await asyncio.sleep(0.01)
        return found[0]


@pytest.mark.parametrize(
    ("version", "later", "outcome"),
    [
        (
            2,
            0,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ),  # of the transaction before, sent again: it bore the next epoch
        (2, -1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 1, ErrorCode.NONE),  # its own
        (0, 0, ErrorCode.NONE),  # an operator's, who knows the epoch of what was written
        (0, -1, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_offsets_of_the_next_transaction_stay_pending(
    version: int, later: int, outcome: ErrorCode
) -> None:
    async with both(("kafka",), **SETTINGS) as broker:
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        await broker.kafka.ask(CreateTopicsRequest(topics=[topic]), 7)
        client = Transactional(broker, 2)
        await client.begin()
        await client.add()
        await client.commit_offset(OFFSET)
        await client.end()
        await client.add()
        assert await client.committed() == OFFSET
        await client.commit_offset(2 * OFFSET)
        assert await client.fetched(stable=True) == UNSTABLE
        assert await client.fetched(stable=False) == (OFFSET, ErrorCode.NONE)
        assert await client.mark(client.epoch + later, version) == outcome
        answer, _ = await client.fetched(stable=False)
        assert answer == (OFFSET if outcome else 2 * OFFSET)
        if outcome:
            await client.end()
            assert await client.committed() == 2 * OFFSET
