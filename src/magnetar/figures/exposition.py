"""Figures as Prometheus reads them (text format 0.0.4), made in slices: a broker with many topics has many lines.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any

from magnetar.auth import Access
from magnetar.base.collector import uncollected
from magnetar.base.slices import SLICE_S, batched
from magnetar.figures.dialects import Dialects
from magnetar.figures.figures import Family, Figures, FigureTable, Source

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ROWS_AT_ONCE = 200
_CHUNK_BYTES = 64 << 10
_Column = tuple[Family, int, list[tuple[Any, ...]], Callable[[str], str] | None]
"""A figure, where in the rows its values stand, the rows, and how labels are written if not as they are."""
_log = logging.getLogger("magnetar.broker")


async def exposed(figures: Figures, access: Access | None, *more: Source) -> AsyncIterator[bytes]:
    """Yield the text in parts. Nothing is written before all figures are known, and others have their turn
    meanwhile.
    """
    with uncollected():  # rows are no garbage, and very many
        for prepare in figures.before:
            await _prepared(figures, prepare)
        columns = _by_family(await _tables(figures, access, more), figures.dialects)
    chunk: list[str] = []
    size = 0
    began = perf_counter()
    for those in columns.values():
        family = those[0][0]
        chunk.append(
            f"# HELP {family.name} {_in_one_line(family.text)}\n# TYPE {family.name} {family.kind}\n"
        )
        for each, at, rows, labelled in those:
            name = each.name + each.suffix
            for some in batched(rows, _ROWS_AT_ONCE):
                if labelled is None:
                    lines = [f"{name}{row[0]} {row[at]}\n" for row in some if row[at] is not None]
                else:
                    lines = [f"{name}{labelled(row[0])} {row[at]}\n" for row in some if row[at] is not None]
                text = "".join(lines)
                chunk.append(text)
                size += len(text)
                if size > _CHUNK_BYTES:
                    yield "".join(chunk).encode()
                    chunk, size = [], 0
                if perf_counter() - began > SLICE_S:
                    await asyncio.sleep(0)
                    began = perf_counter()
    yield "".join(chunk).encode()
    await _let_go([rows for those in columns.values() for _, _, rows, _ in those])


async def _prepared(figures: Figures, prepare: Callable[[], Awaitable[None]]) -> None:
    try:
        await prepare()
    except Exception:  # what else there is to tell is needed all the more
        figures.failures += 1
        _log.exception("what %s would find out is missing in what /metrics tells", prepare)


async def _let_go(tables: Sequence[list[tuple[Any, ...]]]) -> None:
    """Take rows apart in slices, too: tens of thousands that end at once hold everybody up for some milliseconds."""
    began = perf_counter()
    for rows in tables:
        while rows:
            del rows[-_ROWS_AT_ONCE:]
            if perf_counter() - began > SLICE_S:
                await asyncio.sleep(0)
                began = perf_counter()


async def _tables(figures: Figures, access: Access | None, more: Sequence[Source]) -> list[FigureTable]:
    found: list[FigureTable] = []
    began = perf_counter()
    for source in (*more, *figures.sources):
        try:
            for table in source(access):
                if table is not None:
                    found.append(table)
                if perf_counter() - began > SLICE_S:
                    await asyncio.sleep(0)
                    began = perf_counter()
        except Exception:  # what the others tell is needed all the more
            figures.failures += 1
            _log.exception("figures of %s are missing in what /metrics tells", source)
    return found


def _by_family(tables: Sequence[FigureTable], dialects: Dialects) -> dict[str, list[_Column]]:
    """Return by name what is told under it, by whatever sources: all lines of a name have to stand together."""
    columns: dict[str, list[_Column]] = {}
    for table in tables:
        for at, family in enumerate(table.families, 1):
            columns.setdefault(family.name, []).append((family, at, table.rows, None))
            for alias in dialects.of(family.name + family.suffix):
                other = Family(alias.name, alias.kind, family.text, alias.suffix)
                columns.setdefault(other.name, []).append((other, at, table.rows, alias.labelled))
    return columns


def _in_one_line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
