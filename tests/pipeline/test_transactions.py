"""``isolation=read_committed`` on a hand-written log with transactions: what was aborted or is open is not there."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import Plan
from magnetar.records.batch import PlainRecord
from tests.pipeline.test_slices import rows
from tests.pipeline.writer import NOW_MS, Partition, Writer


def say(partition: Partition, producer_id: int | None, text: str) -> None:
    fields = [PlainRecord(b"", f"{text}{i}".encode(), (), NOW_MS) for i in range(3)]
    partition.append(fields, producer_id=producer_id)


def end(partition: Partition, producer_id: int, *, commit: bool) -> None:
    mark = PlainRecord(struct.pack(">hh", 0, int(commit)), b"\0\0\0\0\0\0", (), NOW_MS)
    partition.append([mark], control=True, producer_id=producer_id)


def read(data: Path, **options: object) -> list[str]:
    return [value.decode() for _, _, value, *_ in rows(data, isolation="read_committed", **options)]  # type: ignore[attr-defined]


def three(*texts: str) -> list[str]:
    return [f"{text}{i}" for text in texts for i in range(3)]


@pytest.mark.parametrize("slice_bytes", [1, 64 << 20])
def test_aborted_transactions_are_left_out_wherever_their_marks_lie(tmp_path: Path, slice_bytes: int) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    say(partition, 1, "committed")
    say(partition, 2, "aborted")
    say(partition, None, "plain")
    end(partition, 1, commit=True)
    say(partition, 1, "aborted-next-ledger")
    end(partition, 2, commit=False)
    say(partition, 2, "committed-next-ledger")
    partition.close_ledger()
    partition.append([PlainRecord(b"", b"x" * 40_000, (), NOW_MS)])
    end(partition, 1, commit=False)
    end(partition, 2, commit=True)
    partition.close_ledger(sealed=False)
    data = writer.finish()
    wanted = three("committed", "plain", "committed-next-ledger")
    assert read(data, sliceBytes=slice_bytes)[:-1] == wanted
    everything = [value for _, _, value, *_ in rows(data, sliceBytes=slice_bytes)]
    assert len(everything) == 3 * 5 + 1
    for option in ({"kafka.isolation.level": "read_committed"}, {"isolation": "read_uncommitted"}):
        count = len(rows(data, **option))
        assert count == (16 if "isolation" in option else 10)


def test_an_open_transaction_ends_what_is_visible(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    say(partition, None, "plain")
    say(partition, 7, "open")
    say(partition, None, "behind")
    partition.close_ledger()
    data = writer.finish()
    assert read(data) == three("plain")
    given = {"path": str(data), "subscribe": "t", "isolation": "read_committed"}
    assert Plan(parse_options(given, streaming=False)).latest() == {("t", 0): 3}


def test_a_mark_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    say(partition, 7, "what")
    partition.append([PlainRecord(b"?", b"", (), NOW_MS)], control=True, producer_id=7)
    partition.close_ledger()
    with pytest.raises(LedgerCorrupt, match=r"entry 1 of ledger 1 at byte \d+ is damaged: it is no control"):
        read(writer.finish())


@pytest.mark.parametrize("seed", range(20))
def test_any_interleaving_gives_what_was_committed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    began: dict[int, int] = {}
    unknown: dict[int, list[tuple[int, str]]] = {}
    fates: list[tuple[int, str]] = []
    for number in range(80):
        producer = chance.randrange(4)
        offset = partition.next_offset
        match chance.choice("tttpeec"):
            case "t":
                began.setdefault(producer, offset)
                unknown.setdefault(producer, []).append((offset, f"{number}-"))
                say(partition, producer, f"{number}-")
            case "p":
                fates.append((offset, f"{number}-"))
                say(partition, None, f"{number}-")
            case "e" if producer in began:
                commit = chance.random() < 0.5
                fates += unknown.pop(producer) if commit else []
                unknown.pop(producer, None)
                began.pop(producer)
                end(partition, producer, commit=commit)
            case "c" if partition._frames:
                partition.close_ledger()
    partition.append([PlainRecord(b"", b"", (), NOW_MS)] * 2)
    partition.close_ledger(sealed=False)
    stable = min(began.values(), default=partition.next_offset - 2)
    wanted = three(*(text for offset, text in sorted(fates) if offset < stable))
    assert [
        value for value in read(writer.finish(), sliceBytes=chance.choice([1, 1 << 26])) if value
    ] == wanted
