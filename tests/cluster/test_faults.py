"""The hour of faults in short: a cluster is hurt under load of both protocols, and nothing acknowledged is lost."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.faults.appends import Lists
from benchmarks.faults.book import Book, Line
from benchmarks.faults.faults import FAULTS
from benchmarks.faults.flows import MONEY_PARTITIONS, PER_TRANSACTION, Money, Sums
from benchmarks.faults.house import movable_clock
from benchmarks.faults.page import text
from benchmarks.faults.run import Run
from benchmarks.faults.subscriptions import CERTAIN_S, Acknowledgements
from benchmarks.faults.work import IN_FLIGHT_S, Shares
from tests.cluster.servers import class_path

SHORT = (
    "kill -9 of a broker and of a bookie",
    "a broker and ZooKeeper are parted for three",
    "a broker and all bookies are parted",
    "a bookie's journal's disk is full",
    "a broker is killed and comes back without its disk",
    "a broker's clock jumps",
    "kill -9 of a client",
)


@pytest.mark.slow
@pytest.mark.timeout(1500)  # how long depends on what else the machine does
def test_nothing_acknowledged_is_lost_or_doubled_by_faults(tmp_path: Path) -> None:
    class_path()  # skips where BookKeeper cannot be run
    faults = [each for each in FAULTS if each.name.startswith(SHORT)]
    assert len(faults) == len(SHORT)
    # Sessions of 2 s, as in the hour, are lost on a machine with much else to do, and with each the bundles move: that
    # keeps it busy, and the next ones are lost (a fault of 10 s took three minutes).
    outcome = Run(tmp_path, seed=1, seconds=0, faults=faults, session_ms=5000, calm_s=2).go()
    assert outcome["violations"] == []
    assert outcome["records"]["idempotent"] > 1000
    assert outcome["records"]["of Pulsar's producers"] > 500
    assert outcome["records"]["transactions"]["aborted"] > 5
    assert outcome["records"]["lists"]["committed"] > 50
    assert outcome["records"]["share group"]["acknowledged"] > 500
    done = {each["fault"] for each in outcome["faults"]}
    # A container may not mount a disk that can be filled, and there may be no compiler for a clock that jumps.
    assert len(SHORT) - 2 <= len(done) <= len(SHORT)
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


def test_who_may_be_told_late_is_told_once_and_of_places_in_order() -> None:
    book = Book()
    line = Line("line", book, late=True)
    for number, place in (
        (0, 0),
        (5, 5),
        (4, None),
        (3, 3),
    ):  # 4 was concluded from 5, of 3 an answer was lost
        line.acknowledge(number, place)
    assert book.violations == []
    for number, place in ((4, 4), (6, 2), (2, 9)):
        line.acknowledge(number, place)
    assert [each.partition(": ")[2].partition(": ")[2] or each for each in book.violations] == [
        "number 4 is acknowledged twice",
        "number 6 is at 2, and 5 at 5",
        "number 2 is at 9, and 6 at 2",
    ]


def test_a_clock_jumps_and_what_measures_time_that_passes_does_not(tmp_path: Path) -> None:
    library = movable_clock(tmp_path)
    if library is None:
        pytest.skip("there is no compiler here")
    moved = tmp_path / "clock"
    moved.write_bytes(b"-3600".ljust(16, b"\0"))
    says = (
        "import time, datetime; before = time.monotonic(); time.sleep(0.05); after = time.monotonic(); "
        "print(time.time(), time.time_ns() / 1e9, datetime.datetime.now().timestamp(), after - before, after)"
    )
    environment = os.environ | {"LD_PRELOAD": str(library), "MOVED_CLOCK": str(moved)}
    began = time.time()
    told = subprocess.run([sys.executable, "-c", says], env=environment, capture_output=True, check=True)
    *wall, slept, passed = map(float, told.stdout.split())
    assert all(began - 3600 <= each <= time.time() - 3600 for each in wall)
    assert slept >= 0.05
    assert passed <= time.monotonic()


def test_lists_find_what_was_aborted_twice_out_of_order_torn_or_different_for_others() -> None:
    book = Book()
    lists = Lists(book)
    outcomes = ["committed", "aborted", "either", "committed", "committed"]
    writer = lists.writes(outcomes)
    dice = random.Random(3)
    asked = [lists.asks(writer, dice) for _ in outcomes]
    place = itertools.count()
    for transaction in (0, 2, 3):
        for number, value in asked[transaction]:
            at = next(place)
            assert lists.receive("one", number, value, at)
            assert not lists.receive("one", number, value, at)  # a reader may go back
            assert lists.receive("two", number, value, ("elsewhere", at))
    assert book.violations == []
    assert lists.behind() == []
    (lacking,) = lists.lacks()
    assert "writer 0's transaction 4 (committed) has {} of" in lacking
    last, value = asked[4][-1]
    lists.receive("one", last, value, next(place))  # only a part of it
    assert any("two has" in each for each in lists.behind())
    aborted, read = asked[1][0]
    lists.receive("one", aborted, read, next(place))
    twice, again = asked[4][-1]
    lists.receive("one", twice, again, next(place))
    lists.receive("two", last, b"0:9:9", "new")
    told = [each.partition(" s: ")[2] for each in book.violations]
    assert told[0] == f"lists-{aborted}: {read!r} was aborted and is read"
    assert any(f"{again!r} comes after" in each for each in told)
    assert any(each.startswith(f"lists-{last}: two finds b'0:9:9' at new, where") for each in told)
    assert any("transaction 1 (aborted) has" in each for each in lists.lacks())
    assert any("transaction 4 (committed) has" in each for each in lists.lacks())


def test_shares_find_what_is_acknowledged_twice_or_comes_long_after_it_was_acknowledged() -> None:
    book = Book()
    shares = Shares(book)
    shares.deliver("one", 1.0, 7)
    assert shares.acknowledge("one", 2.0, 7)
    shares.deliver("two", 3.0, 7)  # it was in flight, and nobody can know better
    assert book.violations == []
    assert shares.came_late == 1
    shares.deliver("two", 2.1 + IN_FLIGHT_S, 7)
    assert not shares.acknowledge("two", 3.5, 7)
    told = [each.partition(" s: ")[2] for each in book.violations]
    assert told == [
        "work: 7 comes to two 35.10 s after it was acknowledged to one",
        "work: 7 is acknowledged to two 1.50 s after it was to one",
    ]


def test_acknowledgements_find_what_comes_again_though_it_was_stored_before_the_fault() -> None:
    now = [100.0]
    book = Book()
    acknowledgements = Acknowledgements("sub", book, lambda: now[0])
    for number in range(3):
        acknowledgements.deliver(number)
        acknowledgements.acknowledge(number)
        now[0] += CERTAIN_S
    acknowledgements.deliver(2)  # there was no fault yet: a consumer may have been closed
    book.last_fault = now[0] - 0.5
    acknowledgements.deliver(2)
    acknowledgements.deliver(3)
    assert book.violations == []
    acknowledgements.deliver(1)
    told = [each.partition(" s: ")[2] for each in book.violations]
    assert told == ["sub: 1 comes again, acknowledged 3.50 s before the last fault"]
    assert acknowledgements.came_again == 3


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
