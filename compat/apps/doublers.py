"""Other people's programs that read numbers and write them doubled, while the broker is killed, and they are as well.

Each is one file of `people`, started with the broker's address, the topic it reads, the one it writes, and a folder for
what it remembers. It fills numbers up with spaces, so that a batch of one is worth compressing. What is looked at in
the end is what the broker stores: each number's double (once, where the program works exactly once), in batches of the
codec that the program was told to use, and nothing that is not committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ages import stored
from waiting import same

from apps import programs, topics
from apps.faults import killed
from apps.flow import Records
from apps.java import Application
from apps.topics import until
from benchmarks.peers.server import Server

SOURCE, TARGET = "numbers", "doubled"
PARTITIONS = 3


@dataclass(frozen=True)
class Doubler:
    """A program, what its language's registry brings for it, and what it promises."""

    file: str
    packages: Sequence[str]
    once: bool = False
    codec: str = "gzip"
    numbers: int = 10_000
    options: Sequence[str] = ()

    def started(self, broker: Server, folder: Path) -> Application:
        command = programs.command(self.file, self.packages, self.options)
        arguments = (broker.address, SOURCE, TARGET, folder / "state")
        return Application(folder / f"{self.file}.log", *command[1:], *arguments, script=Path(command[0]))


def quix(broker: Server, folder: Path) -> None:
    """Quix Streams, exactly once: it and the broker are killed; each number is doubled once, in gzip batches"""
    _doubled(Doubler("quix.py", ("quixstreams==3.28.1",), once=True), broker, folder)


def faststream(broker: Server, folder: Path) -> None:
    """FastStream on aiokafka: it and the broker are killed; each number is doubled, in gzip batches"""
    _doubled(Doubler("fast_stream.py", ("faststream[kafka]==0.7.8",), numbers=2_000), broker, folder)


def bytewax(broker: Server, folder: Path) -> None:
    """Bytewax, with snapshots of its own: it and the broker are killed; each number is doubled, in gzip batches"""
    _doubled(Doubler("byte_wax.py", ("bytewax[kafka]==0.21.1",)), broker, folder)


def spring_kafka(broker: Server, folder: Path) -> None:
    """Spring Kafka, exactly once: it and the broker are killed; each number is doubled once, in gzip batches"""
    wanted = ("org.springframework.kafka:spring-kafka:4.0.6", _SLF4J)
    _doubled(Doubler("SpringKafka.java", wanted, once=True), broker, folder)


def camel(broker: Server, folder: Path) -> None:
    """Apache Camel, commits by hand: it and the broker are killed; each number is doubled, in gzip batches"""
    wanted = ("org.apache.camel:camel-main:4.14.1", "org.apache.camel:camel-kafka:4.14.1", _SLF4J)
    _doubled(Doubler("CamelRoute.java", wanted, numbers=2_000), broker, folder)


def kafka_ts(broker: Server, folder: Path) -> None:
    """kafka-ts (Node): it and the broker are killed; each number is doubled, in batches that are not compressed"""
    _doubled(Doubler("kafka_ts.mjs", ("kafka-ts@1.5.0",), codec="none"), broker, folder)


def platformatic(broker: Server, folder: Path) -> None:
    """@platformatic/kafka (Node): it and the broker are killed; each number is doubled, in gzip batches"""
    _doubled(Doubler("platformatic.mjs", ("@platformatic/kafka@1.35.0",)), broker, folder)


def watermill(broker: Server, folder: Path) -> None:
    """Watermill on Sarama (Go): it and the broker are killed; each number is doubled, in gzip batches"""
    wanted = ("github.com/ThreeDotsLabs/watermill-kafka/v3@v3.0.6",)
    _doubled(Doubler("watermill.go", wanted, numbers=2_000), broker, folder)


_SLF4J = "org.slf4j:slf4j-simple:2.0.17"


def _doubled(doubler: Doubler, broker: Server, folder: Path) -> None:
    numbers = doubler.numbers
    for name in (SOURCE, TARGET):
        topics.make(broker.address, name, PARTITIONS)

    def there() -> int:
        return len(_found(broker))

    with Records(broker.address, SOURCE, numbers) as flow:
        with doubler.started(broker, folder) as first:
            until("some numbers to be doubled", lambda: there() > numbers // 10)
            lost = killed(broker, TARGET)
            until("more of them", lambda: there() > numbers // 4)
            first.kill()
        with doubler.started(broker, folder):
            until("yet more", lambda: there() > numbers // 2)
            lost += killed(broker, TARGET)
            flow.end()
            until("all of them", lambda: len(set(_found(broker))) >= numbers - lost)
    found = _found(broker)
    same(set(found) ^ {2 * number for number in range(numbers)}, set(), "numbers missing, or none of ours")
    if doubler.once:
        same(len(found), numbers, "numbers that are there, each once")
    same(
        sorted(map(int, _values(broker, SOURCE))),
        list(range(numbers)),
        "what the program read is still there",
    )
    batches = [each for index in range(PARTITIONS) for each in stored.batches(broker.address, TARGET, index)]
    same({each.codec for each in batches if not each.is_control}, {doubler.codec}, "codecs that are stored")
    same({each.is_transactional for each in batches}, {doubler.once}, "whether batches are of transactions")


def _values(broker: Server, topic: str) -> list[bytes]:
    return [each.value() for each in topics.read(broker.address, topic)]


def _found(broker: Server) -> list[int]:
    return [int(value) for value in _values(broker, TARGET)]
