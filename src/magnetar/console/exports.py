"""Records as files: JSON Lines that ``magnetar produce`` takes, CSV, and Parquet where pyarrow is installed.

A download is made whole, of at most as many records and bytes as a search may read, and sent in pieces. Few are under
way at a time: what one takes is freed when it was sent, or broken off.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from magnetar.admin.lines import Seen, to_json
from magnetar.console.reading import FoundRecord
from magnetar.console.rendering import as_time
from magnetar.console.written import WrittenSchemas
from magnetar.pulsar.rest.request import AdminRequest, RestError

MOST_AT_A_TIME = 4
_PIECE_BYTES = 256 << 10
_COLUMNS = ("partition", "offset", "timestamp", "time", "key", "value", "headers")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Downloads:
    """Those of a broker that are under way."""

    def __init__(self) -> None:
        self.under_way = 0

    def begin(self) -> Callable[[], None]:
        """Count one more; return what ends it, once. Raises ``RestError`` (503)."""
        if self.under_way >= MOST_AT_A_TIME:
            raise RestError(503, f"{MOST_AT_A_TIME} downloads are under way: try again in a moment")
        self.under_way += 1
        ended = False

        def end() -> None:
            nonlocal ended
            self.under_way -= not ended
            ended = True

        return end


def downloads_of(ask: AdminRequest) -> Downloads:
    """Return those of a broker."""
    offers = ask.services.broker.offers
    found = offers.find(Downloads)
    if found is None:
        found = Downloads()
        offers.add(found)
    return found


class Download(StreamingResponse):
    """A file that is sent in pieces, and frees what it took however that ends."""

    def __init__(self, content: memoryview, media_type: str, name: str, end: Callable[[], None]) -> None:
        headers = {
            "Content-Disposition": f'attachment; filename="{name}"',
            "Content-Length": str(len(content)),
        }
        super().__init__(_pieces(content), media_type=media_type, headers=headers)
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


async def _pieces(content: memoryview) -> AsyncIterator[bytes]:
    for at in range(0, len(content), _PIECE_BYTES):
        yield bytes(content[at : at + _PIECE_BYTES])


async def exported(
    kind: str,
    topic: str,
    rows: Sequence[FoundRecord],
    schemas: WrittenSchemas,
    end: Callable[[], None],
) -> Response:
    """Return records as a file. What is no record of a client's (markers, what cannot be read) is left out."""
    make, media_type = FORMATS[kind]
    try:
        told = [row for row in rows if row.state not in ("marker", "unreadable")]
        content = await asyncio.to_thread(make, topic, told, schemas)
    except BaseException:
        end()
        raise
    return Download(memoryview(content), media_type, f"records.{kind}", end)


def _lines(topic: str, rows: Iterable[FoundRecord], schemas: WrittenSchemas) -> bytes:
    """Return records as ``magnetar consume --json`` writes them."""
    made = io.BytesIO()
    for row in rows:
        headers = tuple((each.key, each.value) for each in row.headers)
        seen = Seen(
            topic, row.partition, row.offset, row.timestamp, "CreateTime", row.key, row.value, headers
        )
        made.write(json.dumps(to_json(seen)).encode() + b"\n")
    return made.getvalue()


def _csv(topic: str, rows: Iterable[FoundRecord], schemas: WrittenSchemas) -> bytes:
    """Return records as CSV, values by their schemas. A text that a spreadsheet would run gets a quote before it."""
    made = io.StringIO()
    writer = csv.writer(made)
    writer.writerow(_COLUMNS)
    for row in rows:
        headers = json.dumps({each.key: _text(each.value) for each in row.headers}) if row.headers else ""
        texts = (_text(row.key), _value(row, schemas), headers)
        place = (row.partition, row.offset, row.timestamp, as_time(row.timestamp))
        writer.writerow((*place, *map(_cell, texts)))
    return made.getvalue().encode("utf-8", "backslashreplace")


def _value(row: FoundRecord, schemas: WrittenSchemas) -> str | None:
    found = schemas.decode(row.value, row.schema)
    return _text(row.value) if found is None else json.dumps(found, ensure_ascii=False, default=str)


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()


def _cell(text: str | None) -> str | None:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text and text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parquet(topic: str, rows: Sequence[FoundRecord], schemas: WrittenSchemas) -> Any:
    """Return records as Parquet. What it takes is loaded by the first download of this kind."""
    try:
        parquet = import_module("magnetar.console.parquet")
    except ImportError:
        raise RestError(501, "Parquet needs pyarrow in the broker: pip install pyarrow") from None
    return parquet.table_of(rows, schemas)


FORMATS: dict[str, tuple[Callable[..., Any], str]] = {
    "jsonl": (_lines, "application/x-ndjson"),
    "csv": (_csv, "text/csv; charset=utf-8"),
    "parquet": (_parquet, "application/vnd.apache.parquet"),
}
