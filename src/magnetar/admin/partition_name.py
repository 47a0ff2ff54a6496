"""``flights-3@1234``: how operators name a partition, and an offset in it."""

from __future__ import annotations

import re
from typing import NamedTuple

from magnetar.admin.errors import Invalid

_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")


class PartitionName(NamedTuple):
    """One partition of a topic, by the name Kafka's clients use."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def parse_place(text: str) -> PartitionName:
    """Read ``TOPIC-PARTITION``; raise `Invalid`."""
    found = _PARTITION.fullmatch(text)
    if found is None:
        raise Invalid(f"{text!r} does not name a partition", "Write TOPIC-PARTITION, as in flights-3.")
    return PartitionName(found["topic"], int(found["partition"]))


def parse_record(text: str) -> tuple[PartitionName, int]:
    """Read ``TOPIC-PARTITION@OFFSET``; raise `Invalid`."""
    place, at, offset = text.rpartition("@")
    if not at or not offset.isdecimal():
        raise Invalid(
            f"{text!r} does not name a record", "Write TOPIC-PARTITION@OFFSET, as in flights-3@1234."
        )
    return parse_place(place), int(offset)
