"""A writer killed at any moment: the next one goes on, and the table equals the topic."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from magnetar.pipeline import tables
from magnetar.pipeline.tables.files import attempt_of
from tests.pipeline.tables import victim
from tests.pipeline.tables.conftest import TopicOnDisk, rows_of

STEPS = ("noted", "written", "committed", "done", "rewritten", "compacted", "tidied")


def start(
    topic: TopicOnDisk, where: Path, kind: str, step: str = "-", count: int = 1
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", victim.__name__, str(topic.data), str(where), kind, step, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def check(topic: TopicOnDisk, where: Path, kind: str) -> None:
    """Bring the table up to its topic; nothing is missing, doubled or left behind then."""
    table = tables.open(where, kind, layout=victim.LAYOUT)
    tables.sync("t", table, options=topic.options)
    assert rows_of(table.to_arrow()) == topic.rows()
    listed = {each.path for each in table.files()}
    assert not [name for name in table.place.child("_magnetar").names() if name.startswith("attempt")]
    table.expire(0)
    assert {name for name in table.data.names() if attempt_of(name)} == listed


@pytest.mark.slow
@pytest.mark.parametrize("kind", tables.FORMATS)
def test_killed_at_each_step(topic: TopicOnDisk, tmp_path: Path, kind: str) -> None:
    where = tmp_path / "lake" / "t"
    for number, step in enumerate(STEPS):
        topic.grow(200 if step in ("rewritten", "compacted") else 60)
        with start(topic, where, kind, step, 1 + number % 2 if number < 4 else 1) as process:
            process.communicate()
        assert process.returncode == -signal.SIGKILL, f"{step} was never reached"
        if number in (0, 2, 4):
            check(topic, where, kind)
    check(topic, where, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", tables.FORMATS)
def test_killed_at_random_moments(topic: TopicOnDisk, tmp_path: Path, kind: str) -> None:
    where, seed = tmp_path / "lake" / "t", random.randrange(1 << 32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    for _ in range(6):
        topic.grow(60)
        with start(topic, where, kind) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(moments.random() ** 2 * 0.6)
            process.kill()
    check(topic, where, kind)


def test_two_writers_one_wins(topic: TopicOnDisk, tmp_path: Path, kind: str) -> None:
    """Both have read the same offsets; the lock, which would have stopped the second at once, is left out."""
    first, second = (tables.open(tmp_path / "lake" / "t", kind) for _ in range(2))
    tables.sync("t", first, options=topic.options)
    topic.grow()
    second.refresh()

    def overtaken(step: str) -> None:
        if step == "written":
            tables.sync("t", first, options=topic.options)

    second.steps.append(overtaken)
    second.writing = nullcontext  # type: ignore[method-assign]
    first.clean = lambda: 0  # type: ignore[method-assign]
    with pytest.raises(tables.TableConflict, match="another writer committed"):
        tables.sync("t", second, options=topic.options)
    assert rows_of(first.to_arrow()) == topic.rows()
    first.refresh()
    assert {name for name in first.data.names() if attempt_of(name)} == {each.path for each in first.files()}


def test_a_writer_taken_for_dead_does_not_commit(topic: TopicOnDisk, tmp_path: Path, kind: str) -> None:
    first, second = (tables.open(tmp_path / "lake" / "t", kind) for _ in range(2))
    second.writing = nullcontext  # type: ignore[method-assign]
    second.steps.append(lambda step: first.clean() if step == "written" else None)
    with pytest.raises(tables.TableConflict, match="taken for those of a dead writer"):
        tables.sync("t", second, options=topic.options)
    tables.sync("t", first, options=topic.options)
    assert rows_of(first.to_arrow()) == topic.rows()


def test_the_second_writer_is_told_who_is_at_work(topic: TopicOnDisk, tmp_path: Path, kind: str) -> None:
    first, second = (tables.open(tmp_path / "lake" / "t", kind) for _ in range(2))
    with (
        first.writing(),
        pytest.raises(tables.TableConflict, match=r"another writer is at work \(process \d+"),
    ):
        tables.sync("t", second, options=topic.options)
    tables.sync("t", second, options=topic.options)
    assert rows_of(second.to_arrow()) == topic.rows()
