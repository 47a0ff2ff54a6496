"""Configurations of groups through the protocol: Kafka's names, limits, sources and words."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.share.settings import ShareSettings
from magnetar.metadata import MemoryStore
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.list_config_resources_request import ListConfigResourcesRequest
from tests.handlers_admin.conversation import Client, client
from tests.handlers_admin.test_configs import APPEND, DELETE, SET, change, describe, replace, value

E = ErrorCode
DLQ_TOPIC, DLQ_COPIES = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
GROUP, FROM_GROUP, FROM_DEFAULT = 32, 8, 5
SESSION, HEARTBEAT, INTERVAL = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)


@pytest.fixture
async def kafka(tmp_path: Path) -> Client:
    return await client(tmp_path)


async def test_a_group_says_what_is_in_force_and_where_it_comes_from(kafka: Client) -> None:
    assert await value(kafka, GROUP, "g", SESSION) == ("45000", FROM_DEFAULT)
    assert await change(kafka, GROUP, "g", (SESSION, SET, "50000"), (HEARTBEAT, SET, "6000")) == (
        E.NONE,
        None,
    )
    told = {each.name: each for each in (await describe(kafka, GROUP, "g")).configs}
    assert {SESSION, HEARTBEAT, INTERVAL} <= set(told)
    session = told[SESSION]
    assert (session.value, session.config_source, session.read_only, session.config_type) == (
        "50000",
        FROM_GROUP,
        False,
        3,
    )
    assert [(each.name, each.value, each.source) for each in session.synonyms] == [
        (SESSION, "50000", FROM_GROUP),
        ("group.consumer.session.timeout.ms", "45000", FROM_DEFAULT),
    ]
    assert await value(kafka, GROUP, "other", SESSION) == ("45000", FROM_DEFAULT)


async def test_what_is_set_is_what_the_coordinator_goes_by(kafka: Client) -> None:
    room = kafka.configs.room("__consumer_offsets")
    await change(kafka, GROUP, "g", (SESSION, SET, "55000"))
    assert room.of("g", GroupSettings).group_consumer_session_timeout_ms == 55000
    assert room.of("h", GroupSettings).group_consumer_session_timeout_ms == 45000
    elsewhere = kafka.configs.room("tenant/__kafka/__consumer_offsets")
    assert elsewhere.of("g", GroupSettings).group_consumer_session_timeout_ms == 45000, "another tenant's"
    await change(kafka, GROUP, "g", (SESSION, DELETE, None))
    assert room.of("g", GroupSettings).group_consumer_session_timeout_ms == 45000
    assert list(room.groups()) == []


async def test_settings_changed_while_the_broker_runs_count_for_groups_that_say_nothing(
    kafka: Client,
) -> None:
    room = kafka.configs.room("__consumer_offsets")
    await change(kafka, GROUP, "g", (SESSION, SET, "55000"))
    assert room.of("g", GroupSettings).group_consumer_assignment_interval_ms == 1000
    await kafka.broker.set_dynamic({"group.consumer.assignment.interval.ms": "7"}, for_all=True)
    assert room.of("g", GroupSettings).group_consumer_assignment_interval_ms == 7


async def test_a_group_has_a_dead_letter_queue_of_its_own(kafka: Client) -> None:
    """As Apache Kafka 4.4.0 tells of the same, but that a topic's name must be one."""
    room = kafka.configs.room("__consumer_offsets")
    assert await value(kafka, GROUP, "g", DLQ_TOPIC) == ("", FROM_DEFAULT)
    assert await value(kafka, GROUP, "g", DLQ_COPIES) == ("false", FROM_DEFAULT)
    assert await change(kafka, GROUP, "g", (DLQ_TOPIC, SET, " dlq.g "), (DLQ_COPIES, SET, "true")) == (
        E.NONE,
        None,
    )
    assert await value(kafka, GROUP, "g", DLQ_TOPIC) == ("dlq.g", FROM_GROUP)
    found = room.of("g", ShareSettings)
    assert found.errors_deadletterqueue_topic_name == "dlq.g"
    assert found.errors_deadletterqueue_copy_record_enable
    assert await change(kafka, GROUP, "g", (DLQ_TOPIC, SET, "")) == (E.NONE, None)
    assert room.of("g", ShareSettings).errors_deadletterqueue_topic_name == ""
    assert room.of("h", ShareSettings).errors_deadletterqueue_topic_name_prefix == "dlq."


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (SESSION, "44999", f"{SESSION} must be in the range 45000 to 60000 inclusive."),
        (SESSION, "60001", f"{SESSION} must be in the range 45000 to 60000 inclusive."),
        (HEARTBEAT, "4999", f"{HEARTBEAT} must be in the range 5000 to 15000 inclusive."),
        (HEARTBEAT, "15001", f"{HEARTBEAT} must be in the range 5000 to 15000 inclusive."),
        (INTERVAL, "15001", f"{INTERVAL} must be in the range 0 to 15000 inclusive."),
        (INTERVAL, "-1", f"Invalid value -1 for configuration {INTERVAL}: Value must be at least 0"),
        (SESSION, "soon", f"Invalid value soon for configuration {SESSION}: Not a number of type INT"),
        (DLQ_TOPIC, "__letters", f"{DLQ_TOPIC}: DLQ topic name must not start with '__'"),
        (DLQ_TOPIC, "public/default/__letters", f"{DLQ_TOPIC}: DLQ topic name must not start with '__'"),
        (
            DLQ_TOPIC,
            "public/letters",
            f"{DLQ_TOPIC}: Topic name is invalid: it must be t, tenant/namespace/t or persistent://tenant/namespace/t",
        ),
        ("session.timeout.ms", "50000", "Unknown group config name: session.timeout.ms"),
    ],
)
async def test_what_may_not_be(kafka: Client, name: str, text: str, why: str) -> None:
    assert await change(kafka, GROUP, "g", (name, SET, text)) == (E.INVALID_CONFIG, why)
    assert await replace(kafka, GROUP, "g", {name: text}) == (E.INVALID_CONFIG, why)
    assert (await value(kafka, GROUP, "g", SESSION))[1] == FROM_DEFAULT


