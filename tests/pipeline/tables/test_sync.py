"""Every format: a table holds what its topic holds, once, and knows up to where."""

from __future__ import annotations

from magnetar.pipeline import tables
from magnetar.pipeline.options import TopicPartition
from magnetar.pipeline.tables import Table
from tests.pipeline.tables.conftest import TopicOnDisk, rows_of


def sync(topic: TopicOnDisk, table: Table, **more: object) -> tables.SyncReport:
    return tables.sync("t", table, options=topic.options, **more)


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


def test_the_position_is_in_the_commit(topic: TopicOnDisk, table: Table, kind: str) -> None:
    sync(topic, table)
    ends = {TopicPartition("t", each.partition): each.next_offset for each in topic.partitions}
    assert table.position() == ends
    opened = tables.open(table.place.url, kind)
    assert (opened.position(), opened.version) == (ends, table.version)
    newest = opened.history()[0]
    assert newest.ranges == {"t": {str(each.partition): [0, each.next_offset] for each in topic.partitions}}
    assert newest.operation == "append"
