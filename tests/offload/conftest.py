"""Places that offloaded ledgers go to: a directory, and an S3 server of moto's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from magnetar.ledger.tiers.place import TierPlace

KEYS = {"AWS_ACCESS_KEY_ID": "who", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
BUCKET = "tiers"


@pytest.fixture(scope="session")
def s3() -> Iterator[Any]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"aws_access_key_id": "who", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", **keys)
    client.create_bucket(Bucket=BUCKET)
    yield client
    server.stop()


@pytest.fixture
def aws_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def s3_place(client: Any, prefix: str = "") -> TierPlace:
    return TierPlace("aws-s3", BUCKET, "us-east-1", client.meta.endpoint_url, prefix)


@pytest.fixture(params=["filesystem", "aws-s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> TierPlace:
    if request.param == "filesystem":
        return TierPlace("filesystem", path=str(tmp_path / "tiers"))
    request.getfixturevalue("aws_keys")
    return s3_place(request.getfixturevalue("s3"), tmp_path.name)
