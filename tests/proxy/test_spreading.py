"""Cutting requests and joining answers: whatever the rows and their owners, each row is asked once, of its owner."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.kafka.rows import KeyRows, PartitionRows
from magnetar.proxy.kafka.spreading import (
    codes_in,
    cut_keys,
    cut_partitions,
    join_keys,
    join_partitions,
    keys_of,
    partitions_of,
)
from magnetar.wire.kafka.messages import ApiKey
from magnetar.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from magnetar.wire.kafka.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from magnetar.wire.kafka.messages.describe_log_dirs_response import (
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from magnetar.wire.kafka.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

OWNERS = st.sampled_from([1, 2, 3, None])
TOPICS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.lists(st.integers(0, 9), unique=True, min_size=1), min_size=1
)


def rows_of(key: ApiKey) -> tuple[PartitionRows, PartitionRows]:
    asked, answered = ROUTE_BY_KEY[key].asked, ROUTE_BY_KEY[key].answered
    assert isinstance(asked, PartitionRows)
    assert isinstance(answered, PartitionRows)
    return asked, answered


@given(TOPICS, st.data())
def test_each_partition_is_asked_of_its_owner_and_answered_once(
    topics: dict[str, list[int]], data: st.DataObject
) -> None:
    asked, answered = rows_of(ApiKey.PRODUCE)
    owners = {(name, index): data.draw(OWNERS) for name, indexes in topics.items() for index in indexes}
    request = ProduceRequest(
        acks=-1,
        timeout_ms=77,
        transactional_id="x",
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[PartitionProduceData(index=i, records=b"%d" % i) for i in indexes],
            )
            for name, indexes in topics.items()
        ],
    )
    before = repr(request)
    parts = cut_partitions(asked, request, lambda topic, index: owners[str(topic), index])
    assert repr(request) == before, "what is cut stays whole"
    for owner, part in parts.items():
        assert (part.acks, part.timeout_ms, part.transactional_id) == (-1, 77, "x")
        assert all(owners[row] == owner for row in partitions_of(asked, part))  # type: ignore[index]
    asked_of = [row for part in parts.values() for row in partitions_of(asked, part)]
    assert sorted(map(str, asked_of)) == sorted(map(str, owners))
    answers = [
        ProduceResponse(
            throttle_time_ms=number,
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=each.index, base_offset=each.index * 7)
                        for each in topic.partition_data
                    ],
                )
                for topic in part.topic_data
            ],
        )
        for number, part in enumerate(parts.values())
    ]
    joined = join_partitions(answered, answers)
    assert [topic.name for topic in joined.responses] == list(dict.fromkeys(t.name for t in joined.responses))
    told = {(t.name, r.index): r.base_offset for t in joined.responses for r in t.partition_responses}
    assert told == {row: row[1] * 7 for row in owners}
    assert joined.throttle_time_ms == len(parts) - 1
    ProduceResponse.decode(joined.encode(9), 9)


@given(st.lists(st.text(max_size=3), unique=True, min_size=1), st.data())
def test_each_group_is_asked_of_its_coordinator(groups: list[str], data: st.DataObject) -> None:
    asked, answered = (
        ROUTE_BY_KEY[ApiKey.DESCRIBE_GROUPS].asked,
        ROUTE_BY_KEY[ApiKey.DESCRIBE_GROUPS].answered,
    )
    assert isinstance(asked, KeyRows)
    assert isinstance(answered, KeyRows)
    owners = {group: data.draw(OWNERS) for group in groups}
    parts = cut_keys(asked, DescribeGroupsRequest(groups=groups), owners.__getitem__)
    assert sorted(key for part in parts.values() for key in keys_of(asked, part)) == sorted(groups)
    for owner, part in parts.items():
        assert {owners[key] for key in keys_of(asked, part)} == {owner}
    answers = [
        DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=key, error_code=len(key)) for key in part.groups]
        )
        for part in parts.values()
    ]
    joined = join_keys(answered, answers)
    assert sorted(each.group_id for each in joined.groups) == sorted(groups)
    assert sorted(codes_in(joined)) == sorted(map(len, groups))


def test_markers_are_cut_below_their_producers() -> None:
    asked = ROUTE_BY_KEY[ApiKey.WRITE_TXN_MARKERS].asked
    assert isinstance(asked, PartitionRows)
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer,
                topics=[WritableTxnMarkerTopic(name="a", partition_indexes=[0, 1, 2, 3])],
            )
            for producer in (7, 8)
        ]
    )
    parts = cut_partitions(asked, request, lambda topic, index: index % 2)
    assert {
        owner: [(m.producer_id, t.partition_indexes) for m in part.markers for t in m.topics]
        for owner, part in parts.items()
    } == {0: [(7, [0, 2]), (8, [0, 2])], 1: [(7, [1, 3]), (8, [1, 3])]}


def test_directories_and_producers_of_several_brokers_are_put_together() -> None:
    def told(directory: str, *topics: str) -> DescribeLogDirsResponse:
        rows = [DescribeLogDirsTopic(name=each, partitions=[]) for each in topics]
        result = DescribeLogDirsResult(log_dir=directory, topics=rows, total_bytes=1, usable_bytes=1)
        return DescribeLogDirsResponse(results=[result])

    answered = ROUTE_BY_KEY[ApiKey.DESCRIBE_LOG_DIRS].answered
    assert isinstance(answered, KeyRows)
    answers = [told("/data", "a"), told("/data", "b", "c"), told("/other", "d"), told("/data")]
    joined = join_keys(answered, answers)
    assert {each.log_dir: [topic.name for topic in each.topics] for each in joined.results} == {
        "/data": ["a", "b", "c"],
        "/other": ["d"],
    }
    assert [len(each.results[0].topics) for each in answers] == [
        1,
        2,
        1,
        0,
    ]  # what brokers said stays as it was
    marked = ROUTE_BY_KEY[ApiKey.WRITE_TXN_MARKERS].answered
    assert marked == KeyRows("markers", "producer_id", "topics")
