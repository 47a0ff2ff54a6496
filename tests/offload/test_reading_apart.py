"""Who reads ledgers without a broker reads those in tiered storage, too: Spark's slices, and nothing else is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from magnetar.ledger.errors import LedgerCorrupt, TierFailed
from magnetar.ledger.tiers.place import TierPlace
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import Plan
from magnetar.pipeline.source import read
from tests.offload.test_broker import (
    PARTITIONS,
    consume,
    driver,
    ledgers,
    local_files,
    make,
    produce,
    until,
)
from tests.process import BrokerProcess

Rows = list[tuple[int, int, bytes, bytes]]


def rows(data: Path, **options: str) -> Rows:
    said = parse_options({"path": str(data), "subscribe": "t", **options}, streaming=False)
    plan = Plan(said)
    found: Rows = []
    for piece in plan.slices(plan.starts(), plan.ends()):
        for batch in read(piece, said):
            columns = (batch[name].to_pylist() for name in ("partition", "offset", "key", "value"))
            found += zip(*columns, strict=True)
    plan.close()
    return sorted(found)


@pytest.mark.slow
def test_slices_are_read_from_tiered_storage(tmp_path: Path) -> None:
    data, tiers = tmp_path / "data", tmp_path / "tiers"
    with BrokerProcess(data, *driver("filesystem", f"file.system.uri=file://{tiers}")) as broker:
        make(broker, "t", remote_storage_enable="true", local_retention_ms="1")
        produce(broker, "t")
        there = consume(broker, "t")
        address = f"http://{broker.served['http'][0]}"
        with httpx.Client(base_url=address, timeout=60) as http:
            until(lambda: _all_gone(ledgers(http, "t")), broker)
        until(lambda: local_files(broker) <= PARTITIONS + 1, broker)
        assert rows(data) == there, "beside a broker"
    assert rows(data) == there, "without one"
    committed = {"kafka.isolation.level": "read_committed", "sliceBytes": "300000"}
    assert rows(data, **committed) == there
    late = there[len(there) // 2]
    end = there[-1][1] + 1
    some = rows(data, startingOffsets=f'{{"t": {{"0": -2, "1": {late[1]}, "2": {end}}}}}')
    assert some == [row for row in there if row[0] == 0 or (row[0] == 1 and row[1] >= late[1])]
    objects = sorted(each for each in tiers.iterdir() if each.name.rpartition("-")[2].isdigit())
    whole = objects[0].read_bytes()
    at = whole.index(b"vvv", len(whole) // 2)  # in a record: a flipped bit of a block's padding harms nobody
    objects[0].write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(LedgerCorrupt, match=objects[0].name):
        rows(data)
    objects[0].unlink()
    with pytest.raises(LedgerCorrupt, match="is not where the metadata says"):
        rows(data)


def _all_gone(found: list[dict[str, Any]]) -> bool:
    full = [each for each in found if each["entries"]]
    return sum(each["properties"].get("local") == "false" for each in full) == len(full) - PARTITIONS


def test_a_store_that_is_not_there_is_told() -> None:
    from magnetar.ledger.tiers.tiers import TierSettings, open_store

    store = open_store(TierPlace("aws-s3", "nobody", endpoint="http://127.0.0.1:9"), TierSettings("a", "b"))
    with pytest.raises(TierFailed, match=r"s3://nobody at .*Check the bucket"):
        store.whole("x")
