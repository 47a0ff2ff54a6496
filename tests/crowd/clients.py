"""Clients of every kind, as small as they can be: each is a coroutine that does its work and checks what it is told."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.header import RequestHeader, decode_response_header, encode_request_header
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages import response_class
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.pulsar import raw

PRODUCE, FETCH = 12, 12
"""The last versions that name topics."""
BATCHES = 12
"""That each producer sends."""
STORED = 200
"""Batches that were there before, for whoever reads."""
STORED_BYTES = 4000
REBALANCING = (27, 16, 14, 15)


class Place:
    """Where the broker is, and what it has."""

    def __init__(self, kafka: tuple[str, int], pulsar: tuple[str, int]) -> None:
        self.kafka = kafka
        self.pulsar = pulsar
        self.topics = tuple(f"crowd-{number}" for number in range(4))
        self.full = "crowd-full"
        """The topic that readers read."""
        self.stored = 0
        """Records that clients have put into ``topics`` (those with acks=0 among them)."""

    def topic(self, number: int) -> str:
        return self.topics[number % len(self.topics)]


class Connection:
    """One connection of either protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


class Kafka(Connection):
    """One connection that speaks Kafka's protocol."""

    _number = 0

    @classmethod
    async def connect(cls, place: Place) -> Kafka:
        return cls(*await asyncio.open_connection(*place.kafka))

    def say(self, message: Message, version: int | None = None) -> None:
        version = type(message).MAX_VERSION if version is None else version
        self._number += 1
        header = RequestHeader(message.API_KEY, version, self._number, "crowd")
        content = encode_request_header(header) + message.encode(version)
        self.writer.write(struct.pack(">i", len(content)) + content)

    async def hear(self, api_key: int, version: int) -> Any:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        _, body = decode_response_header(await self.reader.readexactly(size), api_key, version)
        return response_class(api_key).decode(body, version)

    async def ask(self, message: Message, version: int | None = None) -> Any:
        self.say(message, version)
        await self.writer.drain()
        return await self.hear(message.API_KEY, type(message).MAX_VERSION if version is None else version)

    def abort(self) -> None:
        """Go without a word."""
        raw_socket = self.writer.get_extra_info("socket")
        raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def batch(size: int = 20, records: int = 1) -> bytes:
    return encode_batch([PlainRecord(None, bytes(size), [], 0, offset) for offset in range(records)])


def produce(topic: str, acks: int, records: bytes) -> ProduceRequest:
    rows = [PartitionProduceData(index=0, records=records)]
    return ProduceRequest(
        acks=acks, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=rows)]
    )


def fetch(topic: str, offset: int, *, wait_ms: int = 0, most: int = 1 << 20, least: int = 1) -> FetchRequest:
    rows = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=most)]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=least,
        max_bytes=most,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=rows)],
    )


# -- honest ones


async def kafka_producer(place: Place, number: int, acks: int) -> None:
    """Send batches, some at once; every answer comes, in order, with growing offsets."""
    client = await Kafka.connect(place)
    topic, last = place.topic(number), -1
    for _ in range(BATCHES // 4):
        for _ in range(4):
            client.say(produce(topic, acks, batch()), PRODUCE)
        await client.writer.drain()
        for _ in range(4 if acks else 0):
            (row,) = (await client.hear(0, PRODUCE)).responses[0].partition_responses
            assert row.error_code == 0, row.error_message
            assert row.base_offset > last
            last = row.base_offset
    # Its answer comes behind all that was sent before.
    assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0
    place.stored += BATCHES
    await client.close()


async def kafka_reader(place: Place, number: int, *, slowly: bool = False) -> None:
    """Read a topic from its first offset to its last; a slow one asks for all of it before it takes any."""
    client = await Kafka.connect(place)
    offset, most = 0, 40_000
    if slowly:
        for _ in range(20):
            client.say(fetch(place.full, 0, most=1 << 20), FETCH)
        await client.writer.drain()
        for _ in range(20):
            await asyncio.sleep(0.02)
            rows = (await client.hear(1, FETCH)).responses[0].partitions
            assert rows[0].error_code == 0
            assert len(rows[0].records) > STORED * STORED_BYTES / 2
    while offset < STORED:
        response = await client.ask(fetch(place.full, offset, wait_ms=100, most=most), FETCH)
        (row,) = response.responses[0].partitions
        assert row.error_code == 0
        records = memoryview(b"".join([row.records])) if row.records else memoryview(b"")
        while len(records) > 61:
            base, size = struct.unpack_from(">qi", records)
            if len(records) < 12 + size:
                break
            assert base == offset, "records come in order, without holes"
            offset = base + 1 + struct.unpack_from(">i", records, 23)[0]
            records = records[12 + size :]
    await client.close()


async def kafka_member(place: Place, number: int) -> None:
    """Join a group with some others, read its share's offsets, commit, and leave."""
    group, topic = f"crowd-group-{number // 3}", place.topic(number)
    client = await Kafka.connect(place)
    found = await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
    assert found.coordinators[0].error_code == 0
    member, error = "", -1
    while error:
        joined = await client.ask(
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id=member,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            ),
            5,
        )
        member = joined.member_id or member
        if joined.error_code:
            assert joined.error_code in (*REBALANCING, 79), joined.error_code
            continue
        shares = [
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"share")
            for each in joined.members
        ]
        synced = await client.ask(
            SyncGroupRequest(
                group_id=group, generation_id=joined.generation_id, member_id=member, assignments=shares
            ),
            3,
        )
        error = synced.error_code
        assert not error or error in REBALANCING, error
    beat = await client.ask(
        HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=member), 3
    )
    assert beat.error_code in (0, *REBALANCING, 22)
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=number, committed_metadata="")]
    committed = await client.ask(
        OffsetCommitRequest(
            group_id=f"crowd-own-{number}",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
        ),
        8,
    )
    assert committed.topics[0].partitions[0].error_code == 0
    asked = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    kept = await client.ask(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=f"crowd-own-{number}", topics=asked)]), 8
    )
    assert kept.groups[0].topics[0].partitions[0].committed_offset == number
    left = await client.ask(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)]), 4)
    assert left.members[0].error_code in (0, 25)
    await client.close()


