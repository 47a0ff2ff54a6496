"""Which epochs members of new groups have, as Kafka 4.4 gives them: a group begins with 1, and 0 is of who joins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar.kafka.coordinators.consumer import members
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import txn_offset_commit_request
from magnetar.wire.kafka.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from magnetar.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.wire.kafka.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.broker.both import Both, both

MEMBER = "8nEgvPTeQbeBdS2yrwbrDg"
AT_ONCE = {"group_consumer_assignment_interval_ms": "0"}


async def make(broker: Both, name: str, partitions: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = await broker.kafka.ask(CreateTopicsRequest(topics=[topic]), 7)
    assert answer.topics[0].error_code == 0


async def beat(broker: Both, epoch: int, **said: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=MEMBER, member_epoch=epoch, **said)
    answer = await broker.kafka.ask(request, 1)
    assert answer.error_code == 0, answer.error_message
    return answer


def count(answer: Any) -> int:
    return sum(len(topic.partitions) for topic in answer.assignment.topic_partitions)


async def until_assigned(broker: Both, epoch: int) -> Any:
    while True:
        answer = await beat(broker, epoch)
        if answer.assignment is not None:
            return answer
        await asyncio.sleep(0.01)


async def test_who_subscribes_first_is_in_the_second_epoch() -> None:
    async with both(("kafka",), **AT_ONCE) as broker:
        await make(broker, "orders", 3)
        joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
        answer = await beat(broker, 0, **joins)
        assert (answer.member_epoch, count(answer)) == (2, 3)
        assert (await beat(broker, 2)).member_epoch == 2


async def test_who_subscribes_to_nothing_yet_asks_for_no_new_epoch() -> None:
    async with both(("kafka",), **AT_ONCE) as broker:
        joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [], "topic_partitions": []}
        answer = await beat(broker, 0, **joins)
        assert (answer.member_epoch, count(answer)) == (1, 0)


async def test_an_expression_begins_an_epoch_when_it_finds_topics_and_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members, "REGEX_PAUSE_MS", 0)
    async with both(("kafka",), **AT_ONCE) as broker:
        joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_regex": "ord.*", "topic_partitions": []}
        answer = await beat(broker, 0, **joins)
        assert (answer.member_epoch, count(answer)) == (1, 0)
        await asyncio.sleep(0.05)  # it has been resolved, and means nothing
        assert (await beat(broker, 1)).member_epoch == 1
        await make(broker, "orders", 3)
        answer = await until_assigned(broker, 1)
        assert (answer.member_epoch, count(answer)) == (2, 3)
        assert (await beat(broker, 2)).member_epoch == 2


async def test_another_assignor_begins_an_epoch() -> None:
    async with both(("kafka",), **AT_ONCE) as broker:
        await make(broker, "orders", 3)
        joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
        assert (await beat(broker, 0, **joins)).member_epoch == 2
        assert (await beat(broker, 2, server_assignor="uniform")).member_epoch == 2  # the default, as before
        assert (await beat(broker, 2, server_assignor="range")).member_epoch == 3


async def test_a_share_group_begins_so_too() -> None:
    async with both(("kafka",)) as broker:
        await make(broker, "orders", 3)
        request = ShareGroupHeartbeatRequest(
            group_id="g", member_id=MEMBER, member_epoch=0, subscribed_topic_names=["orders"]
        )
        answer = await broker.kafka.ask(request, 1)
        assert (answer.error_code, answer.member_epoch) == (0, 2)


async def test_a_producer_is_told_of_another_epoch_what_ends_its_transaction_and_not_itself() -> None:
    """Java's producers take STALE_MEMBER_EPOCH, which they do not know, for their own end."""
    settings = {"transaction_state_log_num_partitions": "1", "offsets_topic_num_partitions": "1"}
    async with both(("kafka",), **AT_ONCE, **settings) as broker:
        await make(broker, "orders", 3)
        joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
        assert (await beat(broker, 0, **joins)).member_epoch == 2
        ask = broker.kafka.ask
        asked = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        while (made := await ask(asked, 4)).error_code:
            assert made.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await asyncio.sleep(0.01)
        who = {
            "transactional_id": "t",
            "producer_id": made.producer_id,
            "producer_epoch": made.producer_epoch,
        }
        added = await ask(AddOffsetsToTxnRequest(group_id="g", **who), 3)
        assert added.error_code == 0
        codes = []
        for epoch in (2, 7):
            row = txn_offset_commit_request.TxnOffsetCommitRequestPartition(
                partition_index=0, committed_offset=1
            )
            topic = txn_offset_commit_request.TxnOffsetCommitRequestTopic(name="orders", partitions=[row])
            commit = txn_offset_commit_request.TxnOffsetCommitRequest(
                group_id="g", generation_id_or_member_epoch=epoch, member_id=MEMBER, topics=[topic], **who
            )
            codes.append((await ask(commit, 3)).topics[0].partitions[0].error_code)
        assert codes == [ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION]
