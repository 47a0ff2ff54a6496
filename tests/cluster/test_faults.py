"""The hour of faults in short: a cluster is hurt under load of both protocols, and nothing acknowledged is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.faults.book import Book, Line
from benchmarks.faults.faults import FAULTS
from benchmarks.faults.flows import MONEY_PARTITIONS, PER_TRANSACTION, Money, Sums
from benchmarks.faults.page import text
from benchmarks.faults.run import Run
from tests.cluster.servers import class_path

SHORT = (
    "kill -9 of a broker and of a bookie",
    "a broker and ZooKeeper are parted for 6 s",
    "a bundle is moved",
)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_acknowledged_is_lost_or_doubled_by_faults(tmp_path: Path) -> None:
    class_path()  # skips where BookKeeper cannot be run
    faults = [each for each in FAULTS if each.name.startswith(SHORT)]
    assert len(faults) == len(SHORT)
    outcome = Run(tmp_path, seed=1, seconds=0, faults=faults).go()
    assert outcome["violations"] == []
    assert outcome["records"]["idempotent"] > 1000
    assert outcome["records"]["of Pulsar's producers"] > 500
    assert outcome["records"]["transactions"]["aborted"] > 5
    assert [each["fault"] for each in outcome["faults"]] != []
    assert "**None** lost" in text(outcome)


def test_a_line_finds_what_is_lost_doubled_or_out_of_order() -> None:
    book = Book()
    line = Line("line", book)
    for number in range(3):
        line.acknowledge(number, number)
        assert line.receive("reader", number, number)
    assert not line.receive("reader", 1, 1)  # a reader may go back
    assert book.violations == []
    line.receive("reader", 1, 3)
    line.receive("reader", 5, 5)
    line.acknowledge(4, 4)
    found = [each.partition(": ")[2] for each in book.violations]
    assert [each.rpartition(": ")[2] for each in found] == [
        "it is there twice",
        "a gap",
        "number 4 is acknowledged after 2",
    ]


def test_sums_find_what_was_aborted_and_is_read_and_what_is_there_in_part() -> None:
    book = Book()
    money = Money("127.0.0.1:1", book, seed=1)
    money.outcomes += ["committed", "aborted", "either", "committed", "aborted"]
    sums = Sums(money, book)
    for number in (0, 2):
        for each in range(PER_TRANSACTION):
            for partition in range(MONEY_PARTITIONS):
                sums.receive(partition, b"%d.%d" % (number, each), 10 * number + each)
    assert book.violations == []
    assert sums.lacks() == ["transaction 3 (committed) is not there"]
    sums.receive(0, b"1.0", 30)
    sums.receive(0, b"0.0", 50)
    sums.receive(0, b"3.1", 51)
    sums.receive(0, b"3.0", 52)
    told = [each.partition(" s: ")[2] for each in book.violations]
    assert told == [
        "money-0: 1.0 at 30 was aborted and is read",
        "money-0: 1.0 comes after (2, 2)",
        "money-0: 0.0 is at 0 and at 50",
        "money-0: 3.0 comes after (3, 1)",
    ]
    assert sums.lacks() == [
        "transaction 1 (aborted) is there in part",
        "transaction 3 (committed) is there in part",
    ]
