"""Where a bundle is split, by Pulsar's algorithms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from zlib import crc32

from magnetar.base.slices import sliced
from magnetar.cluster.ownership import Bundle, CannotSplit, partition_name
from magnetar.topics.topic import Topic

RANGE, TOPICS, POSITIONS = (
    "range_equally_divide",
    "topic_count_equally_divide",
    "specified_positions_divide",
)


def hash_of(topic: Topic, index: int) -> int:
    """Return the hash by which a partition belongs to a bundle."""
    return crc32(partition_name(topic.name, index).encode())


async def hashes_of(bundle: Bundle, topics: Iterable[Topic]) -> list[int]:
    """Return the hashes of the partitions in a bundle, sorted; the event loop gets turns meanwhile."""
    found = []
    async for topic in sliced(topics):
        if topic.name.namespace_name == bundle.namespace and not topic.deleted:
            found += [
                hashed for index in range(topic.partitions) if (hashed := hash_of(topic, index)) in bundle
            ]
    return sorted(found)


def bundle_cuts(
    bundle: Bundle, algorithm: str, hashes: Sequence[int], wanted: Sequence[int] = ()
) -> list[int]:
    """Return the hashes at which parts of a bundle begin, but for the first; raise `CannotSplit`.

    ``hashes`` are those of its partitions, sorted; ``wanted`` those that the operator named.
    """
    if algorithm == RANGE:
        cuts = [(bundle.first + bundle.end) // 2]
    elif algorithm == TOPICS:
        if len(hashes) < 2:
            raise CannotSplit(f"bundle {bundle.range} has fewer than two partitions")
        cuts = [(hashes[len(hashes) // 2 - 1] + hashes[len(hashes) // 2] + 1) // 2]
    elif algorithm == POSITIONS:
        cuts = sorted(set(wanted))
        if not cuts:
            raise CannotSplit(f"{POSITIONS} needs the hashes in the request's body")
    else:
        raise CannotSplit(
            "Unsupported namespace bundle split algorithm, supported algorithms are "
            f"[{RANGE}, {TOPICS}, {POSITIONS}]"
        )
    for cut in cuts:
        if not bundle.first < cut < bundle.end:
            raise CannotSplit(f"bundle {bundle.range} cannot be cut at {cut:#010x}")
    return cuts
