"""Records as a Parquet file. Loaded by the first download of one, for pyarrow is large, and may not be installed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.console.reading import FoundRecord
from magnetar.console.written import WrittenSchemas


def table_of(rows: Sequence[FoundRecord], schemas: WrittenSchemas) -> Any:
    """Return the file: bytes as they are, and ``decoded`` as JSON where a schema reads the value."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns: dict[str, tuple[Any, Iterator[Any]]] = {
        "partition": (pa.int32(), (row.partition for row in rows)),
        "offset": (pa.int64(), (row.offset for row in rows)),
        "timestamp": (pa.timestamp("ms", "UTC"), (row.timestamp for row in rows)),
        "key": (pa.binary(), (row.key for row in rows)),
        "value": (pa.binary(), (row.value for row in rows)),
        "decoded": (pa.string(), (_decoded(row, schemas) for row in rows)),
        "headers": (
            pa.list_(header),
            ([{"key": _safe(each.key), "value": each.value} for each in row.headers] for row in rows),
        ),
    }
    table = pa.table({name: pa.array(list(values), kind) for name, (kind, values) in columns.items()})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def _decoded(row: FoundRecord, schemas: WrittenSchemas) -> str | None:
    found = schemas.decode(row.value, row.schema)
    return None if found is None else _safe(json.dumps(found, ensure_ascii=False, default=str))


def _safe(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
