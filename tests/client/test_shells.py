"""Both shells of the client against real brokers and broken ones: the one that blocks, and the one for event loops."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from magnetar.client.async_connection import AsyncConnection
from magnetar.client.connection import Connection
from magnetar.client.errors import BrokerRefused, BrokerUnreachable, ClientError, NoConnection
from magnetar.client.settings import ClientSettings, settings_of
from magnetar.records.batch import batches
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.fetch_response import FetchResponse
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.process import BrokerProcess
from tests.security.conftest import LISTENERS, Secured, secured  # noqa: F401

COUNT = 20_000
UNKNOWN = 3


def about(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)


def settings(address: str, **others: str) -> ClientSettings:
    return settings_of({"bootstrap.servers": address} | {k.replace("_", "."): v for k, v in others.items()})


async def asynchronous(found: ClientSettings) -> AsyncConnection:
    return await AsyncConnection.connect(*found.bootstrap[0], found)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data")
    yield process
    if process.is_running:
        process.end()


def fetch(topic_id: bytes, topic: str, offset: int) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[asked])],
    )


def next_offset(answer: FetchResponse, offset: int) -> int:
    """Return where the next fetch begins, having looked that nothing is left out."""
    records = answer.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    for header, _ in batches(records):
        assert header.base_offset == offset
        offset = header.last_offset + 1
    return offset


@pytest.mark.slow
async def test_both_read_20_000_records_in_order(process: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": process.address})
    for i in range(COUNT):
        producer.produce("t", value=f"{i:01000}", partition=0)
        producer.poll(0)
    producer.flush()
    found = settings(process.address)
    blocking, on_loop = Connection(*found.bootstrap[0], found), await asynchronous(found)
    for shell in ("blocking", "on_loop"):
        offset = 0
        while offset < COUNT:

            async def call(request: Any, shell: str = shell) -> Any:
                return blocking.call(request) if shell == "blocking" else await on_loop.call(request)

            (topic,) = (await call(about("t"))).topics
            offset = next_offset(await call(fetch(topic.topic_id, "t", offset)), offset)
        assert offset == COUNT
    blocking.close()
    on_loop.close()


@pytest.mark.slow
async def test_many_callers_each_get_their_own_answer(process: BrokerProcess) -> None:
    connection = await asynchronous(settings(process.address))

    async def one(i: int) -> None:
        answer = await connection.call(about(f"none-{i}"))
        (row,) = answer.topics
        assert (row.name, row.error_code) == (f"none-{i}", UNKNOWN)

    await asyncio.gather(*map(one, range(2_000)))
    # Those who leave take nobody's answer along.
    calls = [asyncio.create_task(one(i)) for i in range(500)]
    await asyncio.sleep(0)
    for call in calls[::3]:
        call.cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in ended] == [
        type(None) if i % 3 else asyncio.CancelledError for i in range(500)
    ]
    assert not connection.closed
    connection.close()


@pytest.mark.slow
async def test_a_broker_that_dies_is_told_to_all_who_wait(process: BrokerProcess) -> None:
    connection = await asynchronous(settings(process.address))
    topic_id = bytes(16)
    waiting = [asyncio.create_task(connection.call(about(f"none-{i}"))) for i in range(300)]
    process.end(signal.SIGKILL)
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, BrokerUnreachable) or not isinstance(each, BaseException) for each in ended)
    assert isinstance(ended[-1], BrokerUnreachable)
    assert connection.closed
    with pytest.raises(BrokerUnreachable):
        await connection.call(fetch(topic_id, "t", 0))
    with pytest.raises(NoConnection, match="no broker answers"):
        await asynchronous(settings(process.address))


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """Something that takes connections and says this to the first bytes; nothing ever if None."""
    ended = threading.Event()

    def serve(served: socket.socket) -> None:
        with served:
            while not ended.is_set():
                try:
                    taken, _ = served.accept()
                except OSError:
                    continue
                with taken:
                    if answer is None:
                        ended.wait()
                    else:
                        taken.recv(1)
                        taken.sendall(answer)

    served = socket.create_server(("127.0.0.1", 0))
    served.settimeout(0.1)
    thread = threading.Thread(target=serve, args=(served,))
    thread.start()
    yield "{}:{}".format(*served.getsockname())
    ended.set()
    thread.join()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "timed out|takes too long"),
        (b"", "closed the connection|broke"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol"),
    ],
)
async def test_what_is_no_broker(answer: bytes | None, told: str) -> None:
    with listening(answer) as address:
        found = settings(address, request_timeout_ms="300")
        with pytest.raises(BrokerUnreachable, match=told):
            await asyncio.to_thread(Connection, *found.bootstrap[0], found)
        with pytest.raises(BrokerUnreachable, match=told):
            await asynchronous(found)


@pytest.mark.slow
async def test_an_answer_that_does_not_come_in_time_ends_the_connection(process: BrokerProcess) -> None:
    connection = await asynchronous(settings(process.address, request_timeout_ms="1000"))
    os.kill(process.pid, signal.SIGSTOP)
    calls = [asyncio.create_task(connection.call(about("t"))) for _ in range(3)]
    ended = await asyncio.gather(*calls, return_exceptions=True)
    os.kill(process.pid, signal.SIGCONT)
    assert all(isinstance(each, BrokerUnreachable) for each in ended)
    assert connection.closed


@pytest.mark.slow
@pytest.mark.parametrize("listener", LISTENERS)
async def test_a_secured_broker(secured: Secured, listener: str) -> None:  # noqa: F811
    found = settings_of(secured.client(listener))
    (row,) = Connection(*found.bootstrap[0], found).call(about("none")).topics
    assert row.error_code == UNKNOWN
    connection = await asynchronous(found)
    (row,) = (await connection.call(about("none"))).topics
    assert row.error_code == UNKNOWN
    connection.close()


async def test_a_secured_broker_refuses(secured: Secured) -> None:  # noqa: F811
    wrong = settings_of(secured.client("SASL_SSL") | {"sasl.password": "token:forged"})
    with pytest.raises(BrokerRefused, match="SASL_AUTHENTICATION_FAILED"):
        await asynchronous(wrong)
    untrusted = secured.client("SASL_SSL")
    del untrusted["ssl.ca.location"]
    with pytest.raises(ClientError, match="certificate verify failed"):
        await asynchronous(settings_of(untrusted))
    elsewhere = settings_of(secured.client("SASL_PLAINTEXT") | {"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(NoConnection, match=r"no broker answers at 127\.0\.0\.1:1"):
        await asynchronous(elsewhere)
