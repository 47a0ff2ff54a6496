"""Records of a topic: the newest first, from an offset or a time on, or those that have a key or a text; and one alone.

Where a page ends, or its search was ended by a bound, it says so, and links to where it goes on. That place is an
offset of each partition, in the link: nothing is stored of a reader between two pages.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from magnetar.admin.live import LiveBroker
from magnetar.admin.plain import plain
from magnetar.auth import Right
from magnetar.cluster.ownership import NotOwned
from magnetar.console import reading
from magnetar.console.decoding import (
    MOST_LETTERS,
    MOST_LETTERS_ALONE,
    ShownBytes,
    shown,
)
from magnetar.console.exports import FORMATS, downloads_of, exported
from magnetar.console.page import (
    Command,
    ConsolePage,
    Facts,
    kafka_tool,
    magnetar,
    pulsar_admin,
    topic_of,
    whole,
)
from magnetar.console.passport import subscriptions_at
from magnetar.console.reading import Effort, FoundRecord, readings_of
from magnetar.console.sought import SoughtRecords, sought_of
from magnetar.console.written import WrittenSchemas, schemas_of
from magnetar.ledger.values import Position
from magnetar.pulsar.rest.request import AdminRequest, RestError
from magnetar.records.entry import decode_entry
from magnetar.topics.topic import Topic

PER_PAGE = 50
MOST_PER_PAGE = 500
MOST_OF_DOWNLOAD = 10_000
MOST_PARTITIONS = 32
"""That are shown together; of a topic with more, a page shows one."""
_READ_BYTES, _SEARCH_BYTES = 16 << 20, 64 << 20
_MOST_S = 2.0
_MOST_HEADERS = 100
_FORMATS = ("", "text", "hex")
_PLACES = re.compile(r"\d{1,6}-\d{1,19}(\.\d{1,6}-\d{1,19}){0,99}")


class AskedRecords(NamedTuple):
    """The query of a page of records."""

    topic: Topic
    partitions: Sequence[int]
    newer: bool
    """From the oldest to the newest, or the other way round."""
    limit: int
    sought: SoughtRecords
    at: Mapping[int, int]
    """Where each partition goes on."""
    time_ms: int | None
    wanted: str
    """How bytes are to be shown: text, hex, or empty for what they are."""


async def facts(ask: AdminRequest) -> Facts | Response:
    """Return some records.

    Query: ``topic``; ``partition``; ``offset`` or ``time`` (ms, or ISO 8601 in UTC) to begin at, the oldest first;
    ``key``, ``text``, ``pattern``, ``header``, ``path`` and ``until`` to search; ``limit``; ``as`` text or hex;
    ``at`` and ``order`` of links that go on; ``download`` jsonl, csv or parquet.
    """
    topic = topic_of(ask, Right.consume)
    download = ask.query.get("download", "")
    if download and download not in FORMATS:
        raise RestError(400, f"download must be one of {', '.join(FORMATS)}")
    schemas = await schemas_of(ask, topic)
    asked = asked_of(ask, topic, MOST_OF_DOWNLOAD if download else MOST_PER_PAGE, schemas)
    is_search = not asked.sought.is_anything
    effort = Effort(_SEARCH_BYTES if is_search or download else _READ_BYTES, _MOST_S)
    if not download:
        async with readings_of(ask):
            return await _page(ask, asked, schemas, effort)
    end = downloads_of(ask).begin()
    try:
        seen = await _read(ask, asked, effort)
    except BaseException:
        end()
        raise
    answer = await exported(download, topic.kafka_name, seen.rows, schemas, end)
    if not seen.is_end:
        query = urlencode({**ask.query, "at": seen.goes_on, "order": seen.order})
        answer.headers["Link"] = f'</console/records?{query}>; rel="next"'
    return answer


class _Seen(NamedTuple):
    """The outcome of one reading of all partitions."""

    rows: Sequence[FoundRecord]
    elsewhere: Mapping[int, int | None]
    order: str
    is_end: bool
    goes_on: str


async def _read(ask: AdminRequest, asked: AskedRecords, effort: Effort) -> _Seen:
    topic = asked.topic
    elsewhere: dict[int, int | None] = {}
    found: dict[int, reading.RecordsRead] = {}
    first: dict[int, int] = {}
    for index in asked.partitions:
        try:
            opened = await ask.services.broker.logs.open_logs.open(topic, index)
        except NotOwned as error:
            if len(asked.partitions) == 1:
                raise
            elsewhere[index] = None if error.owner is None else error.owner.node_id
            continue
        first[index] = await _start(asked, index, opened.log)
        read = reading.newer if asked.newer else reading.older
        found[index] = await read(opened.log, index, first[index], asked.limit, asked.sought, effort)
    merged = sorted(
        chain.from_iterable(each.records for each in found.values()),
        key=lambda row: (row.timestamp, row.partition, row.offset),
        reverse=not asked.newer,
    )[: asked.limit]
    at = {index: _goes_on(asked, index, first[index], found[index], merged) for index in found}
    ends = [_is_end(asked, ask, index, place) for index, place in at.items()]
    order = "newer" if asked.newer else "older"
    goes_on = ".".join(f"{index}-{place}" for index, place in at.items())
    return _Seen(merged, elsewhere, order, all(ends), goes_on)


async def _page(ask: AdminRequest, asked: AskedRecords, schemas: WrittenSchemas, effort: Effort) -> Facts:
    seen = await _read(ask, asked, effort)
    topic = asked.topic
    return {
        "topic": topic.kafka_name,
        "full": str(topic.name),
        "tenant": topic.name.tenant,
        "namespace": topic.name.namespace,
        "local": topic.name.local,
        "partitions": topic.partitions,
        "shown_partitions": list(asked.partitions),
        "elsewhere": seen.elsewhere,
        "order": seen.order,
        "records": await shown_rows(seen.rows, schemas, asked.wanted, MOST_LETTERS),
        "search": not asked.sought.is_anything,
        "read_bytes": effort.read_bytes,
        "read_records": effort.records,
        "is_spent": effort.is_spent,
        "is_end": seen.is_end,
        "goes_on": seen.goes_on,
    }


def asked_of(ask: AdminRequest, topic: Topic, most: int, schemas: WrittenSchemas) -> AskedRecords:
    """Return what a query asks for, at most ``most`` records; raise ``RestError`` (400)."""
    given = ask.query.get("partition", "")
    partitions: Sequence[int] = range(topic.partitions)
    if given:
        partitions = [whole(ask, "partition", 0, 0, topic.partitions - 1)]
    elif topic.partitions > MOST_PARTITIONS:
        partitions = [0]
    at: dict[int, int] = {}
    if text := ask.query.get("at", ""):
        at = places_of(text)
    elif ask.query.get("offset", ""):
        offset = whole(ask, "offset", 0, 0, (1 << 63) - 1)
        at = dict.fromkeys(partitions, offset)
    time_ms = _time(ask, "time")
    begins = bool(ask.query.get("offset") or time_ms is not None)
    order = ask.query.get("order") or ("newer" if begins else "older")
    if order not in ("newer", "older"):
        raise RestError(400, "order must be newer or older")
    sought = sought_of(ask.query, _time(ask, "until") or 0, schemas.decode, only_json=schemas.only_json)
    limit = whole(ask, "limit", PER_PAGE, 1, most)
    wanted = ask.query.get("as", "")
    wanted = wanted if wanted in _FORMATS else ""
    return AskedRecords(topic, partitions, order == "newer", limit, sought, at, time_ms, wanted)


def places_of(text: str) -> dict[int, int]:
    """Return the offset of each partition that a place says; raise ``RestError`` (400)."""
    if not _PLACES.fullmatch(text):
        raise RestError(400, "at must be PARTITION-OFFSET, several with dots between them")
    return {int(index): int(offset) for index, offset in (each.split("-") for each in text.split("."))}


def _time(ask: AdminRequest, name: str) -> int | None:
    """Return a time of the query in ms; raise ``RestError`` (400)."""
    text = ask.query.get(name, "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) < 17:
        return int(text)
    try:
        found = datetime.fromisoformat(text)
        found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        return int(found.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise RestError(400, f"{name} must be in ms, or as 2026-11-30T12:00:00Z") from None


async def _start(asked: AskedRecords, index: int, log: Any) -> int:
    """Return the offset at which a partition's reading begins, going up, or before which it does, going down."""
    if index in asked.at:
        return asked.at[index]
    if asked.time_ms is not None:
        entry = await log.find_by_time(asked.time_ms)
        return int(log.high_watermark) if entry is None else decode_entry(entry.data).base_offset
    return int(log.log_start_offset if asked.newer else log.high_watermark)


