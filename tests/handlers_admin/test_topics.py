"""Topics through the protocol: made, told of, grown and deleted, with Kafka's errors for what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.topics.just_deleted import REMEMBERED_S, WITHHELD_S, JustDeleted
from magnetar.topics.names import INTERNAL_TOPICS
from magnetar.topics.topic import MAX_NEW_PARTITIONS
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from magnetar.wire.kafka.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from magnetar.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from magnetar.wire.kafka.messages.describe_cluster_request import DescribeClusterRequest
from magnetar.wire.kafka.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from magnetar.wire.kafka.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.handlers_admin.conversation import Client, client

E = ErrorCode


def wanted(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignments: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


async def create(client: Client, *topics: CreatableTopic, version: int = 7, dry: bool = False) -> list[tuple]:
    answer = await client.ask(CreateTopicsRequest(topics=list(topics), validate_only=dry), version)
    return [(topic.name, E(topic.error_code), topic.error_message) for topic in answer.topics]


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_topic_is_made_in_every_version(tmp_path: Path, version: int) -> None:
    kafka = await client(tmp_path)
    asked = CreateTopicsRequest(topics=[wanted("t", 3, configs={"retention.ms": "9"})])
    (made,) = (await kafka.ask(asked, version)).topics
    assert (made.name, made.error_code) == ("t", E.NONE)
    topic = kafka.broker.topic("t")
    assert (topic.partitions, topic.config.retention_ms) == (3, 9)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        sources = {config.name: (config.value, config.config_source) for config in made.configs}
        assert sources["retention.ms"] == ("9", 1)
        assert sources["segment.bytes"] == ("1073741824", 5)
    if version == 7:
        assert made.topic_id == topic.topic_id


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (wanted("taken"), E.TOPIC_ALREADY_EXISTS, "Topic 'taken' already exists."),
        (wanted("taken", 0, 9), E.TOPIC_ALREADY_EXISTS, "Topic 'taken' already exists."),
        (wanted("__cluster_metadata"), E.INVALID_REQUEST, "internal topic __cluster_metadata is prohibited"),
        (wanted("no blanks"), E.INVALID_TOPIC_EXCEPTION, "no blanks"),
        (wanted(""), E.INVALID_TOPIC_EXCEPTION, "empty"),
        (wanted(".."), E.INVALID_TOPIC_EXCEPTION, "'..' is not allowed"),
        (wanted("a b"), E.INVALID_TOPIC_EXCEPTION, "'a b' contains one or more characters other than ASCII"),
        (wanted("a" * 250), E.INVALID_TOPIC_EXCEPTION, "249"),
        (wanted("t", 0), E.INVALID_PARTITIONS, "non-positive"),
        (wanted("t", -2), E.INVALID_PARTITIONS, "non-positive"),
        (wanted("t", 1, 0), E.INVALID_REPLICATION_FACTOR, "larger than 0"),
        (wanted("t", 1, 3), E.INVALID_REPLICATION_FACTOR, "only 1 broker"),
        (wanted("t", 20_000), E.POLICY_VIOLATION, "Excessively large"),
        # Too many to be looked at: neither that they begin with 1 nor that there is no broker 9 is found out.
        (
            wanted("t", -1, -1, {each: [9] for each in range(1, 10_002)}),
            E.POLICY_VIOLATION,
            "Excessively large",
        ),
        (
            wanted("t", -1, -1, {each: [9] for each in range(1, 10_001)}),
            E.INVALID_REPLICA_ASSIGNMENT,
            "consecutive",
        ),
        (wanted("t", -1, 1, {0: [0]}), E.INVALID_REQUEST, "replication factor was not set to -1"),
        (wanted("t", 1, -1, {0: [0]}), E.INVALID_REQUEST, "not set to -1"),
        (wanted("t", -1, -1, {0: [0], 2: [0]}), E.INVALID_REPLICA_ASSIGNMENT, "consecutive"),
        (wanted("t", -1, -1, {0: [9]}), E.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
        (wanted("t", -1, -1, {0: []}), E.INVALID_REPLICA_ASSIGNMENT, "empty replica list"),
        (wanted("t", -1, -1, {0: [0, 0]}), E.INVALID_REPLICA_ASSIGNMENT, "more than once"),
        (wanted("t", -1, -1, {0: [0], 1: []}), E.INVALID_REPLICA_ASSIGNMENT, "empty"),
        (wanted("t", configs={"nonsense": "1"}), E.INVALID_CONFIG, "Unknown topic config name: nonsense"),
        (wanted("t", configs={"retention.ms": None}), E.INVALID_CONFIG, "Null value not supported"),
        (wanted("t", configs={"retention.ms": "x"}), E.INVALID_CONFIG, "Not a number of type LONG"),
        (wanted("t", configs={"retention.ms": "-5"}), E.INVALID_CONFIG, "Value must be at least -1"),
        (
            wanted("t", configs={"min.cleanable.dirty.ratio": "1.1"}),
            E.INVALID_CONFIG,
            "Invalid value 1.1 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            wanted("t", configs={"min.cleanable.dirty.ratio": "-1"}),
            E.INVALID_CONFIG,
            "Invalid value -1 for configuration min.cleanable.dirty.ratio: Value must be at least 0",
        ),
        (wanted("t", configs={"cleanup.policy": "x"}), E.INVALID_CONFIG, "one of: compact, delete"),
        (wanted("t", configs={"cleanup.policy": "delete,x"}), E.INVALID_CONFIG, "Invalid value x for"),
        (
            wanted("t", configs={"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}),
            E.INVALID_CONFIG,
            "min.compaction.lag.ms (2) > max.compaction.lag.ms (1)",
        ),
        (wanted("t", configs={"remote.storage.enable": "true"}), E.INVALID_CONFIG, "remote.storage.enable"),
    ],
)
async def test_what_cannot_be_made_is_refused_as_kafka_does(
    tmp_path: Path, topic: CreatableTopic, code: ErrorCode, message: str
) -> None:
    kafka = await client(tmp_path)
    await kafka.broker.create_topic("taken", 1)
    for dry in (True, False):
        ((name, said, why),) = await create(kafka, topic, dry=dry)
        assert (name, said) == (topic.name, code)
        assert message in why
    assert len(kafka.broker.topics()) == 1


async def test_one_wrong_topic_does_not_hold_up_the_others(tmp_path: Path) -> None:
    kafka = await client(tmp_path)
    said = await create(kafka, wanted("twice"), wanted("twice"), wanted("good"), wanted("a.b"), wanted("a_b"))
    assert {name: code for name, code, _ in said} == {
        "twice": E.INVALID_REQUEST,
        "good": E.NONE,
        "a.b": E.NONE,
        "a_b": E.NONE,
    }


async def test_validate_only_makes_nothing(tmp_path: Path) -> None:
    kafka = await client(tmp_path, num_partitions="6")
    answer = await kafka.ask(CreateTopicsRequest(topics=[wanted("t", -1, -1)], validate_only=True))
    assert answer.topics[0].num_partitions == 6
    assert kafka.broker.get("t") is None
    await create(kafka, wanted("t", -1, -1, {0: [0], 1: [0]}))
    assert kafka.broker.topic("t").partitions == 2


async def test_coordinators_topics_never_expire_whoever_makes_them(tmp_path: Path) -> None:
    kafka = await client(tmp_path)
    await create(kafka, wanted("__consumer_offsets", -1))
    assert kafka.broker.topic("__consumer_offsets").config.compacted


async def test_coordinators_topics_keep_the_partitions_that_groups_are_spread_over(tmp_path: Path) -> None:
    kafka = await client(tmp_path, offsets_topic_num_partitions="5")
    name = "__consumer_offsets"
    for dry in (True, False):
        ((_, code, words),) = await create(kafka, wanted(name, partitions=3), dry=dry)
        assert (code, words) == (
            E.INVALID_PARTITIONS,
            "__consumer_offsets is the coordinators' own and has 5 partitions.",
        )
    assert await create(kafka, wanted(name, partitions=-1)) == [(name, E.NONE, None)]
    ((_, code, words),) = await grow(kafka, CreatePartitionsTopic(name=name, count=6))
    assert (code, words) == (
        E.INVALID_PARTITIONS,
        "__consumer_offsets is the coordinators' own and keeps its partitions.",
    )
    assert kafka.broker.topic(name).partitions == 5


async def grow(kafka: Client, *topics: CreatePartitionsTopic, dry: bool = False) -> list[tuple]:
    answer = await kafka.ask(CreatePartitionsRequest(topics=list(topics), validate_only=dry))
    return [(topic.name, E(topic.error_code), topic.error_message) for topic in answer.results]


async def test_partitions_are_added(tmp_path: Path) -> None:
    kafka = await client(tmp_path)
    await kafka.broker.create_topic("t", 2)

    def row(count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
        rows = (
            None
            if assignments is None
            else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
        )
        return CreatePartitionsTopic(name="t", count=count, assignments=rows)

    assert (await grow(kafka, row(2)))[0][1:] == (E.INVALID_PARTITIONS, "Topic already has 2 partition(s).")
    assert (await grow(kafka, row(1)))[0][1] == E.INVALID_PARTITIONS
    assert (await grow(kafka, row(4, [[0]])))[0][1] == E.INVALID_REPLICA_ASSIGNMENT
    assert (await grow(kafka, row(3, [[5]])))[0][1] == E.INVALID_REPLICA_ASSIGNMENT
    assert (await grow(kafka, row(50_000)))[0][1] == E.POLICY_VIOLATION
    assert (await grow(kafka, row(3), row(4)))[0][1] == E.INVALID_REQUEST
    assert (await grow(kafka, CreatePartitionsTopic(name="u", count=4)))[0][1] == E.UNKNOWN_TOPIC_OR_PARTITION
    assert await grow(kafka, row(3), dry=True) == [("t", E.NONE, None)]
    assert kafka.broker.topic("t").partitions == 2
    assert await grow(kafka, row(3, [[0]])) == [("t", E.NONE, None)]
    assert kafka.broker.topic("t").partitions == 3


async def delete(kafka: Client, *topics: DeleteTopicState) -> list[tuple]:
    answer = await kafka.ask(DeleteTopicsRequest(topics=list(topics)))
    return [(topic.name, E(topic.error_code)) for topic in answer.responses]


async def test_topics_are_deleted_by_name_and_by_id(tmp_path: Path) -> None:
    kafka = await client(tmp_path)
    for name in ("a", "b", "c", "d"):
        await kafka.broker.create_topic(name, 1)
    ids = {topic.kafka_name: topic.topic_id for topic in kafka.broker.topics()}
    assert await delete(kafka, DeleteTopicState(name="a")) == [("a", E.NONE)]
    assert await delete(kafka, DeleteTopicState(name=None, topic_id=ids["b"])) == [("b", E.NONE)]
    assert await delete(kafka, DeleteTopicState(name="public/default/c")) == [("public/default/c", E.NONE)]
    old = await kafka.ask(DeleteTopicsRequest(topic_names=["d", "x", "x"]), 3)
    assert [(topic.name, topic.error_code) for topic in old.responses] == [
        ("d", E.NONE),
        ("x", E.INVALID_REQUEST),
    ]
    assert kafka.broker.topics() == []


async def test_a_topic_that_is_asked_for_twice_stays(tmp_path: Path) -> None:
    """By its name, by its id, or by both: nobody can tell what was meant, so nothing is deleted."""
    kafka = await client(tmp_path)
    topic = await kafka.broker.create_topic("t", 1)
    await kafka.broker.create_topic("u", 1)
    by_name, by_id = DeleteTopicState(name="t"), DeleteTopicState(name=None, topic_id=topic.topic_id)
    assert await delete(kafka, by_name, by_name) == [("t", E.INVALID_REQUEST)]
    assert await delete(kafka, by_id, by_id) == [(None, E.INVALID_REQUEST)]
    for twice in ([by_name, by_id], [by_id, by_name], [by_id, by_id, by_name]):
        answers = await delete(kafka, *twice, DeleteTopicState(name="u2"))
        assert answers == [("t", E.INVALID_REQUEST), ("u2", E.UNKNOWN_TOPIC_OR_PARTITION)]
    named_twice = DeleteTopicState(name="public/default/t")
    assert {code for _, code in await delete(kafka, by_id, named_twice)} == {E.INVALID_REQUEST}
    assert {topic.kafka_name for topic in kafka.broker.topics()} == {"t", "u"}


async def test_deletions_that_cannot_be_are_refused(tmp_path: Path) -> None:
    kafka = await client(tmp_path)
    await kafka.broker.create_topic("t", 1)
    await kafka.broker.create_internal("__consumer_offsets")
    assert await delete(kafka, DeleteTopicState(name="nix")) == [("nix", E.UNKNOWN_TOPIC_OR_PARTITION)]
    assert await delete(kafka, DeleteTopicState(name="no blanks/")) == [
        ("no blanks/", E.UNKNOWN_TOPIC_OR_PARTITION)
    ]
    assert await delete(kafka, DeleteTopicState(name=None, topic_id=b"x" * 16)) == [
        (None, E.UNKNOWN_TOPIC_ID)
    ]
    assert await delete(kafka, DeleteTopicState(name="t", topic_id=b"x" * 16)) == [("t", E.INVALID_REQUEST)]
    assert await delete(kafka, DeleteTopicState(name=None)) == [(None, E.INVALID_REQUEST)]
    assert (await delete(kafka, DeleteTopicState(name="__consumer_offsets")))[0][1] == E.POLICY_VIOLATION
    fixed = await client(tmp_path, kafka.broker.store, delete_topic_enable="false")
    assert await delete(fixed, DeleteTopicState(name="t")) == [("t", E.TOPIC_DELETION_DISABLED)]


async def test_metadata_tells_of_broker_and_topics(tmp_path: Path) -> None:
    kafka = await client(tmp_path, advertised_listeners="PLAINTEXT://kafka.example:19092", broker_rack="r1")
    await kafka.broker.create_topic("t", 2)
    await kafka.broker.create_internal("__consumer_offsets")
    for version in range(14):
        told = await kafka.ask(MetadataRequest(topics=[] if version == 0 else None), version)
        assert [(b.node_id, b.host, b.port) for b in told.brokers] == [(0, "kafka.example", 19092)]
        topics = {topic.name: topic for topic in told.topics}
        assert [p.partition_index for p in topics["t"].partitions] == [0, 1]
        assert topics["t"].partitions[1].leader_id == 0
        assert topics["t"].partitions[1].isr_nodes == [0]
        if version >= 1:
            assert topics["__consumer_offsets"].is_internal
            assert told.controller_id == 0
            assert told.brokers[0].rack == "r1"
        if version >= 10:
            assert topics["t"].topic_id == kafka.broker.topic("t").topic_id
    assert (await kafka.ask(MetadataRequest(topics=[]), 9)).topics == []


async def metadata_of(
    kafka: Client, *topics: MetadataRequestTopic, create: bool = False, version: int = 13
) -> list:
    asked = MetadataRequest(topics=list(topics), allow_auto_topic_creation=create)
    return [(t.name, E(t.error_code), len(t.partitions)) for t in (await kafka.ask(asked, version)).topics]


async def test_metadata_of_what_is_not_there(tmp_path: Path) -> None:
    kafka = await client(tmp_path, num_partitions="3")
    topic = await kafka.broker.create_topic("t", 1)
    named = MetadataRequestTopic
    assert await metadata_of(
        kafka, named(name="nix"), named(name="t"), named(name="t"), named(name="a b")
    ) == [
        ("nix", E.UNKNOWN_TOPIC_OR_PARTITION, 0),
        ("t", E.NONE, 1),
        ("a b", E.INVALID_TOPIC_EXCEPTION, 0),
    ]
    by_id = named(name=None, topic_id=topic.topic_id)
    assert await metadata_of(kafka, by_id, named(name=None, topic_id=b"x" * 16)) == [
        ("t", E.NONE, 1),
        (None, E.UNKNOWN_TOPIC_ID, 0),
    ]
    assert await metadata_of(kafka, by_id, version=10) == [("", E.INVALID_REQUEST, 0)]
    assert await metadata_of(kafka, named(name="persistent://public/default/t")) == [
        ("persistent://public/default/t", E.NONE, 1)
    ]


@pytest.mark.parametrize("version", range(14))
async def test_a_new_topic_is_in_the_answer_that_makes_it(tmp_path: Path, version: int) -> None:
    """A consumer that joins its group before the topic exists looks at this answer alone, if it is kafka-go's."""
    kafka = await client(tmp_path, num_partitions="3")
    named = MetadataRequestTopic
    wanted = [named(name="new"), named(name="a/b"), named(name="__consumer_offsets")]
    asked = MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
    told = (await kafka.ask(asked, version)).topics
    assert [(t.name, E(t.error_code), len(t.partitions)) for t in told] == [
        ("new", E.NONE, 3),
        ("a/b", E.INVALID_TOPIC_EXCEPTION, 0),
        ("__consumer_offsets", E.NONE, kafka.broker.internal_partitions("__consumer_offsets")),
    ]
    assert all(row.error_code == 0 and row.leader_id >= 0 for topic in told for row in topic.partitions)
    if version >= 1:
        assert [topic.is_internal for topic in told] == [False, False, True]
    assert await metadata_of(kafka, named(name="new"), create=True, version=version) == [("new", E.NONE, 3)]


