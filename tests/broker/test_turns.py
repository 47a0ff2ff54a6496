"""Requests that arrive together are written together, and answered by what storage said of each partition."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from magnetar.kafka import connection
from magnetar.kafka.connection import KafkaConnection
from magnetar.kafka.handler import KafkaProtocolHandler
from magnetar.kafka.handlers import produce
from magnetar.kafka.listeners import parse_listeners
from magnetar.ledger.files.disk import File, RealDisk, RealFile
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.formats.layout import ledger_path
from magnetar.ledger.port import Flush, LedgerPolicy
from magnetar.metadata import SqliteStore
from magnetar.node.broker import Broker
from magnetar.records.batch import PlainRecord, batches, decode_records, encode_batch
from magnetar.records.compression import Buffer
from magnetar.serving import pace, serving
from magnetar.settings.settings import Settings
from magnetar.settings.topic import TopicSettings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.frames import KafkaFrameReader
from magnetar.wire.kafka.header import decode_response_header
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages import response_class
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.accounts import account
from tests.hostile.client import frame, request_bytes
from tests.ledger.entries import NOW_MS, prepared
from tests.ledger.test_engines import BoundedDisk, BoundedFile

PRODUCE, FETCH = 9, 12
PRODUCER_ID = 7


class CountedFile(BoundedFile):
    """Counts the writes to ledgers."""

    def __init__(self, path: Path, disk: CountedDisk, *, create: bool) -> None:
        self._path = path
        super().__init__(path, disk, create=create)

    def write(self, parts: Sequence[Buffer], at: int) -> None:
        self._disk.writes += self._path.suffix == ".ledger"  # type: ignore[attr-defined]
        super().write(parts, at)


class CountedDisk(BoundedDisk):
    writes = 0

    def open(self, path: Path, *, create: bool = False) -> File:
        return CountedFile(path, self, create=create)


class House:
    """A broker with one topic of two partitions, and a client whose frames arrive all at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = CountedDisk()
        self.is_closed = False
        self._answers = KafkaFrameReader()
        self._asked: list[tuple[int, int]] = []
        self._sent = b""

    async def begin(self) -> None:
        settings = Settings(TopicSettings(num_partitions=2, flush="os"))
        self.store = SqliteStore(self.root / "metadata.sqlite")
        self.engine = FilesEngine(self.root, self.store, self.disk, clock=lambda: NOW_MS)
        await self.engine.start()
        broker = Broker(settings, self.store, self.engine)
        await broker.start()
        self.handler = KafkaProtocolHandler(clock=lambda: NOW_MS)
        self.handler.initialize(settings)
        await self.handler.start(broker)
        topic = await broker.create_topic("t")
        for index in range(2):
            await prepared((await self.handler.services.partitions.get(topic, index)).log)
        (listener,) = parse_listeners(settings)
        self.frames = KafkaFrameReader()
        self.conversation = KafkaConnection(
            self.handler.services, listener, "127.0.0.1", self.frames,
            lambda parts: self._answers.feed(b"".join(parts)), self._closed, account(),
        )  # fmt: skip

    def _closed(self) -> None:
        self.is_closed = True

    async def end(self) -> None:
        await self.handler.close()
        await self.engine.close()
        self.store.blocking.close()

    def send(self, message: Message, version: int) -> None:
        self._asked.append((message.API_KEY, version))
        self._sent += frame(request_bytes(message, version))

    def produce(self, sequence: int, *partitions: int, acks: int = -1) -> None:
        value = b"%d:" % sequence + b"v" * 10
        data = [
            PartitionProduceData(
                index=index,
                records=encode_batch(
                    [PlainRecord(None, value, (), NOW_MS)],
                    producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence,
                ),
            )
            for index in partitions
        ]  # fmt: skip
        self.send(
            ProduceRequest(acks=acks, topic_data=[TopicProduceData(name="t", partition_data=data)]), PRODUCE
        )

    def fetch(self, partition: int) -> None:
        asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="t", partitions=[asked])]
        self.send(FetchRequest(max_bytes=1 << 20, topics=topics), FETCH)

    def answers(self) -> list[Any]:
        """Have all that was sent arrive, and give what is answered at once."""
        self.frames.feed(self._sent)
        self._sent = b""
        self.conversation.go_on()
        return self._heard()

    async def later(self) -> list[Any]:
        """Have all that was sent arrive, and give what is answered when the disk has done its work."""
        found = self.answers()
        while self._asked:
            await asyncio.sleep(0.001)
            found += self._heard()
        return found

    def _heard(self) -> list[Any]:
        found = []
        while (content := self._answers.next_frame()) is not None:
            api_key, version = self._asked.pop(0)
            _, body = decode_response_header(content, api_key, version)
            found.append(response_class(api_key).decode(body, version))
        return found


def rows(answer: Any) -> dict[int, tuple[int, int]]:
    return {row.index: (row.error_code, row.base_offset) for row in answer.responses[0].partition_responses}


def values(answer: Any) -> list[bytes]:
    records = answer.responses[0].partitions[0].records or b""
    return [
        (each.value or b"").split(b":")[0] for _, batch in batches(records) for each in decode_records(batch)
    ]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    with pytest.MonkeyPatch.context() as patch:
        # On a busy machine a turn may be over sooner than all has arrived; what happens then is tested elsewhere.
        for module in (connection, pace, produce, serving):
            patch.setattr(module, "MAX_SECONDS", 60.0)
        patch.setattr(serving, "LONG_SECONDS", float("inf"))
        house = House(tmp_path)
        await house.begin()
        yield house
        await house.end()


