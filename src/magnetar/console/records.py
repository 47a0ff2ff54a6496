"""Records of a topic: the newest first, from an offset or a time on, or those that have a key or a text; and one alone.

Where a page ends, or its search was ended by a bound, it says so, and links to where it goes on. That place is an
offset of each partition, in the link: nothing is stored of a reader between two pages.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple

from starlette.responses import Response

from magnetar.admin.lines import Seen, to_json
from magnetar.admin.live import LiveBroker
from magnetar.admin.plain import plain
from magnetar.auth import Right
from magnetar.cluster.ownership import NotOwned
from magnetar.console import reading
from magnetar.console.decoding import (
    MOST_LETTERS,
    MOST_LETTERS_ALONE,
    RegistrySchema,
    ShownBytes,
    schema_id,
    shown,
)
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
from magnetar.console.reading import Effort, FoundRecord, SoughtRecords
from magnetar.pulsar.rest.request import AdminRequest, RestError
from magnetar.records.entry import decode_entry
from magnetar.schema_registry.errors import RegistryError
from magnetar.schema_registry.registries import Registries
from magnetar.schema_registry.topic_schemas import TopicSchema, read_schema
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


class _Asked(NamedTuple):
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


async def facts(ask: AdminRequest) -> Facts | Response:
    """Return some records.

    Query: ``topic``; ``partition``; ``offset`` or ``time`` (ms, or ISO 8601 in UTC) to begin at, the oldest first;
    ``key``, ``text`` and ``until`` to search; ``limit``; ``as`` text or hex; ``at`` and ``order`` of links that go on;
    ``download=jsonl`` for JSON Lines that ``magnetar produce`` takes.
    """
    topic = topic_of(ask, Right.consume)
    download = ask.query.get("download") == "jsonl"
    asked = _asked(ask, topic, MOST_OF_DOWNLOAD if download else MOST_PER_PAGE)
    is_search = not asked.sought.is_anything
    effort = Effort(_SEARCH_BYTES if is_search or download else _READ_BYTES, _MOST_S)
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
    if download:
        return await asyncio.to_thread(_lines, asked, merged)
    wanted = ask.query.get("as", "")
    return {
        "topic": topic.kafka_name,
        "full": str(topic.name),
        "tenant": topic.name.tenant,
        "namespace": topic.name.namespace,
        "local": topic.name.local,
        "partitions": topic.partitions,
        "shown_partitions": list(asked.partitions),
        "elsewhere": elsewhere,
        "order": "newer" if asked.newer else "older",
        "records": await _shown(ask, topic, merged, wanted if wanted in _FORMATS else "", MOST_LETTERS),
        "search": is_search,
        "read_bytes": effort.read_bytes,
        "read_records": effort.records,
        "is_spent": effort.is_spent,
        "is_end": all(ends),
        "goes_on": ".".join(f"{index}-{place}" for index, place in at.items()),
    }


def _asked(ask: AdminRequest, topic: Topic, most: int) -> _Asked:
    given = ask.query.get("partition", "")
    partitions: Sequence[int] = range(topic.partitions)
    if given:
        partitions = [whole(ask, "partition", 0, 0, topic.partitions - 1)]
    elif topic.partitions > MOST_PARTITIONS:
        partitions = [0]
    at: dict[int, int] = {}
    if text := ask.query.get("at", ""):
        if not _PLACES.fullmatch(text):
            raise RestError(400, "at must be PARTITION-OFFSET, several with dots between them")
        at = {int(index): int(offset) for index, offset in (each.split("-") for each in text.split("."))}
    elif ask.query.get("offset", ""):
        offset = whole(ask, "offset", 0, 0, (1 << 63) - 1)
        at = dict.fromkeys(partitions, offset)
    time_ms = _time(ask, "time")
    begins = bool(ask.query.get("offset") or time_ms is not None)
    order = ask.query.get("order") or ("newer" if begins else "older")
    if order not in ("newer", "older"):
        raise RestError(400, "order must be newer or older")
    key, part = ask.query.get("key", ""), ask.query.get("text", "")
    sought = SoughtRecords(
        key.encode("utf-8", "surrogatepass") if key else None,
        part.encode("utf-8", "surrogatepass"),
        _time(ask, "until") or 0,
    )
    limit = whole(ask, "limit", PER_PAGE, 1, most)
    return _Asked(topic, partitions, order == "newer", limit, sought, at, time_ms)


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


async def _start(asked: _Asked, index: int, log: Any) -> int:
    """Return the offset at which a partition's reading begins, going up, or before which it does, going down."""
    if index in asked.at:
        return asked.at[index]
    if asked.time_ms is not None:
        entry = await log.find_by_time(asked.time_ms)
        return int(log.high_watermark) if entry is None else decode_entry(entry.data).base_offset
    return int(log.log_start_offset if asked.newer else log.high_watermark)


