"""What Spark's driver learns from a data directory: topics, their partitions, and the ledgers of each."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.formats.info import ManagedLedgerInfo, decode_info, path_of
from magnetar.ledger.port import LedgerSummary
from magnetar.metadata import SqliteFile
from magnetar.pipeline.ledgers import LedgerMap
from magnetar.pipeline.object_store import at_hand
from magnetar.pipeline.options import TopicPartition
from magnetar.pipeline.port import TopicInfo
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.topics.names import INTERNAL_TOPICS, Naming, TopicName
from magnetar.topics.topic import decode_topic

if TYPE_CHECKING:
    from magnetar.pipeline.offloaded import OffloadedAt

_TOPICS = "/admin/partitioned-topics/"
_NAMING = Naming()


class LedgerCatalog:
    """A data directory, opened to read beside a broker that may be writing. Raises ``FileNotFoundError``."""

    def __init__(self, data: Path) -> None:
        self.data = data
        file = at_hand(data / "metadata.sqlite")
        # There if it was copied beside a running broker, or after a crash.
        at_hand(data / "metadata.sqlite-wal")
        if not file.exists():
            raise FileNotFoundError(f"{data} is not a data directory of magnetar: it has no metadata.sqlite")
        self._store = SqliteFile(file, read_only=True)

    def topics(self) -> dict[str, TopicInfo]:
        """Return every topic."""
        found = {}
        for path, stored in self._store.scan(_TOPICS):
            tenant, namespace, _, encoded = path.removeprefix(_TOPICS).split("/")
            name = TopicName.from_metadata(tenant, namespace, encoded)
            topic = decode_topic(path, stored.value, name, _NAMING.kafka_name(name))
            if not topic.deleted:
                topic_id = urlsafe_b64encode(topic.topic_id).decode().rstrip("=")
                found[topic.kafka_name] = TopicInfo(topic.partitions, topic_id)
        return found

    def log(self, which: TopicPartition, *, live: bool, skip_damage: bool = False) -> PartitionLog:
        """Return the ledgers of one partition; a partition that nothing was written to has none."""
        name = _NAMING.parse(which.topic).ledger_name(which.partition)
        stored = self._store.get(path_of(name))
        info = ManagedLedgerInfo() if stored is None else decode_info(stored.value, name=name)
        return PartitionLog(self.data, which, info, live=live, skip_damage=skip_damage)

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> LedgerCatalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def matching(topics: Iterable[str], pattern: str) -> list[str]:
    """Return the topics whose whole name matches the regular expression, as subscribePattern has it.

    Those of the coordinators are none of them, as with Kafka's consumers; who wants one names it.
    """
    return sorted(topic for topic in topics if topic not in INTERNAL_TOPICS and re.fullmatch(pattern, topic))


class PartitionLog:
    """The ledgers of one partition, mapped when they are first asked about."""

    def __init__(
        self, root: Path, which: TopicPartition, info: ManagedLedgerInfo, *, live: bool, skip_damage: bool
    ) -> None:
        self.which = which
        self._root = root
        self._live = live
        self._skip_damage = skip_damage
        self._ledgers, self._copies_until = _readable(info)
        self._maps: dict[int, LedgerMap] = {}
        self._start = int(info.properties.get("first_offset", 0))

    @property
    def ledger_ids(self) -> list[int]:
        """The ledgers, oldest first."""
        return [ledger.ledger_id for ledger in self._ledgers]

    @cached_property
    def offloaded(self) -> Mapping[int, OffloadedAt]:
        """Where those of the ledgers lie that lie in tiered storage alone."""
        if not any(each.offloaded for each in self._ledgers):
            return {}
        from magnetar.pipeline.offloaded import offloaded_at

        found = ((each.ledger_id, offloaded_at(each)) for each in self._ledgers)
        return {ledger_id: at for ledger_id, at in found if at is not None}

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        first = next((ledger.first_offset for ledger in self._ledgers), 0)
        return max(first, self._start, 0)

    def log_end_offset(self) -> int:
        """Return the offset behind the last whole entry on disk."""
        if not self._ledgers:
            return self.log_start_offset
        last = self._ledgers[-1]
        return max(last.last_offset + 1 if last.sealed else self.map(last).next_offset, self.log_start_offset)

    def overlapping(
        self,
        low: int,
        high: int,
        *,
        times_ms: tuple[int, int] | None = None,
        only: Collection[int] | None = None,
    ) -> Iterator[LedgerMap]:
        """Yield the ledgers that hold some of ``[low, high)``; raise ``LedgerCorrupt`` where offsets are missing.

        Left out are those none of whose records is of ``times_ms``, as far as it is known, and those that are not
        ``only`` wanted.
        """
        expected = None
        for ledger in self._ledgers:
            if expected is not None and ledger.first_offset != expected:
                raise LedgerCorrupt(
                    f"{self.which}: ledger {ledger.ledger_id} begins at offset {ledger.first_offset}, not {expected}"
                )
            expected = ledger.last_offset + 1 if ledger.sealed else None
            if self._copies_until is not None and ledger is self._ledgers[0]:
                expected = self._copies_until  # what was compacted away is missing before it, and shall be
            if ledger.first_offset >= high or (expected is not None and expected <= low):
                continue
            if only is not None and ledger.ledger_id not in only:
                continue
            if times_ms is not None and ledger.sealed and not _may_be_of(ledger, times_ms):
                continue
            yield self.map(ledger)
            # One that a broker has just left for the next may not be noted as sealed yet.
            if not ledger.sealed:
                expected = self.map(ledger).next_offset

    def offset_at_time(self, timestamp_ms: int) -> int | None:
        """Return the offset of the first record of ``timestamp_ms`` or later, or None."""
        for ledger in self._ledgers:
            if ledger.sealed and ledger.max_timestamp < timestamp_ms:
                continue
            found = self.map(ledger).offset_at_time(timestamp_ms)
            if found is not None:
                return max(found, self.log_start_offset)
        return None

    def map(self, ledger: LedgerSummary) -> LedgerMap:
        """Return where the offsets of one ledger lie."""
        found = self._maps.get(ledger.ledger_id)
        if found is None:
            found = self._maps[ledger.ledger_id] = LedgerMap(
                self._root, ledger, live=self._live, skip_damage=self._skip_damage
            )
            if self._copies_until is not None and ledger is self._ledgers[0]:
                found.until = self._copies_until
        return found


def _may_be_of(ledger: LedgerSummary, times_ms: tuple[int, int]) -> bool:
    """Return whether a sealed ledger may have records of a time; both ends are included."""
    if ledger.min_timestamp == UNKNOWN_TIME:
        return True  # the latest may be that of a batch of Pulsar's, whose messages have times of their own
    return ledger.max_timestamp >= times_ms[0] and ledger.min_timestamp <= times_ms[1]


def _readable(info: ManagedLedgerInfo) -> tuple[list[LedgerSummary], int | None]:
    """Return the ledgers to read, the compacted one in the place of those it replaced, and the offset where that
    ends.
    """
    if info.compacted is None or not info.ledgers or not info.ledgers[0].compacted:
        return info.ledgers, None
    whole = [each for each in info.ledgers if not each.compacted]
    until = max(each.last_offset for each in info.ledgers if each.compacted) + 1
    return [info.compacted.ledger, *whole], until
