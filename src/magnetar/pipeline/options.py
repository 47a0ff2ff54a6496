"""The source's options: those of Spark's Kafka source by name and meaning, and ``path``, the data directory.

path                            the broker's data directory, also as .load(path)
subscribe | subscribePattern | assign    exactly one of them
startingOffsets, endingOffsets  earliest, latest, or {"topic": {"0": 23, "1": -2}} (-2 earliest, -1 latest)
startingTimestamp, endingTimestamp       ms, for all partitions; before ...OffsetsByTimestamp, before ...Offsets
startingOffsetsByTimestamp, endingOffsetsByTimestamp    {"topic": {"0": ms}}
startingOffsetsByTimestampStrategy       error (default) or latest, where no record is that young
includeHeaders, failOnDataLoss, minPartitions, maxOffsetsPerTrigger
kafka.bootstrap.servers         whom to ask how far records are visible, instead of what broker.json says
columns                         the columns to read, comma-separated; fewer are faster
sliceBytes                      how much of a ledger one task reads, about
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"
SLICE_BYTES = 64 << 20


class TopicPartition(NamedTuple):
    """One partition, by the name that Kafka's clients use."""

    topic: str
    partition: int


Offsets: TypeAlias = dict[TopicPartition, int]
EARLIEST, LATEST = -2, -1

_NAMES = {
    name.lower(): name
    for name in (
        "path", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingTimestamp",
        "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy", "includeHeaders", "failOnDataLoss", "minPartitions",
        "maxOffsetsPerTrigger", "columns", "sliceBytes",
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to begin or to end: one offset for all, one per partition, or by time (ms)."""

    everywhere: int = EARLIEST
    offsets: Mapping[TopicPartition, int] | None = None
    times: Mapping[TopicPartition, int] | int | None = None

    def time_of(self, which: TopicPartition) -> int | None:
        """Give the time asked for in this partition; None if it is not bound by time."""
        if self.times is None or isinstance(self.times, int):
            return self.times
        return self.times.get(which)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What one read was asked for."""

    data: Path
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] | None = None
    start: Bound = Bound(EARLIEST)
    end: Bound = Bound(LATEST)
    latest_if_too_young: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int = 0
    max_offsets_per_trigger: int | None = None
    bootstrap_servers: str | None = None
    columns: tuple[str, ...] = COLUMNS
    slice_bytes: int = SLICE_BYTES


def parse_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read Spark's options; raise ``ValueError`` naming the option that is wrong, unknown ones too."""
    given = {name.lower(): str(value) for name, value in options.items()}
    unknown = [name for name in given if name not in _NAMES and not name.startswith("kafka.")]
    if unknown:
        raise ValueError(f"unknown option {unknown[0]!r}; there are: {', '.join(sorted(_NAMES.values()))}")
    if "path" not in given:
        raise ValueError(
            "option 'path' is missing: the data directory of the broker, as in .load('/data/magnetar')"
        )
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(ways) != 1:
        raise ValueError(f"give exactly one of subscribe, subscribePattern and assign, not {ways or 'none'}")
    if streaming and any(name.startswith("ending") for name in given):
        raise ValueError("a stream has no end: endingOffsets and endingTimestamp are for batches")
    start = _bound(given, "starting", LATEST if streaming else EARLIEST)
    end = _bound(given, "ending", LATEST)
    if not streaming and start == Bound(LATEST):
        raise ValueError("startingOffsets 'latest' would read nothing; it is for streams")
    if end == Bound(EARLIEST):
        raise ValueError("endingOffsets 'earliest' would read nothing")
    strategy = _one_of(given, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    return SourceOptions(
        data=Path(given["path"].removeprefix("file:")).absolute(),
        topics=tuple(t.strip() for t in given.get("subscribe", "").split(",") if t.strip()),
        pattern=given.get("subscribepattern"),
        assigned=_assigned(given),
        start=start,
        end=end,
        latest_if_too_young=strategy == "latest",
        fail_on_data_loss=_one_of(given, "failOnDataLoss", ("true", "false")) == "true",
        min_partitions=_count(given, "minPartitions") or 0,
        max_offsets_per_trigger=_count(given, "maxOffsetsPerTrigger"),
        bootstrap_servers=given.get("kafka.bootstrap.servers"),
        columns=_columns(given),
        slice_bytes=_count(given, "sliceBytes") or SLICE_BYTES,
    )


def _bound(given: Mapping[str, str], side: str, default: int) -> Bound:
    if (text := given.get(f"{side}timestamp")) is not None:
        if not text.strip().isdigit():
            raise ValueError(f"{side}Timestamp must be milliseconds, not {text!r}")
        return Bound(default, times=int(text))
    if (text := given.get(f"{side}offsetsbytimestamp")) is not None:
        return Bound(default, times=_by_partition(text, f"{side}OffsetsByTimestamp", least=0))
    text = given.get(f"{side}offsets", "").strip()
    words = {"": default, "earliest": EARLIEST, "latest": LATEST}
    if text.lower() in words:
        return Bound(words[text.lower()])
    offsets = _by_partition(text, f"{side}Offsets", least=EARLIEST)
    unfit = LATEST if side == "starting" and default == EARLIEST else EARLIEST if side == "ending" else None
    if unfit in offsets.values():
        raise ValueError(f"{side}Offsets cannot be {unfit} here")
    return Bound(default, offsets=offsets)


def _by_partition(text: str, name: str, *, least: int) -> Offsets:
    try:
        content = json.loads(text)
        found = {
            TopicPartition(topic, int(partition)): int(value)
            for topic, partitions in content.items()
            for partition, value in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f'{name} must be like {{"topic": {{"0": 23, "1": 5}}}}, not {text!r}') from None
    if any(value < least for value in found.values()):
        raise ValueError(f"{name} has a number below {least}: {text!r}")
    return found


def _assigned(given: Mapping[str, str]) -> tuple[TopicPartition, ...] | None:
    text = given.get("assign")
    if text is None:
        return None
    try:
        content = json.loads(text)
        return tuple(sorted(TopicPartition(str(t), int(p)) for t, ps in content.items() for p in ps))
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f'assign must be like {{"topic": [0, 1]}}, not {text!r}') from None


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    headers = _one_of(given, "includeHeaders", ("false", "true")) == "true"
    if "columns" not in given:
        return (*COLUMNS, HEADERS) if headers else COLUMNS
    names = tuple(name.strip() for name in given["columns"].split(",") if name.strip())
    known = (*COLUMNS, HEADERS)
    wrong = [name for name in names if name not in known]
    if wrong or not names or len(set(names)) != len(names):
        raise ValueError(f"columns must be some of {', '.join(known)}, each once, not {given['columns']!r}")
    return names


def _one_of(given: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """Give the option's value; the first word is the default."""
    text = given.get(name.lower(), words[0]).strip().lower()
    if text not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}, not {text!r}")
    return text


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise ValueError(f"{name} must be a number above 0, not {text!r}")
    return int(text)
