"""Every type of every schema language, into every format, and found again by the readers that there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.pipeline.types.catalogue import AVRO, CASES, DEAD, PROTOBUF, PULSAR, Case
from tests.pipeline.types.run import RESULTS, SAME, by_spark, configuration, decoded, key_of, results
from tools import types_page

QUICK = (*AVRO, *PROTOBUF, *PULSAR)


def see(case: Case, directory: Path, spark: Any = None) -> None:
    found, _ = results(case, directory / "case", spark)
    assert found["columns"] == case.columns
    assert found["dead"] == ""
    assert {reader: what for reader, what in found["readers"].items() if what != SAME} == {}


@pytest.mark.parametrize("case", QUICK, ids=key_of)
def test_values_are_found_by_all_readers(tmp_path: Path, case: Case) -> None:
    see(case, tmp_path)


@pytest.mark.spark
@pytest.mark.slow
def test_values_by_spark(tmp_path: Path, spark: Any) -> None:
    for name, value in configuration().items():
        spark.conf.set(name, value)
    decoded_rows = []
    for number, case in enumerate(CASES):
        directory = tmp_path / str(number)
        directory.mkdir()
        rows, errors = decoded(case, directory, spark)
        assert [row == DEAD for row in case.rows] == [each is not None for each in errors], key_of(case)
        decoded_rows.append((case, rows.filter(pa.array([each is None for each in errors]))))
    found = by_spark(decoded_rows, tmp_path / "wide", spark)
    wrong = {
        (key, reader): what
        for key, readers in found.items()
        for reader, what in readers.items()
        if what != SAME
    }
    assert wrong == {}


def test_the_page_has_the_results_of_all_types() -> None:
    kept = json.loads(RESULTS.read_text())
    assert list(kept) == [key_of(case) for case in CASES]
    assert {key_of(case): case.columns for case in CASES} == {
        key: found["columns"] for key, found in kept.items()
    }
    assert types_page.text(kept) == types_page.PAGE.read_text()


def test_a_cell_says_which_reader_finds_what() -> None:
    found = {"parquet, A": SAME, "parquet, B": "not 1 but 2", "parquet by Spark, A": SAME, "delta, C": SAME}
    assert types_page.cell(found, "parquet") == "A: yes; B: not 1 but 2"
    assert types_page.cell(found, "parquet by Spark") == "yes"
    assert types_page.cell(found, "iceberg") == "-"
