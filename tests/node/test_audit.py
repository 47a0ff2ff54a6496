"""A day of administrators, by each door: every act has its line, principal, address, before and after, no secret."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from magnetar.admin.client import Local
from magnetar.base import audit, slices
from magnetar.base.audit import Act, Actor, note, open_file, shown
from magnetar.kafka.audited import audited
from magnetar.kafka.context import RequestContext
from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.wire.kafka.messages import ApiKey
from magnetar.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from tests.figures.told import url
from tests.process import BrokerProcess
from tests.security.signing import SECURED, token
from tests.waiting import until

Lines = list[dict[str, Any]]
_DOORS = (
    "http.listeners=http://127.0.0.1:0",
    "schema.registry.listeners=http://127.0.0.1:0",
    "listeners=SASL_PLAINTEXT://127.0.0.1:0",
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    given = [
        word
        for each in (*SECURED, *_DOORS, f"audit.log.file={tmp_path / 'audit.log'}")
        for word in ("--set", each)
    ]
    with BrokerProcess(tmp_path / "data", *given, kafka=None) as process:
        yield process


def client(broker: BrokerProcess, role: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "public/default",
        "sasl.password": f"token:{token(role)}",
        "client.id": f"console of {role}",
    }


def headers(role: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token(role)}", "content-type": "application/json"}


def lines(broker: BrokerProcess) -> Lines:
    """Return the lines in the file."""
    return [json.loads(each) for each in (broker.data.parent / "audit.log").read_text().splitlines()]


def by_kafka(broker: BrokerProcess) -> None:
    root, alice = (AdminClient(client(broker, role)) for role in ("root", "alice"))
    root.create_topics([NewTopic("orders", 1, config={"retention.ms": "1000"})])["orders"].result(30)
    root.create_partitions([NewPartitions("orders", 3)])["orders"].result(30)
    change = ConfigResource(
        ConfigResource.Type.TOPIC,
        "orders",
        incremental_configs=[
            ConfigEntry("retention.ms", "2000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    for done in root.incremental_alter_configs([change]).values():
        done.result(30)
    with pytest.raises(KafkaException, match="TOPIC_EXCEPTION"):
        root.create_topics([NewTopic("a//b", 1)])["a//b"].result(30)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        alice.delete_topics(["orders"])["orders"].result(30)
    group = Consumer(client(broker, "root") | {"group.id": "g"})
    group.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    group.close()
    root.delete_consumer_groups(["g"])["g"].result(30)
    root.delete_topics(["orders"])["orders"].result(30)


def by_http(broker: BrokerProcess) -> None:
    namespace = url(broker) + "/admin/v2/namespaces/public/shop"
    for role, status in (("alice", 403), ("root", 204)):
        assert httpx.put(namespace, headers=headers(role), content=b"{}").status_code == status
    assert httpx.post(namespace + "/messageTTL", headers=headers("root"), content=b"60").status_code == 204
    assert httpx.get(namespace, headers=headers("root")).status_code == 200
    user = {"user": "bob", "password": "hunter2hunter2", "mechanisms": ["SCRAM-SHA-256"], "iterations": 4096}
    orders = url(broker) + "/admin/magnetar/v1"
    assert httpx.post(f"{orders}/set-user", headers=headers("root"), json=user).status_code == 200
    assert httpx.post(f"{orders}/users", headers=headers("root"), json={}).status_code == 200
    assert httpx.put(namespace, content=b"{}", headers={"authorization": "Bearer forged"}).status_code == 401


def by_registry(broker: BrokerProcess) -> None:
    subjects = url(broker, "schema-registry") + "/subjects/orders-value"
    schema = json.dumps({"schema": '"string"'})
    for role, status in (("alice", 403), ("root", 200)):
        answer = httpx.post(f"{subjects}/versions", headers=headers(role), content=schema)
        assert answer.status_code == status, answer.text
    assert httpx.post(subjects, headers=headers("root"), content=schema).status_code == 200
    assert httpx.delete(subjects, headers=headers("root")).status_code == 200


def test_a_day_of_administrators_can_be_told_from_the_file_alone(broker: BrokerProcess) -> None:
    by_kafka(broker)
    by_http(broker)
    by_registry(broker)
    broker.end()
    told = lines(broker)
    acts = [
        (each["operation"], each["resource"], each.get("name", ""), each["outcome"], each["principal"])
        for each in told
    ]
    assert acts == [
        ("CreateTopics", "topic", "orders", "done", "root"),
        ("CreatePartitions", "topic", "orders", "done", "root"),
        ("IncrementalAlterConfigs", "topic", "orders", "done", "root"),
        ("CreateTopics", "topic", "a//b", "failed", "root"),
        ("DeleteTopics", "topic", "orders", "refused", "alice"),
        ("OffsetCommit", "group", "g", "done", "root"),
        ("DeleteGroups", "group", "g", "done", "root"),
        ("DeleteTopics", "topic", "orders", "done", "root"),
        ("PUT /admin/v2/namespaces/{tenant}/{namespace}", "namespace", "public/shop", "refused", "alice"),
        ("PUT /admin/v2/namespaces/{tenant}/{namespace}", "namespace", "public/shop", "done", "root"),
        (
            "POST /admin/v2/namespaces/{tenant}/{namespace}/messageTTL",
            "namespace",
            "public/shop",
            "done",
            "root",
        ),
        ("POST /admin/magnetar/v1/{question}", "broker", "", "done", "root"),
        (
            "PUT /admin/v2/namespaces/{tenant}/{namespace}",
            "namespace",
            "public/shop",
            "refused",
            "(not authenticated)",
        ),
        ("POST /subjects/{subject:path}/versions", "subject", "orders-value", "refused", "alice"),
        ("POST /subjects/{subject:path}/versions", "subject", "orders-value", "done", "root"),
        ("DELETE /subjects/{subject:path}", "subject", "orders-value", "done", "root"),
    ]
    created, grown, changed, _, refused, _, _, deleted = told[:8]
    assert created["after"] == {"partitions": 1, "configs": {"retention.ms": "1000"}}
    assert "before" not in created
    assert (grown["before"], grown["after"]) == ({"partitions": 1}, {"partitions": 3})
    assert changed["before"] == {"configs": {"retention.ms": "1000"}}
    assert changed["after"] == {"configs": {"retention.ms": "2000"}}
    assert refused["error"].startswith("TOPIC_AUTHORIZATION_FAILED")
    assert deleted["before"] == {"partitions": 3, "configs": {"retention.ms": "2000"}}
    assert "after" not in deleted
    for each in told:
        assert each["address"] == "127.0.0.1"
        assert each["time"] <= told[-1]["time"]
    assert created["client"].startswith("console of root")
    assert told[10]["after"] == {"message_ttl_in_seconds": 60}
    text = (broker.data.parent / "audit.log").read_text()
    assert "hunter2" not in text
    assert '"password": "(hidden)"' in text
    assert "magnetar.audit" not in broker.log.read_text()


def test_a_command_on_the_brokers_machine_is_told_with_whose_process_it_is(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        Local(process.data).ask("set-admins", tenant="public", roles=["carol"])
        until(lambda: "magnetar.audit" in process.log.read_text())
        (line,) = [each for each in process.log_lines() if " magnetar.audit: " in each]
    assert "set-admins tenant done" in line
    assert 'principal="uid ' in line
    assert "name=public" in line


def test_a_file_is_rotated_and_one_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("magnetar.audit").setLevel(logging.INFO)
    actor, path = Actor("root", "kafka"), tmp_path / "audit.log"
    opened = open_file(str(path), 1024, 2)
    assert opened is not None
    for number in range(50):
        note(actor, Act("CreateTopics", "topic", f"topic-{number}"))
    opened.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    assert json.loads(path.read_text().splitlines()[-1])["name"] == "topic-49"
    assert all(each.stat().st_size <= 1024 for each in tmp_path.iterdir())
    with caplog.at_level(logging.INFO):
        assert open_file(str(tmp_path / "not" / "there"), 1024, 2) is None
        note(actor, Act("DeleteTopics", "topic", "t"))
    assert [each.name for each in caplog.records] == ["magnetar.broker", "magnetar.audit"]
    assert audit.logging.getLogger("magnetar.audit").propagate


def test_a_full_disk_at_the_end_is_told_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("magnetar.audit").setLevel(logging.INFO)
    opened = open_file("/dev/full", 1 << 20, 2)
    assert opened is not None
    note(Actor("root", "kafka"), Act("CreateTopics", "topic", "t"))
    opened.close()
    assert "the last audit lines were not written to /dev/full" in caplog.text
    assert audit.logging.getLogger("magnetar.audit").propagate


class Turns:
    """How many turns of the loop others have had."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.create_task(self._take())

    async def _take(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)

    def end(self) -> int:
        self._task.cancel()
        return self.count


