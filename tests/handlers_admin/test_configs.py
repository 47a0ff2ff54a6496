"""Configurations through the protocol: described with their sources, replaced, and changed one by one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.cluster.ownership import BrokerInfo
from magnetar.settings.kafka_dynamic import SHOWN_WHEN_SET, WITHOUT_EFFECT
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import alter_configs_request as replacing
from magnetar.wire.kafka.messages import incremental_alter_configs_request as changing
from magnetar.wire.kafka.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from magnetar.wire.kafka.messages.list_config_resources_request import ListConfigResourcesRequest
from tests.handlers_admin.conversation import Client, client

E = ErrorCode
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
DYNAMIC, DEFAULT = 2, 5


async def describe(kafka: Client, kind: int, name: str, *keys: str, version: int = 4):
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )
    asked = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=version >= 3
    )
    (result,) = (await kafka.ask(asked, version)).results
    return result


async def value(kafka: Client, kind: int, name: str, key: str) -> tuple[str | None, int]:
    (config,) = (await describe(kafka, kind, name, key)).configs
    return config.value, config.config_source


async def change(kafka: Client, kind: int, name: str, *changes: tuple, dry: bool = False) -> tuple:
    configs = [
        changing.AlterableConfig(name=key, config_operation=op, value=text) for key, op, text in changes
    ]
    resource = changing.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    answer = await kafka.ask(changing.IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry))
    return E(answer.responses[0].error_code), answer.responses[0].error_message


async def replace(
    kafka: Client, kind: int, name: str, configs: dict[str, str | None], dry: bool = False
) -> tuple:
    rows = [replacing.AlterableConfig(name=key, value=text) for key, text in configs.items()]
    resource = replacing.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    answer = await kafka.ask(replacing.AlterConfigsRequest(resources=[resource], validate_only=dry))
    return E(answer.responses[0].error_code), answer.responses[0].error_message


@pytest.fixture
async def kafka(tmp_path: Path) -> Client:
    made = await client(tmp_path, log_segment_bytes="2000000")
    await made.broker.create_topic("t", 1, {"retention.ms": "5"})
    return made


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topic_tells_all_of_kafkas_configurations(kafka: Client, version: int) -> None:
    result = await describe(kafka, TOPIC, "t", version=version)
    configs = {config.name: config for config in result.configs}
    assert len(configs) == 34 + 3  # and entry.format, compaction.threshold, migration.writer
    retention = configs["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("5", 1, False)
    assert [(s.name, s.value, s.source) for s in retention.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "604800000", 5),
    ]
    assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("2000000", 4)
    assert configs["cleanup.policy"].value == "delete"
    if version >= 3:
        assert retention.config_type == 5
        assert "ms" in retention.documentation


async def test_the_broker_tells_its_settings(kafka: Client) -> None:
    configs = {config.name: config for config in (await describe(kafka, BROKER, "0")).configs}
    assert configs["num.partitions"].value == "1"
    assert configs["listeners"].read_only
    assert not configs["log.retention.ms"].read_only
    assert configs["flush"].value == "always"
    assert configs["log.retention.hours"].value == "168"
    assert configs["log.dirs"].config_source == 4
    assert list(configs) == sorted(configs)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nix", E.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", E.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", E.INVALID_TOPIC_EXCEPTION),
        (BROKER, "9", E.INVALID_REQUEST),
        (BROKER, "x", E.INVALID_REQUEST),
        (LOGGER, "", E.INVALID_REQUEST),
        (77, "x", E.INVALID_REQUEST),
    ],
)
async def test_what_is_not_there_cannot_be_described(
    kafka: Client, kind: int, name: str, code: ErrorCode
) -> None:
    result = await describe(kafka, kind, name)
    assert (result.error_code, result.configs) == (code, [])


async def test_single_configurations_change(kafka: Client) -> None:
    assert await change(kafka, TOPIC, "t", ("retention.ms", SET, "7"), ("max.message.bytes", SET, "99")) == (
        0,
        None,
    )
    assert kafka.broker.topic("t").config.retention_ms == 7
    assert await change(kafka, TOPIC, "t", ("retention.ms", DELETE, None)) == (0, None)
    assert kafka.broker.topic("t").overrides == {"max.message.bytes": "99"}
    assert await change(kafka, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert await value(kafka, TOPIC, "t", "cleanup.policy") == ("delete,compact", 1)
    assert await change(kafka, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == (0, None)
    assert await value(kafka, TOPIC, "t", "cleanup.policy") == ("compact", 1)
    assert await change(kafka, TOPIC, "t", ("cleanup.policy", SET, "compact, delete")) == (0, None)
    assert await value(kafka, TOPIC, "t", "cleanup.policy") == ("compact,delete", 1)
    assert await change(kafka, TOPIC, "t", ("retention.ms", SET, "8"), dry=True) == (0, None)
    assert "retention.ms" not in kafka.broker.topic("t").overrides


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "message"),
    [
        (TOPIC, "t", [("retention.ms", SET, None)], E.INVALID_REQUEST, "Null value"),
        (TOPIC, "t", [("retention.ms", SET, "x")], E.INVALID_CONFIG, "Not a number of type LONG"),
        (TOPIC, "t", [("retention.ms", SET, "")], E.INVALID_CONFIG, "Not a number"),
        (TOPIC, "t", [("retention.ms", APPEND, "1")], E.INVALID_CONFIG, "not LIST"),
        (TOPIC, "t", [("cleanup.policy", APPEND, "x")], E.INVALID_CONFIG, "compact, delete"),
        (TOPIC, "t", [("nope", SET, "1")], E.INVALID_CONFIG, "Unknown topic config name"),
        (TOPIC, "t", [("nope", APPEND, "1")], E.INVALID_CONFIG, "Unknown topic config name"),
        (TOPIC, "t", [("retention.ms", 9, "1")], E.INVALID_REQUEST, "Unknown operation"),
        (
            TOPIC,
            "t",
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            E.INVALID_REQUEST,
            "duplicate",
        ),
        (
            TOPIC,
            "t",
            [("segment.ms", SET, "1"), ("retention.ms", SET, "x")],
            E.INVALID_CONFIG,
            "retention.ms",
        ),
        (
            TOPIC,
            "t",
            [("min.compaction.lag.ms", SET, "2"), ("max.compaction.lag.ms", SET, "1")],
            E.INVALID_CONFIG,
            "conflict",
        ),
        (TOPIC, "nix", [], E.UNKNOWN_TOPIC_OR_PARTITION, "nix"),
        (TOPIC, "", [], E.INVALID_REQUEST, "Default topic"),
        (BROKER, "0", [("listeners", SET, "PLAINTEXT://:1")], E.INVALID_REQUEST, "dynamically: [listeners]"),
        (BROKER, "0", [("max.connection.creation.rate", SET, "1")], E.INVALID_REQUEST, "dynamically"),
        (BROKER, "0", [("log.segment.delete.delay.ms", SET, "-9")], E.INVALID_REQUEST, "at least 0"),
        (BROKER, "0", [("log.retention.ms", SET, "x")], E.INVALID_REQUEST, "LONG"),
        (BROKER, "", [("log.cleanup.policy", SET, "x")], E.INVALID_REQUEST, "compact"),
        (BROKER, "0", [("log.retention.ms", APPEND, "1")], E.INVALID_CONFIG, "not LIST"),
        (BROKER, "9", [], E.INVALID_REQUEST, "expected 0"),
        (77, "x", [], E.INVALID_REQUEST, "77"),
    ],
)
async def test_changes_that_cannot_be_change_nothing(
    kafka: Client, kind: int, name: str, changes: list, code: ErrorCode, message: str
) -> None:
    said, why = await change(kafka, kind, name, *changes)
    assert said == code
    assert message in why
    assert kafka.broker.topic("t").overrides == {"retention.ms": "5"}


async def test_what_kafka_lets_operators_change_is_kept_and_shown(kafka: Client) -> None:
    before = kafka.broker.settings
    assert await value(kafka, BROKER, "0", "log.cleaner.threads") == ("1", DEFAULT)
    for name in WITHOUT_EFFECT:
        assert Settings().declared.find(name) is None, "a setting of ours would be shown twice"
        shown = None if name in SHOWN_WHEN_SET else (await value(kafka, BROKER, "0", name))[0]
        assert await change(kafka, BROKER, "0", (name, SET, shown or "1")) == (0, None)
    assert await change(kafka, BROKER, "0", ("log.cleaner.threads", SET, "2")) == (0, None)
    assert await change(kafka, BROKER, "", ("log.cleaner.threads", SET, "3")) == (0, None)
    assert await value(kafka, BROKER, "0", "log.cleaner.threads") == ("2", DYNAMIC)
    assert [config.name for config in (await describe(kafka, BROKER, "")).configs] == ["log.cleaner.threads"]
    again = await client(Path(kafka.broker.settings.node.data_dir), kafka.broker.store)
    assert await value(again, BROKER, "0", "log.cleaner.threads") == ("2", DYNAMIC)
    assert await change(kafka, BROKER, "0", ("log.cleaner.threads", DELETE, None)) == (0, None)
    assert (await value(kafka, BROKER, "0", "log.cleaner.threads"))[0] == "3"
    assert kafka.broker.settings == before


async def test_a_throttle_of_replication_is_shown_until_it_is_taken_away(kafka: Client) -> None:
    async def shown() -> set[str]:
        return {each.name for each in (await describe(kafka, BROKER, "0")).configs} & SHOWN_WHEN_SET

    assert await shown() == set()
    for name in SHOWN_WHEN_SET:
        assert await change(kafka, BROKER, "0", (name, SET, "123")) == (0, None)
        assert await shown() == {name}
        assert (await value(kafka, BROKER, "0", name)) == ("123", DYNAMIC)
        assert await change(kafka, BROKER, "0", (name, DELETE, None)) == (0, None)
        assert await shown() == set()


async def test_replacing_forgets_what_is_not_named(kafka: Client) -> None:
    assert await replace(kafka, TOPIC, "t", {"segment.ms": "10"}, dry=True) == (0, None)
    assert kafka.broker.topic("t").overrides == {"retention.ms": "5"}
    assert await replace(kafka, TOPIC, "t", {"segment.ms": "10"}) == (0, None)
    assert kafka.broker.topic("t").overrides == {"segment.ms": "10"}
    assert (await replace(kafka, TOPIC, "t", {"segment.ms": None}))[0] == E.INVALID_REQUEST
    assert (await replace(kafka, TOPIC, "t", {"nope": "1"}))[0] == E.INVALID_CONFIG
    assert (await replace(kafka, LOGGER, "0", {}))[0] == E.INVALID_REQUEST


async def test_a_resource_may_come_only_once(kafka: Client) -> None:
    resource = replacing.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[])
    (answer,) = (await kafka.ask(replacing.AlterConfigsRequest(resources=[resource] * 2))).responses
    assert answer.error_code == E.INVALID_REQUEST
    twice = changing.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[])
    (answer,) = (await kafka.ask(changing.IncrementalAlterConfigsRequest(resources=[twice] * 2))).responses
    assert answer.error_message == "Each resource must appear at most once."


async def test_broker_settings_change_while_it_runs(kafka: Client) -> None:
    assert await change(kafka, BROKER, "", ("message.max.bytes", SET, "300")) == (0, None)
    assert kafka.broker.topic("t").config.max_message_bytes == 300
    assert await value(kafka, TOPIC, "t", "max.message.bytes") == ("300", 3)
    assert await change(kafka, BROKER, "0", ("message.max.bytes", SET, "200")) == (0, None)
    assert await value(kafka, BROKER, "0", "message.max.bytes") == ("200", 2)
    assert [c.name for c in (await describe(kafka, BROKER, "")).configs] == ["message.max.bytes"]
    assert await change(kafka, BROKER, "0", ("message.max.bytes", DELETE, None)) == (0, None)
    assert await replace(kafka, BROKER, "", {}) == (0, None)
    assert await value(kafka, BROKER, "0", "message.max.bytes") == ("1048588", 5)


@pytest.fixture
def magnetar_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("magnetar.test_configs")
    yield logger
    logger.setLevel(logging.NOTSET)


async def test_loggers_are_told_and_changed(kafka: Client, magnetar_logger: logging.Logger) -> None:
    name = magnetar_logger.name
    assert await change(kafka, LOGGER, "0", (name, SET, "DEBUG")) == (0, None)
    assert magnetar_logger.level == logging.DEBUG
    assert await value(kafka, LOGGER, "0", name) == ("DEBUG", 6)
    assert (await change(kafka, LOGGER, "0", (name, SET, "LOUD")))[0] == E.INVALID_CONFIG
    assert (await change(kafka, LOGGER, "0", ("nolog", SET, "INFO")))[0] == E.INVALID_CONFIG
    assert (await change(kafka, LOGGER, "0", (name, APPEND, "INFO")))[0] == E.INVALID_REQUEST
    assert (await change(kafka, LOGGER, "0", ("root", DELETE, None)))[0] == E.INVALID_REQUEST
    assert await change(kafka, LOGGER, "0", (name, DELETE, None), dry=True) == (0, None)
    assert magnetar_logger.level == logging.DEBUG
    assert await change(kafka, LOGGER, "0", (name, DELETE, None)) == (0, None)
    assert magnetar_logger.level == logging.NOTSET


async def test_all_brokers_of_a_cluster_have_configurations(
    kafka: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka.broker.cluster.ownership, "brokers", lambda: [BrokerInfo(0), BrokerInfo(7)])
    told = await kafka.ask(ListConfigResourcesRequest(resource_types=[BROKER, LOGGER]))
    found = [(each.resource_type, each.resource_name) for each in told.config_resources]
    assert found == [(BROKER, "0"), (BROKER, "7"), (LOGGER, "0"), (LOGGER, "7")]


async def test_what_has_configurations_is_listed(kafka: Client) -> None:
    told = await kafka.ask(ListConfigResourcesRequest(resource_types=[]))
    assert {(r.resource_type, r.resource_name) for r in told.config_resources} == {
        (2, "t"),
        (4, "0"),
        (8, "0"),
    }
    told = await kafka.ask(ListConfigResourcesRequest(resource_types=[TOPIC]))
    assert [r.resource_name for r in told.config_resources] == ["t"]
    assert (
        await kafka.ask(ListConfigResourcesRequest(resource_types=[99]))
    ).error_code == E.UNSUPPORTED_VERSION
    assert (await kafka.ask(ListConfigResourcesRequest(), 0)).config_resources == []
