"""However few bytes ask for them: one request makes as many partitions as Kafka lets it, whichever request it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.topics.topic import MAX_NEW_PARTITIONS
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.hostile.client import Wire
from tests.process import BrokerProcess

_MISSING_INTERNAL_TOPICS = 3
TOO_MANY = "Excessively large number of partitions per request."


@pytest.fixture(scope="module")
def made(target: BrokerProcess) -> str:
    """A topic of 200 partitions."""
    admin = AdminClient({"bootstrap.servers": target.address})
    admin.create_topics([NewTopic("source", 200)])["source"].result(60)
    return "source"


@pytest.fixture
def fresh(target: BrokerProcess) -> Iterator[Wire]:
    with Wire(target.host_and_port) as wire:
        yield wire


def beat(wire: Wire, group: str, parts: list[Subtopology]) -> str:
    answer = wire.ask(
        StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            rebalance_timeout_ms=9000,
            process_id="p",
            topology=Topology(epoch=1, subtopologies=parts),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
    )
    assert answer.error_code == ErrorCode.NONE
    (detail,) = (each.status_detail for each in answer.status if each.status_code == _MISSING_INTERNAL_TOPICS)
    return str(detail)


def topics(wire: Wire, start: str) -> dict[str, int]:
    """Return the partitions of all topics whose names begin so."""
    found = wire.ask(MetadataRequest(topics=None)).topics
    return {each.name: len(each.partitions) for each in found if each.name.startswith(start)}


@pytest.mark.parametrize("partitions", [2**31 - 1, MAX_NEW_PARTITIONS + 1])
def test_a_heartbeat_makes_no_repartition_topic_of_too_many(fresh: Wire, made: str, partitions: int) -> None:
    group = f"big{partitions}"
    name = f"{group}-rep"
    parts = [
        Subtopology(subtopology_id="0", source_topics=[made], repartition_sink_topics=[name]),
        Subtopology(
            subtopology_id="1", repartition_source_topics=[TopicInfo(name=name, partitions=partitions)]
        ),
    ]
    told = beat(fresh, group, parts)
    assert told == f"Internal topics are missing: {name}; Creation failed: {name} ({TOO_MANY})."
    assert topics(fresh, group) == {}


def test_a_heartbeat_makes_no_changelogs_of_too_many_in_all(fresh: Wire, made: str) -> None:
    """Each of few partitions, as many as the source has, but many of them."""
    changelogs = [TopicInfo(name=f"logs-{number:02}") for number in range(MAX_NEW_PARTITIONS // 200 + 1)]
    part = Subtopology(subtopology_id="0", source_topics=[made], state_changelog_topics=changelogs)
    told = beat(fresh, "logs", [part])
    assert told.count(TOO_MANY) == len(changelogs)
    assert topics(fresh, "logs") == {}


def test_what_a_heartbeat_may_make_is_made_whatever_else_is_refused(fresh: Wire, made: str) -> None:
    changelogs = [TopicInfo(name="fine-log"), TopicInfo(name="fine-copies", replication_factor=7)]
    part = Subtopology(subtopology_id="0", source_topics=[made], state_changelog_topics=changelogs)
    told = beat(fresh, "fine", [part])
    assert "fine-log (" not in told
    assert "fine-copies (" in told
    assert topics(fresh, "fine") == {"fine-log": 200}


def test_asking_for_too_many_unknown_topics_makes_none(fresh: Wire) -> None:
    asked = [MetadataRequestTopic(name=f"unknown{number}") for number in range(MAX_NEW_PARTITIONS + 1)]
    answer = fresh.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True))
    assert {each.error_code for each in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert topics(fresh, "unknown") == {}
    fresh.ask(MetadataRequest(topics=asked[:2], allow_auto_topic_creation=True))
    assert topics(fresh, "unknown") == {"unknown0": 1, "unknown1": 1}
