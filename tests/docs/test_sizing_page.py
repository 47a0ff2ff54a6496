"""The page of sizing has the figures of the benchmarks, its rule of memory covers them, and disk use is as it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from magnetar.testing import Broker
from tools.sizing_page import ENTRY_BYTES, PAGE, RECORD_BYTES, page, scaling


def test_the_page_has_the_figures_of_the_benchmarks() -> None:
    assert page(PAGE.read_text()) == PAGE.read_text(), "run python -m tools.sizing_page"


def test_the_rule_of_memory_covers_what_was_measured() -> None:
    assert "128 MB + 10 kB for each partition + 6 kB for each connection" in PAGE.read_text()
    for what, each_kb in (("topics", 10), ("partitions", 10), ("connections", 6)):
        for point in scaling()[what]:
            assert point["rss_mb"] < 128 + point["n"] * each_kb / 1000, point


@pytest.mark.slow
@pytest.mark.parametrize(("size", "count"), [(100, 1), (100, 100), (1000, 100)])
def test_a_record_takes_on_disk_what_the_page_says(tmp_path: Path, size: int, count: int) -> None:
    batches = 20
    with Broker(data=tmp_path / "data") as broker:
        broker.create_topic("sized")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000})
        for _ in range(batches):
            for _ in range(count):
                producer.produce("sized", b"x" * size)
            producer.flush()
        stored = max(file.stat().st_size for file in (tmp_path / "data" / "ledgers").rglob("*.ledger"))
    says = batches * (ENTRY_BYTES + count * (size + RECORD_BYTES))
    assert 0.97 < stored / says < 1.01, (stored, says)
