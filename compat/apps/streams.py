"""Kafka Streams: two instances of an application, of which one is killed, and so is the broker; in a classic group, and
in one of the streams protocol, there with exactly-once processing."""

from __future__ import annotations

from pathlib import Path

from waiting import same

from apps import topics
from apps.java import Application
from apps.topics import until
from benchmarks.peers.server import Server

PROGRAM = Path(__file__).with_name("WordCount.java")
WORDS = 100
NUMBERS = 500
GROUP = "word-count"


def word_count(broker: Server, folder: Path) -> None:
    """Kafka Streams: state, repartitioning, a global table; an instance and the broker are killed, nothing is lost"""
    _count(broker, folder)


def streams_group(broker: Server, folder: Path) -> None:
    """Kafka Streams with group.protocol=streams and exactly_once_v2: the same, and nothing twice"""
    explained = _count(broker, folder, "streams", "exactly_once_v2")
    same(len(explained), len(set(explained)), "records that were written once")


def _count(broker: Server, folder: Path, *options: str) -> list[str]:
    """Run the application; return what it wrote of each record."""
    for name in ("words", "counts", "explained"):
        topics.make(broker.address, name, 4)
    topics.make(broker.address, "meanings", 1, {"cleanup.policy": "compact"})
    topics.produce(broker.address, "meanings", [(f"w{i}", f"meaning {i}", []) for i in range(WORDS)])

    def start(number: int) -> Application:
        return Application(
            folder / f"streams-{number}.log",
            PROGRAM,
            broker.address,
            GROUP,
            folder / f"state-{number}",
            *options,
        )

    with start(1) as first, start(2) as second:
        say(broker, 0, 200)
        until("both instances to run", lambda: all("RUNNING" in each.text for each in (first, second)))
        until("the first counts", lambda: topics.read(broker.address, "counts"))
        first.kill()
        say(broker, 200, 400)
        broker.kill()
        broker.start()
        say(broker, 400, NUMBERS)
        until("all numbers of all words", lambda: counts(broker) == {f"w{i}": NUMBERS for i in range(WORDS)})
        until(
            "the application to have committed all", lambda: topics.lag(broker.address, GROUP, "words") == 0
        )
        explained = [message.value().decode() for message in topics.read(broker.address, "explained")]
        same(len(set(explained)), WORDS * NUMBERS, "records with their meaning")
        same("w7 499: meaning 7" in explained, True, "a record with its meaning")
        by_word = f"{GROUP}-by-word-repartition"
        until("records that nobody needs any more to be deleted", lambda: all_deleted(broker, by_word))
        kept = topics.config_of(broker.address, f"{GROUP}-seen-changelog")
        same(kept["cleanup.policy"], "compact", "the changelog's clean-up policy")
        second.check()
    return explained


def say(broker: Server, begin: int, end: int) -> None:
    words = [(None, f"w{word} {number}", []) for number in range(begin, end) for word in range(WORDS)]
    topics.produce(broker.address, "words", words)


def counts(broker: Server) -> dict[str, int]:
    found: dict[str, int] = {}
    for message in topics.read(broker.address, "counts"):
        word = message.key().decode()
        found[word] = max(found.get(word, 0), int(message.value()))
    return found


def all_deleted(broker: Server, topic: str) -> bool:
    return all(first == end for first, end in topics.bounds(broker.address, topic).values())
