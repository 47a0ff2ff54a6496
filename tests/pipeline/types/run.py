"""Writes each type of each schema language into each table format, and reads the tables by every reader there is.

    python -m tests.pipeline.types.run [--spark] [--write] [NAME ...]

``--write`` notes what was found in ``docs/types.json``, which ``tools/types_page.py`` makes a page of.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from magnetar.pipeline import tables
from magnetar.pipeline.jobs.decode.decoder import plan
from magnetar.pipeline.jobs.project import create
from magnetar.pipeline.jobs.spec import SPARK_SPEC_FILE, ProjectSpec, TopicSpec
from tests.pipeline.types.catalogue import CASES, DEAD, Case
from tests.pipeline.types.readers import READERS, columns_text, found_by, is_there

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "types.json"
SAME = "same"
_ENDINGS = {"Avro": ".avsc", "Protobuf": ".proto", "JSON Schema": ".json"}
_FORMATS = {"Avro": "avro", "Protobuf": "protobuf", "JSON Schema": "json"}


def key_of(case: Case) -> str:
    """Return the name of a case in the results."""
    return f"{case.language}: {case.name}"


def decoded(case: Case, directory: Path, spark: Any = None) -> tuple[pa.Table, list[str | None]]:
    """Return the records of a case as a pipeline's *decoded* has them, and the reasons of dead letters."""
    values = pa.array(case.values, pa.binary())
    if case.language not in _ENDINGS:
        return pa.table({"v": values}), [None] * len(values)
    file = directory / f"schema{_ENDINGS[case.language]}"
    file.write_text(case.schema)
    topic = TopicSpec("t", format=_FORMATS[case.language], schema_file=file)
    project = ProjectSpec(directory, None, {"t": topic})
    if case.language == "JSON Schema":
        return _of_spark(topic, project, values, spark)
    by = plan(topic, project)
    found = by.decode(values)
    columns = dict(zip(by.fields.names, found.field("row").flatten(), strict=True))
    return pa.table(columns), found.field("error").to_pylist()


def _of_spark(topic: TopicSpec, project: ProjectSpec, values: pa.Array, spark: Any) -> Any:
    from pyspark.sql import functions as f

    from magnetar.pipeline.jobs.topic import _values

    frame = spark.createDataFrame(pa.table({"number": list(range(len(values))), "value": values})).coalesce(1)
    found = _values(project, topic)(frame).select("number", "_d_row.*", f.col("_d_error")).toArrow()
    found = found.sort_by("number").drop_columns("number")
    return found.drop_columns("_d_error"), found["_d_error"].to_pylist()


def written(rows: pa.Table, kind: str, place: Path, spark: Any = None) -> None:
    """Write rows into a new table, in two commits of all rows, so that a second writer meets the first one's."""
    for number in range(2):
        ids = pa.array(range(number * len(rows), (number + 1) * len(rows)), pa.int64())
        more = rows.add_column(0, "id", ids)
        if kind == "parquet by Spark":
            spark.createDataFrame(more).coalesce(1).write.mode("append").parquet(str(place))
            continue
        table = tables.open(place, kind, schema=tables.schema_of(more))
        with table.writing():
            tables.append(table, more, [tables.OffsetRange("t", 0, number, number + 1)], {"t": "id"})


def verdict(case: Case, columns: str, rows: list[dict[str, Any]]) -> str:
    """Return what is to be said of a reader's rows: `SAME`, or what is different."""
    wanted = case.expected * 2
    if rows != wanted:
        at = next((n for n, (a, b) in enumerate(zip(rows, wanted, strict=False)) if a != b), len(wanted))
        found = rows[at] if at < len(rows) else "no row"
        return f"not {_short(wanted[at] if at < len(wanted) else 'no row')} but {_short(found)}"
    return SAME if columns == case.columns else f"same values, as {columns}"


def _short(value: Any) -> str:
    if isinstance(value, dict) and list(value) == ["v"]:
        value = value["v"]
    return json.dumps(value, ensure_ascii=False)[:120]


def results(case: Case, directory: Path, spark: Any = None) -> tuple[dict[str, Any], pa.Table]:
    """Return what becomes of a case (the columns, and by format and reader what is found), and its decoded rows."""
    directory.mkdir()
    rows, errors = decoded(case, directory, spark)
    good = pa.array([each is None for each in errors])
    wrong = [row == DEAD for row in case.rows] != [each is not None for each in errors]
    found: dict[str, Any] = {
        "columns": columns_text(rows.schema),
        "dead": "wrong dead letters: " + str(errors) if wrong else "",
        "readers": {},
    }
    rows = rows.filter(good)
    for kind in ("parquet", "delta", "iceberg"):
        place = directory / kind / "t"
        try:
            written(rows, kind, place)
        except Exception as error:
            told = f"cannot be written: {_words(error)}"
            found["readers"] |= {f"{kind}, {name}": told for name in READERS[kind]}
            continue
        for name, read in READERS[kind].items():
            if is_there(name):
                found["readers"][f"{kind}, {name}"] = _read(case, partial(found_by, read), place, kind)
    return found, rows


