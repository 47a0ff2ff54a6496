"""Every format: a table holds what its topic holds, once, and knows up to where."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.pipeline import tables
from magnetar.pipeline.options import TopicPartition
from magnetar.pipeline.tables import Table
from magnetar.pipeline.tables.directory import TableDirectory
from tests.pipeline.tables.conftest import TopicOnDisk, rows_of


def sync(topic: TopicOnDisk, table: Table, **more: object) -> tables.SyncReport:
    return tables.sync("t", table, options=topic.options, **more)


@pytest.mark.slow
def test_a_table_equals_its_topic_and_follows_it(topic: TopicOnDisk, table: Table) -> None:
    first = sync(topic, table)
    assert rows_of(table.to_arrow()) == topic.rows()
    assert first.rows == len(topic.rows())
    topic.grow()
    second = sync(topic, table)
    assert rows_of(table.to_arrow()) == topic.rows()
    assert first.rows + second.rows == len(topic.rows())
    again = sync(topic, table)
    assert (again.rows, again.files, again.commits) == (0, 0, 0)


@pytest.mark.slow
def test_the_position_is_in_the_commit(topic: TopicOnDisk, table: Table, kind: str) -> None:
    sync(topic, table)
    ends = {TopicPartition("t", each.partition): each.next_offset for each in topic.partitions}
    assert table.position() == ends
    opened = tables.open(table.place.url, kind)
    assert (opened.position(), opened.version) == (ends, table.version)
    newest = opened.history()[0]
    assert newest.ranges == {"t": {str(each.partition): [0, each.next_offset] for each in topic.partitions}}
    assert newest.operation == "append"


@pytest.mark.parametrize("flush", [True, False])
def test_files_are_on_disk_before_the_commit_unless_told_otherwise(
    topic: TopicOnDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: bool
) -> None:
    table = tables.open(tmp_path / "t", "parquet", layout=tables.Layout(flush=flush))
    flushed: list[str] = []
    sync = TableDirectory.sync

    def noted(place: TableDirectory, names: list[str]) -> None:
        flushed.extend(names)
        sync(place, names)

    monkeypatch.setattr(TableDirectory, "sync", noted)
    told: dict[str, list[str]] = {}
    table.steps.append(lambda step: told.update({step: list(flushed)}))
    tables.sync("t", table, options=topic.options)
    names = [each.path for each in table.files()]
    assert names
    assert set(names) <= set(told["written"]) if flush else not set(names) & set(flushed)
