"""OffsetDelete of groups and topics that are not there."""

from __future__ import annotations

import pytest

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import offset_commit_request as committing
from magnetar.wire.kafka.messages import offset_delete_request as deleting
from magnetar.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from tests.broker.both import both


@pytest.mark.parametrize("topic", ["orders", "nowhere"])
@pytest.mark.parametrize("group", ["there", "nobody", ""])
async def test_the_group_is_judged_before_its_topics(group: str, topic: str) -> None:
    async with both(("kafka",)) as broker:
        made = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        await broker.kafka.ask(CreateTopicsRequest(topics=[made]), 7)
        row = committing.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
        kept = committing.OffsetCommitRequestTopic(name="orders", partitions=[row])
        asked = committing.OffsetCommitRequest(
            group_id="there", generation_id_or_member_epoch=-1, topics=[kept]
        )
        assert (await broker.kafka.ask(asked, 8)).topics[0].partitions[0].error_code == 0
        partition = deleting.OffsetDeleteRequestPartition(partition_index=0)
        wanted = deleting.OffsetDeleteRequestTopic(name=topic, partitions=[partition])
        answer = await broker.kafka.ask(deleting.OffsetDeleteRequest(group_id=group, topics=[wanted]), 0)
        assert (
            answer.error_code
            == {
                "there": ErrorCode.NONE,
                "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
                "": ErrorCode.INVALID_GROUP_ID,
            }[group]
        )
        if group == "there":
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert answer.topics[0].partitions[0].error_code == (unknown if topic == "nowhere" else 0)
        else:
            assert answer.topics == []
