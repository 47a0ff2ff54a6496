"""What another client changes in the metadata store, this broker sees, and compare-and-set loses no change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

import pytest

from magnetar.base.errors import TopicExists
from magnetar.ledger.errors import LedgerError
from magnetar.metadata import (
    ANY,
    MemoryStore,
    MetadataError,
    MetadataFull,
    MetadataUnavailable,
    MetadataUncertain,
)
from magnetar.metadata.ops import Op, Put
from magnetar.topics.new_topic import NewTopic
from magnetar.topics.topic import Topic
from magnetar.wire.kafka.errors import ErrorCode
from tests.broker.both import both
from tests.broker.engine import NoLedgers
from tests.broker.test_core import started
from tests.ownership.moving import OTHER, MovingOwnership
from tests.pulsar.inside import inside
from tests.turns import until


def beside(store: object) -> MemoryStore:
    assert isinstance(store, MemoryStore)
    return MemoryStore(store.blocking)  # type: ignore[arg-type]


async def test_topics_that_another_broker_makes_changes_and_deletes() -> None:
    one = await started()
    other = await started(beside(one.store))
    calls: list[str] = []

    async def deleted(topic: Topic) -> None:
        calls.append(f"{topic.kafka_name} deleted")

    one.events.topic_created.append(lambda topic: calls.append(f"{topic.kafka_name} created"))
    one.events.topic_changed.append(lambda topic: calls.append(f"{topic.kafka_name} has {topic.partitions}"))
    one.events.topic_deleted.append(deleted)
    made = await other.create_topic("t", 2, {"retention.ms": "5000"})
    await until(lambda: one.get("t") is not None)
    mine = one.topic("t")
    assert (mine.topic_id, mine.partitions, mine.config.retention_ms) == (made.topic_id, 2, 5000)
    await other.grow_topic("t", 3)
    await until(lambda: mine.partitions == 3)
    await other.set_topic_config("t", {"retention.ms": "77"})
    await until(lambda: mine.config.retention_ms == 77)
    await other.delete_topic("t")
    await until(lambda: one.get("t") is None)
    await until(lambda: calls[-1] == "t deleted")
    assert calls == ["t created", "t has 3", "t has 3", "t deleted"]
    with pytest.raises(TopicExists):
        await asyncio.gather(one.create_topic("u", 1), other.create_topic("u", 1))
    assert one.topic("u").topic_id == other.topic("u").topic_id


async def test_whoever_holds_something_of_a_topic_is_told_that_it_is_gone_also_where_storage_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Fails(NoLedgers):
        async def forget(self, name: str) -> None:
            raise LedgerError(f"{name} cannot be forgotten")

    one = await started(engine=Fails())
    other = await started(beside(one.store))
    calls: list[str] = []

    async def deleted(topic: Topic) -> None:
        calls.append(topic.kafka_name)

    one.events.topic_deleted.append(deleted)
    await other.create_topic("t", 2)
    await until(lambda: one.get("t") is not None)
    await other.delete_topic("t")
    await until(lambda: calls == ["t"])
    assert "cannot be forgotten" in caplog.text


async def test_a_topic_that_was_deleted_and_made_again_is_another_one() -> None:
    one, engine = await started(), NoLedgers()
    other = await started(beside(one.store), engine)
    first = await other.create_topic("t", 1)
    await until(lambda: one.get("t") is not None)
    await other.delete_topic("t")
    second = await other.create_topic("t", 1)
    await until(lambda: one.get("t") is not None and one.topic("t").topic_id == second.topic_id)
    assert one.get_by_id(first.topic_id) is None
    assert one.get_by_id(second.topic_id) is one.topic("t")


async def test_no_change_of_two_brokers_is_lost() -> None:
    one = await started()
    other = await started(beside(one.store))
    await one.create_topic("t", 1)
    await until(lambda: other.get("t") is not None)

    def with_own(broker: object, name: str) -> Callable[[Topic], dict[str, str | None]]:
        return lambda topic: {**topic.overrides, name: "1000"}

    await asyncio.gather(
        one.change_topic_config("t", with_own(one, "retention.ms")),
        other.change_topic_config("t", with_own(other, "segment.ms")),
        one.change_dynamic(lambda texts: texts | {"num.partitions": "7"}, for_all=True),
        other.change_dynamic(lambda texts: texts | {"log.retention.ms": "99"}, for_all=True),
        one.namespaces.change("public/default", lambda content: content.update({"a": 1})),
        other.namespaces.change("public/default", lambda content: content.update({"b": 2})),
    )
    await until(lambda: one.topic("t").overrides == other.topic("t").overrides)
    assert set(one.topic("t").overrides) == {"retention.ms", "segment.ms"}
    for broker in (one, other):
        await until(lambda broker=broker: broker.settings.topics.num_partitions == 7)  # type: ignore[misc]
        await until(lambda broker=broker: len(broker.namespaces.content("public/default")) == 3)  # type: ignore[misc]
        assert broker.authority.dynamic.default == {"num.partitions": "7", "log.retention.ms": "99"}


async def test_settings_and_policies_of_another_broker_come_into_force() -> None:
    one = await started()
    other = await started(beside(one.store), node_id="2")
    topic = await one.create_topic("t", 1)
    told: list[int] = []
    one.events.settings_changed.append(lambda settings: told.append(settings.topics.num_partitions))
    await other.set_dynamic({"num.partitions": "9"}, for_all=True)
    await until(lambda: told == [9])
    await other.set_dynamic({"num.partitions": "5"}, for_all=False)
    await until(lambda: other.settings.topics.num_partitions == 5)
    assert one.settings.topics.num_partitions == 9, "that was for the other one alone"
    minutes = {"retention_policies": {"retentionTimeInMinutes": 3, "retentionSizeInMB": -1}}
    await other.set_policies("public/default", json.dumps(minutes).encode())
    await until(lambda: topic.config.retention_ms == 180_000)
    await other.namespaces.create("acme/shop")
    await until(lambda: "acme/shop" in one.namespaces and "acme" in one.namespaces.tenants())
    await other.security.permissions.grant("acme/shop", "alice", ["produce"])
    await until(lambda: "alice" in one.security.permissions.of_namespace("acme/shop").namespace)
    await other.security.permissions.set_tenant_admins("acme", ["ann"])
    await until(lambda: one.namespaces.admin_roles("acme") == {"ann"})
    await other.namespaces.delete("acme/shop")
    await other.namespaces.delete_tenant("acme")
    await until(lambda: "acme/shop" not in one.namespaces and "acme" not in one.namespaces.tenants())


async def test_topic_policies_of_another_broker_come_into_force() -> None:
    async with inside() as broker:
        store = beside(broker.broker.store)
        topic = await broker.broker.create_topic("t", 1)
        policies = broker.services.topics.policies
        path = "/magnetar/topic-policies/public/default/persistent/t"
        await store.commit([Put(path, b'{"maxProducerPerTopic":3}', ANY)])
        await until(lambda: policies.limits(topic).max_producers == 3)
        await policies.set(topic, "deduplicationEnabled", True)
        stored = await store.get(path)
        assert stored is not None
        assert json.loads(stored.value) == {"maxProducerPerTopic": 3, "deduplicationEnabled": True}
        await broker.broker.delete_topic("t")
        assert await store.get(path) is None


async def test_non_persistent_topics_of_another_broker_are_found_and_go() -> None:
    async with inside() as broker:
        store = beside(broker.broker.store)
        fleeting = broker.services.topics.non_persistent
        path = "/admin/partitioned-topics/public/default/non-persistent/n"
        await store.commit([Put(path, b'{"partitions":4}', ANY)])
        await until(lambda: bool(fleeting.partitioned("public/default")))
        (topic,) = fleeting.topics("public/default")
        assert topic.partitions == 4
        with pytest.raises(TopicExists):
            await fleeting.create(topic.name)
        await fleeting.delete(topic)
        assert await store.get(path) is None
        assert not fleeting.partitioned("public/default")


class FarAway(MemoryStore):
    """A store whose answers are lost: before the commit is done, or after it."""

    comes_back = True

    def __init__(self) -> None:
        super().__init__()
        self.fails: list[type[MetadataError]] = []

    async def commit(self, ops: Sequence[Op]) -> list[int]:
        if self.fails and any("/partitioned-topics/" in op.path for op in ops):
            kind = self.fails.pop()
            if kind is MetadataUncertain:
                await super().commit(ops)
            raise kind("the answer did not come")
        return await super().commit(ops)


@pytest.mark.parametrize("kind", [MetadataUnavailable, MetadataUncertain])
async def test_a_topic_is_made_although_the_answer_to_its_commit_is_lost(
    kind: type[MetadataError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.topics.catalog._AGAIN_S", 0)
    store = FarAway()
    broker = await started(store)
    await broker.create_topic("before", 1)
    store.fails = [kind, kind]
    made = await broker.create_topics([NewTopic(broker.naming.parse(name)) for name in ("t", "before", "u")])
    assert [type(each) for each in made] == [Topic, TopicExists, Topic]
    assert broker.topic("t") is made[0]
    # What was lost on the way back is found by the first look.
    assert len(store.fails) == (1 if kind is MetadataUncertain else 0)


async def test_a_store_that_does_not_come_back_by_itself_is_not_waited_for() -> None:
    store = FarAway()
    broker = await started(store)
    for comes_back, kind in ((False, MetadataUnavailable), (True, MetadataFull)):
        store.comes_back, store.fails = comes_back, [kind]
        with pytest.raises(kind):
            await broker.create_topic("t", 1)
        assert broker.get("t") is None


async def test_a_topic_that_another_broker_made_takes_records_before_this_one_has_heard_of_it() -> None:
    async with both(ownership=MovingOwnership()) as house:
        store = house.broker.store
        house.broker.cluster.ownership.reaches(OTHER, "PLAINTEXT", "other", 9092)  # type: ignore[attr-defined]
        other = await started(beside(store))
        told, store.blocking.on_changed[:] = store.blocking.on_changed[:], []  # no change is heard of
        await other.create_topic("t", 1)
        assert house.broker.get("t") is None
        assert (await house.kafka.produce("t", b"0")).error_code == 0
        assert (await house.kafka.fetch("u", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await other.create_topic("u", 1)
        assert (await house.kafka.fetch("u", 0)).error_code == 0
        assert (await house.kafka.produce("no name", b"0")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        store.blocking.on_changed[:] = told
