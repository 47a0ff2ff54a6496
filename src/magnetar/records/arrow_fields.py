"""The Arrow types of records' columns, apart from the kernel that fills them, which takes a second to load."""

from __future__ import annotations

import pyarrow as pa

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
DAMAGE = pa.struct(
    [
        pa.field("reason", pa.string()),
        pa.field("last_offset", pa.int64()),
        pa.field("ledger_id", pa.int64()),
        pa.field("entry_id", pa.int64()),
        pa.field("position", pa.int64()),
    ]
)
FIELDS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER)),
    "ledger_id": pa.int64(),
    "entry_id": pa.int64(),
    "batch_index": pa.int32(),
    "publish_time": pa.timestamp("us", tz="UTC"),
    "damage": DAMAGE,
}