def _goes_on(
    asked: _Asked, index: int, first: int, found: reading.RecordsRead, merged: Sequence[FoundRecord]
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


def _is_end(asked: _Asked, ask: AdminRequest, index: int, place: int) -> bool:
    """Return True if no more records are known behind a place."""
    opened = ask.services.broker.logs.open_logs.get(asked.topic, index)
    if opened is None:
        return False
    return place >= opened.log.high_watermark if asked.newer else place <= opened.log.log_start_offset


async def _shown(
    ask: AdminRequest, topic: Topic, rows: Sequence[FoundRecord], wanted: str, most: int
) -> list[dict[str, Any]]:
    written = await _registered(ask, topic, rows)
    versions = {row.schema for row in rows if row.schema}
    of_topic: dict[bytes, TopicSchema | None] = {
        each: await read_schema(ask.services.broker.store, topic, int.from_bytes(each, "big", signed=True))
        for each in versions
    }
    return await asyncio.to_thread(
        lambda: [_row(row, written, of_topic.get(row.schema), wanted, most) for row in rows]
    )


async def _registered(
    ask: AdminRequest, topic: Topic, rows: Sequence[FoundRecord]
) -> dict[int, RegistrySchema]:
    """Return the schemas of the registry that keys and values may name."""
    registries = ask.services.broker.offers.find(Registries)
    if registries is None:
        return {}
    registry = await registries.of(topic.name.tenant)
    found: dict[int, RegistrySchema] = {}
    numbers = {schema_id(data) for row in rows for data in (row.key, row.value)}
    for number in numbers - {None}:
        assert number is not None
        try:
            schema = registry.schema(number)
            references = tuple(registry.texts(schema).items())
        except (RegistryError, ValueError):
            continue
        found[number] = RegistrySchema(f"id {number}", schema.kind, schema.text, references)
    return found


def _row(
    row: FoundRecord,
    written: Mapping[int, RegistrySchema],
    of_topic: TopicSchema | None,
    wanted: str,
    most: int,
) -> dict[str, Any]:
    is_whole = row.state not in ("marker", "unreadable")
    key = shown(row.key, written if is_whole else {}, of_topic, part="key", wanted=wanted, most=most)
    value = shown(row.value, written if is_whole else {}, of_topic, wanted=wanted, most=most)
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


def _lines(asked: _Asked, rows: Sequence[FoundRecord]) -> Response:
    """Return records as ``magnetar consume --json`` writes them; what is no record of a client's is left out."""
    lines = []
    for row in rows:
        if row.state in ("marker", "unreadable"):
            continue
        headers = tuple((each.key, each.value) for each in row.headers)
        seen = Seen(
            asked.topic.kafka_name,
            row.partition,
            row.offset,
            row.timestamp,
            "CreateTime",
            row.key,
            row.value,
            headers,
        )
        lines.append(json.dumps(to_json(seen)))
    content = "".join(f"{each}\n" for each in lines).encode()
    named = {"Content-Disposition": 'attachment; filename="records.jsonl"'}
    return Response(content, media_type="application/x-ndjson", headers=named)


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
    rows = await _shown(ask, topic, found.records, wanted if wanted in _FORMATS else "", MOST_LETTERS_ALONE)
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
