"""A pipeline whose tables are in a REST catalog, by the command as users type it, as PyIceberg reads them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.catalog import load_catalog

from tests.pipeline.jobs.test_json_pipeline import magnetar, send
from tests.pipeline.rest_catalog import RestCatalog
from tests.process import BrokerProcess

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),  # two runs, and Maven the first time
    pytest.mark.skipif(shutil.which("mvn") is None, reason="needs Maven, which brings the catalog"),
]


def test_two_runs_and_a_replay(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RestCatalog(tmp_path / "rest") as rest:
        for name, value in rest.environment("lakehouse").items():
            monkeypatch.setenv(name, value)
        catalog = load_catalog("own", type="rest", uri=rest.uri)

        def rows(table: str) -> list[dict[str, Any]]:
            found = catalog.load_table(f"shop.{table}").scan().to_arrow()
            return [] if not found.num_rows else found.to_pylist()

        project = tmp_path / "project"
        send(
            broker.address,
            "rested",
            ("1", b'{"id": 1}'),
            ("2", b'{"id": 2}'),
            ("3", b"{not json"),
            ("2", None),
        )
        magnetar("init", project, "--topic", "rested", "--data", broker.data, "--schema", "id int",
                 "--table-format", "iceberg")  # fmt: skip
        file = project / "magnetar-pipeline.yaml"
        spec = yaml.safe_load(file.read_text())
        file.write_text(yaml.safe_dump(spec | {"catalog": "lakehouse", "namespace": "shop"}))
        run = magnetar("run", project)
        assert (run["records"], run["dead_letters"], run["lag"]) == (4, 1, 0)
        assert not (project / "tables" / "rested_bronze").exists()
        assert sorted(row["offset"] for row in rows("rested_bronze")) == [0, 1, 2, 3]
        assert [row["id"] for row in rows("rested_current")] == [1]
        (letter,) = rows("rested_dead_letters")
        assert letter["value"] == b"{not json"

        send(broker.address, "rested", ("4", b'{"id": 4}'), ("1", b'{"id": 10}'))
        assert (
            magnetar("replay", project)["topics"][0]["sent"] == 1
        )  # it fails again, and counts at its first place
        run = magnetar("run", project)
        assert (run["records"], run["dead_letters"], run["lag"]) == (3, 1, 0)
        assert sorted(row["id"] for row in rows("rested_current")) == [4, 10]
        assert sorted(row["_offset"] for row in rows("rested_decoded")) == list(range(7))
        assert magnetar("status", project)["topics"][0]["partitions"][0]["next_offset"] == 7
        again = magnetar("run", project)
        assert again["records"] == 0
