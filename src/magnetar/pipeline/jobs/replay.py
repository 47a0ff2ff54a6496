"""Dead letters sent again: to their own topic, or to a retry topic; each once, and marked.

Each goes out as it was: key, value, headers and timestamp, to the topic's own partition where that is the same topic,
by its key elsewhere. One header more says which record it was, ``magnetar.replay.of: partition:offset``. Current state
counts it at that first place, so it never hides what came later. A letter that fails once more is a new dead letter.

What was sent is noted in ``replayed/TOPIC.jsonl`` in the project's directory: first an *attempt* with the target's end
offsets, then a line per record that the broker acknowledged. If a replay dies in between, the next one reads the
target from the attempt's offsets on and marks what it finds there by that header, before it sends anything. So a
record goes out twice only if the broker's own idempotence fails.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from magnetar.pipeline.jobs.alone import alone
from magnetar.pipeline.jobs.spec import ProjectSpec, SpecError, TopicSpec
from magnetar.pipeline.replays import REPLAY_HEADER

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

NOTES = "replayed"
_LOCK = ".replay.lock"
_LETTER = f"{REPLAY_HEADER}.letter"
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Replayed:
    """One topic's dead letters. ``found`` are those asked for, ``sent_before`` those of them that were sent already."""

    topic: str
    to: str
    found: int
    sent_before: int
    sent: int


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What one replay did."""

    topics: tuple[Replayed, ...]


class ReplayFailed(Exception):
    """The broker did not take a record; what it took is marked, and replay goes on from there."""


class Letter(NamedTuple):
    """One dead letter."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]

    @property
    def place(self) -> str:
        return f"{self.partition}:{self.offset}"


Sent = Callable[[Letter], object]


def replay(
    project: ProjectSpec, *, topic: str | None = None, to: str | None = None, error: str = "",
    dry_run: bool = False, on_sent: Sent = lambda _: None,
) -> ReplayReport:  # fmt: skip
    """Send dead letters again, those whose error has the text ``error``.

    Raises `SpecError`, `ProjectBusy` or `ReplayFailed`.
    """
    with nullcontext() if dry_run else alone("replay", project.directory / _LOCK):
        return _replay(project, topic, to, error, dry_run, on_sent)


def _replay(
    project: ProjectSpec, topic: str | None, to: str | None, error: str, dry_run: bool, on_sent: Sent
) -> ReplayReport:
    topics = list(project.topics.values()) if topic is None else [project.topic(topic)]
    address = _address(project)
    done = []
    for each in topics:
        notes = Notes(project.directory / NOTES / f"{each.table}.jsonl")
        target = to or each.topic
        if not dry_run:
            _finish_attempt(address, notes)
        letters = list(dead_letters(project, each, error))
        fresh = [letter for letter in letters if letter.place not in notes.sent]
        if fresh and not dry_run:
            _send(address, target, each.topic, fresh, notes, on_sent)
        done.append(
            Replayed(
                each.topic, target, len(letters), len(letters) - len(fresh), 0 if dry_run else len(fresh)
            )
        )
    return ReplayReport(tuple(done))


class Notes:
    """Which records were sent again: a file of lines, each flushed to disk before what depends on it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.sent: set[str] = set()
        self.attempt: dict[str, Any] | None = None
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                self._take(json.loads(line))
            except ValueError:
                continue  # the line that a killed replay was writing

    def _take(self, note: dict[str, Any]) -> None:
        if "attempt" in note:
            self.attempt = note["attempt"]
        elif "done" in note:
            self.attempt = None
        else:
            self.sent.add(note["place"])

    def write(self, *notes: dict[str, Any]) -> None:
        """Add notes, and have them on disk before going on."""
        self._path.parent.mkdir(exist_ok=True)
        whole = not self._path.exists() or self._path.read_bytes()[-1:] in (b"\n", b"")
        with self._path.open("a") as file:
            file.write("".join([*([] if whole else ["\n"]), *(json.dumps(note) + "\n" for note in notes)]))
            file.flush()
            os.fsync(file.fileno())
        for note in notes:
            self._take(note)


def dead_letters(project: ProjectSpec, topic: TopicSpec, error: str = "") -> Iterator[Letter]:
    """Yield a topic's dead letters in the order of their offsets; raise `SpecError` before the first run."""
    from magnetar.pipeline.jobs.tables import read_rows

    columns = ["partition", "offset", "timestamp", "key", "value", "headers", "error"]
    rows = read_rows(project, topic.dead_letters, columns)
    for row in sorted(rows, key=lambda each: (each["partition"], each["offset"])):
        if error in row["error"]:
            headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
            ms = round(row["timestamp"].timestamp() * 1000)
            yield Letter(row["partition"], row["offset"], ms, row["key"], row["value"], headers)


