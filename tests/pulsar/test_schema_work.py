"""A schema that asks for much, over the wire: it is refused or taken, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from magnetar.base.errors import TopicNotFound
from magnetar.metadata.memory import MemoryStore
from magnetar.pulsar.errors import IncompatibleSchema, NotAllowed
from magnetar.pulsar.native_schemas import root_message
from magnetar.pulsar.schema_rules import Strategy
from magnetar.pulsar.schemas import MAX_TOPIC_BYTES, TopicSchemas
from magnetar.schema_registry import work
from magnetar.schema_registry.workshop import Workshop
from magnetar.topics.names import TopicName
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.process import BrokerProcess
from tests.pulsar.raw import Raw, producer
from tests.pulsar.schema_cases import AB, AB_DEFAULT, A, avro
from tests.schema_registry.test_avro_work import chain

ONE, OTHER = TopicName("public", "default", "one"), TopicName("public", "default", "other")


def made(strategy: Strategy = Strategy.FULL) -> TopicSchemas:
    return TopicSchemas(MemoryStore(), lambda: 1, strategy, Workshop())


class Held:
    """Holds up whoever counts steps on the topic's behalf until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        self.seen: list[str] = []
        read = work.json.loads

        def loads(text: Any) -> Any:
            self.seen.append(str(text))
            if word in str(text):
                self.began.set()
                assert self.go_on.wait(30)
            return read(text)

        monkeypatch.setattr(work.json, "loads", loads)


async def test_another_topic_goes_on_while_one_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = made()
    held = Held(monkeypatch, "heavy")
    heavy = asyncio.ensure_future(schemas.add(ONE, avro(A | {"doc": "heavy"})))
    assert await asyncio.to_thread(held.began.wait, 30)
    later = asyncio.ensure_future(schemas.add(ONE, avro(A | {"doc": "later"})))
    await asyncio.sleep(0)
    assert (await schemas.add(OTHER, avro(A))).version == 0
    assert not any("later" in each for each in held.seen), "of one topic one is at work"
    held.go_on.set()
    assert (await heavy).version == 0
    assert (await later).data == (await heavy).data, "one after another, and these two are one schema"


async def test_a_topic_that_is_deleted_meanwhile_gets_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = made()
    held = Held(monkeypatch, "heavy")
    heavy = asyncio.ensure_future(schemas.add(ONE, avro(A | {"doc": "heavy"})))
    assert await asyncio.to_thread(held.began.wait, 30)
    await schemas.topic_deleted(type("Topic", (), {"name": ONE})())
    held.go_on.set()
    with pytest.raises(TopicNotFound):
        await heavy
    assert await schemas.versions(ONE) == []


async def test_a_client_that_is_gone_and_a_broker_that_ends_leave_no_work() -> None:
    workshop = Workshop()
    began, ended = threading.Event(), threading.Event()

    def endless(steps: work.Work) -> None:
        began.set()
        with pytest.raises(work.TooComplex, match="the broker ends"):
            while True:
                steps.check()
        ended.set()

    gone = asyncio.ensure_future(workshop.do(endless))
    assert await asyncio.to_thread(began.wait, 30)
    gone.cancel()
    assert await asyncio.to_thread(ended.wait, 30)
    began.clear()
    other = asyncio.ensure_future(workshop.do(endless))
    assert await asyncio.to_thread(began.wait, 30)
    workshop.close()
    await other
    with pytest.raises(work.TooComplex):
        await workshop.do(endless)


async def test_all_versions_of_a_topic_have_a_bound() -> None:
    schemas = made(Strategy.ALWAYS_COMPATIBLE)
    large = [
        avro(A | {"said": f"{number}" + "x" * 1_000_000})
        for number in range(MAX_TOPIC_BYTES // 1_000_000 + 1)
    ]
    with pytest.raises(NotAllowed, match="together"):
        for each in large:
            await schemas.add(ONE, each)
    assert (await schemas.add(ONE, large[0])).version == 0


async def test_a_schema_of_many_versions_counts_them_all() -> None:
    """Under a transitive strategy each version is compared, and the work is one request's."""
    schemas = made(Strategy.BACKWARD_TRANSITIVE)
    for number in range(50):
        await schemas.add(ONE, avro(A | {"said": number}))
    with pytest.raises(IncompatibleSchema, match="cannot be read"):
        await schemas.add(ONE, avro(AB))
    assert (await schemas.add(ONE, avro(AB_DEFAULT))).version == 50


def test_the_schema_that_stopped_the_broker(pulsar_broker: BrokerProcess, topic: str) -> None:
    """Forty records of two fields of the next: it was weeks of work on the event loop."""
    command = producer(topic)
    command.producer.schema.CopyFrom(avro(chain(40)))
    with Raw(pulsar_broker) as raw:
        assert raw.ask(command).type == BaseCommand.PRODUCER_SUCCESS
        command.producer.producer_id, command.producer.request_id = 2, 2
        command.producer.schema.schema_data = json.dumps(chain(40, type="string")).encode()
        answer = raw.ask(command)
        assert answer.type == BaseCommand.ERROR
        assert "not compatible" in answer.error.message


def native(*files: descriptor_pb2.FileDescriptorProto, root: str, file: str) -> bytes:
    said = base64.b64encode(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()).decode()
    return json.dumps(
        {"fileDescriptorSet": said, "rootMessageTypeName": root, "rootFileDescriptorName": file}
    ).encode()


def test_the_root_of_a_native_schema_is_in_the_file_that_is_said() -> None:
    used = descriptor_pb2.FileDescriptorProto(name="used.proto")
    used.message_type.add(name="Used")
    user = descriptor_pb2.FileDescriptorProto(name="user.proto", dependency=["used.proto"])
    user.message_type.add(name="User").nested_type.add(name="Inner")
    assert root_message(native(user, used, root="User.Inner", file="user.proto")) == "User.Inner"
    with pytest.raises(ValueError, match=r"not in user\.proto"):
        root_message(native(user, used, root="Used", file="user.proto"))
    with pytest.raises(ValueError, match="descriptor is null"):
        root_message(native(user, root="User", file="user.proto"))
