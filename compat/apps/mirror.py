"""MirrorMaker 2: topics, their configurations and groups' offsets from Apache Kafka to the broker, and back."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Message
from waiting import same

from apps import topics
from apps.java import Application
from apps.topics import until
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.server import Server, free_port

RECORDS = 5_000
ONCE = """here.exactly.once.source.support=enabled
other.consumer.isolation.level=read_committed
dedicated.mode.enable.internal.rest=true
listeners=http://127.0.0.1:{port}
"""
READ = 2_000
CONFIG = {"compression.type": "zstd", "retention.ms": "123456789", "max.message.bytes": "2000000"}
SETTINGS = """clusters=other,here
other.bootstrap.servers={other}
here.bootstrap.servers={here}
other->here.enabled=true
other->here.topics=orders
here->other.enabled=true
here->other.topics=clicks
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
sync.group.offsets.enabled=true
sync.group.offsets.interval.seconds=2
emit.checkpoints.interval.seconds=2
refresh.topics.interval.seconds=5
refresh.groups.interval.seconds=5
sync.topic.configs.interval.seconds=5
sync.topic.acls.interval.seconds=5
"""


def move(broker: Server, folder: Path) -> None:
    """MirrorMaker 2, from Apache Kafka and to it: topics, configurations, records one for one; no group goes too far"""
    with Kafka(folder / "other") as other:
        for server, topic in ((other, "orders"), (broker, "clicks")):
            topics.make(server.address, topic, 3, CONFIG)
            topics.produce(server.address, topic, records(0, RECORDS))
            use(server, topic, READ)
        file = folder / "mirror.properties"
        file.write_text(SETTINGS.format(other=other.address, here=broker.address))
        with Application(folder / "mirror.log", "mirror", file) as mirror:
            arrived(mirror, other, "orders", broker, "other.orders")
            arrived(mirror, broker, "clicks", other, "here.clicks")
            for server, topic in ((other, "orders"), (broker, "clicks")):
                topics.produce(server.address, topic, records(RECORDS, 2 * RECORDS))
            arrived(mirror, other, "orders", broker, "other.orders")
            arrived(mirror, broker, "clicks", other, "here.clicks")
            goes_on(other, "orders", broker, "other.orders")
            goes_on(broker, "clicks", other, "here.clicks")
            errors = [line for line in mirror.text.splitlines() if " ERROR " in line]
            same(errors, [], "what MirrorMaker complains of")


def move_once(broker: Server, folder: Path) -> None:
    """MirrorMaker 2 with transactions, from Apache Kafka: it and the broker are killed, no record is there twice"""
    with Kafka(folder / "other") as other:
        topics.make(other.address, "orders", 3)
        file = folder / "mirror.properties"
        text = SETTINGS.format(other=other.address, here=broker.address)
        file.write_text(
            text.replace("here->other.enabled=true", "here->other.enabled=false")
            + ONCE.format(port=free_port())
        )
        log = folder / "mirror.log"
        for part in range(4):
            topics.produce(other.address, "orders", records(part * RECORDS, (part + 1) * RECORDS))
            with Application(log, "mirror", file) as mirror:
                if part < 3:
                    enough = part * RECORDS + RECORDS // 4
                    until("some records", lambda least=enough: len(_mirrored(broker)) > least)
                    mirror.kill()
                    if part == 1:
                        broker.kill()
                        broker.start()
                    continue
                until("all records", lambda: len(set(map(content, _mirrored(broker)))) >= 4 * RECORDS)
                wanted = [(each.partition(), *content(each)) for each in topics.read(other.address, "orders")]
                found = [(each.partition(), *content(each)) for each in _mirrored(broker)]
                for index in range(3):
                    same(
                        [each for each in found if each[0] == index],
                        [each for each in wanted if each[0] == index],
                        f"records of partition {index}, each once and in order",
                    )


def _mirrored(broker: Server) -> list[Message]:
    name = "other.orders"
    return topics.read(broker.address, name) if name in topics.names(broker.address) else []


def records(begin: int, end: int) -> list[tuple[str | None, str, list[tuple[str, bytes]]]]:
    return [
        (f"k{i}" if i % 7 else None, f"value {i}", [("n", b"%d" % i), ("n", b"\xff")])
        for i in range(begin, end)
    ]


def use(server: Server, topic: str, count: int) -> None:
    """Have a group read and commit some."""
    settings = {"bootstrap.servers": server.address, "group.id": f"group-of-{topic}"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    read = 0
    while read < count:
        read += len(consumer.consume(min(100, count - read), 1))
    consumer.commit(asynchronous=False)
    consumer.close()


def shape(message: Message) -> tuple[object, ...]:
    return (message.partition(), message.offset(), message.timestamp(), *content(message))


def content(message: Message) -> tuple[object, ...]:
    return (message.key(), message.value(), tuple(message.headers() or ()))


def arrived(mirror: Application, source: Server, topic: str, target: Server, mirrored: str) -> None:
    """Wait until both topics are the same: configuration, partitions, offsets, times, and all of each record."""
    until(f"{mirrored}", lambda: mirrored in topics.names(target.address))
    wanted = topics.bounds(source.address, topic)
    until(f"all records of {mirrored}", lambda: topics.bounds(target.address, mirrored) == wanted)
    copy, original = topics.read(target.address, mirrored), topics.read(source.address, topic)
    same(sorted(map(shape, copy)), sorted(map(shape, original)), f"records of {mirrored}")
    until(
        f"the configuration of {mirrored}",
        lambda: CONFIG.items() <= topics.config_of(target.address, mirrored).items(),
    )
    mirror.check()


def goes_on(source: Server, topic: str, target: Server, mirrored: str) -> None:
    """The group goes on in the copy: it misses nothing that it had not committed, and does not begin again."""
    group = f"group-of-{topic}"
    where = topics.committed(source.address, group, topic)

    def translated() -> bool:
        there = topics.committed(target.address, group, mirrored)
        return any(at > 0 for at in there.values()) and all(there[index] <= where[index] for index in where)

    until(f"offsets of {group}", translated)
