"""Which broker an operator means, and how to ask it: through its data directory, or its admin REST."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from magnetar.admin.errors import NotThere

if TYPE_CHECKING:
    from magnetar.admin.client import Way
    from magnetar.admin.cluster import ClusterAdmin

# What asks a broker is loaded when one is asked: a command that is told the directory needs none of it.

_ADMIN_URL = "magnetar.admin.url"  # a configuration that brokers tell of themselves


def data_directory(data: Path | None, bootstrap: str) -> Path:
    """Return the directory; ask the broker where it is if none is named. Raises `NotThere` or `Unreachable`."""
    if data is not None:
        if not data.is_dir():
            raise NotThere(
                f"there is no directory {data}", "Name the one 'magnetar standalone --data' was given."
            )
        return data.absolute()
    from magnetar.admin.cluster import ClusterAdmin

    with ClusterAdmin(bootstrap) as cluster:
        found = _directory_of(cluster)
    if found is None:
        raise NotThere(
            f"the broker at {bootstrap} keeps its data where this process cannot see it",
            "Run this on the broker's machine as its user, or name the directory with --data.",
        )
    return found


Owner: TypeAlias = "Callable[[ClusterAdmin], int | None]"
"""Finds the number of the broker that knows of something; None if all do, or nobody has it."""


def leader_of(topic: str, partition: int) -> Owner:
    """Return what finds the broker that has a partition."""

    from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
    from magnetar.wire.kafka.messages.metadata_response import MetadataResponse

    def find(cluster: ClusterAdmin) -> int | None:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        rows = cluster.ask(asked, MetadataResponse).topics[0].partitions
        found = next((row.leader_id for row in rows if row.partition_index == partition), -1)
        return None if found < 0 else found

    return find


def coordinator_of(group: str) -> Owner:
    """Return what finds the broker that keeps a group."""
    return lambda cluster: cluster.coordinator(group)


def way_to_ask(
    data: Path | None, admin: str | None, bootstrap: str, owner: Owner = lambda cluster: None
) -> Way:
    """Return how to ask the broker that is meant: over the admin REST named, or through a directory's socket.

    Of the broker at the bootstrap address, where neither is named, or of the one that ``owner`` finds from there, it is
    the socket if this process can see it, and otherwise the admin REST that the broker says it serves. Raises
    `NotThere` or `Unreachable`.
    """
    from magnetar.admin.client import Local, Remote
    from magnetar.admin.cluster import ClusterAdmin

    if data is not None:
        return Local(data_directory(data, bootstrap))
    if admin is not None:
        return Remote(admin)
    with ClusterAdmin(bootstrap) as cluster:
        node_id = owner(cluster)
        found = _directory_of(cluster, node_id)
        if found is not None:
            return Local(found)
        url = _admin_of(cluster, node_id)
    if url is None:
        raise NotThere(
            f"the broker at {bootstrap} serves no admin REST, and keeps its data where this process cannot see it",
            "Start it with --http, name its admin REST with --admin, or run this on its machine as its user.",
        )
    return Remote(url)


def _admin_of(cluster: ClusterAdmin, node_id: int | None) -> str | None:
    from magnetar.admin.configs import ResourceKind, describe_configs
    from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
    from magnetar.wire.kafka.messages.metadata_response import MetadataResponse

    if node_id is None:
        asked = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        node_id = cluster.ask(asked, MetadataResponse).controller_id
    rows = describe_configs(cluster, ResourceKind.BROKER, str(node_id)).configs
    return next((row.value.split(",")[0] for row in rows if row.name == _ADMIN_URL and row.value), None)


def _directory_of(cluster: ClusterAdmin, node_id: int | None = None) -> Path | None:
    """Return the data directory of the broker that is asked, if it lies on this machine and may be seen."""
    from magnetar.wire.kafka.messages.describe_log_dirs_request import DescribeLogDirsRequest
    from magnetar.wire.kafka.messages.describe_log_dirs_response import DescribeLogDirsResponse
    from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
    from magnetar.wire.kafka.messages.metadata_response import MetadataResponse

    said = cluster.ask_node(node_id, DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse)
    asked = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    brokers = cluster.ask(asked, MetadataResponse).brokers
    advertised = {f"{broker.host}:{broker.port}" for broker in brokers}
    served = (Path(each.log_dir) for each in said.results if _serves(Path(each.log_dir), advertised))
    return next(served, None)


def _serves(directory: Path, advertised: set[str]) -> bool:
    """Return whether the broker of a local directory is the one that answered: another machine may have the same
    path.
    """
    from magnetar.node.address_file import ADDRESS_FILE

    try:
        word = json.loads((directory / ADDRESS_FILE).read_text())
        return bool(advertised & {*word["kafka"], *word.get("brokers", ())})
    except (OSError, ValueError, KeyError, TypeError):
        return False
