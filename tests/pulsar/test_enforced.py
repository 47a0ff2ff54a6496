"""Policies that protect are enforced; nothing is made by asking for it that nobody allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from magnetar.ledger.port import wall_clock_ms
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.wanted import Wanted
from magnetar.pulsar.expired_subscriptions import ExpiredSubscriptionsSweep
from magnetar.pulsar.policies import AUTO_SUBSCRIPTIONS, SCHEMA_STRATEGY, SCHEMAS_ENFORCED
from magnetar.topics.names import TopicName
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, ServerError
from tests.pulsar import raw
from tests.pulsar.inside import Inside, inside, settled
from tests.pulsar.test_patterns import SECURED, _as, _grant

T = "persistent://public/default/t"
OTHER = "persistent://public/other/t"
PRODUCED, DONE, REFUSED = BaseCommand.PRODUCER_SUCCESS, BaseCommand.SUCCESS, BaseCommand.ERROR


async def _policies(broker: Inside, namespace: str = "public/default", **said: Any) -> None:
    content = broker.broker.namespaces.content(namespace)
    await broker.broker.set_policies(namespace, json.dumps(content | said).encode())


def lookup(topic: str) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.LOOKUP)
    command.lookupTopic.topic, command.lookupTopic.request_id = topic, 1
    return command


def metadata(topic: str) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA)
    command.partitionMetadata.topic, command.partitionMetadata.request_id = topic, 1
    return command


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
@pytest.mark.parametrize("place", ["nobody/default", "public/nowhere"])
async def test_of_a_namespace_that_is_not_there_nothing_is_made(domain: str, place: str) -> None:
    topic = f"{domain}://{place}/t"
    async with inside() as broker:
        before = broker.broker.namespaces.names(), broker.broker.namespaces.tenants()
        client = broker.client()
        not_found = ServerError.TopicNotFound
        assert (await client.ask(raw.producer(topic))).error.error == not_found
        assert (await client.ask(raw.subscribe(topic))).error.error == not_found
        assert (await client.ask(lookup(topic))).lookupTopicResponse.error == not_found
        assert (await client.ask(metadata(topic))).partitionMetadataResponse.error == not_found
        assert (broker.broker.namespaces.names(), broker.broker.namespaces.tenants()) == before
        assert broker.broker.topics() == []


async def test_a_namespace_says_whether_and_how_topics_are_made_by_asking() -> None:
    async with inside() as broker:
        client = broker.client()
        await _policies(broker, autoTopicCreationOverride={"allowAutoTopicCreation": False})
        assert (await client.ask(raw.producer(T))).error.error == ServerError.TopicNotFound
        assert (await client.ask(raw.subscribe(T))).error.error == ServerError.TopicNotFound
        assert (await client.ask(metadata(T))).partitionMetadataResponse.error == ServerError.TopicNotFound
        assert await broker.broker.auto_create("t") is None  # as Kafka's clients ask
        partitioned = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
        await _policies(broker, autoTopicCreationOverride=partitioned)
        assert (await client.ask(metadata(T))).partitionMetadataResponse.partitions == 3
        made = await broker.broker.auto_create("u")
        assert made is not None
        assert (made.partitions, made.partitioned) == (3, True)
    async with inside(allowAutoTopicCreation="false") as broker:
        client = broker.client()
        assert (await client.ask(raw.producer(T))).error.error == ServerError.TopicNotFound
        await _policies(broker, autoTopicCreationOverride={"allowAutoTopicCreation": True})
        assert (await client.ask(raw.producer(T))).type == PRODUCED


async def test_who_does_not_ask_for_partitions_gets_a_topic_without_them() -> None:
    """As from Pulsar: partitions are made for whoever asks how many there are."""
    async with inside() as broker:
        client = broker.client()
        partitioned = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
        await _policies(broker, autoTopicCreationOverride=partitioned)
        assert (await client.ask(raw.producer(T))).type == PRODUCED
        made = broker.broker.topic("t")
        assert (made.partitions, made.partitioned) == (1, False)
        assert (await client.ask(metadata(T))).partitionMetadataResponse.partitions == 0


async def test_a_name_is_of_a_durable_subscription_or_of_one_that_is_not() -> None:
    async with inside() as broker:
        client = broker.client()
        assert (await client.ask(raw.subscribe(T, "durable", 1))).type == DONE
        assert (await client.ask(raw.subscribe(T, "reader", 2, durable=False))).type == DONE
        for name, durable, kind in (("durable", False, "Durable"), ("reader", True, "NonDurable")):
            refused = (await client.ask(raw.subscribe(T, name, 3, durable=durable))).error
            assert refused.error == ServerError.NotAllowedError
            assert refused.message == f"{kind} subscription with the same name already exists."


@pytest.mark.parametrize("by_setting", [True, False])
async def test_subscriptions_are_made_by_asking_only_where_that_is_allowed(by_setting: bool) -> None:
    said = {"allowAutoSubscriptionCreation": "false"} if by_setting else {}
    async with inside(**said) as broker:
        if not by_setting:
            await _policies(broker, autoSubscriptionCreationOverride={"allowAutoSubscriptionCreation": False})
        client = broker.client()
        assert (await client.ask(raw.subscribe(T))).error.error == ServerError.SubscriptionNotFound
        assert (await client.ask(raw.subscribe(T, "reader", 2, durable=False))).type == DONE
        first = raw.producer(T)
        first.producer.initial_subscription_name = "first"
        assert (await client.ask(first)).error.error == ServerError.NotAllowedError
        topic = broker.services.topics.all_open()[0]
        assert "first" not in topic.subscriptions
        await topic.cursors.open("s")
        await topic.load()  # made by an administrator
        assert (await client.ask(raw.subscribe(T, "s", 3))).type == DONE


async def test_a_topic_says_for_itself_whether_subscriptions_are_made_by_asking() -> None:
    async with inside() as broker:
        client, policies = broker.client(), broker.services.topics.policies
        topic = await broker.broker.create_topic("t")
        await policies.set(topic, AUTO_SUBSCRIPTIONS, {"allowAutoSubscriptionCreation": False})
        assert (await client.ask(raw.subscribe(T))).error.error == ServerError.SubscriptionNotFound
        assert (await client.ask(raw.subscribe(T + "2"))).type == DONE
        await _policies(broker, autoSubscriptionCreationOverride={"allowAutoSubscriptionCreation": False})
        await policies.set(topic, AUTO_SUBSCRIPTIONS, {"allowAutoSubscriptionCreation": True})
        assert (await client.ask(raw.subscribe(T, "s", 2))).type == DONE
        await policies.set(topic, AUTO_SUBSCRIPTIONS, None)
        assert (await client.ask(raw.subscribe(T, "u", 3))).error.error == ServerError.SubscriptionNotFound


async def test_where_encryption_is_required_nothing_comes_in_the_clear() -> None:
    async with inside() as broker:
        client = broker.client()
        await _policies(broker, encryption_required=True)
        refused = (await client.ask(raw.producer(T))).error
        assert (refused.error, refused.message) == (
            ServerError.MetadataError,
            f"Encryption is required in {T}",
        )
        encrypted = raw.producer(T)
        encrypted.producer.encrypted = True
        assert (await client.ask(encrypted)).type == PRODUCED
        said = await client.ask((raw.send(), raw.entry()))
        assert (said.type, said.send_error.error) == (BaseCommand.SEND_ERROR, ServerError.MetadataError)
        said = await client.ask((raw.send(), raw.entry(encryption_keys=[{"key": "k", "value": b"v"}])))
        assert said.type == BaseCommand.SEND_RECEIPT
        assert said.send_receipt.message_id.entryId == 0


def _with_schema(command: BaseCommand, name: str) -> BaseCommand:
    schema = command.producer.schema if command.type == BaseCommand.PRODUCER else command.subscribe.schema
    schema.name, schema.type = name, "Avro"
    schema.schema_data = json.dumps({"type": "record", "name": name, "fields": []}).encode()
    return command


async def test_where_schemas_are_enforced_nobody_produces_without() -> None:
    async with inside() as broker:
        client = broker.client()
        await _policies(broker, schema_validation_enforced=True)
        assert (await client.ask(raw.producer(T, 1))).type == PRODUCED  # it has none yet
        assert (await client.ask(_with_schema(raw.producer(T, 2), "a"))).type == PRODUCED
        assert (await client.ask(raw.producer(T, 3))).error.error == ServerError.IncompatibleSchema
        assert (await client.ask(_with_schema(raw.producer(T, 3), "a"))).type == PRODUCED


async def test_a_broker_enforces_schemas_whatever_namespaces_say() -> None:
    async with inside(isSchemaValidationEnforced="true") as broker:
        client = broker.client()
        await _policies(broker, schema_validation_enforced=False)
        assert (await client.ask(_with_schema(raw.producer(T, 1), "a"))).type == PRODUCED
        assert (await client.ask(raw.producer(T, 2))).error.error == ServerError.IncompatibleSchema


async def test_a_topic_says_for_itself_which_schemas_it_takes() -> None:
    async with inside() as broker:
        client, policies = broker.client(), broker.services.topics.policies
        topic = await broker.broker.create_topic("t")
        await _policies(broker, schema_validation_enforced=True, schema_compatibility_strategy="BACKWARD")
        assert (await client.ask(_with_schema(raw.producer(T, 1), "a"))).type == PRODUCED
        await policies.set(topic, SCHEMAS_ENFORCED, False)
        assert (await client.ask(raw.producer(T, 2))).type == PRODUCED
        await policies.set(topic, SCHEMAS_ENFORCED, True)
        await _policies(broker, schema_validation_enforced=False)
        assert (await client.ask(raw.producer(T, 3))).error.error == ServerError.IncompatibleSchema
        strategies = []
        for said in ("FORWARD", "UNDEFINED", None):
            await policies.set(topic, SCHEMA_STRATEGY, said)
            strategies.append(broker.services.schemas.strategy(topic.name).name)
        assert strategies == ["FORWARD", "BACKWARD", "BACKWARD"]


async def test_a_subscription_ends_that_nobody_has_used_for_as_long_as_its_namespace_says() -> None:
    async with inside() as broker:
        await _policies(broker, subscription_expiration_time_minutes=60)
        await broker.broker.namespaces.create("public/other")
        client, ahead_ms = broker.client(), 0
        topics, groups = broker.services.topics, broker.services.groups
        sweep = ExpiredSubscriptionsSweep(broker.broker, topics, groups, lambda: wall_clock_ms() + ahead_ms)
        for number, (topic, name) in enumerate([(T, "left"), (T, "stays"), (T, "returns"), (OTHER, "kept")]):
            assert (await client.ask(raw.subscribe(topic, name, number))).type == DONE
        for number in (0, 2, 3):
            assert (await client.ask(raw.close_consumer(number))).type == DONE
        (topic,) = (each for each in topics.all_open() if each.name == T)
        topic.group_cursors.add("group")  # as a Kafka group's is marked
        await topic.subscription(Wanted("group", SubType.Exclusive, is_group=True))

        ahead_ms = 59 * 60_000
        await sweep.sweep()
        assert set(topic.subscriptions) == {"left", "stays", "returns", "group"}
        topic.subscriptions["returns"].used_ms += 30 * 60_000  # somebody was there for a moment
        ahead_ms = 61 * 60_000
        await sweep.sweep()
        assert set(topic.subscriptions) == {"stays", "returns", "group"}
        assert (await client.ask(raw.subscribe(T, "left", 9))).type == DONE  # anew
        assert sum(len(each.subscriptions) for each in topics.all_open()) == 5


async def test_where_only_administrators_bring_schemas_producers_do_not() -> None:
    async with inside() as broker:
        client = broker.client()
        assert (await client.ask(_with_schema(raw.producer(T, 1), "a"))).type == PRODUCED
        await _policies(
            broker, is_allow_auto_update_schema=False, schema_compatibility_strategy="ALWAYS_COMPATIBLE"
        )
        assert (await client.ask(_with_schema(raw.producer(T, 2), "a"))).type == PRODUCED
        assert (
            await client.ask(_with_schema(raw.producer(T, 3), "b"))
        ).error.error == ServerError.IncompatibleSchema
        other = T + "2"
        answer = await client.ask(_with_schema(raw.subscribe(other), "a"))
        assert answer.error.error == ServerError.IncompatibleSchema


async def test_the_older_policy_of_schemas_counts_where_the_newer_says_nothing() -> None:
    async with inside() as broker:
        await _policies(broker, schema_auto_update_compatibility_strategy="AutoUpdateDisabled")
        policies = broker.broker.namespaces.policies("public/default")
        assert policies.schema_compatibility_strategy == "ALWAYS_INCOMPATIBLE"
        await _policies(broker, schema_compatibility_strategy="FULL")
        assert broker.broker.namespaces.policies("public/default").schema_compatibility_strategy == "FULL"


@pytest.mark.parametrize("name", ["pulsar.dedup", "pulsar.repl.west"])
async def test_what_is_the_brokers_own_no_client_subscribes_to_or_ends(name: str) -> None:
    async with inside(brokerDeduplicationEnabled="true") as broker:
        client = broker.client()
        refused = (await client.ask(raw.subscribe(T, name))).error
        assert refused.error == ServerError.ProducerBusy  # Pulsar's number for names that cannot be
        first = raw.producer(T)
        first.producer.initial_subscription_name = name
        assert (await client.ask(first)).type == REFUSED
        assert name not in broker.services.topics.all_open()[0].subscriptions


async def test_a_listener_that_is_not_there_is_refused_as_pulsars_clients_know_it() -> None:
    """The C++ client gives up by these words alone; any other refusal of that kind it asks again."""
    async with inside() as broker:
        command = lookup(T)
        command.lookupTopic.advertised_listener_name = "test"
        refused = (await broker.client().ask(command)).lookupTopicResponse
        assert (refused.error, refused.message) == (
            ServerError.ServiceNotReady,
            "the broker do not have test listener",
        )


async def test_a_subscription_without_a_name_is_refused_as_names_that_cannot_be_are() -> None:
    async with inside() as broker:
        refused = (await broker.client().ask(raw.subscribe(T, ""))).error
        assert (refused.error, refused.message) == (ServerError.ProducerBusy, "Empty subscription name")


async def test_who_may_not_is_told_so_in_pulsars_words_and_the_log_says_who_and_where(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with inside(**SECURED) as broker:
        await _grant(broker, "public/default", pete=["produce"], carl=["consume"])
        pete, carl, eve = (_as(broker, name) for name in ("pete", "carl", "eve"))
        said = [
            (await eve.ask(lookup(T))).lookupTopicResponse.message,
            (await eve.ask(metadata(T))).partitionMetadataResponse.message,
            (await carl.ask(raw.producer(T))).error.message,
            (await pete.ask(raw.subscribe(T))).error.message,
        ]
    acts = "Lookup", "Get Partition Metadata", "Produce", "subscribe"
    assert said == [f"Client is not authorized to {act}" for act in acts]
    lines = [each.getMessage() for each in caplog.records if each.name == "magnetar.pulsar"]
    for line, role, act in zip(lines, ("eve", "eve", "carl", "pete"), acts, strict=True):
        assert f"with role {role}: Client is not authorized to {act}: {T}" in line, line


async def test_who_may_only_produce_makes_no_subscription() -> None:
    async with inside(**SECURED) as broker:
        await _grant(broker, "public/default", pete=["produce"], carl=["produce", "consume"])
        pete, carl = _as(broker, "pete"), _as(broker, "carl")
        command = raw.producer(T)
        command.producer.initial_subscription_name = "made-by-pete"
        assert (await pete.ask(command)).error.error == ServerError.AuthorizationError
        assert broker.broker.topics() == []
        assert (await carl.ask(command)).type == PRODUCED


async def test_subscriptions_begin_with_their_role_where_that_is_asked() -> None:
    async with inside(**SECURED) as broker:
        await broker.broker.create_topic(TopicName("public", "default", "t"), 1)
        await _grant(broker, "public/default", carl=["consume"])
        await _policies(broker, subscription_auth_mode="Prefix")
        carl, root = _as(broker, "carl"), _as(broker, "root")
        assert (await carl.ask(raw.subscribe(T, "mine"))).error.error == ServerError.AuthorizationError
        assert (await carl.ask(raw.subscribe(T, "carl-mine"))).type == DONE
        assert (await root.ask(raw.subscribe(T, "any"))).type == DONE
        await settled()
