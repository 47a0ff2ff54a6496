"""confluent-kafka for Python: librdkafka, the client under most languages."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import confluent_kafka
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
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
    until,
)


@cache
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def done(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(30) for future in futures.values()]


def new_topic(bootstrap: str, prefix: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
    name = fresh(prefix)
    done(admin(bootstrap).create_topics([NewTopic(name, partitions, 1, config=config or {})]))

    def led() -> bool:
        found = admin(bootstrap).list_topics(timeout=10).topics.get(name)
        return found is not None and [p.leader >= 0 for p in found.partitions.values()] == [True] * partitions

    until("every partition to have a leader", led)
    return name


def produce(bootstrap: str, topic: str, records: list[dict[str, Any]], **config: Any) -> list[Message]:
    """Send all; the delivered messages in the order of their reports."""
    delivered: list[Message] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error:
            raise KafkaException(error)
        delivered.append(message)

    producer = Producer({"bootstrap.servers": bootstrap, **config})
    for i, record in enumerate(records):
        producer.produce(topic, on_delivery=report, **record)
        if i % 500 == 0:
            producer.poll(0)
    same(producer.flush(60), 0, "records left after flush")
    return delivered


def consumer(bootstrap: str, group: str | None = None, **config: Any) -> Consumer:
    settings = {"bootstrap.servers": bootstrap, "group.id": group or fresh("group"), "auto.offset.reset": "earliest",
                "enable.auto.commit": False, "session.timeout.ms": 10000, "heartbeat.interval.ms": 500}  # fmt: skip
    return Consumer({**settings, **config})


def read(source: Consumer, count: int, seconds: float = 60) -> list[Message]:
    got: list[Message] = []
    end = time.monotonic() + seconds
    while len(got) < count and time.monotonic() < end:
        for message in source.consume(min(count - len(got), 1000), 0.2):
            if message.error():
                raise KafkaException(message.error())
            got.append(message)
    same(len(got), count, "records read")
    return got


def read_topic(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Message]:
    source = consumer(bootstrap)
    source.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    try:
        return read(source, count)
    finally:
        source.close()


def produce_consume(bootstrap: str) -> str:
    topic = new_topic(bootstrap, "basic", PARTITIONS)
    sent = [{"key": b"key-%d" % (i % 50), "value": b"value-%d" % i} for i in range(VOLUME)]
    produce(
        bootstrap, topic, sent, **{"enable.idempotence": True}
    )  # it keeps the order whatever is sent again
    got = read_topic(bootstrap, topic, VOLUME, PARTITIONS)
    for key in {r["key"] for r in sent}:
        same(
            [m.value() for m in got if m.key() == key],
            [r["value"] for r in sent if r["key"] == key],
            str(key),
        )
    return f"{len({m.partition() for m in got})} partitions"


def headers(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "headers")
    produce(bootstrap, topic, [{"value": b"x", "headers": HEADERS}])
    same(read_topic(bootstrap, topic, 1)[0].headers(), HEADERS, "headers")


def nulls(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "nulls")
    produce(bootstrap, topic, [{"key": k, "value": v} for k, v in NULLS])
    same([(m.key(), m.value()) for m in read_topic(bootstrap, topic, len(NULLS))], NULLS, "keys and values")


def codec(name: str) -> Callable[[str], None]:
    def check(bootstrap: str) -> None:
        topic = new_topic(bootstrap, name)
        config = {"compression.type": name, "linger.ms": 100}
        produce(bootstrap, topic, [{"value": v} for v in COMPRESSIBLE], **config)
        got = read_topic(bootstrap, topic, len(COMPRESSIBLE))
        same([m.value() for m in got], COMPRESSIBLE, "values")

    check.__name__ = f"codec_{name}"
    return check


def timestamps(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "timestamps", config=ANY_TIME)
    produce(bootstrap, topic, [{"value": b"x", "timestamp": T0 + i} for i in range(10)])
    got = [m.timestamp() for m in read_topic(bootstrap, topic, 10)]
    same(got, [(confluent_kafka.TIMESTAMP_CREATE_TIME, T0 + i) for i in range(10)], "timestamps")


def large_message(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "large")
    produce(bootstrap, topic, [{"value": LARGE}])
    same(read_topic(bootstrap, topic, 1)[0].value() == LARGE, True, "the large value is equal")


def acks(name: str) -> Callable[[str], None]:
    def check(bootstrap: str) -> None:
        topic = new_topic(bootstrap, f"acks-{name}", PARTITIONS)
        time.sleep(2)  # with acks=0 nobody tells that a partition has no leader yet
        ways = {b"big": {"linger.ms": 20}, b"single": {"linger.ms": 0, "batch.num.messages": 1}}

        def send(way: bytes) -> list[Message]:
            records = [{"value": value} for value in numbered(way)]
            return produce(bootstrap, topic, records, acks=name, **ways[way])

        with ThreadPoolExecutor() as threads:
            delivered = [(m.partition(), m.offset()) for each in threads.map(send, ways) for m in each]
        got = read_topic(bootstrap, topic, VOLUME, PARTITIONS)
        complete([(m.partition(), m.value()) for m in got], dict.fromkeys(ways, VOLUME // 2))
        if name != "0":
            same(sorted(delivered), sorted((m.partition(), m.offset()) for m in got), "offsets told")

    check.__name__ = f"acks_{name}"
    return check


def idempotent(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "idempotent")
    config = {"enable.idempotence": True, "batch.num.messages": 20}
    values = [b"%d" % i for i in range(VOLUME)]
    delivered = produce(bootstrap, topic, [{"value": value} for value in values], **config)
    same([m.offset() for m in delivered], list(range(VOLUME)), "offsets told to the producer")
    same([m.value() for m in read_topic(bootstrap, topic, VOLUME)], values, "values")


def sent_twice(bootstrap: str) -> str:
    topic = new_topic(bootstrap, "twice", 3)
    lost = int(control("lost"))
    # Each connection that is cut early doubles the wait before the next, up to 10 s by default: 20 take minutes.
    config = {"enable.idempotence": True, "batch.num.messages": 50, "retry.backoff.ms": 20,
              "reconnect.backoff.max.ms": 200}  # fmt: skip
    produce(lossy(), topic, [{"value": value} for value in numbered(b"idempotent", 4000)], **config)
    lost = int(control("lost")) - lost
    got = read_topic(bootstrap, topic, 4000, 3)
    complete([(m.partition(), m.value()) for m in got], {b"idempotent": 4000})
    source = consumer(bootstrap)
    ends = [source.get_watermark_offsets(TopicPartition(topic, p), 10)[1] for p in range(3)]
    source.close()
    same((sum(ends), lost >= 5), (4000, True), f"records in all, and that answers were lost ({lost})")
    return f"{lost} answers lost"


def restart(bootstrap: str) -> None:
    topic, group = new_topic(bootstrap, "restart", PARTITIONS), fresh("group")
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def send(values: list[bytes]) -> None:
        for value in values:
            producer.produce(topic, value)
        same(producer.flush(60), 0, "records left after flush")

    values = numbered(b"restart")
    send(values[:5000])
    member = consumer(bootstrap, group)
    member.subscribe([topic])
    read(member, 5000)
    member.commit(asynchronous=False)
    member.close()
    asked = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    before = consumer(bootstrap, group)
    committed = [p.offset for p in before.committed(asked, 10)]
    control("restart")
    send(values[5000:])
    again = consumer(bootstrap, group)
    same([p.offset for p in again.committed(asked, 10)], committed, "committed offsets after the restart")
    again.subscribe([topic])
    rest = read(again, len(values) - 5000)
    same(sorted(m.value() for m in rest), sorted(values[5000:]), "what the group reads after the restart")
    again.close()
    before.close()
    got = read_topic(bootstrap, topic, len(values), PARTITIONS)
    complete([(m.partition(), m.value()) for m in got], {b"restart": len(values)})


def two_members(bootstrap: str, strategy: str, expected_revoked: int) -> str:
    topic, group = new_topic(bootstrap, "group", partitions=4), fresh("group")
    revoked: list[int] = []
    config = {"partition.assignment.strategy": strategy}
    first, second = consumer(bootstrap, group, **config), consumer(bootstrap, group, **config)
    seen: list[Message] = []

    def share(*members: Consumer) -> list[int]:
        for member in members:
            seen.extend(message for message in member.consume(1000, 0.1) if not message.error())
        return [len(member.assignment()) for member in members]

    first.subscribe([topic], on_revoke=lambda _, partitions: revoked.append(len(partitions)))
    until("the first member to own everything", lambda: share(first) == [4])
    second.subscribe([topic])
    until("both to own two partitions", lambda: share(first, second) == [2, 2])
    same(revoked, [expected_revoked], "partitions taken from the first member")
    produce(bootstrap, topic, [{"key": b"%d" % i, "value": b"%d" % i} for i in range(VOLUME)])
    until("all records", lambda: share(first, second) and len(seen) >= VOLUME, pause=0)
    same(sorted(int(m.value()) for m in seen), list(range(VOLUME)), "records of the group")
    second.close()
    until("the first member to own everything again", lambda: share(first) == [4])
    first.close()
    return f"4, then 2 + 2, then 4; {expected_revoked} revoked"


def group_eager(bootstrap: str) -> str:
    return two_members(bootstrap, "range", 4)


def group_cooperative(bootstrap: str) -> str:
    return two_members(bootstrap, "cooperative-sticky", 2)


def group_static(bootstrap: str) -> None:
    topic, group = new_topic(bootstrap, "static", partitions=4), fresh("group")
    revoked: list[int] = []

    def member(name: str, **callbacks: Any) -> Consumer:
        config = {"group.instance.id": name, "session.timeout.ms": 30000}
        created = consumer(bootstrap, group, **config)
        created.subscribe([topic], **callbacks)
        return created

    def owned(*members: Consumer) -> list[int]:
        for each in members:
            each.poll(0.1)
        return [len(each.assignment()) for each in members]

    first = member("a", on_revoke=lambda _, partitions: revoked.append(len(partitions)))
    second = member("b")
    until("both to own two partitions", lambda: owned(first, second) == [2, 2])
    revoked.clear()
    second.close()
    second = member("b")
    until("the second member to be back", lambda: owned(first, second) == [2, 2])
    same(revoked, [], "partitions taken from the first member meanwhile")
    described = done(admin(bootstrap).describe_consumer_groups([group]))[0]
    same(sorted(m.group_instance_id for m in described.members), ["a", "b"], "static members")
    first.close()
    second.close()


def fenced(bootstrap: str) -> None:
    topic, group = new_topic(bootstrap, "fenced", partitions=4), fresh("group")
    config = {"group.instance.id": "one", "session.timeout.ms": 30000}
    first, second = consumer(bootstrap, group, **config), consumer(bootstrap, group, **config)
    first.subscribe([topic])
    until("the first to own everything", lambda: first.poll(0.1) is None and len(first.assignment()) == 4)
    second.subscribe([topic])
    told: list[str] = []

    def both() -> bool:
        message = first.poll(0.1)
        if message is not None and message.error():
            told.append(message.error().name())
        second.poll(0.1)
        return bool(told) and len(second.assignment()) == 4

    until("the first to be fenced, and the second to own everything", both)
    same(told[0], "_FATAL", "what the first is told")
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
    try:
        answer = done(admin(bootstrap).alter_consumer_group_offsets([moved]))[0]
        error = answer.topic_partitions[0].error
        refused = error.name() if error else "none"
    except KafkaException as error:
        refused = error.args[0].name()
    same(refused, "UNKNOWN_MEMBER_ID", "changing offsets of a group at work")
    second.close()


def commit_resume(bootstrap: str) -> None:
    topic, group = new_topic(bootstrap, "commit"), fresh("group")
    produce(bootstrap, topic, [{"value": b"%d" % i} for i in range(20)])
    first = consumer(bootstrap, group)
    first.subscribe([topic])
    last = read(first, 10)[-1]
    first.commit(last, asynchronous=False)
    first.close()
    second = consumer(bootstrap, group)
    same(second.committed([TopicPartition(topic, 0)], 10)[0].offset, 10, "committed offset")
    second.subscribe([topic])
    same([m.offset() for m in read(second, 10)], list(range(10, 20)), "offsets after resuming")
    second.close()


def seek_ends(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "seek")
    produce(bootstrap, topic, [{"value": b"%d" % i} for i in range(10)])
    source = consumer(bootstrap)
    same(source.get_watermark_offsets(TopicPartition(topic, 0), 10), (0, 10), "watermarks")
    source.assign([TopicPartition(topic, 0, 5)])
    same(read(source, 1)[0].offset(), 5, "offset")
    source.seek(TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING))
    same(read(source, 1)[0].offset(), 0, "earliest offset")
    source.seek(TopicPartition(topic, 0, confluent_kafka.OFFSET_END))
    source.poll(0.5)
    produce(bootstrap, topic, [{"value": b"new"}])
    same(read(source, 1)[0].offset(), 10, "latest offset")
    source.close()


def seek_timestamp(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "times", config=ANY_TIME)
    for i in range(10):
        produce(bootstrap, topic, [{"value": b"x", "timestamp": T0 + 1000 * i}])
    source = consumer(bootstrap)
    found = [
        source.offsets_for_times([TopicPartition(topic, 0, T0 + t)], 10)[0].offset for t in (0, 2500, 9000)
    ]
    same(found, [0, 3, 9], "offsets by time")
    late = source.offsets_for_times([TopicPartition(topic, 0, T0 + 99000)], 10)[0].offset
    same(late, -1, "offset after the last timestamp")
    source.close()
    spec = {TopicPartition(topic, 0): OffsetSpec.max_timestamp()}
    futures = admin(bootstrap).list_offsets(spec, isolation_level=IsolationLevel.READ_COMMITTED)
    same(done(futures)[0].offset, 9, "offset of the largest timestamp")


def topics(bootstrap: str) -> None:
    client, name = admin(bootstrap), new_topic(bootstrap, "topics", partitions=3)
    until("the topic to be listed", lambda: name in client.list_topics(timeout=10).topics)
    described = done(client.describe_topics(TopicCollection([name])))[0]
    same(len(described.partitions), 3, "partitions")
    done(client.delete_topics([name]))
    until("the topic to be gone", lambda: name not in client.list_topics(timeout=10).topics)


def partitions(bootstrap: str) -> None:
    client, name = admin(bootstrap), new_topic(bootstrap, "partitions", partitions=2)
    done(client.create_partitions([NewPartitions(name, 5)]))
    until("five partitions", lambda: len(client.list_topics(name, timeout=10).topics[name].partitions) == 5)


def configs_describe(bootstrap: str) -> str:
    client = admin(bootstrap)
    name = new_topic(bootstrap, "configs", config={"retention.ms": "12345678"})
    topic = done(client.describe_configs([ConfigResource("topic", name)]))[0]
    same(topic["retention.ms"].value, "12345678", "retention.ms")
    same(topic["cleanup.policy"].value, "delete", "cleanup.policy")
    broker = str(next(iter(client.list_topics(timeout=10).brokers)))
    settings = done(client.describe_configs([ConfigResource("broker", broker)]))[0]
    return f"{len(topic)} topic settings, {len(settings)} broker settings"


def configs_alter(bootstrap: str) -> None:
    client, name = admin(bootstrap), new_topic(bootstrap, "alter")
    entry = ConfigEntry("retention.ms", "7654321", incremental_operation=AlterConfigOpType.SET)
    done(client.incremental_alter_configs([ConfigResource("topic", name, incremental_configs=[entry])]))

    def value() -> str:
        return str(done(client.describe_configs([ConfigResource("topic", name)]))[0]["retention.ms"].value)

    until("the new value", lambda: value() == "7654321")
    gone = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    done(client.incremental_alter_configs([ConfigResource("topic", name, incremental_configs=[gone])]))
    until("the default again", lambda: value() == "604800000")


def committed_group(bootstrap: str) -> tuple[str, str]:
    topic, group = new_topic(bootstrap, "groups"), fresh("group")
    produce(bootstrap, topic, [{"value": b"x"}])
    member = consumer(bootstrap, group)
    member.subscribe([topic])
    member.commit(read(member, 1)[0], asynchronous=False)
    member.close()
    return topic, group


def groups(bootstrap: str) -> None:
    client, (topic, group) = admin(bootstrap), committed_group(bootstrap)
    listed = client.list_consumer_groups().result(30).valid
    same(group in [g.group_id for g in listed], True, "the group is listed")
    member = consumer(bootstrap, group)
    member.subscribe([topic])
    until("the assignment", lambda: member.poll(0.1) is None and len(member.assignment()) == 1)
    described = done(client.describe_consumer_groups([group]))[0]
    same((described.state.name, len(described.members)), ("STABLE", 1), "state and members")
    same(described.members[0].assignment.topic_partitions[0].topic, topic, "assigned topic")
    member.close()
    offsets = done(client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))[0]
    same([(p.topic, p.offset) for p in offsets.topic_partitions], [(topic, 1)], "offsets")


def groups_delete(bootstrap: str) -> None:
    client, (topic, group) = admin(bootstrap), committed_group(bootstrap)
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 0)])
    done(client.alter_consumer_group_offsets([moved]))
    offsets = done(client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))[0]
    same(offsets.topic_partitions[0].offset, 0, "altered offset")
    done(client.delete_consumer_groups([group]))
    listed = client.list_consumer_groups().result(30).valid
    same(group in [g.group_id for g in listed], False, "the group is still listed")


def retention(bootstrap: str) -> None:
    small = {"segment.bytes": "1048576"}
    sized = new_topic(bootstrap, "size", config={**small, "retention.bytes": "1048576"})
    aged = new_topic(bootstrap, "age", config={"retention.ms": "3000", "segment.ms": "1000"})
    kept = new_topic(bootstrap, "kept", config=small)
    for topic in (sized, aged, kept):
        produce(
            bootstrap, topic, [{"value": b"%d " % i + bytes(500)} for i in range(8000)], **{"linger.ms": 5}
        )
    source = consumer(bootstrap)

    def first(topic: str) -> int:
        return source.get_watermark_offsets(TopicPartition(topic, 0), 10)[0]

    def goes_on() -> bool:
        produce(bootstrap, aged, [{"value": b"one more"}])  # what is written last is never too old
        return first(aged) >= 8000 and first(sized) > 0

    until("what is too old and too much to be gone", goes_on, pause=1)
    same((first(kept), first(sized) <= 8000 - 1500), (0, True), "what is to be kept")
    source.close()


def delete_records(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "delete-records")
    for i in range(10):
        produce(bootstrap, topic, [{"value": b"%d" % i}])
    result = done(admin(bootstrap).delete_records([TopicPartition(topic, 0, 4)]))[0]
    same(result.low_watermark, 4, "low watermark")
    same(read_topic(bootstrap, topic, 6)[0].offset(), 4, "first offset left")


def cluster(bootstrap: str) -> str:
    described = admin(bootstrap).describe_cluster().result(30)
    same(len(described.nodes) >= 1 and bool(described.cluster_id), True, "nodes and a cluster id")
    return f"cluster {described.cluster_id}"


def errors(bootstrap: str) -> None:
    client, name = admin(bootstrap), new_topic(bootstrap, "errors", partitions=2)

    def code(futures: dict[Any, Any]) -> str:
        try:
            done(futures)
        except KafkaException as error:
            return str(error.args[0].name())
        return "none"

    same(code(client.create_topics([NewTopic(name, 1, 1)])), "TOPIC_ALREADY_EXISTS", "creating it again")
    same(code(client.delete_topics([fresh("none")])), "UNKNOWN_TOPIC_OR_PART", "deleting an unknown topic")
    same(code(client.create_partitions([NewPartitions(name, 1)])), "INVALID_PARTITIONS", "fewer partitions")
    same(code(client.create_topics([NewTopic("a/../b?", 1, 1)])), "TOPIC_EXCEPTION", "a bad name")
    bad = NewTopic(fresh("bad"), 1, 1, config={"retention.ms": "a while"})
    same(code(client.create_topics([bad])), "INVALID_CONFIG", "a bad setting")


CODECS = [codec(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")]
ACKS = [acks(name) for name in ("0", "1", "all")]
CHECKS = [produce_consume, headers, nulls, *CODECS, timestamps, large_message, *ACKS, idempotent, sent_twice,
          restart, group_eager, group_cooperative, group_static, fenced, commit_resume, seek_ends,
          seek_timestamp, topics, partitions, configs_describe, configs_alter, groups, groups_delete,
          retention, delete_records, cluster, errors]  # fmt: skip

if __name__ == "__main__":
    version = f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"
    run("confluent-kafka (Python)", version, CHECKS)
    os._exit(0)  # a client thread that hangs must not keep the run
