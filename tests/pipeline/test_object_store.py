"""A data directory that was copied to an object store is read from there: the rows are those that were written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import pytest
from moto.server import ThreadedMotoServer

from magnetar.ledger.errors import LedgerNotFound
from magnetar.pipeline.object_store import at_hand, place_of
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import Plan
from magnetar.pipeline.source import read
from tests.pipeline.jobs.test_json_pipeline import send
from tests.process import BrokerProcess


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "who", "aws_secret_access_key": "secret", "region_name": "eu-central-1"}
    client = boto3.client("s3", endpoint_url=url, **keys)
    client.create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    yield client
    server.stop()


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = {
        "AWS_ACCESS_KEY_ID": "who",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in (given | {"MAGNETAR_OBJECT_CACHE": str(tmp_path / "cache")}).items():
        monkeypatch.setenv(name, value)


def address(s3: Any, prefix: str) -> str:
    endpoint = s3.meta.endpoint_url.partition("://")[2]
    told = f"region=eu-central-1&scheme=http&endpoint_override={quote(endpoint, safe='')}"
    return f"s3://lake/{prefix}?{told}"


def upload(s3: Any, data: Path, prefix: str) -> None:
    for path in sorted(data.rglob("*")):
        if path.is_file():
            s3.upload_file(str(path), "lake", f"{prefix}/{path.relative_to(data)}")


@pytest.mark.usefixtures("keys")
def test_files_come_once_and_anew_when_they_changed(s3: Any) -> None:
    root = place_of(address(s3, "few"))
    assert root.parts[-1] == "+"
    with pytest.raises(FileNotFoundError):
        at_hand(root / "metadata.sqlite").read_bytes()
    s3.put_object(Bucket="lake", Key="few/metadata.sqlite", Body=b"one")
    assert at_hand(root / "metadata.sqlite").read_bytes() == b"one"
    inode = (root / "metadata.sqlite").stat().st_ino
    assert at_hand(root / "metadata.sqlite").stat().st_ino == inode, "it is not brought twice"
    s3.put_object(Bucket="lake", Key="few/metadata.sqlite", Body=b"other")
    assert at_hand(root / "metadata.sqlite").read_bytes() == b"other"
    s3.delete_object(Bucket="lake", Key="few/metadata.sqlite")
    assert not at_hand(root / "metadata.sqlite").exists()


def test_addresses_that_cannot_be_name_the_option() -> None:
    with pytest.raises(ValueError, match="path: nowhere://x"):
        place_of("nowhere://x")
    with pytest.raises(ValueError, match="environment") as why:
        place_of("s3://who:secret@lake/data")
    assert "secret" not in str(why.value)


def test_paths_are_paths(tmp_path: Path) -> None:
    assert place_of(str(tmp_path)) == place_of(f"file:{tmp_path}") == tmp_path
    assert at_hand(tmp_path / "a") == tmp_path / "a"


@pytest.fixture
def whole(s3: Any, tmp_path: Path) -> str:
    """A topic of several ledgers, the last of them open, copied."""
    data = tmp_path / "data"
    with BrokerProcess(data, "--set", "log.segment.bytes=1048576") as broker:
        for begin in range(0, 6000, 1000):
            send(broker.address, "t", *((str(n), b"%d" % n * 200) for n in range(begin, begin + 1000)))
    upload(s3, data, tmp_path.name)
    shutil.rmtree(data)
    return address(s3, tmp_path.name)


@pytest.mark.usefixtures("keys")
def test_slices_are_read_from_there(s3: Any, whole: str, tmp_path: Path) -> None:
    options = parse_options({"path": whole, "subscribe": "t"}, streaming=False)
    plan = Plan(options)
    pieces = plan.slices(plan.starts(), plan.ends())
    assert len(pieces) > 2
    # An executor's machine has nothing yet, and is told nothing but the slices.
    shutil.rmtree(tmp_path / "cache")
    found = []
    for piece in pieces:
        for batch in read(piece, options):
            found += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
    assert found == [(n, b"%d" % n * 200) for n in range(6000)]
    # What is missing in the middle is an error, not a gap.
    first = next((tmp_path / "cache").rglob("*.ledger"))
    key = "/".join(first.parts[-3:])
    s3.delete_object(Bucket="lake", Key=f"{tmp_path.name}/{key}")
    with pytest.raises(LedgerNotFound, match="is gone"):
        [list(read(piece, options)) for piece in pieces]


READ = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.read.format("magnetar").option("subscribe", "t").load(sys.argv[1])
print("rows", rows.count(), rows.where("offset >= 5990").count())
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("keys")
def test_spark_reads_it(whole: str) -> None:
    """In a process of its own: executors take the keys from the environment that Spark was started in."""
    done = subprocess.run(
        [sys.executable, "-c", READ, whole], capture_output=True, text=True, check=False,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert "rows 6000 10" in done.stdout, done.stderr[-3000:]
