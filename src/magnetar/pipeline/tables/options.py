"""The options of ``format("magnetar_table")``, checked. `magnetar.pipeline.table_source` says what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from magnetar.pipeline.tables.table import Table

PLACE = ("topic", "partition", "offset")
FORMATS = ("parquet", "delta", "iceberg")
MODES = ("append", "upsert")

_OURS = ("table", "tableformat", "mode", "place", "bronze", "deadletters")
_MAX_OFFSETS = 5_000_000


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options, checked."""

    table: str
    format: str | None = None
    mode: str = "append"
    place: tuple[str, ...] = PLACE
    bronze: str | None = None
    dead_letters: str | None = None
    max_offsets: int = _MAX_OFFSETS
    topic: Mapping[str, str] | None = None
    """Those of the topic's own source, where files are to be written."""

    def open(self, schema: pa.Schema | None = None) -> Table:
        """Open the table, and make it if a schema is given."""
        from magnetar.pipeline import tables

        return tables.open(self.table, self.format, schema=schema, create=schema is not None)


def parse_table_options(given: Mapping[str, str]) -> TableOptions:
    """Check the options; raise ``ValueError`` naming the option and what it may be."""
    options = {name.lower(): value for name, value in given.items()}
    table = options.get("table") or (options.get("path", "") if "subscribe" not in options else "")
    if not table:
        raise ValueError("option table is missing: the table's directory or URL")
    return TableOptions(
        table=table,
        format=_one_of(options, "tableformat", "tableFormat", FORMATS),
        mode=_one_of(options, "mode", "mode", MODES) or "append",
        place=_place(options.get("place")),
        bronze=options.get("bronze"),
        dead_letters=options.get("deadletters"),
        max_offsets=_positive(options, "maxOffsetsPerTrigger", _MAX_OFFSETS),
        topic={n: v for n, v in given.items() if n.lower() not in _OURS} if "subscribe" in options else None,
    )


def _one_of(options: Mapping[str, str], key: str, name: str, words: tuple[str, ...]) -> str | None:
    found = options.get(key)
    if found is not None and found not in words:
        raise ValueError(f"option {name} must be one of {', '.join(words)}, not {found!r}")
    return found


def _place(text: str | None) -> tuple[str, ...]:
    names = PLACE if text is None else tuple(each.strip() for each in text.split(","))
    if len(names) != len(PLACE):
        raise ValueError(
            f"option place must name three columns, of topic, partition and offset, not {text!r}"
        )
    return names


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name.lower(), str(default))
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"option {name} must be a number above 0, not {text!r}")
    return int(text)