@pytest.mark.parametrize("version", [0, 4, 12, 13])
async def test_a_topic_that_was_just_deleted_is_unknown_first_and_as_long_as_on_kafka(
    tmp_path: Path, version: int
) -> None:
    """Who has deleted a topic waits until it is gone, and may make it anew by asking."""
    kafka, now_s = await client(tmp_path), 1000.0
    kafka.broker.just_deleted = JustDeleted(lambda: now_s)
    unknown, there = [("t", E.UNKNOWN_TOPIC_OR_PARTITION, 0)], [("t", E.NONE, 1)]

    async def look() -> list[tuple]:
        return await metadata_of(kafka, MetadataRequestTopic(name="t"), create=True, version=version)

    await kafka.broker.create_topic("t", 1)
    assert await look() == there
    await kafka.broker.delete_topic("t")
    assert await look() == unknown
    now_s += WITHHELD_S - 0.001
    assert await look() == unknown
    made = kafka.broker.topic("t")
    if version >= 12:
        by_id = MetadataRequestTopic(name=None, topic_id=made.topic_id)
        assert (await metadata_of(kafka, by_id))[0][1] == E.UNKNOWN_TOPIC_ID
        assert (await kafka.ask(MetadataRequest(topics=None))).topics == []
    now_s += 0.002
    assert await look() == there
    await kafka.broker.delete_topic("t")
    now_s += REMEMBERED_S + 0.001
    assert await look() == there, "nobody waits any more"
    await kafka.broker.delete_topic("t")
    await kafka.broker.create_topic("t", 1)
    assert await look() == there, "nobody made it by asking"