async def kafka_asker(place: Place, number: int) -> None:
    """Ask for metadata, many times at once."""
    client = await Kafka.connect(place)
    for _ in range(50):
        client.say(MetadataRequest(topics=[MetadataRequestTopic(name=place.topic(number))]), 9)
    await client.writer.drain()
    for _ in range(50):
        assert (await client.hear(3, 9)).topics[0].error_code == 0
    await client.close()


class Pulsar(Connection):
    """One connection that speaks Pulsar's protocol."""

    @classmethod
    async def connect(cls, place: Place) -> Pulsar:
        made = cls(*await asyncio.open_connection(*place.pulsar))
        made.say(raw.hello())
        assert (await made.hear()).type == BaseCommand.CONNECTED
        return made

    def say(self, command: BaseCommand, entry: bytes = b"") -> None:
        self.writer.write(raw.frame(command, entry))

    async def hear(self) -> BaseCommand:
        while True:
            (size,) = struct.unpack(">I", await self.reader.readexactly(4))
            data = await self.reader.readexactly(size)
            (length,) = struct.unpack_from(">I", data)
            command = BaseCommand.FromString(data[4 : 4 + length])
            if command.type != BaseCommand.PING:
                return command
            pong = BaseCommand(type=BaseCommand.PONG)
            pong.pong.SetInParent()
            self.say(pong)


async def pulsar_producer(place: Place, number: int) -> None:
    """Send messages at once; a receipt comes for each, in their order."""
    client = await Pulsar.connect(place)
    name = f"persistent://public/default/{place.topic(number)}-partition-0"
    command = raw.producer(name)
    command.producer.producer_name = f"crowd-{number}"
    client.say(command)
    assert (await client.hear()).type == BaseCommand.PRODUCER_SUCCESS
    for sequence in range(BATCHES):
        client.say(
            raw.send(1, sequence), raw.entry(b"hello", producer_name=f"crowd-{number}", sequence_id=sequence)
        )
    await client.writer.drain()
    for sequence in range(BATCHES):
        receipt = await client.hear()
        assert receipt.type == BaseCommand.SEND_RECEIPT
        assert receipt.send_receipt.sequence_id == sequence
    place.stored += BATCHES
    await client.close()


async def pulsar_consumer(place: Place, number: int) -> None:
    """Get all messages of a topic, in order, and acknowledge each."""
    client = await Pulsar.connect(place)
    name = f"persistent://public/default/{place.full}-partition-0"
    client.say(raw.subscribe(name, f"crowd-{number}", initialPosition=1, durable=False))
    assert (await client.hear()).type == BaseCommand.SUCCESS
    got, last = 0, (-1, -1)
    while got < STORED:
        client.say(raw.flow(20))
        for _ in range(min(20, STORED - got)):
            while (command := await client.hear()).type != BaseCommand.MESSAGE:
                assert command.type in (BaseCommand.ACK_RESPONSE, BaseCommand.ACTIVE_CONSUMER_CHANGE)
            message = command.message
            here = message.message_id.ledgerId, message.message_id.entryId
            assert here > last
            last, got = here, got + 1
            client.say(raw.ack(*here))
        await client.writer.drain()
    await client.close()


# -- the others


async def leaver(place: Place, number: int) -> None:
    """Go in the middle of something: of a frame, of a parked fetch, of answers that it never takes."""
    client = await Kafka.connect(place)
    way = number % 4
    if way == 0:
        client.writer.write(struct.pack(">i", 90_000) + bytes(50_000))
    elif way == 1:
        client.say(fetch(place.topic(number), 1 << 40, wait_ms=0x7FFFFFFF), FETCH)
        client.say(fetch(place.full, STORED, wait_ms=0x7FFFFFFF, least=1 << 20), FETCH)
    elif way == 2:
        for _ in range(30):
            client.say(fetch(place.full, 0), FETCH)
    else:  # what it sent with acks=0 is kept
        for _ in range(BATCHES):
            client.say(produce(place.topic(number), 0, batch()), PRODUCE)
        await client.writer.drain()
        place.stored += BATCHES
        await client.close()
        return
    await client.writer.drain()
    await asyncio.sleep(random.Random(number).random() / 10)
    if number % 8 < 4:
        client.abort()
    else:
        await client.close()


async def garbage(place: Place, number: int) -> None:
    """Say what is no protocol, on either port, until the broker hangs up."""
    dice = random.Random(number)
    reader, writer = await asyncio.open_connection(*(place.kafka if number % 2 else place.pulsar))
    try:
        writer.write(
            b"\xff" + dice.randbytes(dice.choice([3, 60, 5000]))
            if number % 3
            else b"GET / HTTP/1.1\r\n\r\n" * 9
        )
        await writer.drain()
        while await reader.read(1 << 16):
            pass
    except ConnectionError:
        pass
    writer.close()


KINDS: tuple[Callable[[Place, int], Awaitable[None]], ...] = (
    lambda place, number: kafka_producer(place, number, 0),
    lambda place, number: kafka_producer(place, number, 1),
    lambda place, number: kafka_producer(place, number, -1),
    lambda place, number: kafka_reader(place, number),
    lambda place, number: kafka_reader(place, number, slowly=True),
    kafka_member,
    kafka_asker,
    pulsar_producer,
    pulsar_consumer,
    leaver,
    garbage,
)
