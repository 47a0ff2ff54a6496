"""A broker that changes its files in every way: appends, roll-over, retention, compaction, groups, new topics."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.process import BrokerProcess

SETTINGS = (
    *("--set", "log.retention.check.interval.ms=200", "--set", "log.cleaner.backoff.ms=200"),
    *("--set", "http.listeners=http://127.0.0.1:0"),
)
PARTITIONS = 3
_SMALL = {"segment.bytes": "1048576", "retention.bytes": "3145728"}
_COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
GROUP = "readers"


class Busy:
    """Use it with ``with``. ``acknowledged`` are the offsets that producers were told of, by partition."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._address = broker.address
        self._ends: dict[tuple[str, int], int] = {}
        self._stop = threading.Event()
        admin = AdminClient({"bootstrap.servers": self._address})
        topics = [
            NewTopic("kept", PARTITIONS, 1, config={"segment.bytes": "1048576"}),
            NewTopic("short", PARTITIONS, 1, config=_SMALL),
            NewTopic("compacted", 1, 1, config=_COMPACTED),
        ]
        for done in admin.create_topics(topics).values():
            done.result(60)
        self._admin = admin
        self._threads = [
            threading.Thread(target=each) for each in (self._produce, self._consume, self._create)
        ]

    def __enter__(self) -> Busy:
        for each in self._threads:
            each.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()

    def acknowledged(self) -> dict[tuple[str, int], int]:
        """Return how far producers know that what they sent is kept: by partition the offset behind it."""
        return dict(self._ends)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            place = str(message.topic()), int(message.partition() or 0)
            self._ends[place] = max(self._ends.get(place, 0), int(message.offset() or 0) + 1)

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._address, "enable.idempotence": True, "linger.ms": 2})
        for number in itertools.count():
            if self._stop.is_set():
                break
            value = b"%d" % number + b"x" * 3000
            for topic in ("kept", "short"):
                producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=self._told)
            producer.produce("compacted", value, key=b"%d" % (number % 50), on_delivery=self._told)
            producer.poll(0)
            if number % 50 == 0:
                producer.flush(60)
        producer.flush(60)

    def _consume(self) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self._address, "group.id": GROUP, "auto.offset.reset": "earliest"}
            | {"enable.auto.commit": False}
        )
        consumer.subscribe(["kept"])
        while not self._stop.is_set():
            got = [each for each in consumer.consume(500, 0.2) if each.error() is None]
            if got:
                consumer.commit(asynchronous=False)
        consumer.close()

    def _create(self) -> None:
        for number in itertools.count():
            if self._stop.wait(0.3):
                break
            for done in self._admin.create_topics([NewTopic(f"new-{number}", 1, 1)]).values():
                done.result(60)
            if number % 2:
                for done in self._admin.delete_topics([f"new-{number}"]).values():
                    done.result(60)


def judged(data: Path, acknowledged: dict[tuple[str, int], int]) -> None:
    """Open a copy and read all of it: what was acknowledged is there, in its order; no group is ahead of its topic."""
    with BrokerProcess(data, *SETTINGS) as broker:
        ends: dict[tuple[str, int], int] = {}
        reader = Consumer(
            {"bootstrap.servers": broker.address, "group.id": "judge", "auto.offset.reset": "error"}
            | {"enable.auto.commit": False, "enable.partition.eof": True}
        )
        for place, end in acknowledged.items():
            there = TopicPartition(*place)
            first, last = reader.get_watermark_offsets(there, timeout=60)
            ends[place] = last
            assert last >= end, f"{place} ends at {last}, and {end} was acknowledged"
            if first < last:
                reader.assign([TopicPartition(*place, first)])
                _read(reader, place, first, last)
        group = Consumer({"bootstrap.servers": broker.address, "group.id": GROUP})
        for each in group.committed(
            [TopicPartition("kept", index) for index in range(PARTITIONS)], timeout=60
        ):
            assert each.offset <= ends.get(("kept", each.partition), 0), f"the group is ahead: {each}"
        group.close()
        reader.close()


def _read(reader: Consumer, place: tuple[str, int], first: int, last: int) -> None:
    following = first
    while following < last:
        for each in reader.consume(1000, 0.2):
            error = each.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                following = last  # a compacted topic may end before its last offset
                continue
            offset = int(each.offset() or 0)
            assert place[0] == "compacted" or offset == following, (
                f"{place}: {offset} follows {following - 1}"
            )
            following = offset + 1