async def test_that_a_topic_exists_is_said_before_all_else_as_on_kafka(tmp_path: Path) -> None:
    kafka = await client(tmp_path)
    await kafka.broker.create_topic("t", 1)
    exists = E.TOPIC_ALREADY_EXISTS
    for name in (*INTERNAL_TOPICS, "t"):
        if name in INTERNAL_TOPICS:
            await kafka.broker.create_internal(name)
        for asked in (
            wanted(name),
            wanted(name, 0),
            wanted(name, 99, 7),
            wanted(name, configs={"no.such": "1"}),
            wanted(name, -1, -1, assignments={0: [99]}),
            wanted(name, 3, 1, assignments={1: [99]}),
        ):
            for dry in (False, True):
                assert await create(kafka, asked, dry=dry) == [
                    (name, exists, f"Topic '{name}' already exists.")
                ]


async def test_namespaces_that_are_not_allowed_stay_unseen(tmp_path: Path) -> None:
    kafka = await client(tmp_path, kop_allowed_namespaces="public/default")
    await kafka.broker.create_topic("acme/shop/orders", 1)
    await kafka.broker.create_topic("t", 1)
    assert [topic.name for topic in (await kafka.ask(MetadataRequest(topics=None))).topics] == ["t"]
    hidden = [MetadataRequestTopic(name=name) for name in ("acme/shop/orders", "acme/shop/new")]
    said = await metadata_of(kafka, *hidden, create=True)
    assert [code for _, code, _ in said] == [E.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert (await create(kafka, wanted("acme/shop/new")))[0][1] == E.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("allowed", "seen"),
    [
        ("", ["acme/default/b", "acme/shop/a", "c", "public/shop/d"]),
        ("${tenant}/default", ["acme/default/b", "c"]),
        ("${tenant}/${namespace}", ["acme/default/b", "c"]),
        ("acme/*", ["acme/default/b", "acme/shop/a"]),
        ("public/shop,acme/default", ["acme/default/b", "public/shop/d"]),
        ("nobody/*", []),
    ],
)
async def test_allowed_namespaces_may_be_patterns_as_in_kop(
    tmp_path: Path, allowed: str, seen: list[str]
) -> None:
    kafka = await client(tmp_path, kop_allowed_namespaces=allowed)
    for name in ("acme/shop/a", "acme/default/b", "c", "public/shop/d"):
        await kafka.broker.create_topic(name, 1)
    told = await kafka.ask(MetadataRequest(topics=None))
    assert sorted(topic.name for topic in told.topics) == seen


