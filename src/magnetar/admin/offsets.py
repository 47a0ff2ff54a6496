"""Where partitions begin and end, and where a point in time lies in them; and how operators write offsets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import Invalid
from magnetar.admin.refusals import check
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.list_offsets_response import ListOffsetsResponse

Key = tuple[str, int]
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
_NUMBER = re.compile(r"-?\d+")


class Spot(NamedTuple):
    """Where in a partition: ``kind`` is earliest, latest, offset, tail (so many before the end), time or shift."""

    kind: str
    value: int = 0


def parse_spot(text: str) -> Spot:
    """Read ``earliest``, ``latest``, ``1234``, ``-10`` (so many before the end) or ``s@TIME``.

    ``beginning`` and ``end`` are understood too. A time is ms since 1970 or ISO 8601. Raises `Invalid`.
    """
    if text in ("earliest", "beginning"):
        return Spot("earliest")
    if text in ("latest", "end"):
        return Spot("latest")
    if text.startswith("s@"):
        return Spot("time", parse_time(text[2:]))
    if _NUMBER.fullmatch(text):
        number = int(text)
        return Spot("tail", -number) if text.startswith("-") else Spot("offset", number)
    raise Invalid(
        f"{text!r} is no place in a partition",
        "Write beginning, end, an offset, -N (before the end) or s@TIME (ms since 1970, or ISO 8601).",
    )


def parse_time(text: str) -> int:
    """Read ms since 1970 or an ISO 8601 time (local time unless it says otherwise); raise `Invalid`."""
    if text.isdecimal():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise Invalid(
            f"{text!r} is no time", "Write ms since 1970, or ISO 8601 as in 2026-11-20T22:00:00Z."
        ) from None


def list_offsets(
    cluster: ClusterAdmin, keys: Iterable[Key], timestamp: int, *, leave_out_missing: bool = False
) -> dict[Key, int]:
    """Return an offset per partition: `LATEST`, `EARLIEST`, or the first record at or after a time (-1 for none)."""

    def request(some: list[Key]) -> ListOffsetsRequest:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, partition in some:
            topics.setdefault(topic, []).append(
                ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            )
        asked = [ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()]
        return ListOffsetsRequest(replica_id=-1, topics=asked)

    wanted = list(keys)
    if not wanted:
        return {}
    found = {}
    told = cluster.ask_leaders(wanted, request, ListOffsetsResponse)
    for answered in (topic for said in told for topic in said.topics):
        for row in answered.partitions:
            if leave_out_missing and row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            check(row.error_code, None, f"{answered.name}-{row.partition_index}")
            found[answered.name, row.partition_index] = row.offset
    return found


def resolve(cluster: ClusterAdmin, keys: Iterable[Key], spot: Spot) -> dict[Key, int]:
    """Return the offset that a spot means in each partition, within what the partition holds."""
    keys = list(keys)
    low, high = list_offsets(cluster, keys, EARLIEST), list_offsets(cluster, keys, LATEST)
    if spot.kind == "time":
        timed = list_offsets(cluster, keys, spot.value)
        return {key: high[key] if timed[key] < 0 else timed[key] for key in keys}
    wanted = {
        key: {"earliest": low[key], "latest": high[key], "tail": high[key] - spot.value}.get(
            spot.kind, spot.value
        )
        for key in keys
    }
    return {key: min(max(offset, low[key]), high[key]) for key, offset in wanted.items()}
