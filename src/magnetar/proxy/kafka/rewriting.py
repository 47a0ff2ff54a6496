"""What brokers tell of brokers, told again as the clients of a proxy see it: there is one, and it has everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from magnetar.wire.kafka.messages import ApiKey
from magnetar.wire.kafka.messages.describe_cluster_response import DescribeClusterBroker
from magnetar.wire.kafka.messages.list_config_resources_response import ConfigResource
from magnetar.wire.kafka.messages.metadata_response import MetadataResponseBroker

OF_BROKERS = (4, 8)
"""Types of resources: a broker, and its loggers."""


class Place(NamedTuple):
    """What clients are told of the proxy."""

    node_id: int
    host: str
    port: int


def metadata(answer: Any, place: Place) -> None:
    answer.brokers = [
        MetadataResponseBroker(node_id=place.node_id, host=place.host, port=place.port, rack=None)
    ]
    answer.controller_id = place.node_id
    here = [place.node_id]
    for topic in answer.topics:
        for row in topic.partitions:
            if row.leader_id >= 0:
                row.leader_id = place.node_id
                row.replica_nodes = row.isr_nodes = here
            else:
                row.replica_nodes = row.isr_nodes = []
            row.offline_replicas = []


def find_coordinator(answer: Any, place: Place) -> None:
    for each in (answer, *answer.coordinators):
        if not each.error_code and each.port > 0:
            each.node_id, each.host, each.port = place


def describe_cluster(answer: Any, place: Place) -> None:
    if answer.error_code:
        return
    answer.controller_id = place.node_id
    answer.brokers = [
        DescribeClusterBroker(
            broker_id=place.node_id, host=place.host, port=place.port, rack=None, is_fenced=False
        )
    ]


def describe_topic_partitions(answer: Any, place: Place) -> None:
    here = [place.node_id]
    for topic in answer.topics:
        for row in topic.partitions:
            row.replica_nodes = row.isr_nodes = here if row.leader_id >= 0 else []
            row.leader_id = place.node_id if row.leader_id >= 0 else row.leader_id
            row.offline_replicas = []
            row.eligible_leader_replicas = row.last_known_elr = []  # Java's client takes no null


def list_config_resources(answer: Any, place: Place) -> None:
    """Brokers, and what they log by, are one that clients know."""
    found = [each for each in answer.config_resources if each.resource_type not in OF_BROKERS]
    for kind in OF_BROKERS:
        if any(each.resource_type == kind for each in answer.config_resources):
            found.append(ConfigResource(resource_type=kind, resource_name=str(place.node_id)))
    answer.config_resources = found


def leaders(answer: Any, place: Place) -> None:
    """Produce's and Fetch's: whoever leads now, it is reached here (KIP-951)."""
    for topic in answer.responses:
        rows = topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
        for row in rows:
            if row.current_leader is not None and row.current_leader.leader_id >= 0:
                row.current_leader.leader_id = place.node_id
            if hasattr(row, "preferred_read_replica"):
                row.preferred_read_replica = -1
    if answer.node_endpoints:
        first = answer.node_endpoints[0]
        first.node_id, first.host, first.port = place
        first.rack = None
        answer.node_endpoints = [first]


REWRITTEN: dict[int, Callable[[Any, Place], None]] = {
    ApiKey.METADATA: metadata,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.LIST_CONFIG_RESOURCES: list_config_resources,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    ApiKey.PRODUCE: leaders,
    ApiKey.FETCH: leaders,
}
"""By API; the others' answers name no brokers."""
