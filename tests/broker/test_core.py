"""Topics come, change, go, and are back after a restart; those who subscribed are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from magnetar.base.errors import (
    BrokerError,
    InvalidConfig,
    InvalidPartitions,
    InvalidPolicy,
    InvalidTopic,
    NamespaceNotFound,
    TooManyPartitions,
    TopicExists,
    TopicNotFound,
)
from magnetar.ledger.port import Flush
from magnetar.metadata import MemoryStore, Stored
from magnetar.node.broker import Broker
from magnetar.settings.settings import Settings
from magnetar.topics.effective import ConfigSource
from magnetar.topics.names import CONSUMER_OFFSETS, TopicName
from magnetar.topics.new_topic import NewTopic
from magnetar.topics.topic import MAX_NEW_PARTITIONS, Topic
from magnetar.topics.topic_config import CONFIGS
from tests.broker.engine import NoLedgers


async def started(
    store: MemoryStore | None = None, engine: NoLedgers | None = None, **settings: str
) -> Broker:
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    broker = Broker(Settings().with_values(texts), store or MemoryStore(), engine or NoLedgers())
    await broker.start()
    return broker


async def test_a_topic_is_found_by_every_form_of_its_name_and_its_id() -> None:
    broker = await started()
    topic = await broker.create_topic("flights", 4)
    assert len(topic.topic_id) == 16
    for name in ("flights", "public/default/flights", "persistent://public/default/flights"):
        assert broker.get(name) is topic
    assert broker.get_by_id(topic.topic_id) is topic
    assert topic.kafka_name == "flights"
    assert topic.ledger_names()[3] == "public/default/persistent/flights-partition-3"
    assert broker.get("elsewhere") is None


async def test_a_topic_that_is_used_after_all_when_its_turn_comes_is_not_deleted() -> None:
    broker = await started()
    topic = await broker.create_topic("flights", 1)
    used = [False]
    async with broker._gate:  # other topics are made or deleted
        deletion = asyncio.ensure_future(broker.delete_unused_topic("flights", lambda: used[0]))
        await asyncio.sleep(0.01)
        used[0] = True
    assert not await deletion
    assert broker.get("flights") is topic
    used[0] = False
    assert await broker.delete_unused_topic("flights", lambda: used[0])
    assert broker.get("flights") is None


async def test_topics_of_other_namespaces_keep_their_long_name() -> None:
    broker = await started()
    topic = await broker.create_topic("acme/shop/orders", 1)
    assert topic.kafka_name == "acme/shop/orders"
    assert broker.get("persistent://acme/shop/orders") is topic
    assert "acme/shop" in broker.namespaces
    strict = await started(auto_create_namespaces_enable="false")
    with pytest.raises(NamespaceNotFound):
        await strict.create_topic("acme/shop/orders", 1)


async def test_everything_is_back_after_a_restart() -> None:
    store = MemoryStore()
    before = await started(store)
    made = await before.create_topic("t", 2, {"retention.ms": "5000"})
    await before.create_topic("plain", 1)
    await before.create_topic("partitioned", 1, partitioned=True)
    await before.set_topic_config("partitioned", {"retention.ms": "1"})
    await before.set_dynamic({"num.partitions": "7"}, for_all=True)
    after = await started(store)
    assert [after.topic(name).partitioned for name in ("t", "plain", "partitioned")] == [True, False, True]
    topic = after.topic("t")
    assert (topic.topic_id, topic.partitions, topic.overrides) == (made.topic_id, 2, {"retention.ms": "5000"})
    assert topic.config.retention_ms == 5000
    assert after.settings.topics.num_partitions == 7
    assert after.identity.cluster_id == before.identity.cluster_id
    assert len(after.identity.cluster_id) == 22
    assert after.identity.epoch == before.identity.epoch + 1


async def test_the_stored_form_is_pulsars() -> None:
    store = MemoryStore()
    broker = await started(store)
    await broker.create_topic("public/default/ä b", 3, {"segment.ms": "10"})
    stored = store.blocking.get("/admin/partitioned-topics/public/default/persistent/%C3%A4+b")
    assert stored is not None
    content = json.loads(stored.value)
    assert content["partitions"] == 3
    assert content["properties"]["kafka.config.segment.ms"] == "10"
    store.blocking.put("/admin/partitioned-topics/public/default/persistent/from-pulsar", b'{"partitions":2}')
    store.blocking.put("/admin/partitioned-topics/public/default/persistent/with-one", b'{"partitions":1}')
    again = await started(store)
    assert again.topic("with-one").partitioned
    assert again.topic("from-pulsar").partitions == 2
    assert again.topic("from-pulsar").topic_id == (await started(store)).topic("from-pulsar").topic_id


async def test_what_cannot_be_created_is_refused() -> None:
    broker = await started()
    await broker.create_topic("t", 1)
    with pytest.raises(TopicExists):
        await broker.create_topic("public/default/t", 1)
    with pytest.raises(InvalidPartitions):
        await broker.create_topic("u", 0)
    with pytest.raises(InvalidConfig, match=r"retention\.ms"):
        await broker.create_topic("u", 1, {"retention.ms": "soon"})
    with pytest.raises(InvalidConfig, match="Unknown topic config name: nonsense"):
        await broker.create_topic("u", 1, {"nonsense": "1"})
    with pytest.raises(InvalidTopic):
        await broker.create_topic("no blanks", 1)
    assert broker.get("u") is None


async def test_topics_made_together_fail_each_for_itself() -> None:
    broker = await started()
    names = [TopicName("public", "default", name) for name in ("a", "a", "b")]
    made = await broker.create_topics([NewTopic(names[0], 1), NewTopic(names[1], 1), NewTopic(names[2], -5)])
    assert isinstance(made[0], Topic)
    assert isinstance(made[1], TopicExists)
    assert isinstance(made[2], BrokerError)


async def test_topics_made_together_have_no_more_partitions_than_one_request_may_make() -> None:
    broker = await started()
    most = NewTopic(TopicName("public", "default", "most"), MAX_NEW_PARTITIONS)
    one = NewTopic(TopicName("public", "default", "one"))
    for wanted in (
        [most, one],
        [most._replace(partitions=2**31 - 1)],
        [most._replace(partitions=-5), most, one],
    ):
        with pytest.raises(TooManyPartitions):
            await broker.create_topics(wanted)
    assert list(broker.topics()) == []
    assert [type(made) for made in await broker.create_topics([most])] == [Topic]
    with pytest.raises(TooManyPartitions):
        await broker.grow_topic("most", 2 * MAX_NEW_PARTITIONS + 1)
    assert broker.topic("most").partitions == MAX_NEW_PARTITIONS


async def test_a_topic_only_grows() -> None:
    broker = await started()
    await broker.create_topic("t", 2)
    assert (await broker.grow_topic("t", 5, validate_only=True)).partitions == 2
    assert (await broker.grow_topic("t", 5)).partitions == 5
    for count in (5, 4, 0):
        with pytest.raises(InvalidPartitions):
            await broker.grow_topic("t", count)
    with pytest.raises(TopicNotFound):
        await broker.grow_topic("u", 2)


async def test_deleting_takes_the_ledgers_along() -> None:
    engine = NoLedgers()
    broker = await started(engine=engine)
    topic = await broker.create_topic("t", 2)
    order: list[str] = []

    async def gone(deleted: Topic) -> None:
        order.append(f"{deleted.kafka_name} found: {broker.get('t')}, ledgers deleted: {len(engine.deleted)}")

    broker.events.topic_deleted.append(gone)
    await broker.delete_topic("t")
    assert order == ["t found: None, ledgers deleted: 0"]
    assert engine.deleted == topic.ledger_names()
    assert broker.get_by_id(topic.topic_id) is None
    again = await broker.create_topic("t", 1)
    assert again.topic_id != topic.topic_id


async def test_a_deletion_that_was_interrupted_is_finished_at_the_next_start() -> None:
    store, engine = MemoryStore(), NoLedgers()
    broker = await started(store, engine)
    await broker.create_topic("t", 2)
    engine.fails = True
    with pytest.raises(OSError, match="gone"):
        await broker.delete_topic("t")
    assert broker.get("t") is None
    engine.fails = False
    again = await started(store, engine)
    assert again.get("t") is None
    assert len(engine.deleted) == 2
    assert (await again.create_topic("t", 1)).partitions == 1


async def test_a_deletion_goes_on_when_the_asker_goes_away() -> None:
    engine = NoLedgers()
    broker = await started(engine=engine)
    await broker.create_topic("t", 2)
    asking = asyncio.create_task(broker.delete_topic("t"))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await broker.create_topic("t", 1)
    assert len(engine.deleted) == 2


async def test_two_deletions_at_once_delete_once() -> None:
    broker = await started()
    await broker.create_topic("t", 1)
    said = await asyncio.gather(broker.delete_topic("t"), broker.delete_topic("t"), return_exceptions=True)
    assert [type(each) for each in said] == [type(None), TopicNotFound]


async def test_a_name_can_be_reused_once_a_failed_deletion_is_finished() -> None:
    engine = NoLedgers()
    broker = await started(engine=engine)
    await broker.create_topic("t", 2)
    engine.fails = True
    with pytest.raises(OSError, match="gone"):
        await broker.delete_topic("t")
    engine.fails = False
    await broker.create_topic("t", 1)
    assert len(engine.deleted) == 2


async def test_subscribers_hear_of_changes() -> None:
    broker = await started()
    heard: list[str] = []
    broker.events.topic_created.append(lambda topic: heard.append(f"created {topic.kafka_name}"))
    broker.events.topic_changed.append(lambda topic: heard.append(f"changed {topic.config.retention_ms}"))
    broker.events.settings_changed.append(
        lambda settings: heard.append(f"settings {settings.topics.log_retention_ms}")
    )
    await broker.create_topic("t", 1)
    await broker.set_topic_config("t", {"retention.ms": "1000"})
    await broker.set_topic_config("t", {"retention.ms": "1000"})
    await broker.set_topic_config("t", {"retention.ms": "2000"}, validate_only=True)
    await broker.set_topic_config("t", {})
    await broker.set_dynamic({"log.retention.ms": "99"}, for_all=False)
    assert heard == ["created t", "changed 1000", "changed 604800000", "changed 99", "settings 99"]


async def test_the_nearest_source_is_in_force() -> None:
    broker = await started(log_retention_ms="400")
    topic = await broker.create_topic("t", 1)
    retention = CONFIGS["retention.ms"]

    def why() -> list[tuple[str | None, ConfigSource]]:
        policies = broker.namespaces.policies("public/default")
        return [(o.value, o.source) for o in broker.authority.topic_origins(retention, topic, policies)]

    assert why() == [("400", ConfigSource.STATIC_BROKER), ("604800000", ConfigSource.DEFAULT)]
    await broker.set_dynamic({"log.retention.ms": "300"}, for_all=True)
    assert topic.config.retention_ms == 300
    await broker.set_dynamic({"log.retention.ms": "200"}, for_all=False)
    assert topic.config.retention_ms == 200
    await broker.set_policies(
        "public/default", b'{"retention_policies":{"retentionTimeInMinutes":1,"retentionSizeInMB":-1}}'
    )
    assert topic.config.retention_ms == 60_000
    await broker.set_topic_config("t", {"retention.ms": "100"})
    assert topic.config.retention_ms == 100
    assert [source for _, source in why()] == [
        ConfigSource.TOPIC,
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
        ConfigSource.DYNAMIC_BROKER,
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
        ConfigSource.STATIC_BROKER,
        ConfigSource.DEFAULT,
    ]


async def test_the_ledger_policy_follows_topic_and_namespace() -> None:
    broker = await started(flush="os", ledger_max_entries="9")
    topic = await broker.create_topic("t", 1, {"segment.bytes": "2000000", "retention.bytes": "7"})
    policy = broker.ledger_policy(topic)
    assert (policy.flush, policy.max_ledger_bytes, policy.retention_bytes) == (Flush.os, 2000000, 7)
    assert policy.max_ledger_entries == 9
    await broker.set_policies("public/default", b'{"magnetar":{"flush":"interval"}}')
    assert broker.ledger_policy(topic).flush == Flush.interval
    await broker.set_topic_config(
        "t", {"flush.messages": "1", "cleanup.policy": "compact", "retention.ms": "5"}
    )
    assert broker.ledger_policy(topic).flush == Flush.always
    assert broker.ledger_policy(topic).retention_ms == -1


async def test_kafkas_flush_after_every_message_is_flush_always_while_it_stands() -> None:
    broker = await started(flush="os", log_flush_interval_messages="10000")
    topic = await broker.create_topic("t", 1)
    assert broker.ledger_policy(topic).flush == Flush.os
    await broker.set_dynamic({"log.flush.interval.messages": "1"}, for_all=False)
    assert broker.ledger_policy(topic).flush == Flush.always
    await broker.set_topic_config("t", {"flush.messages": "1234"})
    assert broker.ledger_policy(topic).flush == Flush.os
    await broker.set_dynamic({"log.flush.interval.messages": "1234"}, for_all=False)
    await broker.set_topic_config("t", {})
    assert broker.ledger_policy(topic).flush == Flush.os
    with pytest.raises(InvalidConfig, match=r"log\.flush\.interval\.messages"):
        await broker.set_dynamic({"log.flush.interval.messages": "0"}, for_all=False)


async def test_wrong_policies_and_settings_change_nothing() -> None:
    broker = await started()
    for text in (b'{"magnetar":{"flush":"never"}}', b"[]", b"{", b'{"magnetar":{"entryFormat":"csv"}}'):
        with pytest.raises(InvalidPolicy):
            await broker.set_policies("public/default", text)
    with pytest.raises(InvalidConfig, match="Cannot update these configs dynamically"):
        await broker.set_dynamic({"listeners": "PLAINTEXT://:1"}, for_all=False)
    with pytest.raises(InvalidConfig, match=r"log\.retention\.ms"):
        await broker.set_dynamic({"log.retention.ms": "x"}, for_all=False)
    assert broker.settings == (await started()).settings


async def test_automatic_creation_asks_the_settings() -> None:
    broker = await started(num_partitions="3")
    topic = await broker.auto_create("t")
    assert topic is not None
    assert topic.partitions == 3
    assert await broker.auto_create("t") is topic
    assert await (await started(auto_create_topics_enable="false")).auto_create("t") is None
    both = await asyncio.gather(broker.auto_create("u"), broker.auto_create("u"))
    assert both[0] is both[1]


async def test_internal_topics_lie_in_the_metadata_namespace() -> None:
    broker = await started(offsets_topic_num_partitions="5")
    topic = await broker.create_internal(CONSUMER_OFFSETS)
    assert str(topic.name) == "persistent://public/__kafka/__consumer_offsets"
    assert (topic.internal, topic.partitions, topic.config.compacted) == (True, 5, True)
    assert broker.get(CONSUMER_OFFSETS) is await broker.create_internal(CONSUMER_OFFSETS)


class CountingStore(MemoryStore):
    """Counts how often it is asked."""

    asked = 0

    def get(self, path: str) -> Stored | None:
        self.asked += 1
        return super().get(path)

    def scan(self, prefix: str) -> Iterator[tuple[str, Stored]]:
        self.asked += 1
        return super().scan(prefix)


async def test_ten_thousand_topics_are_loaded_with_as_few_questions_as_one() -> None:
    asked = []
    for topics in (1, 10_000):
        store = CountingStore()
        broker = await started(store)
        names = [TopicName("public", "default", f"topic-{number}") for number in range(topics)]
        await broker.create_topics([NewTopic(name, 1) for name in names])
        store.asked = 0
        assert len((await started(store)).topics()) == topics
        asked.append(store.asked)
    assert asked[0] == asked[1]


def test_topic_configurations_follow_settings_that_exist() -> None:
    for config in CONFIGS.values():
        if config.setting is not None:
            setting = Settings().declared.definitions[config.setting]
            assert (setting.default, setting.kind) == (config.default, config.kind)


async def test_whoever_fails_when_told_stops_nobody() -> None:
    broker = await started()
    told: list[str] = []

    def fails(topic: Topic) -> None:
        raise PermissionError("not the affair of who makes topics")

    async def fails_later(topic: Topic) -> None:
        raise PermissionError("nor of who deletes them")

    async def deleted(topic: Topic) -> None:
        told.append(f"{topic.kafka_name} went")

    broker.events.topic_created += [fails, lambda topic: told.append(f"{topic.kafka_name} came")]
    broker.events.topic_changed += [fails, lambda topic: told.append(f"{topic.kafka_name} changed")]
    broker.events.topic_deleted += [fails_later, deleted]
    await broker.create_topic("flights", 1)
    await broker.grow_topic("flights", 2)
    await broker.delete_topic("flights")
    assert told == ["flights came", "flights changed", "flights went"]
    assert broker.get("flights") is None
    assert isinstance(broker.engine, NoLedgers)
    assert len(broker.engine.deleted) == 2
