"""``magnetar consume``: records become lines."""

from __future__ import annotations

import contextlib
import json as jsonlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import Invalid, NotThere
from magnetar.admin.lines import Seen, to_json
from magnetar.admin.offsets import Spot, parse_spot, resolve
from magnetar.admin.topics import partitions_of
from magnetar.base.printable import printable_json, printable_lines
from magnetar.cli.clients import client_options, failed, made
from magnetar.cli.formats import compile_format
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Partitions, TopicName, group_names

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_TIMESTAMP_TYPES = {0: "none", 1: "CreateTime", 2: "LogAppendTime"}
_FLUSH_EVERY = 500


def consume(
    topic: TopicName,
    partition: Partitions = None,
    offset: Annotated[
        str,
        typer.Option(
            "--offset",
            "-o",
            metavar="PLACE",
            help="beginning, end, an offset, -N (before the end) or s@TIME.",
        ),
    ] = "beginning",
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="Stop at the end.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Stop after so many.")] = None,
    form: Annotated[
        str, typer.Option("--format", "-f", help="%s value, %k key, %h headers, %t %p %o %T; see docs.")
    ] = r"%s\n",
    null: Annotated[str, typer.Option("--null", "-Z", help="What to print for null.")] = "",
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only records of this key.")] = None,
    grep: Annotated[str | None, typer.Option("--grep", help="Only values that match this regex.")] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            "-G",
            help="Join this group, and commit what was printed: every few seconds, and at the end.",
            autocompletion=group_names,
        ),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-X", metavar="NAME=VALUE", help="Of librdkafka.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Annotated[bool, typer.Option("--json", "-J", help="One JSON object per line.")] = False,
) -> None:
    """Print records as they come; with -e up to the end, with -c so many."""
    spot, wanted = parse_spot(offset), _filter(key, grep)
    show: Callable[[Seen], bytes] = _json_line if json else compile_format(form, null.encode())
    if sys.stdout.isatty() and not json:
        show = _for_terminals(show)
    own = {
        "group.id": group or "magnetar-consume",
        # It commits what was stored, and stored is what was printed.
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "latest" if spot.kind == "latest" else "earliest",
    }
    from confluent_kafka import Consumer

    if group is not None and (partition or spot.kind not in ("earliest", "latest")):
        raise Invalid(
            "a member of a group cannot choose where it reads",
            "Leave --group away, or move the group first with 'magnetar group seek'.",
        )
    with ClusterAdmin(bootstrap_server) as cluster:
        starts = _starts(cluster, topic, partition, spot)
    consumer = made(Consumer, client_options(bootstrap_server, own, option))
    try:
        _begin(consumer, topic, starts, in_group=group is not None)
        ends = set(starts) if exit_at_end else None
        _print(consumer, topic, show, wanted, ends, count, commit=group is not None)
    except KeyboardInterrupt:
        pass  # the usual end of a command that follows a topic
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not try to flush the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        consumer.close()


def _starts(
    cluster: ClusterAdmin, topic: str, wanted: list[int] | None, spot: Spot
) -> dict[tuple[str, int], int]:
    keys = partitions_of(cluster, topic)
    missing = set(wanted or ()) - {index for _, index in keys}
    if missing:
        raise NotThere(
            f"topic {topic} has no partition {min(missing)}: it has 0 to {len(keys) - 1}",
            "Choose one of them, or leave --partition away to read all.",
        )
    return resolve(cluster, [key for key in keys if wanted is None or key[1] in wanted], spot)


def _begin(consumer: Consumer, topic: str, starts: dict[tuple[str, int], int], *, in_group: bool) -> None:
    from confluent_kafka import TopicPartition

    if in_group:
        consumer.subscribe([topic])
    else:
        consumer.assign([TopicPartition(name, index, offset) for (name, index), offset in starts.items()])


def _print(
    consumer: Consumer,
    topic: str,
    show: Callable[[Seen], bytes],
    wanted: Callable[[Seen], bool],
    ends: set[tuple[str, int]] | None,
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
                record = seen(message)
                if wanted(record):
                    out.write(show(record))
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


class Last:
    """The last message of each partition that was looked at, until those before it are surely printed."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._last: dict[int, Any] = {}

    def note(self, message: Any) -> None:
        self._last[message.partition()] = message

    def store(self) -> None:
        """Let the consumer commit what was noted, in its time; what others have taken over meanwhile is theirs."""
        from confluent_kafka import KafkaException

        for message in self._last.values():
            with contextlib.suppress(KafkaException):
                self._consumer.store_offsets(message)
        self._last.clear()


def _messages(consumer: Consumer, topic: str, ends: set[tuple[str, int]] | None) -> Iterator[Any]:
    """Yield messages as they come, and None whenever there is a pause."""
    from confluent_kafka import KafkaError

    while ends is None or ends:
        message = consumer.poll(0.2)
        if message is None or (error := message.error()) is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            if ends is not None:
                # In a group others may hold some partitions: only what is ours must have ended.
                ends.discard((message.topic(), message.partition()))
                ends &= {(each.topic, each.partition) for each in consumer.assignment()}
            yield None
        else:
            raise failed(error, f"topic {topic}")


def _commit(consumer: Consumer, topic: str) -> None:
    from confluent_kafka import KafkaError, KafkaException

    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:
            raise failed(error.args[0], f"topic {topic}") from error


def seen(message: Any) -> Seen:
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


def _json_line(record: Seen) -> bytes:
    text = jsonlib.dumps(to_json(record), ensure_ascii=False, separators=(",", ":"))
    return printable_json(text).encode() + b"\n"


def _for_terminals(show: Callable[[Seen], bytes]) -> Callable[[Seen], bytes]:
    """Have what is shown leave a terminal as it is. A pipe gets records as they are."""
    return lambda record: printable_lines(show(record).decode(errors="backslashreplace")).encode()


def _filter(key: str | None, grep: str | None) -> Callable[[Seen], bool]:
    try:
        pattern = None if grep is None else re.compile(grep.encode())
    except re.error as error:
        raise Invalid(
            f"{grep!r} is no regular expression: {error}",
            "Write one of Python's; \\\\ before ( [ . and so on.",
        ) from error
    wanted = None if key is None else key.encode()

    def fits(record: Seen) -> bool:
        if wanted is not None and record.key != wanted:
            return False
        return pattern is None or (record.value is not None and pattern.search(record.value) is not None)

    return fits
