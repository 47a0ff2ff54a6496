"""aiokafka of any version."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from program import Started, key, number_of, serve, value

started = Started(sys.argv[1:])
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
PATIENT = {"bootstrap_servers": started.bootstrap, "metadata_max_age_ms": 1000}
transactional: dict[str, AIOKafkaProducer] = {}


async def send(producer: AIOKafkaProducer, topic: str, first: int, end: int) -> None:
    sent = []
    for i in range(first, end):
        more = {"headers": started.headers_of(i)} if started.headers else {}
        sent.append(
            await producer.send(
                topic, value(i), key=key(i), partition=0, timestamp_ms=started.time_of(i), **more
            )
        )
    await asyncio.gather(*sent)


async def create(topic: str) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # since 0.8

    admin = AIOKafkaAdminClient(bootstrap_servers=started.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()


async def produce(topic: str, codec: str, first: str, end: str, how: str) -> None:
    compression = None if codec == "none" else codec
    once = how == "idempotent"
    producer = AIOKafkaProducer(
        **PATIENT, compression_type=compression, acks="all", linger_ms=20, enable_idempotence=once
    )
    await producer.start()
    try:
        await send(producer, topic, int(first), int(end))
    finally:
        await producer.stop()


async def transaction(topic: str, name: str, first: str, end: str, how: str) -> None:
    if name not in transactional:
        transactional[name] = AIOKafkaProducer(**PATIENT, transactional_id=name, linger_ms=20)
        await transactional[name].start()
    producer = transactional[name]
    await producer.begin_transaction()
    await send(producer, topic, int(first), int(end))
    await (producer.commit_transaction() if how == "commit" else producer.abort_transaction())


async def consumer(*topics: str, **more: Any) -> AIOKafkaConsumer:
    made = AIOKafkaConsumer(
        *topics, **PATIENT, auto_offset_reset="earliest", enable_auto_commit=False, **more
    )
    await made.start()
    return made


async def read(topic: str, group: str, count: str, isolation: str) -> dict[str, list[int]]:
    member = await consumer(topic, group_id=group, isolation_level=isolation)
    numbers: list[int] = []
    while len(numbers) < int(count):
        found = await member.getmany(timeout_ms=200, max_records=int(count) - len(numbers))
        numbers += [number_of(each.value) for records in found.values() for each in records]
    await member.commit()
    await member.stop()
    return {"numbers": numbers}


async def committed(topic: str, group: str) -> dict[str, int]:
    member = await consumer(group_id=group)
    offset = await member.committed(TopicPartition(topic, 0))
    await member.stop()
    return {"offset": offset}


async def time(topic: str, at: str) -> dict[str, int]:
    reader = await consumer(topic)
    partition = TopicPartition(topic, 0)
    offset = (await reader.offsets_for_times({partition: int(at)}))[partition].offset
    await reader.stop()
    return {"offset": offset}


def blocking(command: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    return lambda *words: loop.run_until_complete(command(*words))


serve({each.__name__: blocking(each) for each in (create, produce, transaction, read, committed, time)})
