"""``magnetar explain flights-3@1234``: everything that is known of one record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, cast

import typer

from magnetar.admin.client import Local, Way
from magnetar.admin.errors import Unreachable
from magnetar.admin.explain import Explained, GroupAt, MessageFacts, Preview
from magnetar.admin.partition_name import parse_record
from magnetar.admin.whereabouts import leader_of, way_to_ask
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Admin, Bootstrap, Data, Json, partition_names
from magnetar.cli.output import give, moment, pairs, size

if TYPE_CHECKING:
    from rich.console import RenderableType


def explain(
    record: Annotated[str, typer.Argument(metavar="TOPIC-PARTITION@OFFSET", autocompletion=partition_names)],
    data: Data = None,
    admin: Admin = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Tell everything that is known of one record: ledger, entry, producer, times, groups past it.

    Asks the running broker; with --data and no broker it reads the directory itself.
    """
    (topic, partition), offset = parse_record(record)
    way = way_to_ask(data, admin, bootstrap_server, leader_of(topic, partition))
    give(_explained(way, topic, partition, offset), _shown, as_json=json)


def _explained(way: Way, topic: str, partition: int, offset: int) -> Explained:
    try:
        return cast(Explained, way.ask("explain", topic=topic, partition=partition, offset=offset))
    except Unreachable:
        if not isinstance(way, Local):
            raise
        from magnetar.doctor.data_directory import DataDirectory

        with DataDirectory(way.data) as directory:
            return directory.explain(topic, partition, offset)


def _shown(value: Explained) -> Iterator[RenderableType]:
    yield f"{value.topic}-{value.partition}@{value.offset}"
    yield pairs(_where(value))
    if value.batch is not None:
        yield "\nbatch"
        yield pairs(_batch(value))
    if value.message is not None:
        yield "\nPulsar's message"
        yield pairs(_message(value.message))
    if value.record is not None:
        yield "\nrecord"
        yield pairs(_record(value))
    yield "\ngroups"
    yield pairs(
        [
            ("past it", _groups(value.groups_past)),
            ("not yet", _groups(value.groups_before)),
        ]
    )


def _where(value: Explained) -> Iterator[tuple[str, object]]:
    yield "ledger", value.ledger
    yield "entry", f"{value.entry} ({size(value.entry_size)})"
    yield "batch index", value.batch_index
    yield "message id", value.message_id
    yield "entry format", value.entry_format
    yield "appended", moment(value.append_time)
    yield "published", moment(value.publish_time)
    if value.file is not None:
        yield "file", value.file.path
        yield "at byte", f"{value.file.position}, {value.file.size} bytes"


def _batch(value: Explained) -> Iterator[tuple[str, object]]:
    batch = value.batch
    assert batch is not None
    yield "offsets", f"{batch.base_offset} to {batch.last_offset}, {batch.records} records"
    yield "size", f"{size(batch.size)}, codec {batch.codec}"
    yield "times", f"{moment(batch.base_timestamp)} to {moment(batch.max_timestamp)} ({batch.timestamp_type})"
    if batch.producer_id >= 0:
        yield (
            "producer",
            f"id {batch.producer_id}, epoch {batch.producer_epoch}, sequence {batch.base_sequence}",
        )
    else:
        yield "producer", "not idempotent: no id, epoch or sequence"
    yield "transaction", value.transaction


def _message(message: MessageFacts) -> Iterator[tuple[str, object]]:
    yield "producer", f"{message.producer_name or '-'}, sequence id {message.sequence_id}"
    yield (
        "payload",
        f"{'a batch of ' + str(message.messages) if message.batched else 'one message'}, {message.compression}",
    )
    if message.chunk:
        yield "chunk", message.chunk
    if message.encrypted:
        yield "encrypted", message.encrypted
    if message.marker:
        yield "marker", "written by a broker for brokers; no consumer gets it"


def _record(value: Explained) -> Iterator[tuple[str, object]]:
    record = value.record
    assert record is not None
    yield "timestamp", moment(record.timestamp)
    if record.sequence >= 0:
        yield "sequence", record.sequence
    yield "key", _preview(record.key)
    yield "value", _preview(record.value)
    for header in record.headers:
        yield f"header {header.key}", _preview(header.value)


def _preview(value: Preview) -> str:
    return "null" if value.text is None else f"{value.text}  ({size(value.size)})"


def _groups(groups: tuple[GroupAt, ...]) -> str:
    return ", ".join(f"{each.group} (at {each.committed})" for each in groups) or "none"
