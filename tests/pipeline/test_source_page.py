"""The examples of docs/spark-source.md run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.test_slices import fill
from tests.pipeline.writer import Writer

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PAGE = Path(__file__).parents[2] / "docs/spark-source.md"


def test_the_examples_run(spark: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("orders")
    fill(partition, 20)
    partition.close_ledger()
    place = {
        "spark": spark,
        "data": str(writer.finish()),
        "checkpoint": str(tmp_path / "checkpoint"),
        "table": str(tmp_path / "table"),
    }
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) >= 5
    for example in examples:
        exec(example, place)
    count = partition.next_offset
    assert place["orders"].count() == place["places"].count() == place["one_ledger"].count() == count  # type: ignore[attr-defined]
    assert place["recent"].count() == count - 10  # type: ignore[attr-defined]
    assert spark.read.parquet(place["table"]).count() == count
    assert len(place["query"].recentProgress) >= count // 20  # type: ignore[attr-defined]
