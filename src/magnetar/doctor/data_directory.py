"""What a data directory tells without its broker: topics, ledgers, records, committed offsets. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from magnetar.admin.errors import AdminError, NotThere
from magnetar.admin.explain import Explained, FilePlace, explain
from magnetar.admin.frames import entries, entry_at
from magnetar.admin.ledgers_of import LedgerRow, PartitionLedgers, shown
from magnetar.admin.partition_name import PartitionName
from magnetar.base.errors import InvalidTopic
from magnetar.kafka.coordinators.facts import Committed, OffsetFact, read_fact
from magnetar.ledger.errors import LedgerError, OffsetOutOfRange
from magnetar.ledger.formats.info import ManagedLedgerInfo, decode_info, path_of
from magnetar.ledger.formats.layout import HEADER_BYTES
from magnetar.ledger.port import LedgerSummary, StoredEntry
from magnetar.metadata import MetadataError, SqliteFile
from magnetar.records.batch import decode_records
from magnetar.records.entry import latest_timestamp, payload_at
from magnetar.records.errors import RecordsError
from magnetar.topics.names import CONSUMER_OFFSETS, Naming, TopicName
from magnetar.topics.topic import Topic, decode_topic

_TOPICS = "/admin/partitioned-topics/"
_NAMING = Naming()


class DataDirectory:
    """Opened to read, beside a broker or without one; use it with ``with``. Raises `AdminError` and its kinds."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        file = self.root / "metadata.sqlite"
        if not file.exists():
            raise NotThere(
                f"{root} is no data directory: it has no metadata.sqlite",
                "Name the directory that 'magnetar standalone --data' was given.",
            )
        try:
            self._store = SqliteFile(file, read_only=True)
        except MetadataError as error:
            raise AdminError(
                f"the metadata cannot be read: {error}", "Run 'magnetar ledger verify'."
            ) from error

    def topic(self, name: str) -> Topic:
        """Return a topic by any form of its name; raise `NotThere`."""
        try:
            parsed = _NAMING.parse(name)
        except InvalidTopic as error:
            raise NotThere(str(error), "Write TOPIC-PARTITION, as in flights-3.") from error
        path = f"{_TOPICS}{parsed.namespace_name}/persistent/{parsed.metadata_name}"
        stored = self._store.get(path)
        if stored is None:
            raise NotThere(f"topic {name} does not exist in {self.root}", f"It has {self._some_topics()}.")
        return decode_topic(path, stored.value, parsed, _NAMING.kafka_name(parsed))

    def explain(self, topic: str, partition: int, offset: int) -> Explained:
        """Return what is known of one record; like a running broker would."""
        place = PartitionName(topic, partition)
        ledgers = self._info(place).files()
        try:
            stored, file = entry_at(self.root, ledgers, offset)
            return explain(place, offset, stored, file, self._committed(place))
        except OffsetOutOfRange as error:
            first = ledgers[0].first_offset if ledgers else 0
            raise NotThere(
                f"{place} has no offset {offset}; it begins at {first}",
                f"'magnetar ledger list {place} --data {self.root}' shows what is there.",
            ) from error
        except (LedgerError, RecordsError) as error:
            raise AdminError(
                f"{place}@{offset} cannot be read: {error}", "Run 'magnetar ledger verify'."
            ) from error

    def ledgers(self, topic: str, partition: int) -> PartitionLedgers:
        """Return the ledgers of a partition, oldest first; of an open one what its file says."""
        info = self._info(PartitionName(topic, partition))
        rows = tuple(self._row(ledger) for ledger in info.ledgers)
        first = max(int(info.properties.get("first_offset", 0)), rows[0].first_offset if rows else 0)
        after = max((row.last_offset for row in rows), default=first - 1) + 1
        return PartitionLedgers(topic, partition, first, max(after, first), "unknown", rows)

    def _row(self, summary: LedgerSummary) -> LedgerRow:
        if not summary.sealed:
            for entry, place in self._entries(summary):
                summary.entries, summary.last_offset = entry.entry_id + 1, entry.last_offset
                summary.size = place.position + place.size
                summary.max_timestamp = max(summary.max_timestamp, latest_timestamp(entry.data))
        return shown(summary)

    def _entries(self, summary: LedgerSummary) -> Iterator[tuple[StoredEntry, FilePlace]]:
        return entries(self.root, summary.ledger_id, HEADER_BYTES, 0)

    def _info(self, place: PartitionName) -> ManagedLedgerInfo:
        topic = self.topic(place.topic)
        if place.partition >= topic.partitions:
            raise NotThere(
                f"topic {place.topic} has no partition {place.partition}",
                f"It has 0 to {topic.partitions - 1}.",
            )
        return self._info_of(topic.name, place.partition)

    def _info_of(self, name: TopicName, partition: int) -> ManagedLedgerInfo:
        ledger_name = name.ledger_name(partition)
        stored = self._store.get(path_of(ledger_name))
        return ManagedLedgerInfo() if stored is None else decode_info(stored.value, name=ledger_name)

    def _committed(self, place: PartitionName) -> dict[str, Committed]:
        """Return what each group committed for a partition, from the coordinators' own topic."""
        try:
            topic = self.topic(CONSUMER_OFFSETS)
        except NotThere:
            return {}
        found: dict[str, Committed] = {}
        for partition in range(topic.partitions):
            for summary in self._info_of(topic.name, partition).files():
                for entry, _ in self._entries(summary):
                    for fact in _offsets_in(entry):
                        if (fact.topic, fact.partition) != place:
                            continue
                        if fact.committed is None:
                            found.pop(fact.group_id, None)
                        else:
                            found[fact.group_id] = fact.committed
        return found

    def _some_topics(self) -> str:
        names = [path.rpartition("/")[2] for path, _ in self._store.scan(_TOPICS)]
        return ", ".join(names[:10]) if names else "no topics"

    def __enter__(self) -> DataDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()


def _offsets_in(entry: StoredEntry) -> Iterator[OffsetFact]:
    for record in decode_records(entry.data[payload_at(entry.data) :]):
        if record.key is None:
            continue
        fact = read_fact(record.key, record.value)
        if isinstance(fact, OffsetFact):
            yield fact
