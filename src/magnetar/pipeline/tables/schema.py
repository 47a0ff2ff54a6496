"""The bronze schema: every record as it lies in the topic, and where. Here and nowhere else.

topic, partition, offset                 the record's place, by the names of Spark's Kafka source
timestamp, timestampType                 0 the producer's time, 1 the broker's
key, value, headers                      raw bytes; headers are a list of (key, value)
ledger_id, entry_id, batch_index         where it lies in storage
publish_time                             when the broker took it
"""

from __future__ import annotations

import pyarrow as pa

from magnetar.records.arrow_fields import FIELDS

_WANTED = (
    "topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers",
    "ledger_id", "entry_id", "batch_index", "publish_time",
)  # fmt: skip

BRONZE = tuple(name for name in _WANTED if name in FIELDS)

PLACE = ("topic", "partition", "offset")
"""The columns that tell rows apart."""

PRESENT = "_present"
"""The one field of records that have none: no file format has a record without fields. It is true."""


def bronze_schema() -> pa.Schema:
    """Return the Arrow schema of a bronze table."""
    return pa.schema([pa.field(name, FIELDS[name]) for name in BRONZE])


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema in the types that records come in: no views, no large types, no records without fields."""
    return pa.schema([pa.field(f.name, _plain_type(f.type), f.nullable) for f in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain_type(kind.value_type), kind.value_field.nullable))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_struct(kind):
        fields = [pa.field(f.name, _plain_type(f.type), f.nullable) for f in kind]
        return pa.struct(fields or [(PRESENT, pa.bool_())])
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def with_fields(kind: pa.DataType) -> pa.DataType:
    """Return a type whose records have a field, `PRESENT` where they had none, and that is otherwise the same."""
    if pa.types.is_struct(kind):
        fields = [each.with_type(with_fields(each.type)) for each in kind]
        return pa.struct(fields or [(PRESENT, pa.bool_())])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_fields(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(with_fields(kind.item_type)))
    return kind


def rows_with_fields(array: pa.Array) -> pa.Array:
    """Return an array of the type that `with_fields` makes of its own: records that are there say so."""
    kind = with_fields(array.type)
    if kind == array.type:
        return array
    nulls = array.is_null()
    if pa.types.is_struct(kind):
        columns = [rows_with_fields(each) for each in array.flatten()] or [
            pa.array([True] * len(array), pa.bool_())
        ]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=nulls)
    if pa.types.is_map(kind):
        items = rows_with_fields(array.items)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=nulls)
    return pa.ListArray.from_arrays(array.offsets, rows_with_fields(array.values), type=kind, mask=nulls)
