"""Ends and last records found without the kernel are those that the kernel finds, or are left to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.pipeline import few_records
from magnetar.pipeline.ledger_walk import LedgerWalk
from magnetar.pipeline.mapped import MappedLedger
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import Plan
from magnetar.pipeline.port import Reader
from magnetar.testing import Broker
from tests.pipeline.test_slices import everything, fill
from tests.pipeline.topics import create
from tests.pipeline.writer import Writer
from tests.process import BrokerProcess

COUNT = 60


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory that no broker serves, with all that records and batches can be."""
    writer = Writer(tmp_path)
    first, second = writer.topic("t", 2)
    everything(first)
    fill(second, 30)
    writer.finish()
    return tmp_path


def plans(data: Path, **more: str) -> Plan:
    return Plan(parse_options({"path": str(data), "subscribe": "t", **more}, streaming=False))


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_last_records_are_those_of_the_kernel(data: Path, isolation: str) -> None:
    plan = plans(data, isolation=isolation)
    committed = isolation == "read_committed"
    found = 0
    for which, visible in plan.visible.items():
        for high in range(visible.first + 1, visible.next + 1):
            for low in {max(high - 64, visible.first), high - 1}:
                plain = plan.reader.last_record(which, low, high, committed=committed)
                assert plain == Reader.last_record(plan.reader, which, low, high, committed=committed)
                found += plain is not None
    assert found > COUNT


def test_what_a_transaction_took_back_is_no_last_record(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"})
        producer.init_transactions()
        for word, ends in ((b"kept", producer.commit_transaction), (b"gone", producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce("t", word)
            producer.flush()
            ends()
        plan = plans(tmp_path, isolation="read_committed")
        ((which, visible),) = plan.visible.items()
        for committed, word in ((False, b"gone"), (True, b"kept")):
            found = plan.reader.last_record(which, 0, visible.next, committed=committed)
            assert found is not None
            assert found.value == word


def test_an_open_ledgers_end_is_that_of_the_kernel(data: Path) -> None:
    seen = 0
    for path in sorted(data.glob("ledgers/*/*.ledger")):
        file = MappedLedger(data, int(path.stem, 16))
        if len(file) > few_records.FEW_BYTES:
            few_records.take_whole_frames(file, index := SparseIndex(file.ledger_id, 0))
            assert index.entries == 0
            continue
        plain, walked = SparseIndex(file.ledger_id, 0), SparseIndex(file.ledger_id, 0)
        LedgerWalk(file, walked, skip_damage=False).to_the_end(live=False)
        if walked.positions:
            plain.next_offset = walked.offsets[0]
        few_records.take_whole_frames(file, plain)
        assert plain.encode() == walked.encode()
        seen += plain.entries
    assert seen > 10


def test_what_is_damaged_is_left_to_the_kernel(data: Path) -> None:
    (path,) = sorted(data.glob("ledgers/*/*.ledger"), key=lambda each: -each.stat().st_size)[:1]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    file = MappedLedger(data, int(path.stem, 16))
    index = SparseIndex(file.ledger_id, 0)
    few_records.take_whole_frames(file, index)
    assert 0 < index.end < len(file)


def test_it_takes_neither_numba_nor_spark_to_find_nothing_new(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = BrokerProcess(data)
    create(broker, "t")
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(COUNT):
        producer.produce("t", f"value {number}", partition=0)
    assert producer.flush(30) == 0
    for kind in ("parquet", "delta", "iceberg"):
        table = str(tmp_path / "lake" / kind)
        told = loaded_by("table", "sync", "t", table, "--data", str(data), "--format", kind)
        assert not told & {"numba", "pyspark"}  # nor to read a few
        assert "magnetar.records.plain_arrow" in told
        told = loaded_by("table", "sync", "t", table, "--data", str(data))
        heavy = {"numba", "pyspark", "pandas", "pyarrow.compute", "magnetar.records.kernels.arrow"}
        assert not told & (heavy | {"pyiceberg", "sqlalchemy", "magnetar.node", "magnetar.admin.cluster"})
    broker.end()


def loaded_by(*arguments: str) -> set[str]:
    """Run a command in a process of its own, and return the modules that it loaded."""
    program = (
        "import sys\nfrom magnetar.cli.main import run\n"
        "status = run(sys.argv[1:])\nprint(' '.join(sys.modules), file=sys.stderr)\nsys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())
