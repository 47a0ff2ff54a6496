"""``magnetar produce``: lines from standard input or a file become records."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from magnetar.admin.errors import AdminError, Invalid
from magnetar.admin.lines import Headers, OutgoingRecord, parse_json, parse_text
from magnetar.cli.clients import client_options, failed, made
from magnetar.cli.formats import unescape
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, TopicName
from magnetar.cli.output import give, pairs, size
from magnetar.cli.payloads import SchemaRegistryUrl

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from rich.console import RenderableType


_PATIENCE_S = 5
"""How long to look for a broker. Later ones that go away are waited for as long as librdkafka does."""


class CodecName(StrEnum):
    """What batches are compressed with."""

    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


class Form(StrEnum):
    """What a line is."""

    text = "text"
    json = "json"


@dataclass(frozen=True, slots=True)
class ProduceReport:
    """What was sent and acknowledged; ``next`` is the offset behind the last record, by partition."""

    topic: str
    records: int
    size: int
    seconds: float
    next: dict[str, int]


def produce(
    topic: TopicName,
    file: Annotated[
        Path | None, typer.Argument(exists=True, dir_okay=False, help="Standard input if not given.")
    ] = None,
    form: Annotated[
        Form, typer.Option("--format", "-F", metavar="text|json", help="What a line is.")
    ] = Form.text,
    separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", help="Ends the key of a line; \\t and the like are understood."
        ),
    ] = None,
    null: Annotated[str | None, typer.Option("--null", "-Z", help="Text that stands for null.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="On every record.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="By key, or spread, if not given.")
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Encode values by this .avsc, .json or .proto; it is registered.",
        ),
    ] = None,
    schema_id: Annotated[int | None, typer.Option(min=1, help="Encode values by this schema.")] = None,
    subject: Annotated[
        str | None, typer.Option(help="Encode values by its newest schema; TOPIC-value for --schema.")
    ] = None,
    message: Annotated[str, typer.Option(help="Which message of a Protobuf schema; the first.")] = "",
    key_schema: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="As --schema, of keys.")
    ] = None,
    key_schema_id: Annotated[int | None, typer.Option(min=1, help="As --schema-id, of keys.")] = None,
    key_subject: Annotated[str | None, typer.Option(help="As --subject, of keys.")] = None,
    key_message: Annotated[str, typer.Option(help="As --message, of keys.")] = "",
    schema_registry: SchemaRegistryUrl = None,
    compression: Annotated[
        CodecName,
        typer.Option("--compression", "-z", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd."),
    ] = CodecName.none,
    progress: Annotated[
        bool | None, typer.Option("--progress/--no-progress", help="On a terminal if not said.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-X", metavar="NAME=VALUE", help="Of librdkafka.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Produce one record per line. Ends with 1 if any record was not acknowledged."""
    parts = (
        ("key", key_schema, key_schema_id, key_subject, key_message),
        ("value", schema, schema_id, subject, message),
    )
    encode_key, encode_value = (
        _encoding(topic, *part, registry=schema_registry, bootstrap=bootstrap_server) for part in parts
    )
    fixed = tuple(_header(each) for each in header or [])
    key_end = None if separator is None else unescape(separator)
    stands_for_null = None if null is None else null.encode()
    own = {"compression.type": str(compression), "enable.idempotence": True, "linger.ms": 5}
    sender = _Sender(topic, client_options(bootstrap_server, own, option), partition, fixed)
    show = sys.stderr.isatty() and file is not None if progress is None else progress
    with _opened(file) as source, _progress(source, show) as lines:
        for number, line in enumerate(lines, 1):
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            if form is Form.json and not line:
                continue
            try:
                record = parse_json(line) if form is Form.json else parse_text(line, key_end, stands_for_null)
                record = replace(record, key=encode_key(record.key), value=encode_value(record.value))
            except Invalid as error:
                sender.finish()
                raise Invalid(f"line {number}: {error}", error.next_step) from error
            sender.send(record)
    give(sender.finish(), _shown, as_json=json)


Encode = Callable[[bytes | None], bytes | None]


