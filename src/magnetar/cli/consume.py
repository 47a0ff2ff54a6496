"""``magnetar consume``: records become lines."""

from __future__ import annotations

import json as jsonlib
import os
import re
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import Invalid, NotThere
from magnetar.admin.lines import Seen
from magnetar.admin.offsets import Spot, parse_spot, resolve
from magnetar.admin.topics import partitions_of
from magnetar.base.printable import printable_json, printable_lines
from magnetar.cli.clients import client_options, made
from magnetar.cli.formats import compile_format
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Partitions, TopicName, group_names
from magnetar.cli.payloads import Decode, Readable, SchemaRegistryUrl, understanding

Show = Callable[[Readable], bytes]


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
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="PLACE", help="Stop before it: end, an offset, -N or s@TIME."),
    ] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="Stop at the end.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Stop after so many.")] = None,
    form: Annotated[
        str, typer.Option("--format", "-f", help="%s value, %k key, %h headers, %t %p %o %T; see docs.")
    ] = r"%s\n",
    null: Annotated[str, typer.Option("--null", "-Z", help="What to print for null.")] = "",
    decode: Annotated[
        Decode,
        typer.Option(
            "--decode",
            "-D",
            metavar="none|auto|hex",
            help="How to show keys and values: as they are, by their schemas, or in hex.",
        ),
    ] = Decode.none,
    schema_registry: SchemaRegistryUrl = None,
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
    """Print records as they come; with -e up to the end, with -c so many, with --until up to a place."""
    spot, stop = parse_spot(offset), None if until is None else parse_spot(until)
    if stop is not None and (exit_at_end or stop.kind == "earliest"):
        raise Invalid("stop where?", "Give one of --exit and --until; --until end is the end of now.")
    wanted, text = _filter(key, grep), compile_format(form, null.encode())
    shown: Show = _json_line if json else lambda record: text(record.printed())
    if sys.stdout.isatty() and not json:
        shown = _for_terminals(shown)
    own = {
        "group.id": group or "magnetar-consume",
        # It commits what was stored, and stored is what was printed.
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "latest" if spot.kind == "latest" else "earliest",
    }
    from confluent_kafka import Consumer

    from magnetar.cli import consuming

    if group is not None and (partition or spot.kind not in ("earliest", "latest")):
        raise Invalid(
            "a member of a group cannot choose where it reads",
            "Leave --group away, or move the group first with 'magnetar group seek'.",
        )
    with ClusterAdmin(bootstrap_server) as cluster:
        starts = _starts(cluster, topic, partition, spot)
        ends = consuming.ends_of(cluster, starts, stop, exit_at_end=exit_at_end)
    understood = understanding(decode, topic, schema_registry, bootstrap_server)
    consumer = made(Consumer, client_options(bootstrap_server, own, option))
    try:
        consuming.begin(consumer, topic, starts, in_group=group is not None)
        printer = consuming.Printer(understood.read, wanted, shown)
        consuming.print_records(consumer, topic, printer, ends, count, commit=group is not None)
        if (decoding := understood.decoding) is not None and decoding.failed:
            told = f"not decoded: {decoding.failed} keys or values; the first one: {decoding.first_error}"
            print(printable_lines(f"magnetar: {told}"), file=sys.stderr)
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


def _json_line(record: Readable) -> bytes:
    text = jsonlib.dumps(record.json(), ensure_ascii=False, separators=(",", ":"))
    return printable_json(text).encode() + b"\n"


def _for_terminals(show: Show) -> Show:
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
