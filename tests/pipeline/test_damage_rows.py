"""``onDamage=skip``: what is damaged is skipped, and a row says which offsets are missing and why."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import Plan, ask_of
from magnetar.records.batch import PlainRecord
from tests.pipeline.test_slices import fill
from tests.pipeline.writer import NOW_MS, Partition, Writer


def read(data: Path, **options: object) -> tuple[list[int], list[tuple[int, int, str]]]:
    """Return the offsets that came, and (first, last, reason) of those that did not."""
    given = {"path": str(data), "subscribe": "t", "onDamage": "skip"}
    parsed = parse_options(given | {k: str(v) for k, v in options.items()}, streaming=False)
    plan = Plan(parsed)
    found: list[int] = []
    lost: list[tuple[int, int, str]] = []
    for piece in plan.slices(plan.starts(), plan.ends()):
        for batch in piece.read(ask_of(parsed)):
            batch.validate(full=True)
            for row in batch.to_pylist():
                if row["damage"] is None:
                    found.append(row["offset"])
                else:
                    assert row["key"] is row["value"] is None
                    assert row["topic"] == "t"
                    lost.append((row["offset"], row["damage"]["last_offset"], row["damage"]["reason"]))
    return found, lost


def three_ledgers(data: Path) -> tuple[Writer, Partition, list[Path]]:
    writer = Writer(data)
    (partition,) = writer.topic("t")
    paths = []
    for _ in range(3):
        fill(partition, 40, size=1000)
        paths.append(partition.close_ledger())
    writer.finish()
    return writer, partition, paths


def covered(found: list[int], lost: list[tuple[int, int, str]]) -> list[int]:
    return sorted(found + [offset for first, last, _ in lost for offset in range(first, last + 1)])


@pytest.mark.parametrize("slice_bytes", [1, 64 << 20])
def test_a_damaged_entry_is_skipped_and_told_with_its_place(tmp_path: Path, slice_bytes: int) -> None:
    _, partition, paths = three_ledgers(tmp_path)
    content = bytearray(paths[1].read_bytes())
    content[20_000] ^= 1
    paths[1].write_bytes(content)
    found, lost = read(tmp_path, sliceBytes=slice_bytes)
    assert len(lost) == 1
    first, last, reason = lost[0]
    assert 1 <= last - first + 1 <= 7
    assert "of ledger 2 at byte" in reason
    assert "its checksum does not match" in reason
    assert covered(found, lost) == list(range(partition.next_offset))


@pytest.mark.parametrize("seed", range(25))
def test_every_offset_comes_or_is_told_as_lost(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    _, partition, paths = three_ledgers(tmp_path)
    for path in chance.sample(paths, chance.randint(1, 3)):
        content = bytearray(path.read_bytes())
        for _ in range(chance.randint(1, 3)):
            at, size = chance.randrange(40, len(content)), chance.choice([1, 4, 3000])
            content[at : at + size] = chance.randbytes(len(content[at : at + size]))
        if chance.random() < 0.3:
            del content[chance.randrange(len(content) // 2, len(content)) :]
        if chance.random() < 0.1:
            path.unlink()
        else:
            path.write_bytes(content)
    found, lost = read(tmp_path, sliceBytes=chance.choice([1, 40_000, 64 << 20]))
    assert lost
    assert covered(found, lost) == list(range(partition.next_offset))
    low, high = 100, 300
    found, lost = read(
        tmp_path,
        startingOffsets=json.dumps({"t": {"0": low}}),
        endingOffsets=json.dumps({"t": {"0": high}}),
    )
    assert covered(found, lost) == list(range(low, high))


def test_records_that_cannot_be_read_in_a_whole_entry_are_skipped_too(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    fill(partition, 3)
    first = partition.next_offset
    partition.append([PlainRecord(b"k", b"v", (), NOW_MS)] * 5, entry_format="avro")
    fill(partition, 3)
    partition.close_ledger()
    found, lost = read(writer.finish())
    assert [(a, b) for a, b, _ in lost] == [(first, first + 4)]
    assert "unknown" in lost[0][2] or "format 'avro'" in lost[0][2]
    assert covered(found, lost) == list(range(partition.next_offset))


def test_nobody_can_skip_without_seeing_it() -> None:
    given: dict[str, Any] = {"path": "/d", "subscribe": "t", "onDamage": "skip"}
    assert parse_options(given, streaming=False).columns[-1] == "damage"
    with pytest.raises(ValueError, match="onDamage=skip and the column 'damage' go together"):
        parse_options(given | {"columns": "key,value"}, streaming=False)
    with pytest.raises(ValueError, match="onDamage must be one of fail, skip"):
        parse_options(given | {"onDamage": "ignore"}, streaming=False)
