"""Which data directory an operator means: the one named, or that of the broker at the bootstrap address."""

from __future__ import annotations

import json
from pathlib import Path

from magnetar.admin.cluster import Cluster
from magnetar.admin.errors import NotThere
from magnetar.wire.kafka.messages.describe_log_dirs_request import DescribeLogDirsRequest
from magnetar.wire.kafka.messages.describe_log_dirs_response import DescribeLogDirsResponse
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from magnetar.wire.kafka.messages.metadata_response import MetadataResponse


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
        asked = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        brokers = cluster.ask(asked, MetadataResponse).brokers
    advertised = {f"{broker.host}:{broker.port}" for broker in brokers}
    for result in said.results:
        if _serves(Path(result.log_dir), advertised):
            return Path(result.log_dir)
    raise NotThere(
        f"the broker at {bootstrap} keeps its data where this process cannot see it",
        "Run this on the broker's machine as its user, or name the directory with --data.",
    )


def _serves(directory: Path, advertised: set[str]) -> bool:
    """Tell whether the broker of a local directory is the one that answered: another machine may have the same path."""
    from magnetar.broker.service import ADDRESS_FILE  # a whole broker: only these few commands wait for it

    try:
        word = json.loads((directory / ADDRESS_FILE).read_text())
        return bool(advertised & set(word["kafka"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False