async def test_authorized_operations_come_when_asked_for(tmp_path: Path) -> None:
    kafka = await client(tmp_path)
    await kafka.broker.create_topic("t", 1)
    asked = MetadataRequest(
        topics=None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    told = await kafka.ask(asked, 8)
    assert (told.topics[0].topic_authorized_operations, told.cluster_authorized_operations) == (3576, 8096)


@pytest.mark.slow
async def test_ten_thousand_topics_are_told_at_once(tmp_path: Path) -> None:
    kafka = await client(tmp_path)
    for start in range(0, 10_000, 1000):
        await create(kafka, *(wanted(f"topic-{number}") for number in range(start, start + 1000)))
    told = await kafka.ask(MetadataRequest(topics=None))
    assert {topic.name for topic in told.topics} == {f"topic-{number}" for number in range(10_000)}
    assert all(len(topic.partitions) == 1 and topic.error_code == 0 for topic in told.topics)


async def test_partitions_are_described_page_by_page(tmp_path: Path) -> None:
    kafka = await client(tmp_path)
    await kafka.broker.create_topic("a", 3)
    await kafka.broker.create_topic("b", 2)

    async def page(*names: str, limit: int = 2000, at: tuple[str, int] | None = None) -> tuple:
        cursor = None if at is None else Cursor(topic_name=at[0], partition_index=at[1])
        asked = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
        )
        told = await kafka.ask(asked)
        rows = [(t.name, E(t.error_code), [p.partition_index for p in t.partitions]) for t in told.topics]
        return rows, told.next_cursor and (told.next_cursor.topic_name, told.next_cursor.partition_index)

    assert await page() == ([("a", E.NONE, [0, 1, 2]), ("b", E.NONE, [0, 1])], None)
    assert await page(limit=2) == ([("a", E.NONE, [0, 1])], ("a", 2))
    assert await page(limit=2, at=("a", 2)) == ([("a", E.NONE, [2]), ("b", E.NONE, [0])], ("b", 1))
    assert await page(limit=3) == ([("a", E.NONE, [0, 1, 2])], ("b", 0))
    assert await page(at=("b", 1)) == ([("b", E.NONE, [1])], None)
    assert await page("b", limit=-4) == ([("b", E.NONE, [0])], ("b", 1))
    assert await page("a", at=("a", -1)) == ([("a", E.INVALID_REQUEST, [])], None)
    assert await page("a", at=("b", 0)) == ([("a", E.INVALID_REQUEST, [])], None)
    assert await page("nix", "a b", "a/b", "") == (
        [
            ("", E.INVALID_TOPIC_EXCEPTION, []),
            ("a b", E.INVALID_TOPIC_EXCEPTION, []),
            ("a/b", E.INVALID_TOPIC_EXCEPTION, []),
            ("nix", E.UNKNOWN_TOPIC_OR_PARTITION, []),
        ],
        None,
    )


