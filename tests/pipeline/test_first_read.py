"""Where what decodes records has to be compiled first, whoever waits is told, once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.pipeline import first_read
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import Plan
from magnetar.records import kept_code
from tests.pipeline.tables.conftest import TopicOnDisk


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kept_code, "directory", lambda: tmp_path)
    first_read.prepare.cache_clear()
    yield
    first_read.prepare.cache_clear()


def read(topic: TopicOnDisk) -> int:
    plan = Plan(parse_options({**topic.options, "subscribe": "t"}, streaming=False))
    pieces = plan.slices(plan.starts(), plan.ends())
    return sum(batch.num_rows for piece in pieces for batch in piece.read(plan.ask))


def test_whoever_waits_for_a_compiler_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topic = TopicOnDisk(tmp_path / "data")
    with caplog.at_level(logging.WARNING, "magnetar.pipeline"):
        assert read(topic) > 0
        assert [r.getMessage().count("compiled for this machine") for r in caplog.records] == [1]
        caplog.clear()
        first_read.prepare.cache_clear()  # as another process, which finds what the first one left
        assert read(topic) > 0
        assert caplog.records == []
