"""A run that has nothing to do starts no Spark; one that may have something to do does."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from magnetar.pipeline import tables
from magnetar.pipeline.jobs import run as runs
from magnetar.pipeline.jobs.nothing_new import note_complete
from magnetar.pipeline.jobs.outcome import TableReport
from magnetar.pipeline.jobs.project import create
from magnetar.pipeline.jobs.spec import ProjectSpec, load_spec
from magnetar.pipeline.jobs.tables import direct_table, place_of
from tests.pipeline.tables.conftest import TopicOnDisk
from tests.pipeline.test_slices import fill
from tests.pipeline.writer import Writer


class SparkStarted(Exception):
    """It came to that."""


@pytest.fixture
def topic(tmp_path: Path) -> TopicOnDisk:
    return TopicOnDisk(tmp_path / "data")


@pytest.fixture(params=["delta", "iceberg"])
def project(request: pytest.FixtureRequest, tmp_path: Path, topic: TopicOnDisk) -> ProjectSpec:
    """A project whose last run came to its end: what Spark would do of it is done by hand."""
    place = tmp_path / "project"
    create(place, "t", topic.data, format="bytes", table_format=request.param)
    spec = load_spec(place)
    bring_up(spec, topic)
    return spec


def bring_up(spec: ProjectSpec, topic: TopicOnDisk) -> None:
    for name in spec.topic("t").tables:
        tables.open(place_of(spec, name), spec.table_format)
    bronze = direct_table(spec, "t_bronze")
    assert bronze is not None
    tables.sync("t", bronze, options=topic.options)
    place = spec.directory / runs.RUNS
    place.mkdir(exist_ok=True)
    found = [TableReport(n, 7, 7, 1, 1.0) for n in spec.topic("t").tables]
    note_complete(spec, place, found)


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def session(*_: Any) -> Any:
        raise SparkStarted
        yield

    monkeypatch.setattr(runs, "spark_session", session)


def test_a_run_with_nothing_new_starts_no_spark_and_leaves_no_report(project: ProjectSpec) -> None:
    report = runs.run(project)
    assert (report.records, report.lag, report.directory) == (0, 0, "")
    assert [(each.rows, each.added) for each in report.tables] == [(7, 0)] * len(project.topic("t").tables)
    assert [each.name for each in (project.directory / runs.RUNS).iterdir()] == [".complete.json"]


def _records_came(spec: ProjectSpec, topic: TopicOnDisk) -> None:
    topic.grow()


def _a_table_was_written(spec: ProjectSpec, topic: TopicOnDisk) -> None:
    table = direct_table(spec, "t_decoded")
    assert table is not None
    with table.writing(), table.attempt() as attempt:
        table.commit(tables.TableCommit("append", attempt))


def _the_spec_changed(spec: ProjectSpec, topic: TopicOnDisk) -> None:
    path = spec.directory / "magnetar-pipeline.yaml"
    path.write_text(path.read_text() + "\n# other words\n")


def _own_code_came(spec: ProjectSpec, topic: TopicOnDisk) -> None:
    (spec.directory / "transformations" / "own.sql").write_text("CREATE MATERIALIZED VIEW o AS SELECT 1")


def _topic_was_restored(spec: ProjectSpec, topic: TopicOnDisk) -> None:
    """Bronze is ahead of what the topic has now."""
    shutil.rmtree(topic.data)
    topic.data.mkdir()
    writer = Writer(topic.data)
    for each in writer.topic("t", 2):
        fill(each, 3)
    writer.finish()


@pytest.mark.parametrize(
    "change", [_records_came, _a_table_was_written, _the_spec_changed, _own_code_came, _topic_was_restored]
)
def test_whatever_may_be_new_is_for_a_run(
    project: ProjectSpec, topic: TopicOnDisk, change: Callable[[ProjectSpec, TopicOnDisk], None]
) -> None:
    change(project, topic)
    with pytest.raises(SparkStarted):
        runs.run(project)
    with pytest.raises(SparkStarted):  # the one that did not come to its end has taken the note away
        runs.run(project)


def test_what_is_asked_for_by_name_is_done(project: ProjectSpec) -> None:
    with pytest.raises(SparkStarted):
        runs.run(project, refresh=["t_decoded"])


def test_own_code_that_was_there_at_the_last_run_is_run_again(
    project: ProjectSpec, topic: TopicOnDisk
) -> None:
    _own_code_came(project, topic)
    bring_up(project, topic)
    with pytest.raises(SparkStarted):
        runs.run(project)
