"""JSON by from_json: the JVM parses, no Python is involved."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from magnetar.pipeline.jobs.far_times import has_far_time

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from magnetar.pipeline.jobs.decode.json import JsonPlan, JsonWay

_CORRUPT = "_corrupt_record"
_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
_STRINGS = r'(?s)"(?:[^"\\]|\\.)*+"'
"""The strings of a JSON text. The loop is possessive, as Java's other loops over alternatives recurse per character."""
_LONG_EXPONENT = r"[0-9][eE][+-]?[0-9]{4,}"
"""No DECIMAL of Spark's has more than 38 digits; its parser writes 1e999999999 out before it notices, for minutes."""

_FAR = (
    "it has a time beyond the year 9999: numbers of JSON are seconds since 1970 in a TIMESTAMP column; "
    "declare a field with milliseconds as BIGINT"
)


class JsonValues:
    """Adds ``_d_row``, ``_d_schema_id``, ``_d_error`` and ``_d_op`` to bronze."""

    def __init__(self, plan: JsonPlan, *, framed: bool, debezium: bool) -> None:
        self._plan = plan
        self._framed = framed
        self._debezium = debezium

    def __call__(self, bronze: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        value = f.col("value")
        unframed = (
            (f.length(value) < 5) | (f.substring(value, 1, 1) != f.lit(b"\0"))
            if self._framed
            else f.lit(False)
        )
        # By no cast that fails: garbage may begin with byte 0 and an id that no int holds.
        number = f.conv(f.hex(f.substring(value, 2, 4)), 16, 10).try_cast("long")
        schema_id = number.try_cast("int") if self._framed else f.lit(None)
        no_id = schema_id.isNull() if self._framed else f.lit(False)
        data = f.substring(value, 6, 1 << 30) if self._framed else value
        frame = bronze.withColumn("_d_text", f.try_validate_utf8(data.cast("string")))
        text = f.col("_d_text")
        frame = frame.withColumn("_d_schema_id", f.when(~unframed, schema_id).cast("int"))
        frame = frame.withColumn("_d_endless", self._is_endless(text))
        endless = f.col("_d_endless")
        for at, way in enumerate(self._plan.ways):
            # A column of its own, since what is made of it names it once for each field: Spark would parse as often.
            mine = f.when(self._is_of(at) & ~endless, text)
            frame = frame.withColumn(f"_d_way{at}", f.from_json(mine, self._ddl(way), _OPTIONS))
        frame = frame.withColumn("_d_json", self._by_schema())
        # from_json and get_json_object are content with what stands before the first value's end; this is not.
        alone = f.json_array_length(f.concat(f.lit("["), text, f.lit(",0]")))
        error = (
            f.when(value.isNull(), None)
            .when(unframed, "it does not begin with magic 0 and a schema id")
            .when(no_id, f.concat(f.lit("its schema id would be "), number.cast("string")))
            .when(text.isNull(), "it is not UTF-8")
            .when(alone.isNull() | (alone != 2), "it is not JSON")
            .when(~text.rlike(r"^\s*\{"), "it is JSON, but not an object")
            .when(endless, "it has a number whose exponent has more than three digits")
        )
        for dead, reason in (self._plan.dead or {}).items():
            mine = f.col("_d_schema_id") == dead if self._framed else f.lit(True)
            error = error.when(mine, reason)
        error = error.when(
            f.col(f"_d_json.{_CORRUPT}").isNotNull(),
            f"it is JSON that does not fit the columns {self._plan.ddl}",
        )
        far = self._has_far_time(f)
        if far is not None:
            error = error.when(far, _FAR)
        frame = frame.withColumn("_d_error", error.cast("string"))
        if self._debezium:
            frame = _opened(frame)
        else:
            frame = frame.withColumn("_d_row", f.col("_d_json.after"))
            frame = frame.withColumn("_d_op", f.lit(None).cast("string"))
        return frame if far is None else frame.withColumn("_d_row", f.when(~far, f.col("_d_row")))

    def _is_endless(self, text: Column) -> Column:
        """Return whether a DECIMAL column might be given a number that Spark takes minutes to read."""
        from pyspark.sql import functions as f

        if not any("DECIMAL" in way.parsed.upper() for way in self._plan.ways):
            return f.lit(False)
        # The first look is cheap, and most texts end there; strings, where such letters mean nothing, come out then.
        outside = f.regexp_replace(text, _STRINGS, '""')
        return f.coalesce(text.rlike(_LONG_EXPONENT) & outside.rlike(_LONG_EXPONENT), f.lit(False))

    def _is_of(self, number: int) -> Column:
        """Return whether a record's schema is one of a way, whose last one is for all other schemas."""
        from pyspark.sql import functions as f

        *others, _ = self._plan.ways
        ids = [each for way in others for each in way.ids]
        if number == len(others):
            return ~f.coalesce(f.col("_d_schema_id").isin(ids), f.lit(False)) if ids else f.lit(True)
        return f.coalesce(f.col("_d_schema_id").isin(list(others[number].ids)), f.lit(False))

    def _has_far_time(self, f: Any) -> Column | None:
        """Return whether a record has a time beyond the year 9999; None if the columns hold no times."""
        rows = [f.col(f"_d_json.{name}") for name in (("before", "after") if self._debezium else ("after",))]
        looks = [has_far_time(f, row, self._plan.ddl) for row in rows]
        there = [each for each in looks if each is not None]
        return reduce(lambda one, other: one | other, there) if there else None

    def _by_schema(self) -> Column:
        """Return what the way of a record's schema makes of it."""
        from pyspark.sql import functions as f

        *others, rest = self._plan.ways
        found = self._parsed(f.col(f"_d_way{len(others)}"), rest)
        for number, way in enumerate(others):
            found = f.when(self._is_of(number), self._parsed(f.col(f"_d_way{number}"), way)).otherwise(found)
        return found

    def _ddl(self, way: JsonWay) -> str:
        """Return what a way's text is parsed as."""
        if not self._debezium:
            return f"{way.parsed}, {_CORRUPT} STRING"
        envelope = f"before STRUCT<{way.parsed}>, after STRUCT<{way.parsed}>, op STRING"
        return f"{envelope}, payload STRUCT<{envelope}>, {_CORRUPT} STRING"

    def _parsed(self, found: Column, way: JsonWay) -> Column:
        """Return a struct of op, before, after (the row, where there is no envelope), and what could not be read."""
        from pyspark.sql import functions as f

        if self._debezium:
            payload = found.getField("payload")
            op, before, after = (
                f.coalesce(payload.getField(name), found.getField(name)) for name in ("op", "before", "after")
            )
            return f.struct(
                op.alias("op"),
                self._row(before, way).alias("before"),
                self._row(after, way).alias("after"),
                found.getField(_CORRUPT).alias(_CORRUPT),
            )
        corrupt = found.getField(_CORRUPT)
        row = self._row(found, way, _CORRUPT) if way.columns else found.dropFields(_CORRUPT)
        return f.struct(row.alias("after"), corrupt.alias(_CORRUPT))

    def _row(self, found: Column, way: JsonWay, *more: str) -> Column:
        """Return a row as the table's columns: by their names, and null where the way has none."""
        from pyspark.sql import functions as f

        if not way.columns:
            return found
        inside = ", ".join(
            f"{_quoted(name)}: {kind}" for name, kind in (*way.columns, *((n, "STRING") for n in more))
        )
        named = found.cast(f"STRUCT<{inside}>")  # by position, so that names of JSON matter no more
        here = {name for name, _ in way.columns}
        fields = [
            (named.getField(name) if name in here else f.lit(None).cast(kind)).alias(name)
            for name, kind in self._plan.columns
        ]
        return f.when(found.isNotNull(), f.struct(*fields))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _opened(frame: DataFrame) -> DataFrame:
    """Take Debezium's envelope off: the row is ``after``, or ``before`` of what was deleted."""
    from pyspark.sql import functions as f

    op, before, after = (f.col(f"_d_json.{name}") for name in ("op", "before", "after"))
    known = op.isin("c", "u", "r", "d")
    wrong = (
        f.when(f.col("value").isNull(), None)
        .when(op.isNull(), "it is no Debezium change: it has no op")
        .when(~known, f.concat(f.lit("Debezium's op '"), op, f.lit("' changes no row that has a key")))
        .when((op != "d") & after.isNull(), f.concat(f.lit("Debezium's op '"), op, f.lit("' lacks after")))
    )
    return (
        frame.withColumn("_d_error", f.coalesce(f.col("_d_error"), wrong.cast("string")))
        .withColumn("_d_op", f.when(op == "d", "delete").when(op.isNotNull(), "upsert"))
        .withColumn("_d_row", f.when(op == "d", before).otherwise(after))
    )