def _goes_on(
    asked: AskedRecords, index: int, first: int, found: reading.RecordsRead, merged: Sequence[FoundRecord]
) -> int:
    """Return where a partition goes on behind what is shown of it; what was found and not shown comes again."""
    if not found.records:
        return found.at
    shown_rows = [row for row in merged if row.partition == index]
    if len(shown_rows) == len(found.records):
        return found.at
    if not shown_rows:
        return first
    last = shown_rows[-1].offset
    return last + 1 if asked.newer else last


def _is_end(asked: AskedRecords, ask: AdminRequest, index: int, place: int) -> bool:
    """Return True if no more records are known behind a place."""
    opened = ask.services.broker.logs.open_logs.get(asked.topic, index)
    if opened is None:
        return False
    return place >= opened.log.high_watermark if asked.newer else place <= opened.log.log_start_offset


async def shown_rows(
    rows: Sequence[FoundRecord], schemas: WrittenSchemas, wanted: str, most: int
) -> list[dict[str, Any]]:
    """Return records as pages show them, with ``most`` letters of each part."""
    return await asyncio.to_thread(lambda: [_row(row, schemas, wanted, most) for row in rows])


def _row(
    row: FoundRecord,
    schemas: WrittenSchemas,
    wanted: str,
    most: int,
) -> dict[str, Any]:
    written = schemas.registered if row.state not in ("marker", "unreadable") else {}
    of_topic = schemas.of_version(row.schema)
    key = shown(row.key, written, of_topic, part="key", wanted=wanted, most=most)
    value = shown(row.value, written, of_topic, wanted=wanted, most=most)
    return {
        "partition": row.partition,
        "offset": row.offset,
        "timestamp": row.timestamp,
        "key": key._asdict(),
        "value": value._asdict(),
        "headers": [
            {"key": each.key, "value": _header(each.value, most)._asdict()}
            for each in row.headers[:_MOST_HEADERS]
        ],
        "header_count": len(row.headers),
        "ledger": row.ledger,
        "entry": row.entry,
        "format": row.format,
        "codec": row.codec,
        "state": row.state,
        "problem": row.problem,
    }