def by_spark(cases: list[tuple[Case, pa.Table]], directory: Path, spark: Any) -> dict[str, dict[str, str]]:
    """Return what readers find of all cases in one table that Spark writes, and Spark in one of Magnetar's.

    One wide table, for Spark takes its time for each; rows that a case does not have are null in its columns.
    """
    length = max(len(rows) for _, rows in cases)
    columns = {
        f"c{number}_{name}": pa.concat_arrays(
            [rows[name].combine_chunks(), pa.nulls(length - len(rows), rows[name].type)]
        )
        for number, (_, rows) in enumerate(cases)
        for name in rows.schema.names
    }
    wide = pa.table(columns)
    found: dict[str, dict[str, str]] = {key_of(case): {} for case, _ in cases}
    for kind, readers in (("parquet", {}), ("parquet by Spark", READERS["parquet by Spark"])):
        place = directory / kind.replace(" ", "_") / "wide"
        written(wide, kind, place, spark)
        for name, read in {**readers, "Spark": lambda at, _: spark.read.parquet(str(at)).toArrow()}.items():
            if is_there(name):
                seen = read(place, kind)
                for number, (case, rows) in enumerate(cases):
                    part = _of_case(seen, number, len(rows), length)
                    what = _read(
                        case, lambda at, _, part=part: found_by(lambda *_: part, at, ""), place, kind
                    )
                    found[key_of(case)][f"{kind}, {name}"] = what
    return found


def _of_case(wide: pa.Table, number: int, rows: int, length: int) -> pa.Table:
    """Return the columns and rows of one case, which were written twice."""
    names = [each for each in wide.schema.names if each.startswith(f"c{number}_")]
    ids = wide["id"].to_pylist()
    part = wide.select(["id", *names]).rename_columns(["id", *(each.split("_", 1)[1] for each in names)])
    return part.filter(pa.array([each % length < rows for each in ids]))


def _read(case: Case, find: Any, place: Path, kind: str) -> str:
    try:
        return verdict(case, *find(place, kind))
    except BaseException as error:  # Polars panics by what is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return f"cannot be read: {_words(error)}"


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def all_results(names: list[str], spark: Any = None) -> list[tuple[Case, dict[str, Any]]]:
    """Return what becomes of each case, or of those whose key contains one of ``names``."""
    found, decoded_rows = [], []
    with tempfile.TemporaryDirectory() as top:
        for number, case in enumerate(CASES):
            if names and not any(each in key_of(case) for each in names):
                continue
            if case.language == "JSON Schema" and spark is None:
                continue
            told, rows = results(case, Path(top) / str(number), spark)
            found.append((case, told))
            decoded_rows.append((case, rows))
        if spark is not None:
            more = by_spark(decoded_rows, Path(top) / "wide", spark)
            for case, told in found:
                told["readers"] |= more[key_of(case)]
    return found


def configuration() -> dict[str, str]:
    """Return what the file of a new project tells Spark."""
    with tempfile.TemporaryDirectory() as place:
        create(Path(place) / "p", "t", Path(place), format="bytes")
        text = (Path(place) / "p" / SPARK_SPEC_FILE).read_text()
    return {name: str(value) for name, value in yaml.safe_load(text)["configuration"].items()}


def session() -> Any:
    """Return a Spark session as a pipeline's run has one."""
    import os

    from pyspark.sql import SparkSession

    from magnetar.pipeline.worker_python import worker_python

    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": worker_python()}
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in configuration().items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def main(arguments: list[str]) -> int:
    """Run, print what is not the same, and note it where asked to."""
    names = [each for each in arguments if not each.startswith("--")]
    kept: dict[str, Any] = {}
    for case, found in all_results(names, session() if "--spark" in arguments else None):
        kept[key_of(case)] = found
        told = {reader: what for reader, what in found["readers"].items() if what != SAME}
        if told or found["dead"] or found["columns"] != case.columns:
            print(key_of(case), "|", found["columns"], f"({case.columns} wanted)", found["dead"])
            for reader, what in told.items():
                print("    ", reader, "|", what)
    print(len(kept), "types")
    if "--write" in arguments:
        RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
