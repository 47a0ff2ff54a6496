"""kafka-python 3: pure Python, its own encoder of every message."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import kafka
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
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.structs import OffsetAndMetadata


@cache
def admin(bootstrap: str) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=bootstrap)


def new_topic(bootstrap: str, prefix: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
    name = fresh(prefix)
    options = {"num_partitions": partitions, "replication_factor": 1, "configs": config or {}}
    admin(bootstrap).create_topics({name: options}, wait_for_metadata=True)
    return name


def produce(bootstrap: str, topic: str, records: list[dict[str, Any]], **config: Any) -> list[Any]:
    """Send all; what the broker answered for each."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, **config)
    try:
        futures = [producer.send(topic, **record) for record in records]
        producer.flush(60)
        return [future.get(60) for future in futures]
    finally:
        producer.close()


def consumer(bootstrap: str, group: str | None = None, **config: Any) -> KafkaConsumer:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300}
    return KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, **{**settings, **config})


def subscribe(source: KafkaConsumer, topic: str, **options: Any) -> None:
    """Have a consumer know its topic's partitions before it joins its group.

    Version 3.0.12 joins again when metadata changes after it has joined, and never takes its partitions if a poll ends
    amid that.
    """
    source.subscribe([topic], **options)
    source.partitions_for_topic(topic)


def read(source: KafkaConsumer, count: int) -> list[Any]:
    got: list[Any] = []

    def more() -> bool:
        for records in source.poll(200, max_records=count - len(got)).values():
            got.extend(records)
        return len(got) >= count

    until(f"{count} records", more)
    same(len(got), count, "records read")
    return got


def read_topic(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Any]:
    source = consumer(bootstrap)
    source.assign([TopicPartition(topic, p) for p in range(partitions)])
    try:
        return read(source, count)
    finally:
        source.close()


def produce_consume(bootstrap: str) -> str:
    topic = new_topic(bootstrap, "basic", PARTITIONS)
    sent = [{"key": b"key-%d" % (i % 50), "value": b"value-%d" % i} for i in range(VOLUME)]
    produce(bootstrap, topic, sent)
    got = read_topic(bootstrap, topic, VOLUME, PARTITIONS)
    for key in {r["key"] for r in sent}:
        same([m.value for m in got if m.key == key], [r["value"] for r in sent if r["key"] == key], str(key))
    return f"{len({m.partition for m in got})} partitions"


def headers(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "headers")
    given = [
        header for header in HEADERS if header[1] is not None
    ]  # this producer refuses null header values
    produce(bootstrap, topic, [{"value": b"x", "headers": given}])
    same([tuple(h) for h in read_topic(bootstrap, topic, 1)[0].headers], given, "headers")


def nulls(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "nulls")
    pairs = [pair for pair in NULLS if pair != (None, None)]  # this producer refuses a record of nothing
    produce(bootstrap, topic, [{"key": k, "value": v} for k, v in pairs])
    same([(m.key, m.value) for m in read_topic(bootstrap, topic, len(pairs))], pairs, "keys and values")


def codec(name: str) -> Callable[[str], None]:
    def check(bootstrap: str) -> None:
        topic = new_topic(bootstrap, name)
        compression = None if name == "none" else name
        produce(
            bootstrap,
            topic,
            [{"value": v} for v in COMPRESSIBLE],
            compression_type=compression,
            linger_ms=100,
        )
        got = read_topic(bootstrap, topic, len(COMPRESSIBLE))
        same([m.value for m in got], COMPRESSIBLE, "values")

    check.__name__ = f"codec_{name}"
    return check


def timestamps(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "timestamps", config=ANY_TIME)
    produce(bootstrap, topic, [{"value": b"x", "timestamp_ms": T0 + i} for i in range(10)])
    got = [(m.timestamp_type, m.timestamp) for m in read_topic(bootstrap, topic, 10)]
    same(got, [(0, T0 + i) for i in range(10)], "timestamps")


