"""``magnetar restore``: a topic from its table again, offset for offset, and the proof of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin.errors import AdminError, Invalid, NotThere
from magnetar.admin.whereabouts import data_directory
from magnetar.cli.audit import told
from magnetar.cli.options import (
    DEFAULT_BOOTSTRAP,
    AnyFormat,
    AnyTable,
    Bootstrap,
    Data,
    Json,
    Master,
    Pairs,
    TableTopic,
)
from magnetar.cli.output import give, pairs, size, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from magnetar.pipeline.restore import Restored

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Proven:
    """What was restored, and whether it equals the table; None if nobody looked."""

    restored: Restored
    is_equal: bool | None


def restore(
    table: AnyTable,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic that does not exist yet.")],
    format_: AnyFormat = "auto",
    table_topic: TableTopic = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="How many the topic gets. Default as many as the table knows.")
    ] = None,
    config: Pairs = None,
    compression: Annotated[
        str, typer.Option(metavar="none|gzip|snappy|lz4|zstd", help="How the topic's batches are compressed.")
    ] = "none",
    proof: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Compare the topic with the table afterwards.")
    ] = True,
    master: Master = None,
    data: Data = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Rebuild a topic from its bronze table: the same offsets, keys, values, headers and timestamps.

    Works beside a running broker or without one. Ends with 1 if it failed or the audit found a difference.
    """
    if compression not in _CODECS:
        raise Invalid(f"there is no compression {compression!r}", f"There are: {', '.join(_CODECS)}.")
    configs = _configs(config or [])
    from magnetar.pipeline.audit_table import TableUnreadable, look_for_table

    try:
        look_for_table(table, format_)
    except TableUnreadable as error:
        raise AdminError(str(error)) from error
    where = _directory(data, bootstrap_server)
    from magnetar.admin.registrar import DirectoryRegistrar
    from magnetar.pipeline.audit import AuditRequest, audit
    from magnetar.pipeline.command_session import command_session, progress
    from magnetar.pipeline.restore import Order
    from magnetar.pipeline.restore import restore as rebuild
    from magnetar.records.compression import Codec

    order = Order(
        table,
        topic,
        where,
        format_,
        table_topic,
        partitions=partitions,
        configs=configs,
        codec=Codec[compression],
    )
    try:
        with command_session("magnetar restore", master) as spark:
            with progress(spark, "restoring", hidden=json):
                made = rebuild(spark, order, DirectoryRegistrar(where))
            is_equal = None
            if proof:
                with progress(spark, "comparing", hidden=json):
                    asked = AuditRequest(topic, table, where, format_, table_topic or None)
                    is_equal = audit(spark, asked).is_equal
    except AdminError:
        raise
    except Exception as error:  # Spark and the table formats each raise their own
        raise AdminError(*told(error)) from error
    give(Proven(made, is_equal), _shown, as_json=json)
    raise typer.Exit(1 if is_equal is False else 0)


def _configs(given: list[str]) -> dict[str, str]:
    wrong = [text for text in given if "=" not in text]
    if wrong:
        raise Invalid(f"{wrong[0]!r} is no setting", "Write NAME=VALUE, as in retention.ms=-1.")
    return {name: value for name, _, value in (text.partition("=") for text in given)}


def _directory(data: Path | None, bootstrap: str) -> Path:
    """Return the data directory; one that is named, and is not there yet, is made."""
    if data is not None and not data.exists():
        if not data.parent.is_dir():
            raise NotThere(
                f"there is no directory {data.parent}", "Make it, or name another one with --data."
            )
        data.mkdir()
    return data_directory(data, bootstrap)


def _shown(proven: Proven) -> Iterator[RenderableType]:
    value = proven.restored
    yield pairs(
        [
            ("topic", f"{value.topic}: {value.records:,} records"),
            ("from", f"{value.table} ({value.table_format})"),
            *([("not in the table", ", ".join(value.absent))] if value.absent else []),
            ("config", ", ".join(f"{name}={text}" for name, text in value.configs.items())),
        ]
    )
    yield table(
        ("#partition", "#from", "#to", "#records", "#ledgers", "#size"),
        [
            (p.partition, p.low, p.high - 1, f"{p.records:,}", p.ledgers, size(p.bytes))
            for p in value.partitions
        ],
    )
    if proven.is_equal is not None:
        yield "EQUAL to the table" if proven.is_equal else "NOT EQUAL to the table: see 'magnetar audit'"