def _send(address: str, target: str, source: str, letters: list[Letter], notes: Notes, on_sent: Sent) -> None:
    from confluent_kafka import Producer

    consumer = _consumer(address)
    try:
        ends = _ends(consumer, target)
    finally:
        consumer.close()
    notes.write({"attempt": {"to": target, "from": ends}})
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0})
    failed: list[str] = []
    for letter in letters:
        _send_one(
            producer,
            target,
            letter,
            failed,
            notes,
            same=target == source,
            partitions=len(ends),
            on_sent=on_sent,
        )
    left = producer.flush(_TIMEOUT_S)
    if failed or left:
        raise ReplayFailed(
            f"{target}: {failed[0] if failed else f'{left} records were not acknowledged in time'}"
        )
    notes.write({"done": target})


def _send_one(
    producer: Producer, target: str, letter: Letter, failed: list[str], notes: Notes, *, same: bool,
    partitions: int, on_sent: Sent,
) -> None:  # fmt: skip
    first = next((value for name, value in letter.headers if name == REPLAY_HEADER), None)
    headers = [(name, value) for name, value in letter.headers if name not in (REPLAY_HEADER, _LETTER)]
    headers.append((REPLAY_HEADER, first if first is not None else letter.place.encode()))
    # Which letter it is, for finding it after a crash; the header above names the first of them all.
    headers.append((_LETTER, letter.place.encode()))

    def delivered(problem: Any, message: Any) -> None:
        if problem is not None:
            failed.append(str(problem))
            return
        notes.write(_note(letter.place, target, message.partition(), message.offset()))
        on_sent(letter)

    where: dict[str, Any] = {"partition": letter.partition} if same and letter.partition < partitions else {}
    while True:
        try:
            producer.produce(
                target, letter.value, letter.key, timestamp=letter.timestamp_ms,
                headers=headers, on_delivery=delivered, **where,
            )  # fmt: skip
        except BufferError:
            producer.poll(1.0)
            continue
        producer.poll(0)
        return


def _note(place: str, to: str, partition: int, offset: int) -> dict[str, Any]:
    return {"place": place, "to": f"{to}-{partition}@{offset}", "at_ms": round(time.time() * 1000)}


def _finish_attempt(address: str, notes: Notes) -> None:
    """Mark what a replay that died had sent: it is in the target, behind the offsets that it noted."""
    if notes.attempt is None:
        return
    target, starts = notes.attempt["to"], {int(p): int(o) for p, o in notes.attempt["from"].items()}
    from confluent_kafka import TopicPartition

    consumer = _consumer(address)
    try:
        ends = _ends(consumer, target)
        left = {p: end for p, end in ends.items() if end > starts.get(p, 0)}
        consumer.assign([TopicPartition(target, p, starts.get(p, 0)) for p in left])
        deadline = time.monotonic() + _TIMEOUT_S
        while left:
            message = consumer.poll(1.0)
            if message is None or message.error():
                if time.monotonic() > deadline:
                    raise ReplayFailed(f"{target} cannot be read to its end, to see what was sent already")
                left = {p: end for p, end in left.items() if _position(consumer, target, p) < end}
                continue
            deadline = time.monotonic() + _TIMEOUT_S
            partition, offset = int(message.partition() or 0), int(message.offset() or 0)
            place = _letter(message.headers())
            if place is not None and place not in notes.sent:
                notes.write(_note(place, target, partition, offset))
            if offset + 1 >= left.get(partition, 0):
                left.pop(partition, None)
    finally:
        consumer.close()
    notes.write({"done": target})


def _letter(headers: Any) -> str | None:
    """Return the place of the dead letter that a record was sent for."""
    found = next((value for name, value in headers or () if name == _LETTER), None)
    return None if found is None else bytes(found).decode("ascii", "replace")


def _position(consumer: Consumer, topic: str, partition: int) -> int:
    from confluent_kafka import TopicPartition

    return int(consumer.position([TopicPartition(topic, partition)])[0].offset)


def _consumer(address: str) -> Consumer:
    from confluent_kafka import Consumer

    return Consumer(
        {"bootstrap.servers": address, "group.id": "magnetar-replay", "enable.auto.commit": False, "log_level": 0,
         "auto.offset.reset": "earliest"}
    )  # fmt: skip


def _ends(consumer: Consumer, topic: str) -> dict[int, int]:
    """Return each partition's end; raise `SpecError` if there is no such topic, `ReplayFailed` if nobody answers."""
    from confluent_kafka import KafkaException, TopicPartition

    try:
        found = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        if found.error is not None:
            raise SpecError(f"--to: there is no topic {topic!r}: {found.error.str()}")
        return {
            p: int(consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=_TIMEOUT_S)[1])
            for p in sorted(found.partitions)
        }
    except KafkaException as error:
        raise ReplayFailed(f"the broker does not answer: {error}") from None


def _address(project: ProjectSpec) -> str:
    from magnetar.pipeline.watermarks import broker_address

    found = project.bootstrap_servers or (broker_address(project.data) if project.data else None)
    if not found:
        raise SpecError("bootstrap_servers: replay needs a running broker, and none is named or runs on data")
    return found
