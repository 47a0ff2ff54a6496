"""A Streams topology applied to the existing topics: the numbers of tasks, and the topics that are missing.

A *subtopology* is a part of the application that shares nothing but topics with the others; it has one task for each
partition of the largest topic that it reads. *Repartition* topics lie between subtopologies, *changelog* topics store
the state of one: both are internal, and created by the coordinator. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from magnetar.kafka.coordinators.topics import Topics
from magnetar.wire.kafka.messages.streams_group_topology_value import (
    StreamsGroupTopologyValue,
    Subtopology,
    TopicInfo,
)

MISSING_SOURCE_TOPICS, INCORRECTLY_PARTITIONED, MISSING_INTERNAL_TOPICS = 1, 2, 3
"""The numbers of a topology's problems, as in answers to members."""
_SHOWN = 5


class InvalidTopology(Exception):
    """A topology that is invalid, whatever topics there are."""


class Problem(NamedTuple):
    """A problem that a topology has now."""

    code: int
    detail: str


class MissingTopic(NamedTuple):
    """A topic that the coordinator has to create."""

    name: str
    partitions: int
    configs: tuple[tuple[str, str], ...]
    replication_factor: int = 0
    """How many replicas the application requests; 0 for the default of topics."""


@dataclass(frozen=True, slots=True)
class Configured:
    """A topology with numbers of partitions."""

    tasks: Mapping[str, int] = field(default_factory=dict)
    """How many tasks each subtopology has; nothing while that is not known."""
    stateful: frozenset[str] = frozenset()
    """Subtopologies whose tasks have state, and so can be on standby."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """How many partitions each internal topic has to have."""
    missing: tuple[MissingTopic, ...] = ()
    problem: Problem | None = None

    @property
    def is_ready(self) -> bool:
        """True if tasks may be assigned."""
        return self.problem is None


class _Wrong(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def configure(topology: StreamsGroupTopologyValue, topics: Topics) -> Configured:
    """Return the topology with numbers of partitions; raise `InvalidTopology`."""
    try:
        return _configure(topology.subtopologies, topics)
    except _Wrong as wrong:
        return Configured(problem=wrong.problem)


def _configure(parts: Sequence[Subtopology], topics: Topics) -> Configured:
    missing = sorted({name for part in parts for name in part.source_topics if topics.find(name) is None})
    if missing:
        raise _Wrong(Problem(MISSING_SOURCE_TOPICS, f"Source topics {_some(missing)} are missing."))
    decided: dict[str, int] = {}

    def size(name: str) -> int | None:
        found = topics.find(name)
        return decided.get(name) if found is None else found.partitions

    decided.update(_repartition_sizes(parts, size))
    for part in parts:
        for copartitioned in _copartition_groups(part):
            decided.update(_copartitioned(copartitioned, parts, decided, size))
    tasks = {}
    for part in parts:
        sizes = [size(name) for name in sources(part)]
        known = [each for each in sizes if each is not None]
        if not known:
            raise InvalidTopology(f"No source topics found for subtopology {part.subtopology_id}")
        tasks[part.subtopology_id] = max(known)
        decided.update((topic.name, max(known)) for topic in part.state_changelog_topics)
    lacking = []
    for topic in _internal(parts):
        found = topics.find(topic.name)
        expected = decided[topic.name]
        if found is None:
            configs = tuple((each.key, each.value) for each in topic.topic_configs)
            lacking.append(MissingTopic(topic.name, expected, configs, topic.replication_factor))
        elif found.partitions != expected:
            raise _Wrong(
                Problem(
                    INCORRECTLY_PARTITIONED,
                    f"Existing topic {topic.name} has different number of partitions: expected {expected}, "
                    f"found {found.partitions}",
                )
            )
    names = sorted(each.name for each in lacking)
    problem = Problem(MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {_some(names)}")
    stateful = frozenset(part.subtopology_id for part in parts if part.state_changelog_topics)
    return Configured(tasks, stateful, decided, tuple(lacking), problem if lacking else None)


def sources(part: Subtopology) -> list[str]:
    """Return the topics that a subtopology reads."""
    return [*part.source_topics, *(topic.name for topic in part.repartition_source_topics)]


def _internal(parts: Sequence[Subtopology]) -> list[TopicInfo]:
    found = {
        topic.name: topic
        for part in parts
        for topic in (*part.repartition_source_topics, *part.state_changelog_topics)
    }
    return list(found.values())


def _repartition_sizes(parts: Sequence[Subtopology], size: Callable[[str], int | None]) -> dict[str, int]:
    """Return sizes of repartition topics: the application's, or that of the largest topic upstream."""
    decided = {
        topic.name: topic.partitions
        for part in parts
        for topic in part.repartition_source_topics
        if topic.partitions
    }
    waiting = True
    while waiting:
        waiting = moved = False
        for part in parts:
            before = [
                decided[topic.name] for topic in part.repartition_source_topics if topic.name in decided
            ]
            before += [found for name in part.source_topics if (found := size(name)) is not None]
            for sink in part.repartition_sink_topics:
                if sink in decided:
                    continue
                if before:
                    decided[sink] = max(before)
                    moved = True
                else:
                    waiting = True
        if waiting and not moved:
            raise InvalidTopology(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                "topology that cannot be resolved."
            )
    if any(topic.name not in decided for part in parts for topic in part.repartition_source_topics):
        raise InvalidTopology(
            "Failed to compute number of partitions for all repartition topics, because a repartition source "
            "topic is never used as a sink topic."
        )
    return decided


def _copartition_groups(part: Subtopology) -> list[set[str]]:
    return [
        {part.source_topics[index] for index in group.source_topics}
        | {part.repartition_source_topics[index].name for index in group.repartition_source_topics}
        for group in part.copartition_groups
    ]


def _copartitioned(
    names: set[str],
    parts: Sequence[Subtopology],
    decided: Mapping[str, int],
    size: Callable[[str], int | None],
) -> dict[str, int]:
    """Return sizes of repartition topics that are read together with others, partition by partition."""
    if not names:
        return {}
    said = {topic.name: topic.partitions for part in parts for topic in part.repartition_source_topics}
    flexible = {name: decided[name] for name in names if name in said}
    others = {name: size(name) for name in names if name not in said}
    fixed = {name: said[name] for name in flexible if said[name]}
    if others:
        wanted = set(others.values())
    elif fixed:
        wanted = set(fixed.values())
    else:
        wanted = {max(flexible.values())}
    if len(wanted) > 1:
        shown = ", ".join(f"{name}={count}" for name, count in sorted((others or fixed).items()))
        raise _Wrong(
            Problem(
                INCORRECTLY_PARTITIONED,
                f"Following topics do not have the same number of partitions: [{{{shown}}}]",
            )
        )
    count = wanted.pop()
    assert count is not None
    for name, partitions in fixed.items():
        if partitions != count:
            raise _Wrong(
                Problem(
                    INCORRECTLY_PARTITIONED,
                    f"Number of partitions [{partitions}] of repartition topic [{name}] doesn't match number of "
                    f"partitions [{count}] of the source topic.",
                )
            )
    return dict.fromkeys(flexible, count)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
