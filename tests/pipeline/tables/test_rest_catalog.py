"""Iceberg tables in a REST catalog: Iceberg's own server, and what a network may do to a commit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.utils.config import Config

from magnetar.pipeline import tables
from magnetar.pipeline.jobs.passes import empty
from magnetar.pipeline.jobs.project import create
from magnetar.pipeline.jobs.spec import SPEC_FILE, SpecError, load_spec
from magnetar.pipeline.jobs.tables import direct_table, place_of, read_rows
from magnetar.pipeline.tables.listing import dataset_of
from tests.class_archives import java_command
from tests.pipeline.rest_catalog import Between, RestCatalog
from tests.pipeline.tables.conftest import TopicOnDisk, rows_of
from tests.pipeline.types.readers import READERS, is_there

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),  # Maven the first time
    pytest.mark.skipif(
        java_command() is None or shutil.which("mvn") is None,
        reason="the catalog needs Java, and Maven brings it",
    ),
]

MAGNETAR = Path(sys.executable).with_name("magnetar")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    with RestCatalog(tmp_path_factory.mktemp("rest")) as made:
        yield made


@pytest.fixture
def between(catalog: RestCatalog) -> Iterator[Between]:
    made = Between(catalog.uri)
    yield made
    made.close()


def configure(monkeypatch: pytest.MonkeyPatch, catalog: RestCatalog, name: str) -> None:
    """Have this process and those that it starts know the catalog by a name."""
    for variable, value in catalog.environment(name).items():
        monkeypatch.setenv(variable, value)
    # PyIceberg reads the environment when it is imported, which an earlier test may have done.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


def theirs(catalog: RestCatalog, name: str) -> Any:
    """Return the rows that PyIceberg finds, of its own configuration."""
    from pyiceberg.catalog import load_catalog

    return load_catalog("own", type="rest", uri=catalog.uri).load_table(name).scan().to_arrow()


def test_a_table_follows_its_topic_by_command(
    catalog: RestCatalog, topic: TopicOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, catalog, "lakehouse")

    def sync(*table: str) -> Any:
        command = [MAGNETAR, "table", "sync", "t", *table, "--data", topic.data, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert sync("iceberg://lakehouse/shop.flights")["rows"] == len(topic.rows())
    topic.grow()
    sync("shop.flights", "--catalog", "lakehouse")  # the same table by its other name
    assert sync("iceberg://lakehouse/shop.flights")["commits"] == 0
    assert rows_of(theirs(catalog, "shop.flights")) == topic.rows()
    name = "iceberg://lakehouse/shop.flights"
    assert rows_of(dataset_of(name).to_table()) == topic.rows()
    assert rows_of(tables.open(name, create=False).to_arrow()) == topic.rows()
    place = catalog.warehouse / "shop" / "flights"
    for reader in ("DuckDB", "Polars"):
        if is_there(reader):
            assert rows_of(READERS["iceberg"][reader](place, "iceberg")) == topic.rows(), reader


def test_what_a_run_does_to_tables_without_spark(
    catalog: RestCatalog, topic: TopicOnDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, catalog, "runs")
    create(tmp_path / "p", "t", topic.data, format="bytes", current="none", table_format="iceberg")
    file = tmp_path / "p" / SPEC_FILE
    file.write_text(f"{file.read_text()}catalog: runs\nnamespace: made\n")
    project = load_spec(tmp_path / "p")
    place = place_of(project, "t_bronze")
    assert place == "iceberg://runs/made.t_bronze"
    assert direct_table(project, "t_bronze") is None
    with pytest.raises(SpecError, match="there is no table t_bronze in runs"):
        read_rows(project, "t_bronze", ["offset"])
    for _ in range(2):
        sync(topic, tables.open(place, "iceberg"))
        found = read_rows(project, "t_bronze", ["partition", "offset"])
        assert sorted((row["partition"], row["offset"]) for row in found) == [row[:2] for row in topic.rows()]
        files = catalog.warehouse / "made" / "t_bronze" / "data"
        assert list(files.glob("*.parquet"))
        empty(project, ["t_bronze", "t_decoded"])
        assert direct_table(project, "t_bronze") is None
        assert not list(files.glob("*.parquet"))


def opened(at: RestCatalog | Between, name: str) -> tables.Table:
    return tables.open(name, "iceberg", catalog={"type": "rest", "uri": at.uri})


def sync(topic: TopicOnDisk, table: tables.Table) -> int:
    return tables.sync("t", table, options=topic.options).rows


def test_a_commit_that_was_made_and_not_answered_is_found(
    catalog: RestCatalog, between: Between, topic: TopicOnDisk
) -> None:
    sync(topic, opened(between, "faults.unanswered"))
    topic.grow()
    table = opened(between, "faults.unanswered")
    between.fault = "unanswered"
    assert sync(topic, table) > 0
    between.fault = None
    assert sync(topic, opened(between, "faults.unanswered")) == 0
    assert rows_of(theirs(catalog, "faults.unanswered")) == topic.rows()


def test_a_commit_that_comes_after_its_writer_gave_up_finds_its_files(
    catalog: RestCatalog, between: Between, topic: TopicOnDisk
) -> None:
    sync(topic, opened(between, "faults.late"))
    topic.grow()
    table = opened(between, "faults.late")
    between.fault = "late"
    with pytest.raises(tables.CommitUnknown, match="did not say whether it made the commit"):
        sync(topic, table)
    between.fault = None
    with opened(between, "faults.late").writing():
        pass  # another run has begun, and cleaned up behind the dead
    between.pass_on()
    assert rows_of(theirs(catalog, "faults.late")) == topic.rows()
    assert sync(topic, opened(between, "faults.late")) == 0
    topic.grow()
    assert sync(topic, opened(between, "faults.late")) > 0
    assert rows_of(theirs(catalog, "faults.late")) == topic.rows()


def test_a_commit_that_nobody_made_is_made_again_and_its_files_go_after_a_day(
    catalog: RestCatalog, between: Between, topic: TopicOnDisk
) -> None:
    table = opened(between, "faults.refused")
    sync(topic, table)
    topic.grow()
    between.fault = "refused"
    with pytest.raises(tables.CommitUnknown):
        sync(topic, table)
    between.fault = None
    table = opened(between, "faults.refused")
    assert sync(topic, table) > 0
    assert rows_of(theirs(catalog, "faults.refused")) == topic.rows()
    left = set(table.data.names()) - {each.path for each in table.files()}
    assert len(left) == 1
    for note in table.place.child("_magnetar").directory.glob("*.json"):
        os.utime(note, (0, 0))
    with table.writing():
        pass
    assert set(table.data.names()) == {each.path for each in table.files()}
    assert not [each for each in table.place.child("_magnetar").names() if each.endswith(".json")]
    assert rows_of(theirs(catalog, "faults.refused")) == topic.rows()


def test_of_two_writers_one_wins(catalog: RestCatalog, topic: TopicOnDisk) -> None:
    one, other = opened(catalog, "faults.race"), opened(catalog, "faults.race")
    late = opened(catalog, "faults.race")
    sync(topic, one)
    assert sync(topic, other) == 0
    topic.grow()
    ranges, topics = tables.missing("t", late, options=topic.options)
    assert sync(topic, other) > 0
    with pytest.raises(tables.TableConflict):
        late.append(lambda _: [], ranges, topics)
    assert rows_of(theirs(catalog, "faults.race")) == topic.rows()
