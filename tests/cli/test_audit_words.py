"""What ``magnetar audit`` says of a table that it found equal."""

from __future__ import annotations

import pytest

from magnetar.cli.audit import _shown
from magnetar.pipeline.audit import Audit


def equal(records: int, *, up_to_table: bool) -> Audit:
    return Audit(
        topic="t",
        table="/t",
        table_format="delta",
        is_equal=True,
        topic_records=records,
        table_records=records,
        compared=("partition", "offset"),
        not_compared=(),
        digests={},
        partitions=(),
        counts={},
        differences=(),
        moved=(),
        is_complete=True,
        is_up_to_table=up_to_table,
        unplaced=0,
        ranges=(),
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("records", "up_to_table", "says"),
    [
        (4000, False, "EQUAL: every record is in the table once, and as it is in the topic"),
        (0, False, "EQUAL: every record is in the table once, and as it is in the topic"),
        (4000, True, "EQUAL up to where the table stops: 4,000 records are in it once"),
        (0, True, "NOTHING COMPARED: the table has no records"),
    ],
)
def test_equal_says_how_much_was_compared(records: int, up_to_table: bool, says: str) -> None:
    *_, last = _shown(equal(records, up_to_table=up_to_table))
    assert str(last).startswith(says)