def _header(value: bytes | None, most: int) -> ShownBytes:
    return shown(value, {}, most=min(most, MOST_LETTERS))


def commands(ask: AdminRequest, told: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    topic, partition = told["topic"], ask.query.get("partition", "")
    where = ["-p", partition] if partition.isdigit() else []
    offset = ask.query.get("offset", "")
    begins = ["-o", offset] if offset.isdigit() and where else ["-o", "beginning"]
    said = ["--partition", partition, "--offset", offset or "earliest"] if where else ["--from-beginning"]
    return [
        magnetar("consume", topic, *where, *begins, "-e"),
        kafka_tool(ask, "kafka-console-consumer", "--topic", topic, *said),
        pulsar_admin(ask, "topics", "examine-messages", told["full"], "-i", "latest", "-m", "1"),
    ]


async def record_facts(ask: AdminRequest) -> Facts:
    """Return one record with all that is known of it: as ``magnetar explain`` does. Query: ``topic``, ``partition``,
    ``offset``, ``as``.
    """
    topic = topic_of(ask, Right.consume)
    index = whole(ask, "partition", 0, 0, topic.partitions - 1)
    offset = whole(ask, "offset", 0, 0, (1 << 63) - 1)
    opened = await ask.services.broker.logs.open_logs.open(topic, index)
    explained = await LiveBroker(ask.services.broker).explain(topic.kafka_name, index, offset)
    effort = Effort(_READ_BYTES, _MOST_S)
    found = await reading.newer(opened.log, index, offset, 1, SoughtRecords(), effort)
    wanted = ask.query.get("as", "")
    schemas = await schemas_of(ask, topic)
    rows = await shown_rows(found.records, schemas, wanted if wanted in _FORMATS else "", MOST_LETTERS_ALONE)
    return {
        "topic": topic.kafka_name,
        "full": str(topic.name),
        "tenant": topic.name.tenant,
        "namespace": topic.name.namespace,
        "local": topic.name.local,
        "partitions": topic.partitions,
        "partition": index,
        "offset": offset,
        "first": opened.log.log_start_offset,
        "next": opened.log.high_watermark,
        "record": rows[0] if rows and rows[0]["offset"] == offset else None,
        "explained": plain(explained),
        "subscriptions": await subscriptions_at(
            ask, topic, index, Position(explained.ledger, explained.entry)
        ),
    }


def record_commands(ask: AdminRequest, told: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    place = f"{told['topic']}-{told['partition']}@{told['offset']}"
    explained = told["explained"]
    full = told["full"] if told["partitions"] == 1 else f"{told['full']}-partition-{told['partition']}"
    return [
        magnetar("explain", place),
        kafka_tool(
            ask,
            "kafka-console-consumer",
            *("--topic", told["topic"], "--partition", str(told["partition"])),
            *("--offset", str(told["offset"]), "--max-messages", "1"),
        ),
        pulsar_admin(
            ask,
            *(
                "topics",
                "get-message-by-id",
                full,
                "-l",
                str(explained["ledger"]),
                "-e",
                str(explained["entry"]),
            ),
        ),
    ]


RECORDS = ConsolePage("records", "Records", facts, commands, in_menu=False, of_topic=True)
RECORD = ConsolePage("record", "Record", record_facts, record_commands, in_menu=False, of_topic=True)
