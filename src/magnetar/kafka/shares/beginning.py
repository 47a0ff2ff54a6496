"""Where a share group begins in a partition that it has not read yet (``share.auto.offset.reset``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.coordinators.share.reset import BY_DURATION, duration_ms
from magnetar.records.batch import read_header

if TYPE_CHECKING:
    from magnetar.kafka.partitions.partition import Partition


async def first_offset(partition: Partition, reset: str, now_ms: int) -> int:
    """Return the offset at which a group begins."""
    log = partition.log
    if reset == "earliest":
        return log.log_start_offset
    if reset.startswith(BY_DURATION):
        entry = await log.find_by_time(now_ms - (duration_ms(reset[len(BY_DURATION) :]) or 0))
        if (
            entry is not None
        ):  # the batch that holds the first record of that time or later, with all its records
            batches, _ = await partition.read(max(entry.last_offset, log.log_start_offset), 1)
            return max(read_header(batches[0]).base_offset, log.log_start_offset)
    return log.high_watermark