@pytest.fixture
def context() -> RequestContext:
    kafka = SimpleNamespace(broker=SimpleNamespace(get=lambda name: None))
    listener = SimpleNamespace(name="PLAINTEXT")
    return RequestContext(kafka, 7, "console", "/127.0.0.1", listener)  # type: ignore[arg-type]


def many(count: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=f"t-{number}") for number in range(count)])


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return names and outcomes of the lines."""
    return [(each.fields["name"], each.fields["outcome"]) for each in caplog.records]  # type: ignore[attr-defined]


async def test_lines_of_a_large_request_are_written_in_slices(
    context: RequestContext, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    answer = CreateTopicsResponse(topics=[CreatableTopicResult(name=f"t-{number}") for number in range(100)])

    async def work() -> CreateTopicsResponse:
        return answer

    turns = Turns()
    with caplog.at_level(logging.INFO, "magnetar.audit"):
        assert await audited(work(), context, ROUTE_BY_KEY[ApiKey.CREATE_TOPICS], many(100), 1) is answer
    assert turns.end() >= 300, "what is asked, what was there before, and the lines: each is sliced"
    assert told(caplog) == [(f"t-{number}", "done") for number in range(100)]


async def test_what_is_given_up_before_it_begins_is_closed_and_has_no_line(
    context: RequestContext, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)

    async def work() -> None:
        raise AssertionError("it has begun")

    coroutine = work()
    with caplog.at_level(logging.INFO, "magnetar.audit"):
        task = asyncio.create_task(
            audited(coroutine, context, ROUTE_BY_KEY[ApiKey.CREATE_TOPICS], many(100), 1)
        )
        for _ in range(10):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    assert not caplog.messages


async def test_what_fails_has_a_line_for_each_thing_that_it_was_about(
    context: RequestContext, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        raise ConnectionAbortedError("no room")

    with caplog.at_level(logging.INFO, "magnetar.audit"), pytest.raises(ConnectionAbortedError):
        await audited(work(), context, ROUTE_BY_KEY[ApiKey.CREATE_TOPICS], many(3), 1)
    assert told(caplog) == [(f"t-{number}", "refused") for number in range(3)]


def test_refusals_cannot_fill_a_disk_and_what_is_done_is_told_beside_them(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_refusals", audit._Refusals())
    with caplog.at_level(logging.INFO, "magnetar.audit"):
        for number in range(audit.MOST_REFUSALS + 50):
            note(Actor("", "kafka"), Act("CreateTopics", "topic", str(number), audit.Outcome.REFUSED))
        note(Actor("root", "kafka"), Act("CreateTopics", "topic", "t"))
    assert len(caplog.records) == audit.MOST_REFUSALS + 1
    assert caplog.messages[-1] == "CreateTopics topic done"


def test_what_is_shown_is_bounded_and_without_secrets() -> None:
    assert shown({"salted_password": b"x", "name": "sasl.jaas.config", "value": "p"}) == {
        "salted_password": "(hidden)",
        "name": "sasl.jaas.config",
        "value": "(hidden)",
    }
    assert len(shown("x" * 5000)) < 1010
    assert shown(list(range(1000)))[-1] == "... 900 more"
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    json.dumps(shown(deep))
