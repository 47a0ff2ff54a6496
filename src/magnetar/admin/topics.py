"""Topics: what there is, what one holds, and how it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.configs import ConfigRow, ResourceKind, describe_configs
from magnetar.admin.errors import NotThere
from magnetar.admin.offsets import EARLIEST, LATEST, Key, Spot, list_offsets, resolve
from magnetar.admin.refusals import check
from magnetar.wire.kafka.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from magnetar.wire.kafka.messages.create_partitions_response import CreatePartitionsResponse
from magnetar.wire.kafka.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from magnetar.wire.kafka.messages.create_topics_response import CreateTopicsResponse
from magnetar.wire.kafka.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from magnetar.wire.kafka.messages.delete_records_response import DeleteRecordsResponse
from magnetar.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from magnetar.wire.kafka.messages.delete_topics_response import DeleteTopicsResponse
from magnetar.wire.kafka.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from magnetar.wire.kafka.messages.describe_log_dirs_response import DescribeLogDirsResponse
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.metadata_response import MetadataResponse, MetadataResponseTopic

TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic of many. ``size`` is bytes on disk."""

    name: str
    partitions: int
    internal: bool
    size: int


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition: ``first`` is the first offset kept, ``next`` the one behind the last readable record."""

    partition: int
    leader: int
    first: int
    next: int
    records: int
    size: int


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """One topic with everything that is set for it. ``flush`` is when producers are acknowledged here."""

    name: str
    topic_id: str
    internal: bool
    flush: str
    partitions: tuple[PartitionRow, ...]
    configs: tuple[ConfigRow, ...]

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def size(self) -> int:
        return sum(partition.size for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """The topics that are gone."""

    deleted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Where each partition begins after records were deleted."""

    topic: str
    first: dict[str, int]


def list_topics(cluster: ClusterAdmin, *, internal: bool = False) -> tuple[TopicRow, ...]:
    """Return all topics by name, the coordinators' own only if asked for."""
    said = cluster.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse)
    sizes = _sizes(cluster, None)
    return tuple(
        TopicRow(name, len(topic.partitions), topic.is_internal, sum(sizes.get(name, {}).values()))
        for name, topic in sorted((topic.name or "", topic) for topic in said.topics)
        if internal or not topic.is_internal
    )


def partitions_of(cluster: ClusterAdmin, name: str) -> list[Key]:
    """Return the partitions of a topic; raise `NotThere`."""
    return [(name, each.partition_index) for each in _metadata(cluster, name).partitions]


def describe_topic(cluster: ClusterAdmin, name: str) -> TopicDetail:
    """Return one topic with its offsets, sizes and configurations; raise `NotThere`."""
    topic = _metadata(cluster, name)
    keys = [(name, each.partition_index) for each in topic.partitions]
    low, high = list_offsets(cluster, keys, EARLIEST), list_offsets(cluster, keys, LATEST)
    if any(each.leader_id < 0 for each in topic.partitions):  # it had none yet; whoever answered is one
        topic = _metadata(cluster, name)
    sizes = _sizes(cluster, {name: [index for _, index in keys]}).get(name, {})
    rows = []
    for each in sorted(topic.partitions, key=lambda each: each.partition_index):
        index = each.partition_index
        first, after = low[name, index], high[name, index]
        rows.append(PartitionRow(index, each.leader_id, first, after, after - first, sizes.get(index, 0)))
    configs = describe_configs(cluster, ResourceKind.TOPIC, name).configs
    return TopicDetail(
        name=name,
        topic_id=topic.topic_id.hex(),
        internal=topic.is_internal,
        flush=_flush(cluster, topic, configs),
        partitions=tuple(rows),
        configs=configs,
    )


def create_topic(
    cluster: ClusterAdmin,
    name: str,
    partitions: int | None,
    configs: Mapping[str, str | None],
    *,
    dry_run: bool = False,
) -> TopicDetail | None:
    """Make a topic and give it, or None for a dry run that would do; see `make_topic`."""
    make_topic(cluster, name, partitions, configs, dry_run=dry_run)
    return None if dry_run else describe_topic(cluster, name)


