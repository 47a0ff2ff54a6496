"""A consumer of librdkafka as ``consume`` has it: where it begins and ends, and what it commits."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import Invalid
from magnetar.admin.lines import Seen
from magnetar.admin.offsets import Key, Spot, resolve
from magnetar.cli.clients import failed
from magnetar.cli.payloads import Readable

_FLUSH_EVERY = 500
Show = Callable[[Readable], bytes]

_TIMESTAMP_TYPES = {0: "none", 1: "CreateTime", 2: "LogAppendTime"}


def begin(consumer: Consumer, topic: str, starts: dict[tuple[str, int], int], *, in_group: bool) -> None:
    if in_group:
        consumer.subscribe([topic])
    else:
        consumer.assign([TopicPartition(name, index, offset) for (name, index), offset in starts.items()])


class Last:
    """The last message of each partition that was looked at, until those before it are surely printed."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._last: dict[int, Any] = {}

    def note(self, message: Any) -> None:
        self._last[message.partition()] = message

    def store(self) -> None:
        """Mark what was noted for the next commit; what others have taken over meanwhile is theirs."""
        for message in self._last.values():
            with contextlib.suppress(KafkaException):
                self._consumer.store_offsets(message)
        self._last.clear()


class Ends:
    """The ends of partitions: each is left before an offset, or with None at its end of the moment."""

    def __init__(self, ends: Mapping[Key, int | None], starts: Mapping[Key, int]) -> None:
        self._ends = ends
        self._open = {key for key, end in ends.items() if end is None or starts[key] < end}

    def __bool__(self) -> bool:
        """Return True while something is left to be read."""
        return bool(self._open)

    def is_past(self, key: Key, offset: int, *, at_end: bool = False) -> bool:
        """Return whether a record is left out; remember a partition that is done with it.

        ``at_end`` says that it is the end of the partition as of now, and no record.
        """
        end = self._ends.get(key)
        is_past = at_end if end is None else offset >= end
        if is_past or (end == offset + 1 and not at_end):
            self._open.discard(key)
        return is_past

    def only(self, held: Iterable[Key]) -> None:
        """Wait for no partitions but these: others are with other members of a group."""
        self._open &= set(held)


def _messages(consumer: Consumer, topic: str, ends: Ends | None) -> Iterator[Any]:
    """Yield messages as they come, and None whenever there is a pause."""
    while ends is None or ends:
        message: Any = consumer.poll(0.2)
        if message is None:
            yield None
            continue
        key, error = (message.topic(), message.partition()), message.error()
        is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
        if error is not None and not is_end:
            raise failed(error, f"topic {topic}")
        if ends is None or not ends.is_past(key, message.offset(), at_end=is_end):
            yield None if is_end else message
            continue
        if not is_end:
            with contextlib.suppress(KafkaException):  # a group may have moved it meanwhile
                consumer.pause([TopicPartition(*key)])
        ends.only((each.topic, each.partition) for each in consumer.assignment())
        yield None


def _commit(consumer: Consumer, topic: str) -> None:
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:
            raise failed(error.args[0], f"topic {topic}") from error


def _seen(message: Any) -> Seen:
    """Return a record of librdkafka's as our value."""
    kind, timestamp = message.timestamp()
    headers = tuple(
        (name, value.encode() if isinstance(value, str) else value) for name, value in message.headers() or ()
    )
    return Seen(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp=timestamp if kind else -1,
        timestamp_type=_TIMESTAMP_TYPES.get(kind, "none"),
        key=message.key(),
        value=message.value(),
        headers=headers,
    )


def ends_of(
    cluster: ClusterAdmin, starts: Mapping[Key, int], stop: Spot | None, *, exit_at_end: bool
) -> Ends | None:
    if exit_at_end:
        return Ends(dict.fromkeys(starts), {})
    if stop is None:
        return None
    if stop.kind == "offset":  # which may be one that is not there yet
        return Ends(dict.fromkeys(starts, stop.value), starts)
    if stop.kind == "time" and stop.value > time.time() * 1000:
        raise Invalid("--until names a time that has not come", "Leave it out, and end the command then.")
    return Ends(resolve(cluster, starts, stop), starts)


class Printer(NamedTuple):
    """From records to what is printed of them."""

    read: Callable[[Seen], Readable]
    wanted: Callable[[Seen], bool]
    show: Show

    def line(self, record: Seen) -> bytes | None:
        """Return what is printed, or None for a record that was not asked for."""
        readable = self.read(record)
        if not (
            self.wanted(record) or (readable.printed() is not record and self.wanted(readable.printed()))
        ):
            return None
        return self.show(readable)


def print_records(
    consumer: Consumer,
    topic: str,
    printer: Printer,
    ends: Ends | None,
    count: int | None,
    *,
    commit: bool,
) -> None:
    """Print until ``count`` records were, or all of ``ends`` were reached; for ever if neither is given."""
    out, printed, last = sys.stdout.buffer, 0, Last(consumer)
    with _whole_records() if commit else contextlib.nullcontext(bool) as is_stopped:
        try:
            for message in _messages(consumer, topic, ends):
                if is_stopped():
                    break
                if message is None:
                    out.flush()
                    last.store()
                    continue
                line = printer.line(_seen(message))
                if line is not None:
                    out.write(line)
                    printed += 1
                if commit:
                    last.note(message)
                if printed == count:
                    break
                if printed % _FLUSH_EVERY == 0:
                    out.flush()
                    last.store()
        finally:
            # Whoever ends a command that follows a topic has seen what is printed until then.
            out.flush()
            last.store()
        if commit:
            _commit(consumer, topic)


@contextlib.contextmanager
def _whole_records() -> Iterator[Callable[[], bool]]:
    """Have the first Ctrl-C wait until a printed record is noted, too; a second one, for a stuck pipe, does not."""
    stopped = False

    def stop(number: int, frame: object) -> None:
        nonlocal stopped
        stopped = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: stopped
    finally:
        signal.signal(signal.SIGINT, before)