def _encoding(
    topic: str,
    part: str,
    file: Path | None,
    schema_id: int | None,
    subject: str | None,
    message: str,
    *,
    registry: str | None,
    bootstrap: str,
) -> Encode:
    """Return what encodes keys or values; it leaves them as they are where no schema is named."""
    if file is None and schema_id is None and subject is None:
        return lambda data: data
    from magnetar.admin.payloads import encoding, sources

    known = sources.needed_registry(registry, bootstrap)
    return encoding.encoding_of(known, subject or f"{topic}-{part}", file, schema_id, message).encode


class _Sender:
    """Sends records and counts what came of them; raises for the first that failed."""

    def __init__(self, topic: str, options: dict[str, Any], partition: int | None, headers: Headers) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._producer: Producer = made(Producer, {**options, "error_cb": self._told})
        self._partition = partition
        self._headers = headers
        self._began = time.monotonic()
        self._records = self._size = 0
        self._next: dict[str, int] = {}
        self._error: AdminError | None = None
        self._away: Any = None
        """Why no broker could be used, last time one was tried."""
        self._waits_since: float | None = None
        """When the first record was sent, until one is acknowledged."""

    def send(self, record: OutgoingRecord) -> None:
        partition = record.partition if self._partition is None else self._partition
        if self._waits_since is None:
            self._waits_since, self._away = time.monotonic(), None
        where: dict[str, Any] = {} if partition is None else {"partition": partition}
        if record.timestamp is not None:
            where["timestamp"] = record.timestamp
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    headers=[*self._headers, *record.headers],
                    on_delivery=self._delivered,
                    **where,
                )
            except BufferError:
                self._producer.poll(0.1)
                self._check()
            else:
                break
        self._producer.poll(0)
        self._check()

    def finish(self) -> ProduceReport:
        """Wait for every acknowledgement, and give what became of it all."""
        while self._producer.flush(_PATIENCE_S / 10):
            self._check()
        self._check()
        seconds = round(time.monotonic() - self._began, 3)
        return ProduceReport(
            self._topic, self._records, self._size, seconds, dict(sorted(self._next.items()))
        )

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._error = self._error or failed(error, f"topic {self._topic}")
            return
        self._records += 1
        self._size += len(message)
        key = str(message.partition())
        self._next[key] = max(self._next.get(key, 0), message.offset() + 1)

    def _told(self, error: Any) -> None:
        if error.name() in ("_ALL_BROKERS_DOWN", "_AUTHENTICATION", "_SSL"):
            self._away = error

    def _check(self) -> None:
        since = time.monotonic() if self._waits_since is None else self._waits_since
        never_there = self._away is not None and not self._records
        if self._error is None and never_there and time.monotonic() - since > _PATIENCE_S:
            self._error = failed(self._away, f"topic {self._topic}")
        if self._error is not None:
            self._producer.purge()
            raise self._error


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Invalid(f"{text!r} is no header", "Write NAME=VALUE.")
    return name, value.encode()


@contextmanager
def _opened(file: Path | None) -> Iterator[BinaryIO]:
    if file is None:
        yield sys.stdin.buffer
    else:
        with file.open("rb") as source:
            yield source


@contextmanager
def _progress(source: BinaryIO, show: bool) -> Iterator[Iterable[bytes]]:
    """Return the lines, with a bar on standard error that follows the bytes read."""
    if not show:
        yield source
        return
    from rich.console import Console
    from rich.progress import wrap_file

    total = source.seek(0, 2) if source.seekable() else 0
    if source.seekable():
        source.seek(0)
    with wrap_file(source, total, description="producing", console=Console(stderr=True)) as wrapped:
        yield wrapped


def _shown(value: ProduceReport) -> Iterator[RenderableType]:
    rate = value.records / value.seconds if value.seconds else 0
    yield pairs(
        [
            ("records", value.records),
            ("values", size(value.size)),
            ("time", f"{value.seconds} s, {rate:.0f} records/s"),
            ("next offsets", ", ".join(f"{key}: {offset}" for key, offset in value.next.items()) or "-"),
        ]
    )
