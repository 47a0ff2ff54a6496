"""Cutting a request by the rows' owners, and joining what they answer. Pure functions of messages.

A part of a request is a shallow copy with some of its rows; a joined answer is the first one, with the others' rows.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, TypeVar

from magnetar.kafka.rows import KeyRows, PartitionRows
from magnetar.proxy.kafka.routes import TopicKey
from magnetar.wire.kafka.primitives import ZERO_UUID

Owner = TypeVar("Owner", bound=Hashable)
Row = tuple[TopicKey, int]


def topic_key(rows: PartitionRows, topic: Any) -> TopicKey:
    """Return by what a row of topics names its topic: the id, where it has one."""
    if rows.topic_id:
        topic_id: bytes = getattr(topic, rows.topic_id)
        if topic_id != ZERO_UUID:
            return topic_id
    name: str = getattr(topic, rows.name)
    return name


def partitions_of(rows: PartitionRows, message: Any) -> Iterator[Row]:
    """Yield the partitions that a message names."""
    for topic in _topics(rows.topics, message):
        key = topic_key(rows, topic)
        for each in getattr(topic, rows.partitions):
            yield key, (getattr(each, rows.number) if rows.number else each)


def unknown_topics(
    rows: PartitionRows, message: Any, knows: Callable[[TopicKey, int], bool]
) -> dict[TopicKey, None]:
    """Return the topics of which a message names a partition that is not known, each once, in their order."""
    return {key: None for key, index in partitions_of(rows, message) if not knows(key, index)}


def _topics(path: str, message: Any) -> Iterable[Any]:
    outer, _, inner = path.partition(".")
    found: Sequence[Any] = getattr(message, outer)
    return [each for one in found for each in getattr(one, inner)] if inner else found


def cut_partitions(
    rows: PartitionRows, message: Any, owner_of: Callable[[TopicKey, int], Owner]
) -> dict[Owner, Any]:
    """Return for each owner the request with its rows alone."""
    outer, _, inner = rows.topics.partition(".")
    if not inner:
        return {
            owner: _with(message, rows.topics, topics)
            for owner, topics in _topics_by_owner(rows, getattr(message, outer), owner_of).items()
        }
    found: dict[Owner, list[Any]] = {}
    for one in getattr(message, outer):
        for owner, topics in _topics_by_owner(rows, getattr(one, inner), owner_of).items():
            found.setdefault(owner, []).append(_with(one, inner, topics))
    return {owner: _with(message, outer, some) for owner, some in found.items()}


def _topics_by_owner(
    rows: PartitionRows, topics: Iterable[Any], owner_of: Callable[[TopicKey, int], Owner]
) -> dict[Owner, list[Any]]:
    found: dict[Owner, list[Any]] = {}
    for topic in topics:
        key = topic_key(rows, topic)
        of_topic: dict[Owner, list[Any]] = {}
        for each in getattr(topic, rows.partitions):
            owner = owner_of(key, getattr(each, rows.number) if rows.number else each)
            of_topic.setdefault(owner, []).append(each)
        for owner, some in of_topic.items():
            found.setdefault(owner, []).append(_with(topic, rows.partitions, some))
    return found


def cut_keys(rows: KeyRows, message: Any, owner_of: Callable[[str], Owner]) -> dict[Owner, Any]:
    """Return for each owner the request with its rows alone."""
    found: dict[Owner, list[Any]] = {}
    for each in getattr(message, rows.rows):
        found.setdefault(owner_of(getattr(each, rows.key) if rows.key else each), []).append(each)
    return {owner: _with(message, rows.rows, some) for owner, some in found.items()}


def keys_of(rows: KeyRows, message: Any) -> list[str]:
    """Return the keys that a message names."""
    return [getattr(each, rows.key) if rows.key else each for each in getattr(message, rows.rows)]


def join_partitions(rows: PartitionRows, answers: Sequence[Any]) -> Any:
    """Return one answer with the rows of all, those of one topic together."""
    topics: dict[TopicKey, Any] = {}
    for answer in answers:
        for topic in getattr(answer, rows.topics):
            key = topic_key(rows, topic)
            known = topics.get(key)
            if known is None:
                topics[key] = _with(topic, rows.partitions, list(getattr(topic, rows.partitions)))
            else:
                getattr(known, rows.partitions).extend(getattr(topic, rows.partitions))
    return _joined(rows.topics, list(topics.values()), answers)


def join_keys(rows: KeyRows, answers: Sequence[Any]) -> Any:
    """Return one answer with the rows of all, each once: what is below those of one key together."""
    found: dict[Any, Any] = {}
    for answer in answers:
        for row in getattr(answer, rows.rows):
            key = getattr(row, rows.key)
            if not rows.below:
                found[key] = row
            elif key in found:
                getattr(found[key], rows.below).extend(getattr(row, rows.below))
            else:
                found[key] = _with(row, rows.below, list(getattr(row, rows.below)))
    return _joined(rows.rows, list(found.values()), answers)


def _joined(field: str, found: list[Any], answers: Sequence[Any]) -> Any:
    joined = _with(answers[0], field, found)
    names = joined.__slots__
    if "throttle_time_ms" in names:
        joined.throttle_time_ms = max(each.throttle_time_ms for each in answers)
    if "error_code" in names:
        joined.error_code = next((each.error_code for each in answers if each.error_code), 0)
    return joined


def _with(message: Any, field: str, value: Any) -> Any:
    made = copy(message)
    setattr(made, field, value)
    return made


def says(message: Any, codes: Container[int]) -> bool:
    """Whether an answer has one of the error codes, at any depth."""
    return any(code in codes for code in codes_in(message))


def codes_in(message: Any) -> Iterator[int]:
    """Yield the error codes of an answer and of its rows, at any depth."""
    for name in message.__slots__:
        value = getattr(message, name)
        if name == "error_code":
            yield value
        elif type(value) is list:
            for each in value:
                if not hasattr(each, "__slots__"):
                    break
                yield from codes_in(each)