def large_message(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "large")
    produce(bootstrap, topic, [{"value": LARGE}])
    same(read_topic(bootstrap, topic, 1)[0].value == LARGE, True, "the large value is equal")


def acks(name: str) -> Callable[[str], None]:
    def check(bootstrap: str) -> None:
        topic = new_topic(bootstrap, f"acks-{name}", PARTITIONS)
        time.sleep(2)  # with acks=0 nobody tells that a partition has no leader yet
        level = name if name == "all" else int(name)
        ways = {b"big": {"linger_ms": 20}, b"single": {"linger_ms": 0, "batch_size": 0}}

        def send(way: bytes) -> list[Any]:
            config = {"acks": level, "enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
            records = [{"value": value} for value in numbered(way)]
            return produce(bootstrap, topic, records, **config, **ways[way])

        with ThreadPoolExecutor() as threads:
            delivered = [(m.partition, m.offset) for each in threads.map(send, ways) for m in each]
        got = read_topic(bootstrap, topic, VOLUME, PARTITIONS)
        complete([(m.partition, m.value) for m in got], dict.fromkeys(ways, VOLUME // 2))
        if name != "0":
            same(sorted(delivered), sorted((m.partition, m.offset) for m in got), "offsets told")

    check.__name__ = f"acks_{name}"
    return check


def idempotent(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "idempotent")
    values = [b"%d" % i for i in range(VOLUME)]
    records = [{"value": value} for value in values]
    delivered = produce(bootstrap, topic, records, enable_idempotence=True, batch_size=512)
    same([m.offset for m in delivered], list(range(VOLUME)), "offsets told to the producer")
    same([m.value for m in read_topic(bootstrap, topic, VOLUME)], values, "values")


def sent_twice(bootstrap: str) -> str:
    topic = new_topic(bootstrap, "twice", 3)
    lost = int(control("lost"))
    records = [{"value": value} for value in numbered(b"idempotent", 4000)]
    produce(lossy(), topic, records, enable_idempotence=True, batch_size=512, retry_backoff_ms=20)
    lost = int(control("lost")) - lost
    got = read_topic(bootstrap, topic, 4000, 3)
    complete([(m.partition, m.value) for m in got], {b"idempotent": 4000})
    source = consumer(bootstrap)
    ends = source.end_offsets([TopicPartition(topic, p) for p in range(3)])
    source.close()
    same(
        (sum(ends.values()), lost >= 5), (4000, True), f"records in all, and that answers were lost ({lost})"
    )
    return f"{lost} answers lost"


def restart(bootstrap: str) -> None:
    topic, group = new_topic(bootstrap, "restart", PARTITIONS), fresh("group")
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    values = numbered(b"restart")

    def send(some: list[bytes]) -> None:
        futures = [producer.send(topic, value) for value in some]
        producer.flush(60)
        for future in futures:
            future.get(60)

    send(values[:5000])
    member = consumer(bootstrap, group)
    subscribe(member, topic)
    read(member, 5000)
    member.commit()
    asked = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    committed = [member.committed(p) for p in asked]
    member.close()
    control("restart")
    send(values[5000:])
    producer.close()
    again = consumer(bootstrap, group)
    same([again.committed(p) for p in asked], committed, "committed offsets after the restart")
    subscribe(again, topic)
    rest = read(again, len(values) - 5000)
    same(sorted(m.value for m in rest), sorted(values[5000:]), "what the group reads after the restart")
    again.close()
    got = read_topic(bootstrap, topic, len(values), PARTITIONS)
    complete([(m.partition, m.value) for m in got], {b"restart": len(values)})


class Revocations(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.counts: list[int] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            self.counts.append(len(revoked))

    def on_partitions_assigned(self, assigned: Any) -> None:
        pass


class Member(threading.Thread):
    """One member of a group, polling in a thread of its own as in an application."""

    def __init__(self, bootstrap: str, topic: str, group: str, **config: Any) -> None:
        super().__init__(daemon=True)
        self.listener, self.seen, self.leaving = Revocations(), [], threading.Event()
        self.source = consumer(bootstrap, group, **config)
        subscribe(self.source, topic, listener=self.listener)
        self.start()

    def run(self) -> None:
        while not self.leaving.is_set():
            for records in self.source.poll(100).values():
                self.seen.extend(int(record.value) for record in records)
        self.source.close()

    def leave(self) -> None:
        self.leaving.set()
        self.join(20)

    @property
    def owned(self) -> int:
        return len(self.source.assignment())


def two_members(bootstrap: str, assignor: type, expected_revoked: int) -> str:
    topic, group = new_topic(bootstrap, "group", partitions=4), fresh("group")
    config = {"partition_assignment_strategy": [assignor]}
    first = Member(bootstrap, topic, group, **config)
    until("the first member to own everything", lambda: first.owned == 4)
    second = Member(bootstrap, topic, group, **config)
    until("both to own two partitions", lambda: (first.owned, second.owned) == (2, 2))
    same(first.listener.counts, [expected_revoked], "partitions taken from the first member")
    produce(bootstrap, topic, [{"key": b"%d" % i, "value": b"%d" % i} for i in range(VOLUME)])
    until("all records", lambda: len(first.seen) + len(second.seen) >= VOLUME)
    same(sorted(first.seen + second.seen), list(range(VOLUME)), "records of the group")
    second.leave()
    until("the first member to own everything again", lambda: first.owned == 4)
    first.leave()
    return f"4, then 2 + 2, then 4; {expected_revoked} revoked"


def group_eager(bootstrap: str) -> str:
    return two_members(bootstrap, RangePartitionAssignor, 4)


def group_cooperative(bootstrap: str) -> str:
    return two_members(bootstrap, CooperativeStickyAssignor, 2)


def group_static(bootstrap: str) -> None:
    topic, group = new_topic(bootstrap, "static", partitions=4), fresh("group")

    def member(name: str) -> Member:
        return Member(bootstrap, topic, group, group_instance_id=name, session_timeout_ms=30000)

    first, second = member("a"), member("b")
    until("both to own two partitions", lambda: (first.owned, second.owned) == (2, 2))
    first.listener.counts.clear()
    second.leave()
    again = member("b")
    until("the second member to be back", lambda: again.owned == 2)
    same(first.listener.counts, [], "partitions taken from the first member meanwhile")
    first.leave()
    again.leave()


def commit_resume(bootstrap: str) -> None:
    topic, group = new_topic(bootstrap, "commit"), fresh("group")
    produce(bootstrap, topic, [{"value": b"%d" % i} for i in range(20)])
    first = consumer(bootstrap, group)
    subscribe(first, topic)
    read(first, 10)
    first.commit({TopicPartition(topic, 0): OffsetAndMetadata(10, "half way", -1)})
    first.close()
    second = consumer(bootstrap, group)
    found = second.committed(TopicPartition(topic, 0), metadata=True)
    same((found.offset, found.metadata), (10, "half way"), "committed offset and metadata")
    subscribe(second, topic)
    same([m.offset for m in read(second, 10)], list(range(10, 20)), "offsets after resuming")
    second.close()


def seek_ends(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "seek")
    produce(bootstrap, topic, [{"value": b"%d" % i} for i in range(10)])
    source, tp = consumer(bootstrap), TopicPartition(topic, 0)
    source.assign([tp])
    same((source.beginning_offsets([tp])[tp], source.end_offsets([tp])[tp]), (0, 10), "ends")
    for place, expected in ((lambda: source.seek(tp, 5), 5), (lambda: source.seek_to_beginning(tp), 0)):
        place()
        same(read(source, 1)[0].offset, expected, "offset")
    source.seek_to_end(tp)
    same(source.position(tp), 10, "latest position")
    produce(bootstrap, topic, [{"value": b"new"}])
    same(read(source, 1)[0].offset, 10, "latest offset")
    source.close()


def seek_timestamp(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "times", config=ANY_TIME)
    for i in range(10):
        produce(bootstrap, topic, [{"value": b"x", "timestamp_ms": T0 + 1000 * i}])
    source, tp = consumer(bootstrap), TopicPartition(topic, 0)
    found = [source.offsets_for_times({tp: T0 + t})[tp].offset for t in (0, 2500, 9000)]
    same(found, [0, 3, 9], "offsets by time")
    same(source.offsets_for_times({tp: T0 + 99000})[tp], None, "offset after the last timestamp")
    source.close()


def topics(bootstrap: str) -> None:
    client, name = admin(bootstrap), new_topic(bootstrap, "topics", partitions=3)
    until("the topic to be listed", lambda: name in client.list_topics())
    same(len(client.describe_topics([name])[0]["partitions"]), 3, "partitions")
    same(len(client.describe_topic_partitions([name])["topics"][0]["partitions"]), 3, "partitions by KIP-966")
    client.delete_topics([name])
    until("the topic to be gone", lambda: name not in client.list_topics())


def partitions(bootstrap: str) -> None:
    client, name = admin(bootstrap), new_topic(bootstrap, "partitions", partitions=2)
    client.create_partitions({name: 5})
    until("five partitions", lambda: len(client.describe_topics([name])[0]["partitions"]) == 5)


def settings_of(bootstrap: str, kind: ConfigResourceType, name: str) -> dict[str, Any]:
    found = admin(bootstrap).describe_configs([ConfigResource(kind, name)], config_filter="all")
    return dict(found[kind.name.lower()][name])


def configs_describe(bootstrap: str) -> str:
    name = new_topic(bootstrap, "configs", config={"retention.ms": "12345678"})
    topic = settings_of(bootstrap, ConfigResourceType.TOPIC, name)
    same(topic["retention.ms"]["value"], "12345678", "retention.ms")
    same(topic["cleanup.policy"]["value"], "delete", "cleanup.policy")
    node = admin(bootstrap).describe_cluster()["brokers"][0]
    broker = settings_of(
        bootstrap, ConfigResourceType.BROKER, str(node.get("node_id", node.get("broker_id")))
    )
    return f"{len(topic)} topic settings, {len(broker)} broker settings"


def configs_alter(bootstrap: str) -> None:
    client, name = admin(bootstrap), new_topic(bootstrap, "alter")

    def value() -> str:
        return str(settings_of(bootstrap, ConfigResourceType.TOPIC, name)["retention.ms"]["value"])

    for incremental, wanted in ((True, "7654321"), (False, "7654322")):
        resource = ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": wanted})
        client.alter_configs([resource], incremental=incremental)
        until("the new value", lambda wanted=wanted: value() == wanted)


def committed_group(bootstrap: str) -> tuple[str, str]:
    topic, group = new_topic(bootstrap, "groups"), fresh("group")
    produce(bootstrap, topic, [{"value": b"x"}])
    member = consumer(bootstrap, group)
    subscribe(member, topic)
    read(member, 1)
    member.commit()
    member.close()
    return topic, group


def groups(bootstrap: str) -> None:
    client, (topic, group) = admin(bootstrap), committed_group(bootstrap)
    same(group in [g["group_id"] for g in client.list_groups()], True, "the group is listed")
    member = consumer(bootstrap, group)
    subscribe(member, topic)
    until("the assignment", lambda: member.poll(100) is not None and len(member.assignment()) == 1)
    described = client.describe_groups([group])[group]
    same((described["group_state"], len(described["members"])), ("Stable", 1), "state and members")
    member.close()
    offsets = client.list_group_offsets({group: None})[group]
    same(offsets[TopicPartition(topic, 0)].offset, 1, "offset")


def groups_delete(bootstrap: str) -> None:
    client, (topic, group) = admin(bootstrap), committed_group(bootstrap)
    tp = TopicPartition(topic, 0)
    client.alter_group_offsets(group, {tp: OffsetAndMetadata(0, "", -1)})
    same(client.list_group_offsets({group: None})[group][tp].offset, 0, "altered offset")
    client.delete_group_offsets(group, [tp])
    same(tp in client.list_group_offsets({group: None})[group], False, "the offset is still there")
    client.delete_groups([group])
    same(group in [g["group_id"] for g in client.list_groups()], False, "the group is still listed")


def retention(bootstrap: str) -> None:
    small = {"segment.bytes": "1048576"}
    sized = new_topic(bootstrap, "size", config={**small, "retention.bytes": "1048576"})
    aged = new_topic(bootstrap, "age", config={"retention.ms": "3000", "segment.ms": "1000"})
    kept = new_topic(bootstrap, "kept", config=small)
    for topic in (sized, aged, kept):
        produce(bootstrap, topic, [{"value": b"%d " % i + bytes(500)} for i in range(8000)], linger_ms=5)
    source = consumer(bootstrap)

    def first(topic: str) -> int:
        return source.beginning_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]

    def goes_on() -> bool:
        produce(bootstrap, aged, [{"value": b"one more"}])  # what is written last is never too old
        return first(aged) >= 8000 and first(sized) > 0

    until("what is too old and too much to be gone", goes_on, pause=1)
    same((first(kept), first(sized) <= 8000 - 1500), (0, True), "what is to be kept")
    source.close()


def delete_records(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "delete-records")
    for i in range(5):
        produce(bootstrap, topic, [{"value": b"%d" % i}])
    tp = TopicPartition(topic, 0)
    result = admin(bootstrap).delete_records({tp: 2})
    same(result[tp]["low_watermark"], 2, "low watermark")
    same(read_topic(bootstrap, topic, 3)[0].offset, 2, "first offset left")


def cluster(bootstrap: str) -> str:
    described = admin(bootstrap).describe_cluster()
    same(len(described["brokers"]) >= 1 and bool(described["cluster_id"]), True, "nodes and a cluster id")
    return f"cluster {described['cluster_id']}"


def log_dirs(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "log-dirs")
    produce(bootstrap, topic, [{"value": LARGE[:10000]}])
    found = admin(bootstrap).describe_log_dirs([topic])
    same(topic in str(found), True, "the topic is in a log directory")


def errors(bootstrap: str) -> None:
    client, name = admin(bootstrap), new_topic(bootstrap, "errors", partitions=2)

    def raised(call: Callable[[], object]) -> str:
        try:
            call()
        except kafka_errors.KafkaError as error:
            return type(error).__name__
        return "none"

    same(raised(lambda: client.create_topics({name: {}})), "TopicAlreadyExistsError", "creating it again")
    same(
        raised(lambda: client.delete_topics([fresh("none")])),
        "UnknownTopicOrPartitionError",
        "an unknown topic",
    )
    same(raised(lambda: client.create_partitions({name: 1})), "InvalidPartitionsError", "fewer partitions")


CODECS = [codec(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")]
ACKS = [acks(name) for name in ("0", "1", "all")]
CHECKS = [produce_consume, headers, nulls, *CODECS, timestamps, large_message, *ACKS, idempotent, sent_twice,
          restart, group_eager, group_cooperative, group_static, commit_resume, seek_ends,
          seek_timestamp, topics, partitions, configs_describe, configs_alter, groups, groups_delete,
          retention, delete_records, cluster, log_dirs, errors]  # fmt: skip

if __name__ == "__main__":
    run("kafka-python", kafka.__version__, CHECKS)
    os._exit(0)  # a client thread that hangs must not keep the run
