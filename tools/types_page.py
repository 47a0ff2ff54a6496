"""Write ``docs/types.md`` from ``docs/types.json``: what becomes of each type in each format, as readers find it.

Run it after ``python -m tests.pipeline.types.run --spark --write``, which writes and reads the tables;
``--check`` tells if the page is stale.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "types.json"
PAGE = ROOT / "docs" / "types.md"

HEAD = """\
# Types

*Made by `tools/types_page.py` from what `python -m tests.pipeline.types.run --spark --write` found.*

What becomes of every type that a schema can say, in the tables of [pipelines](pipeline.md): the column, and whether
each reader finds the values that were sent. For each type its extreme values were written as a producer writes them,
decoded as a pipeline decodes them, written in two commits into a table of each format, and read back;
`tests/pipeline/types/catalogue.py` has the values, and what a table must have of them.

The formats: *Parquet*, *Delta* and *Iceberg* as Magnetar writes them, *Parquet by Spark* as a pipeline's decoded table
in Parquet. The readers: DuckDB, Polars and Spark; PyArrow, delta-rs and PyIceberg, each for its format. Spark reads
Parquet here.

**yes**: all readers of the format find all values, in the column's type. Otherwise the cell says which reader finds
what. A record that cannot have a row is a dead letter with its reason: a decimal of more digits than its schema says,
a time beyond the day, a `Timestamp` after 9999, text that is no UTF-8.
"""

TAIL = """
## Notes on readers

- **Dates and timestamps out of the years 1 to 9999** are in the tables as they were sent, and every reader here counts
  them right; Python's own `date` and `datetime` cannot show them.
- **Parquet by Spark** has timestamps in microseconds. An older project has Spark's default, INT96, which PyArrow reads
  as the year 1816 where it says 9999, and Polars as 2262: add `spark.sql.parquet.outputTimestampType: TIMESTAMP_MICROS`
  to `configuration` in its `spark-pipeline.yaml`, and run it once with `--full-refresh`.

## Types that change

What a column does when a version of the schema has another type for its field. *Goes on*: the column takes both, by a
commit of metadata, and no file is rewritten. *New column*: the field goes to `v_2` from then on, or its records
become dead letters, as [`changed_types`](pipeline.md#decoded) says; the run's report tells. Nothing here ends a run.

| change | Iceberg | Parquet | Delta | Parquet or Delta by Spark |
|---|---|---|---|---|
| a field added, also in records, lists, maps | goes on | goes on | goes on | goes on |
| fields in another order; a field gone | goes on | goes on | goes on | goes on |
| a field renamed by an alias (Avro) | goes on in the column that is there | the same | the same | the same |
| a field made optional, or required | goes on | goes on | goes on | goes on |
| int to long, float to double, more digits of a decimal | goes on | goes on | new column | new column |
| a narrower type than the column's | goes on | goes on | goes on | goes on |
| enum symbols, string and enum, uuid | goes on | goes on | goes on | goes on |
| int or long to double, another scale, date to timestamp | new column | new column | new column | new column |
| anything to text, a record to something else | new column | new column | new column | new column |

This goes for Avro, Protobuf and JSON Schema, with and without Debezium's envelope. Columns of JSON that are given as
DDL (`schema`) keep the types that they are given.
"""


def cell(found: Mapping[str, str], kind: str) -> str:
    """Return what a format's readers say together."""
    told: dict[str, list[str]] = {}
    for reader, what in found.items():
        if reader.rpartition(", ")[0] == kind:
            told.setdefault(what, []).append(reader.rpartition(", ")[2])
    if not told:
        return "-"
    if list(told) == ["same"]:
        return "yes"
    return "; ".join(
        f"{', '.join(readers)}: {'yes' if what == 'same' else what}" for what, readers in told.items()
    ).replace("|", "\\|")


def rows(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tables of all languages."""
    language = ""
    kinds = ("parquet", "delta", "iceberg", "parquet by Spark")
    for key, found in results.items():
        of, _, name = key.partition(": ")
        if of != language:
            language = of
            yield f"\n## {of}\n\n| type | column | Parquet | Delta | Iceberg | Parquet by Spark |\n"
            yield "|---|---|---|---|---|---|\n"
        column = found["columns"].replace("|", "\\|")
        cells = " | ".join(cell(found["readers"], kind) for kind in kinds)
        yield f"| {name} | `{column}` | {cells} |\n"


def text(results: Mapping[str, Any]) -> str:
    """Return the page."""
    return HEAD + "".join(rows(results)) + TAIL


def main() -> int:
    """Write the page, or tell with ``--check`` whether it is stale."""
    new = text(json.loads(RESULTS.read_text()))
    if "--check" in sys.argv[1:]:
        return int(new != PAGE.read_text())
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
