"""Producers of numbers by stock clients of both protocols, each partition counted from 0, as fast as they are taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pulsar
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

PATIENCE_S = 60.0


class Load:
    """Steps in a thread of its own until it is ended."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.acknowledged: list[list[int]] = [[] for _ in range(partitions)]
        self.failures: list[str] = []
        self.longest_silence_s = 0.0
        """Between two acknowledgements of one partition."""
        self._ends = threading.Event()
        self._last = [time.monotonic()] * partitions
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        number = 0
        try:
            while not self._ends.is_set():
                for partition in range(self.partitions):
                    self.send(partition, number)
                number += 1
                self.breathe()
            self.flush()
        except BaseException as error:
            self._error = error

    def send(self, partition: int, number: int) -> None:
        raise NotImplementedError

    def breathe(self) -> None:
        time.sleep(0.002)

    def flush(self) -> None:
        raise NotImplementedError

    def told(self, partition: int, number: int, error: object) -> None:
        now = time.monotonic()
        self.longest_silence_s = max(self.longest_silence_s, now - self._last[partition])
        self._last[partition] = now
        if error is None:
            self.acknowledged[partition].append(number)
        else:
            self.failures.append(str(error))

    def count(self) -> int:
        return sum(map(len, self.acknowledged))

    def wait_for_more(self, more: int) -> None:
        target, until = self.count() + more, time.monotonic() + PATIENCE_S
        while self.count() < target:
            assert self._error is None, self._error
            assert time.monotonic() < until, f"{self.count()} acknowledged, {self.failures[:3]}"
            time.sleep(0.01)

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert not self.failures, self.failures[:3]


class KafkaLoad(Load):
    """An idempotent producer."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        super().__init__(partitions)
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "message.timeout.ms": int(PATIENCE_S * 1000),
            }
        )
        self._thread.start()

    def send(self, partition: int, number: int) -> None:
        def done(error: object, _: object) -> None:
            self.told(partition, number, error)

        self._producer.produce(self._topic, b"%d" % number, partition=partition, on_delivery=done)

    def breathe(self) -> None:
        self._producer.poll(0.002)

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0, "messages that nobody answered for"


class PulsarLoad(Load):
    """One named producer for each partition, on a topic whose namespace deduplicates."""

    def __init__(self, client: pulsar.Client, topic: str, partitions: int) -> None:
        super().__init__(partitions)
        self._producers = [
            client.create_producer(
                f"{topic}-partition-{index}",
                producer_name=f"load-{index}",
                send_timeout_millis=0,
                max_pending_messages=2000,
                block_if_queue_full=True,
            )
            for index in range(partitions)
        ]
        for partition in range(partitions):
            self._producers[partition].send(
                b"-1"
            )  # its sequence ids begin anew with each connection until then
        self._thread.start()

    def send(self, partition: int, number: int) -> None:
        def done(result: pulsar.Result, _: Any) -> None:
            self.told(partition, number, None if result == pulsar.Result.Ok else result)

        self._producers[partition].send_async(b"%d" % number, done)

    def flush(self) -> None:
        for each in self._producers:
            each.flush()


def _end(client: Consumer, place: TopicPartition) -> int:
    """Return where a partition ends, once it has a leader: a client that has not heard of one knows no partition, and
    one that has may ask a worker which gives it away.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return int(client.get_watermark_offsets(place, PATIENCE_S)[1])
        except KafkaException as error:
            moves = error.args[0].code() in (
                KafkaError._UNKNOWN_PARTITION,
                KafkaError.NOT_LEADER_FOR_PARTITION,
            )
            if not moves or time.monotonic() > until:
                raise
            client.list_topics(
                place.topic, PATIENCE_S
            )  # librdkafka asks no more by itself once it was told of none
            time.sleep(0.1)


def stored(servers: str, topic: str, partitions: int) -> list[list[int]]:
    """Read a whole topic by Kafka's protocol: the numbers of each partition, in order."""
    client = Consumer({"bootstrap.servers": servers, "group.id": "all", "enable.auto.commit": False})
    places = [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)]
    ends = {each.partition: _end(client, each) for each in places}
    client.assign(places)
    found: list[list[int]] = [[] for _ in range(partitions)]
    until = time.monotonic() + PATIENCE_S
    while any(ends.values()):
        assert time.monotonic() < until, f"not read to the end: {ends}"
        for message in client.consume(1000, 0.2):
            if message.error() is None:
                found[message.partition()].append(int(message.value()))
                if message.offset() + 1 >= ends[message.partition()]:
                    ends[message.partition()] = 0
    client.close()
    return found


def check(load: Load, servers: str, topic: str, first: int = 0) -> None:
    """Everything acknowledged is there once and in order, and nothing that was not sent."""
    found = stored(servers, topic, load.partitions)
    for partition, numbers in enumerate(found):
        where = f"{topic}-{partition}"
        assert numbers == list(range(first, first + len(numbers))), f"{where}: {_odd(numbers, first)}"
        missing = set(load.acknowledged[partition]) - set(numbers)
        assert not missing, f"{where}: lost {sorted(missing)[:10]} of {len(numbers)}"


def _odd(numbers: list[int], first: int) -> str:
    at = next(n for n, number in enumerate(numbers) if number != first + n)
    return f"at offset {at} of {len(numbers)}: {numbers[max(at - 2, 0) : at + 5]}"


def until(what: Callable[[], bool], pause_s: float = 0.02) -> float:
    """Wait until something is so; return for how long, in seconds."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < PATIENCE_S
        time.sleep(pause_s)
    return time.monotonic() - began
