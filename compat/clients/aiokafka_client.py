"""aiokafka: the asyncio client of Python."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from harness import (
    ANY_TIME,
    COMPRESSIBLE,
    HEADERS,
    LARGE,
    NULLS,
    PARTITIONS,
    T0,
    VOLUME,
    complete,
    control,
    fresh,
    lossy,
    numbered,
    run,
    same,
)


@asynccontextmanager
async def admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def consumer(
    bootstrap: str, *topics: str, group: str | None = None, **config: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300}
    client = AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, group_id=group, **{**settings, **config})
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def new_topic(
    bootstrap: str, prefix: str, partitions: int = 1, config: dict[str, str] | None = None
) -> str:
    name = fresh(prefix)
    async with admin(bootstrap) as client:
        answer = await client.create_topics([NewTopic(name, partitions, 1, topic_configs=config or {})])
    same([row[1] for row in answer.topic_errors], [0], "error code of create_topics")
    return name


async def produce(bootstrap: str, topic: str, records: list[dict[str, Any]], **config: Any) -> list[Any]:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **config) as producer:
        return await asyncio.gather(*[await producer.send(topic, **record) for record in records])


async def values_of(bootstrap: str, topic: str, count: int, partitions: int) -> list[tuple[int, bytes]]:
    return [(m.partition, m.value) for m in await read_topic(bootstrap, topic, count, partitions)]


async def until(what: str, ready: Callable[[], Awaitable[object]], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not await ready():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        await asyncio.sleep(0.05)


async def read(source: AIOKafkaConsumer, count: int) -> list[Any]:
    got: list[Any] = []

    async def more() -> bool:
        for records in (await source.getmany(timeout_ms=200, max_records=count - len(got))).values():
            got.extend(records)
        return len(got) >= count

    await until(f"{count} records", more)
    return got


async def read_topic(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Any]:
    async with consumer(bootstrap) as source:
        source.assign([TopicPartition(topic, p) for p in range(partitions)])
        return await read(source, count)


async def produce_consume(bootstrap: str) -> str:
    topic = await new_topic(bootstrap, "basic", PARTITIONS)
    sent = [{"key": b"key-%d" % (i % 50), "value": b"value-%d" % i} for i in range(VOLUME)]
    await produce(bootstrap, topic, sent)
    got = await read_topic(bootstrap, topic, VOLUME, PARTITIONS)
    for key in {r["key"] for r in sent}:
        same([m.value for m in got if m.key == key], [r["value"] for r in sent if r["key"] == key], str(key))
    return f"{len({m.partition for m in got})} partitions"


async def headers(bootstrap: str) -> None:
    topic = await new_topic(bootstrap, "headers")
    await produce(bootstrap, topic, [{"value": b"x", "headers": HEADERS}])
    same(list((await read_topic(bootstrap, topic, 1))[0].headers), HEADERS, "headers")


async def nulls(bootstrap: str) -> None:
    topic = await new_topic(bootstrap, "nulls")
    pairs = [pair for pair in NULLS if pair != (None, None)]  # this producer refuses a record of nothing
    await produce(bootstrap, topic, [{"key": k, "value": v} for k, v in pairs])
    same([(m.key, m.value) for m in await read_topic(bootstrap, topic, len(pairs))], pairs, "keys and values")


def codec(name: str) -> Callable[[str], Awaitable[None]]:
    async def check(bootstrap: str) -> None:
        topic = await new_topic(bootstrap, name)
        compression = None if name == "none" else name
        records = [{"value": v} for v in COMPRESSIBLE]
        await produce(bootstrap, topic, records, compression_type=compression, linger_ms=50)
        got = await read_topic(bootstrap, topic, len(COMPRESSIBLE))
        same([m.value for m in got], COMPRESSIBLE, "values")

    check.__name__ = f"codec_{name}"
    return check


async def timestamps(bootstrap: str) -> None:
    topic = await new_topic(bootstrap, "timestamps", config=ANY_TIME)
    await produce(bootstrap, topic, [{"value": b"x", "timestamp_ms": T0 + i} for i in range(10)])
    got = [(m.timestamp_type, m.timestamp) for m in await read_topic(bootstrap, topic, 10)]
    same(got, [(0, T0 + i) for i in range(10)], "timestamps")


async def large_message(bootstrap: str) -> None:
    topic = await new_topic(bootstrap, "large")
    await produce(bootstrap, topic, [{"value": LARGE}])
    same((await read_topic(bootstrap, topic, 1))[0].value == LARGE, True, "the large value is equal")


def acks(name: str) -> Callable[[str], Awaitable[None]]:
    async def check(bootstrap: str) -> None:
        topic = await new_topic(bootstrap, f"acks-{name}", PARTITIONS)
        await asyncio.sleep(2)  # with acks=0 nobody tells that a partition has no leader yet
        level = name if name == "all" else int(name)
        ways = {b"big": {"linger_ms": 20}, b"single": {"linger_ms": 0, "max_batch_size": 1}}

        async def send(way: bytes) -> list[Any]:
            records = [{"value": value} for value in numbered(way)]
            return await produce(bootstrap, topic, records, acks=level, **ways[way])

        sent = await asyncio.gather(*map(send, ways))
        got = await read_topic(bootstrap, topic, VOLUME, PARTITIONS)
        complete([(m.partition, m.value) for m in got], dict.fromkeys(ways, VOLUME // 2))
        if name != "0":
            delivered = sorted((m.partition, m.offset) for each in sent for m in each)
            same(delivered, sorted((m.partition, m.offset) for m in got), "offsets told")

    check.__name__ = f"acks_{name}"
    return check


async def idempotent(bootstrap: str) -> None:
    topic = await new_topic(bootstrap, "idempotent")
    sent = [b"%d" % i for i in range(VOLUME)]
    records = [{"value": value} for value in sent]
    delivered = await produce(bootstrap, topic, records, enable_idempotence=True, max_batch_size=1024)
    same([m.offset for m in delivered], list(range(VOLUME)), "offsets told to the producer")
    same([m.value for m in await read_topic(bootstrap, topic, VOLUME)], sent, "values")


async def sent_twice(bootstrap: str) -> str:
    topic = await new_topic(bootstrap, "twice", 3)
    lost = int(control("lost"))
    records = [{"value": value} for value in numbered(b"idempotent", 4000)]
    await produce(lossy(), topic, records, enable_idempotence=True, max_batch_size=1024, retry_backoff_ms=20)
    lost = int(control("lost")) - lost
    complete(await values_of(bootstrap, topic, 4000, 3), {b"idempotent": 4000})
    async with consumer(bootstrap) as source:
        ends = await source.end_offsets([TopicPartition(topic, p) for p in range(3)])
    same(
        (sum(ends.values()), lost >= 5), (4000, True), f"records in all, and that answers were lost ({lost})"
    )
    return f"{lost} answers lost"


async def restart(bootstrap: str) -> None:
    topic, group = await new_topic(bootstrap, "restart", PARTITIONS), fresh("group")
    sent, asked = numbered(b"restart"), [TopicPartition(topic, p) for p in range(PARTITIONS)]
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        await asyncio.gather(*[await producer.send(topic, value) for value in sent[:5000]])
        async with consumer(bootstrap, topic, group=group) as member:
            await read(member, 5000)
            await member.commit()
            committed = [await member.committed(p) for p in asked]
        await asyncio.to_thread(control, "restart")
        await asyncio.gather(*[await producer.send(topic, value) for value in sent[5000:]])
    async with consumer(bootstrap, topic, group=group) as again:
        same([await again.committed(p) for p in asked], committed, "committed offsets after the restart")
        rest = await read(again, len(sent) - 5000)
        same(sorted(m.value for m in rest), sorted(sent[5000:]), "what the group reads after the restart")
    complete(await values_of(bootstrap, topic, len(sent), PARTITIONS), {b"restart": len(sent)})


class Revocations(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.counts: list[int] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            self.counts.append(len(revoked))

    def on_partitions_assigned(self, assigned: Any) -> None:
        pass


async def group_eager(bootstrap: str) -> str:
    topic, group = await new_topic(bootstrap, "group", partitions=4), fresh("group")
    listener, seen = Revocations(), list[Any]()

    async def share(*members: AIOKafkaConsumer) -> list[int]:
        for member in members:
            for records in (await member.getmany(timeout_ms=100)).values():
                seen.extend(records)
        return [len(member.assignment()) for member in members]

    async def owns(expected: list[int], *members: AIOKafkaConsumer) -> bool:
        return await share(*members) == expected

    async with consumer(bootstrap, group=group) as first:
        first.subscribe([topic], listener=listener)
        await until("the first member to own everything", lambda: owns([4], first))
        async with consumer(bootstrap, topic, group=group) as second:
            await until("both to own two partitions", lambda: owns([2, 2], first, second))
            same(listener.counts, [4], "partitions taken from the first member")
            await produce(bootstrap, topic, [{"key": b"%d" % i, "value": b"%d" % i} for i in range(VOLUME)])

            async def complete() -> bool:
                await share(first, second)
                return len(seen) >= VOLUME

            await until("all records", complete)
            same(sorted(int(m.value) for m in seen), list(range(VOLUME)), "records of the group")
        await until("the first member to own everything again", lambda: owns([4], first))
    return "4, then 2 + 2, then 4"


async def commit_resume(bootstrap: str) -> None:
    topic, group = await new_topic(bootstrap, "commit"), fresh("group")
    await produce(bootstrap, topic, [{"value": b"%d" % i} for i in range(20)])
    async with consumer(bootstrap, topic, group=group) as first:
        await read(first, 10)
        await first.commit({TopicPartition(topic, 0): (10, "half way")})
    async with consumer(bootstrap, topic, group=group) as second:
        same(await second.committed(TopicPartition(topic, 0)), 10, "committed offset")
        same([m.offset for m in await read(second, 10)], list(range(10, 20)), "offsets after resuming")


async def seek_ends(bootstrap: str) -> None:
    topic = await new_topic(bootstrap, "seek")
    await produce(bootstrap, topic, [{"value": b"%d" % i} for i in range(10)])
    tp = TopicPartition(topic, 0)
    async with consumer(bootstrap) as source:
        source.assign([tp])
        ends = ((await source.beginning_offsets([tp]))[tp], (await source.end_offsets([tp]))[tp])
        same(ends, (0, 10), "ends")
        source.seek(tp, 5)
        same((await read(source, 1))[0].offset, 5, "offset")
        await source.seek_to_beginning(tp)
        same((await read(source, 1))[0].offset, 0, "earliest offset")
        await source.seek_to_end(tp)
        same(await source.position(tp), 10, "latest position")
        await produce(bootstrap, topic, [{"value": b"new"}])
        same((await read(source, 1))[0].offset, 10, "latest offset")


async def seek_timestamp(bootstrap: str) -> None:
    topic = await new_topic(bootstrap, "times", config=ANY_TIME)
    for i in range(10):
        await produce(bootstrap, topic, [{"value": b"x", "timestamp_ms": T0 + 1000 * i}])
    tp = TopicPartition(topic, 0)
    async with consumer(bootstrap) as source:
        found = [(await source.offsets_for_times({tp: T0 + t}))[tp].offset for t in (0, 2500, 9000)]
        same(found, [0, 3, 9], "offsets by time")
        same((await source.offsets_for_times({tp: T0 + 99000}))[tp], None, "offset after the last timestamp")


async def topics(bootstrap: str) -> None:
    name = await new_topic(bootstrap, "topics", partitions=3)
    async with admin(bootstrap) as client:

        async def listed() -> bool:
            return name in await client.list_topics()

        async def gone() -> bool:
            return not await listed()

        await until("the topic to be listed", listed)
        same(len((await client.describe_topics([name]))[0]["partitions"]), 3, "partitions")
        await client.delete_topics([name])
        await until("the topic to be gone", gone)


async def partitions(bootstrap: str) -> None:
    name = await new_topic(bootstrap, "partitions", partitions=2)
    async with admin(bootstrap) as client:
        await client.create_partitions({name: NewPartitions(5)})

        async def five() -> bool:
            return len((await client.describe_topics([name]))[0]["partitions"]) == 5

        await until("five partitions", five)


async def retention(client: AIOKafkaAdminClient, name: str) -> str:
    [answer] = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    return {row[0]: row[1] for row in answer.resources[0][4]}["retention.ms"]


async def configs_describe(bootstrap: str) -> None:
    name = await new_topic(bootstrap, "configs", config={"retention.ms": "12345678"})
    async with admin(bootstrap) as client:
        same(await retention(client, name), "12345678", "retention.ms")


async def configs_alter(bootstrap: str) -> None:
    name = await new_topic(bootstrap, "alter")
    async with admin(bootstrap) as client:
        wanted = ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "7654321"})
        await client.alter_configs([wanted])

        async def changed() -> bool:
            return await retention(client, name) == "7654321"

        await until("the new value", changed)


async def groups(bootstrap: str) -> None:
    topic, group = await new_topic(bootstrap, "groups"), fresh("group")
    await produce(bootstrap, topic, [{"value": b"x"}])
    tp = TopicPartition(topic, 0)
    async with admin(bootstrap) as client, consumer(bootstrap, topic, group=group) as member:
        await read(member, 1)
        await member.commit()
        same(group in [row[0] for row in await client.list_consumer_groups()], True, "the group is listed")
        [described] = await client.describe_consumer_groups([group])
        state, members = described.groups[0][2], described.groups[0][5]
        same((state, len(members)), ("Stable", 1), "state and members")
        same((await client.list_consumer_group_offsets(group))[tp].offset, 1, "offset")


async def delete_records(bootstrap: str) -> None:
    topic = await new_topic(bootstrap, "delete-records")
    for i in range(5):
        await produce(bootstrap, topic, [{"value": b"%d" % i}])
    tp = TopicPartition(topic, 0)
    async with admin(bootstrap) as client:
        same((await client.delete_records({tp: RecordsToDelete(2)}))[tp], 2, "low watermark")
    same((await read_topic(bootstrap, topic, 3))[0].offset, 2, "first offset left")


async def cluster(bootstrap: str) -> str:
    async with admin(bootstrap) as client:
        described = await client.describe_cluster()
    same(len(described["brokers"]) >= 1 and bool(described["cluster_id"]), True, "nodes and a cluster id")
    return f"cluster {described['cluster_id']}"


async def errors(bootstrap: str) -> None:
    name = await new_topic(bootstrap, "errors", partitions=2)

    def named(code: int) -> str:
        return kafka_errors.for_code(code).__name__

    async with admin(bootstrap) as client:
        again = await client.create_topics([NewTopic(name, 1, 1)])
        same(named(again.topic_errors[0][1]), "TopicAlreadyExistsError", "creating it again")
        unknown = await client.delete_topics([fresh("none")])
        same(named(unknown.topic_error_codes[0][1]), "UnknownTopicOrPartitionError", "an unknown topic")
        try:
            await client.create_partitions({name: NewPartitions(1)})
            raise AssertionError("fewer partitions were accepted")
        except kafka_errors.InvalidPartitionsError:
            pass


def blocking(check: Callable[[str], Awaitable[object]]) -> Callable[[str], object]:
    def body(bootstrap: str) -> object:
        return asyncio.run(check(bootstrap))  # type: ignore[arg-type]

    body.__name__ = check.__name__
    return body


CODECS = [codec(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")]
ACKS = [acks(name) for name in ("0", "1", "all")]
CHECKS = [produce_consume, headers, nulls, *CODECS, timestamps, large_message, *ACKS, idempotent, sent_twice,
          restart, group_eager, commit_resume, seek_ends, seek_timestamp, topics, partitions,
          configs_describe, configs_alter, groups, delete_records, cluster, errors]  # fmt: skip

if __name__ == "__main__":
    run("aiokafka", aiokafka.__version__, [blocking(check) for check in CHECKS])
    os._exit(0)  # a client thread that hangs must not keep the run
