"""Which data directory an operator means: the one named, or that of the broker at the bootstrap address."""

from __future__ import annotations

from pathlib import Path

from magnetar.admin.cluster import Cluster
from magnetar.admin.errors import NotThere
from magnetar.admin.server import SOCKET
from magnetar.kafka.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from magnetar.kafka.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse


def data_directory(data: Path | None, bootstrap: str) -> Path:
    """Give the directory; ask the broker where it is if none is named. Raises `NotThere` or `Unreachable`."""
    if data is not None:
        if not data.is_dir():
            raise NotThere(
                f"there is no directory {data}", "Name the one 'magnetar standalone --data' was given."
            )
        return data.absolute()
    with Cluster(bootstrap) as cluster:
        said = cluster.ask(DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse)
    for result in said.results:
        if (Path(result.log_dir) / SOCKET).exists():
            return Path(result.log_dir)
    raise NotThere(
        f"the broker at {bootstrap} keeps its data where this process cannot see it",
        "Run this on the broker's machine as its user, or name the directory with --data.",
    )
