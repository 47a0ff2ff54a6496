"""A dead-letter queue shows nobody what he may not read: neither who names it for a group, nor for whom it is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from magnetar.admin.client import ask
from tests.process import BrokerProcess
from tests.security.test_acls import binding, client, make, started, topic
from tests.waiting import until


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with started(tmp_path_factory.mktemp("letters") / "data", "share.auto.offset.reset=earliest") as process:
        yield process
        assert not [line for line in process.log_lines() if "Traceback" in line]


def configure(house: BrokerProcess, role: str, kind: ResourceType, name: str, **configs: str) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in configs.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin = AdminClient(client(house, role))
    admin.incremental_alter_configs([resource])[resource].result(20)


def name_queue(house: BrokerProcess, role: str, group: str, queue: str) -> None:
    configure(
        house,
        role,
        ResourceType.GROUP,
        group,
        errors_deadletterqueue_topic_name=queue,
        errors_deadletterqueue_copy_record_enable="true",
    )


def reject(house: BrokerProcess, role: str, group: str, name: str) -> None:
    """Have one record of a topic rejected by a member of a group."""
    producer = Producer(client(house, "root"))
    producer.produce(name, b"garnet")
    assert producer.flush(20) == 0
    member = ShareConsumer(
        {**client(house, role), "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    member.subscribe([name])
    judged = 0

    def some() -> bool:
        nonlocal judged
        for message in member.poll(0.2):
            assert message.error() is None, message.error()
            member.acknowledge(message, AcknowledgeType.REJECT)
            judged += 1
        member.commit_sync(20)
        return judged > 0

    until(some)
    member.close()


def kept(house: BrokerProcess, name: str) -> list[bytes | None]:
    """Return what a topic has by now."""
    consumer = Consumer({**client(house, "root"), "group.id": "x", "enable.partition.eof": True})
    consumer.assign([TopicPartition(name, 0, 0)])
    found: list[bytes | None] = []
    while (message := consumer.poll(20)) is not None and not message.error():
        found.append(message.value())
    assert message is not None
    assert message.error().code() == KafkaError._PARTITION_EOF
    consumer.close()
    return found


def make_queue(house: BrokerProcess, name: str) -> str:
    topic(house, name)
    configure(house, "root", ResourceType.TOPIC, name, errors_deadletterqueue_group_enable="true")
    return name


def test_consumers_configure_no_group(house: BrokerProcess) -> None:
    """A tenant's admins do, and whom an ACL allows it."""
    name = topic(house, "eves")
    ask(house.data, "grant", target=name, role="eve", actions=["consume", "produce"])
    with pytest.raises(KafkaException) as caught:
        name_queue(house, "eve", "work", "dlq.eve")
    assert caught.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    make(house, binding("work", "eve", AclOperation.ALTER_CONFIGS, kind=ResourceType.GROUP))
    name_queue(house, "eve", "work", "dlq.eve")
    ask(house.data, "set-admins", tenant="public", roles=["ruth"])
    name_queue(house, "ruth", "play", "dlq.eve")


@pytest.mark.parametrize("lacks", ["nothing", "consume", "produce"])
def test_letters_are_written_if_who_named_the_queue_could_have_copied_them(
    house: BrokerProcess, lacks: str
) -> None:
    source, queue = topic(house, f"source-{lacks}"), make_queue(house, f"dlq.{lacks}")
    group = f"group-{lacks}"
    ask(house.data, "grant", target=source, role="alice", actions=["consume"])
    if lacks != "consume":
        ask(house.data, "grant", target=source, role="nora", actions=["consume"])
    if lacks != "produce":
        ask(house.data, "grant", target=queue, role="nora", actions=["produce"])
    make(house, binding(group, "nora", AclOperation.ALTER_CONFIGS, kind=ResourceType.GROUP))
    name_queue(house, "nora", group, queue)
    reject(house, "alice", group, source)
    if lacks == "nothing":
        until(lambda: kept(house, queue) == [b"garnet"])
    else:
        until(lambda: any(f"share group {group} " in line and "nora" in line for line in house.log_lines()))
        assert kept(house, queue) == []


def test_who_has_records_copied_is_looked_at_and_not_who_changes_something_else(
    house: BrokerProcess, tmp_path: Path
) -> None:
    source, queue = topic(house, "source-late"), make_queue(house, "dlq.late")
    ask(house.data, "grant", target=source, role="alice", actions=["consume"])
    for role in ("nora", "otto"):
        make(house, binding("late", role, AclOperation.ALTER_CONFIGS, kind=ResourceType.GROUP))
    ask(house.data, "grant", target=source, role="nora", actions=["consume"])
    ask(house.data, "grant", target=queue, role="nora", actions=["produce"])
    name_queue(house, "nora", "late", queue)
    configure(house, "otto", ResourceType.GROUP, "late", share_delivery_count_limit="3")
    reject(house, "alice", "late", source)
    until(lambda: kept(house, queue) == [b"garnet"])
    copies: dict[str, Any] = {"errors_deadletterqueue_copy_record_enable": "false"}
    configure(house, "nora", ResourceType.GROUP, "late", **copies)
    copies["errors_deadletterqueue_copy_record_enable"] = "true"
    configure(house, "otto", ResourceType.GROUP, "late", **copies)
    reject(house, "alice", "late", source)
    until(lambda: any("share group late " in line and "otto" in line for line in house.log_lines()))
    assert kept(house, queue) == [b"garnet"]