async def test_the_cluster_is_described(tmp_path: Path) -> None:
    kafka = await client(tmp_path)
    told = await kafka.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert told.cluster_id == kafka.broker.identity.cluster_id
    assert [(b.broker_id, b.host, b.port) for b in told.brokers] == [(0, "127.0.0.1", 9092)]
    assert told.cluster_authorized_operations == 8096
    assert (await kafka.ask(DescribeClusterRequest(endpoint_type=2))).error_code == E.MISMATCHED_ENDPOINT_TYPE
    assert (
        await kafka.ask(DescribeClusterRequest(endpoint_type=3))
    ).error_code == E.UNSUPPORTED_ENDPOINT_TYPE


async def test_the_data_directory_is_described(tmp_path: Path) -> None:
    kafka = await client(tmp_path)
    await kafka.broker.create_topic("t", 2)
    for version in range(1, 6):
        (told,) = (await kafka.ask(DescribeLogDirsRequest(topics=None), version)).results
        assert told.log_dir == str(tmp_path)
        assert [(p.partition_index, p.partition_size) for p in told.topics[0].partitions] == [(0, 7), (1, 7)]
    assert told.total_bytes >= told.usable_bytes > 0
    asked = [DescribableLogDirTopic(topic=name, partitions=[1, 9]) for name in ("t", "nix", "a b")]
    (told,) = (await kafka.ask(DescribeLogDirsRequest(topics=asked))).results
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in told.topics] == [("t", [1])]


async def test_more_topics_than_may_be_made_are_refused_by_their_number(tmp_path: Path) -> None:
    kafka = await client(tmp_path)
    names = [f"t{number}" for number in range(MAX_NEW_PARTITIONS + 1)]
    told = await create(kafka, *(wanted(name) for name in names), dry=True)
    message = "Excessively large number of partitions per request."
    assert told == [(name, E.POLICY_VIOLATION, message) for name in names]