def make_topic(
    cluster: ClusterAdmin,
    name: str,
    partitions: int | None,
    configs: Mapping[str, str | None],
    *,
    dry_run: bool = False,
) -> None:
    """Make a topic, which asks for less than to describe it.

    ``partitions`` None is the broker's default. Raises `Declined` with the broker's reason.
    """
    asked = CreatableTopic(
        name=name,
        num_partitions=-1 if partitions is None else partitions,
        replication_factor=-1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[asked], timeout_ms=TIMEOUT_MS, validate_only=dry_run)
    result = cluster.ask(request, CreateTopicsResponse).topics[0]
    check(result.error_code, result.error_message, f"topic {name}")


def delete_topics(cluster: ClusterAdmin, names: list[str]) -> TopicsDeleted:
    """Delete topics with all they hold; raise for the first that cannot be."""
    said = cluster.ask(
        DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names], topic_names=names, timeout_ms=TIMEOUT_MS
        ),
        DeleteTopicsResponse,
    )
    for result in said.responses:
        check(result.error_code, result.error_message, f"topic {result.name}")
    return TopicsDeleted(tuple(names))


def add_partitions(cluster: ClusterAdmin, name: str, total: int) -> TopicDetail:
    """Add partitions to a topic, to be ``total`` in all."""
    asked = CreatePartitionsTopic(name=name, count=total, assignments=None)
    said = cluster.ask(
        CreatePartitionsRequest(topics=[asked], timeout_ms=TIMEOUT_MS), CreatePartitionsResponse
    )
    check(said.results[0].error_code, said.results[0].error_message, f"topic {name}")
    return describe_topic(cluster, name)


def trim(cluster: ClusterAdmin, name: str, partitions: list[int] | None, before: Spot) -> Trimmed:
    """Delete all records before a spot; in the partitions named, None for all."""
    keys = [key for key in partitions_of(cluster, name) if partitions is None or key[1] in partitions]
    missing = set(partitions or ()) - {index for _, index in keys}
    if missing:
        raise NotThere(f"topic {name} has no partition {min(missing)}", "See 'magnetar topic describe'.")
    ends = resolve(cluster, keys, before)

    def request(some: list[tuple[str, int]]) -> DeleteRecordsRequest:
        rows = [DeleteRecordsPartition(partition_index=index, offset=ends[name, index]) for _, index in some]
        return DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=rows)], timeout_ms=TIMEOUT_MS
        )

    first = {}
    answers = cluster.ask_leaders(keys, request, DeleteRecordsResponse)
    for row in (row for said in answers for row in said.topics[0].partitions):
        check(row.error_code, None, f"{name}-{row.partition_index}")
        first[str(row.partition_index)] = row.low_watermark
    return Trimmed(name, first)


def _metadata(cluster: ClusterAdmin, name: str) -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    topic = cluster.ask(request, MetadataResponse).topics[0]
    check(topic.error_code, None, f"topic {name}")
    return topic


def _sizes(cluster: ClusterAdmin, wanted: Mapping[str, list[int]] | None) -> dict[str, dict[int, int]]:
    asked = (
        None
        if wanted is None
        else [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in wanted.items()]
    )
    sizes: dict[str, dict[int, int]] = {}
    answers = cluster.ask_all(DescribeLogDirsRequest(topics=asked), DescribeLogDirsResponse)
    for directory in (each for answer in answers for each in answer.results):
        for topic in directory.topics:
            of_topic = sizes.setdefault(topic.name, {})
            for row in topic.partitions:  # who does not lead it may know of less
                size = max(row.partition_size, of_topic.get(row.partition_index, 0))
                of_topic[row.partition_index] = size
    return sizes


def _flush(cluster: ClusterAdmin, topic: MetadataResponseTopic, configs: tuple[ConfigRow, ...]) -> str:
    """Return the flush policy in force, as far as configurations tell."""
    own = {row.name: row.value for row in configs}
    if own.get("flush.messages") == "1":
        return "always"
    leader = topic.partitions[0].leader_id if topic.partitions else -1
    if leader < 0:
        return "unknown"
    broker = {
        row.name: row.value for row in describe_configs(cluster, ResourceKind.BROKER, str(leader)).configs
    }
    return broker.get("flush") or "unknown"