async def test_requests_that_arrive_together_take_one_write_for_each_partition(house: House) -> None:
    house.produce(0, 0, 1)
    assert rows(house.answers()[0]) == {0: (0, 0), 1: (0, 0)}
    before = house.disk.writes
    for n in range(1, 6):
        house.produce(n, 0, 1)
    house.fetch(0)
    *produced, fetched = house.answers()
    assert [rows(each) for each in produced] == [{0: (0, n), 1: (0, n)} for n in range(1, 6)]
    assert house.disk.writes - before == 2
    assert values(fetched) == [b"%d" % n for n in range(6)], "it comes behind them, and sees them"


async def test_each_partition_is_answered_by_what_became_of_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.produce(0, 0, 1)
    house.answers()
    full = house.handler.services.partitions.opened("t", bytes(16), 0).log.ledgers()[0].ledger_id
    write = BoundedFile.write

    def one_disk_is_full(self: CountedFile, parts: Sequence[Buffer], at: int) -> None:
        house.disk.full = int(self._path.stem, 16) == full
        write(self, parts, at)

    monkeypatch.setattr(BoundedFile, "write", one_disk_is_full)
    for n in (1, 2):
        house.produce(n, 0, 1)
    house.produce(1, 1)  # a repeat of one that is only gathered yet
    first, second, again = house.answers()
    refused = ErrorCode.KAFKA_STORAGE_ERROR
    assert rows(first) == {0: (refused, -1), 1: (0, 1)}
    assert rows(second) == {0: (refused, -1), 1: (0, 2)}
    assert rows(again) == {1: (0, 1)}
    house.fetch(0)
    house.fetch(1)
    assert [values(each) for each in house.answers()] == [[b"0"], [b"0", b"1", b"2"]]
    monkeypatch.undo()
    house.disk.full = False
    house.produce(2, 0)  # sent again out of order
    house.produce(1, 0)
    house.produce(2, 0)
    early, *sent_again = house.answers()
    assert rows(early) == {0: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)}  # come again, behind the one before
    assert [rows(each) for each in sent_again] == [{0: (0, 1)}, {0: (0, 2)}]
    house.fetch(0)
    assert values(house.answers()[0]) == [b"0", b"1", b"2"]


async def test_a_client_that_wants_no_answer_loses_its_connection(house: House) -> None:
    house.produce(0, 0)
    house.answers()
    house.disk.full = True
    house.produce(1, 0, acks=0)
    assert house.answers() == []
    assert house.is_closed
    house.disk.full = False


async def test_a_disk_that_fails_otherwise_refuses_too(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.produce(0, 0)
    house.answers()

    def broken(self: RealFile, parts: Sequence[Buffer], at: int) -> None:
        raise MemoryError

    monkeypatch.setattr(RealFile, "write", broken)
    house.produce(1, 0)
    assert rows(house.answers()[0]) == {0: (ErrorCode.KAFKA_STORAGE_ERROR, -1)}
    monkeypatch.undo()
    house.produce(1, 0)
    assert rows(house.answers()[0]) == {0: (0, 1)}


@pytest.mark.parametrize("fails", [MemoryError, OSError])
async def test_what_the_journal_does_not_take_is_refused_too(
    house: House, monkeypatch: pytest.MonkeyPatch, fails: type[Exception]
) -> None:
    logs = [house.handler.services.partitions.opened("t", bytes(16), index).log for index in range(2)]
    for log in logs:
        log.policy = LedgerPolicy(flush=Flush.always)

    def no_memory(self: RealDisk, size: int) -> memoryview:
        raise fails

    house.engine.journal  # noqa: B018  (it has a buffer of its own)
    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "buffer", no_memory)
        house.produce(0, 0, 1)
        (answer,) = await house.later()
    assert rows(answer) == dict.fromkeys(range(2), (ErrorCode.KAFKA_STORAGE_ERROR, -1))
    assert [(log.log_end_offset, log.high_watermark) for log in logs] == [(0, 0)] * 2
    house.produce(0, 0, 1)
    (answer,) = await house.later()
    assert rows(answer) == dict.fromkeys(range(2), (0, 0))


async def test_nothing_is_written_over_what_could_not_be_cut(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whole entries of a turn that was refused might stand behind a torn one, which looks like damage."""
    house.produce(0, 0)
    house.answers()

    def takes_some(self: RealFile, parts: Sequence[Buffer], at: int) -> None:
        os.pwritev(self._fd, parts[:-1], at)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def cannot(self: RealFile, size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    refused = ErrorCode.KAFKA_STORAGE_ERROR
    with monkeypatch.context() as patch:
        patch.setattr(RealFile, "truncate", cannot)
        with monkeypatch.context() as inner:
            inner.setattr(CountedFile, "write", takes_some)
            for n in (1, 2, 3):
                house.produce(n, 0)
            assert [rows(each) for each in house.answers()] == [{0: (refused, -1)}] * 3
        house.produce(1, 0)
        assert rows(house.answers()[0]) == {0: (refused, -1)}
    log = house.handler.services.partitions.opened("t", bytes(16), 0).log
    path = ledger_path(house.root, log.ledgers()[0].ledger_id)
    house.produce(1, 0)
    assert rows(house.answers()[0]) == {0: (0, 1)}
    assert path.stat().st_size == log.size()