async def test_a_session_is_longer_than_a_heartbeat(tmp_path: Path) -> None:
    kafka = await client(
        tmp_path,
        group_consumer_min_session_timeout_ms="6000",
        group_consumer_max_heartbeat_interval_ms="50000",
    )
    why = f"{SESSION} must be greater than {HEARTBEAT}"
    assert await change(kafka, GROUP, "g", (HEARTBEAT, SET, "45000")) == (E.INVALID_CONFIG, why)
    assert await change(kafka, GROUP, "g", (SESSION, SET, "9000"), (HEARTBEAT, SET, "9000")) == (
        E.INVALID_CONFIG,
        why,
    )
    assert await change(kafka, GROUP, "g", (SESSION, SET, "9001"), (HEARTBEAT, SET, "9000")) == (E.NONE, None)


async def test_requests_that_make_no_sense(kafka: Client) -> None:
    assert await change(kafka, GROUP, "", (SESSION, SET, "50000")) == (
        E.INVALID_REQUEST,
        "Default group resources are not allowed.",
    )
    result = await describe(kafka, GROUP, "")
    assert (E(result.error_code), result.error_message) == (
        E.INVALID_REQUEST,
        "Group name must not be empty",
    )
    code, _ = await change(kafka, GROUP, "g", (SESSION, APPEND, "1"))
    assert code == E.INVALID_CONFIG
    code, _ = await change(kafka, GROUP, "g", ("nothing", APPEND, "1"))
    assert code == E.INVALID_CONFIG
    assert await change(kafka, GROUP, "g", (SESSION, SET, "50000"), dry=True) == (E.NONE, None)
    assert await value(kafka, GROUP, "g", SESSION) == ("45000", FROM_DEFAULT)


async def test_what_is_set_outlives_the_broker_and_narrower_limits_hold_it(tmp_path: Path) -> None:
    store = MemoryStore()
    kafka = await client(tmp_path, store)
    for name in ("g", "..", "a/b c", "ü"):
        assert await change(kafka, GROUP, name, (SESSION, SET, "60000")) == (E.NONE, None)
    await replace(kafka, GROUP, "g", {HEARTBEAT: "9000"})
    assert await value(kafka, GROUP, "g", SESSION) == ("45000", FROM_DEFAULT)
    again = await client(tmp_path, store, group_consumer_max_session_timeout_ms="50000")
    assert await value(again, GROUP, "g", HEARTBEAT) == ("9000", FROM_GROUP)
    for name in ("..", "a/b c", "ü"):
        assert await value(again, GROUP, name, SESSION) == ("50000", FROM_GROUP)
    told = await again.ask(ListConfigResourcesRequest(resource_types=[GROUP]))
    assert {each.resource_name for each in told.config_resources} == {"g", "..", "a/b c", "ü"}
