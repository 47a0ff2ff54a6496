"""Committed offsets, from packed ones to continuous ones: the live facts of ``__consumer_offsets``, written anew.

KoP sent each fact as a message of Pulsar's, its key the fact's key and its payload a record batch with the fact in it.
A partition in that form is replaced by one ledger with all its live facts. One that Magnetar wrote gets a ledger behind
the others, with the translated facts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from magnetar.admin.errors import AdminError
from magnetar.base.errors import InvalidTopic
from magnetar.kafka.coordinators.facts import OffsetFact, offset_fact, read_fact
from magnetar.ledger.formats.packed import Landing, PackedLog
from magnetar.ledger.port import LedgerSummary
from magnetar.migrate.migrate_entries import has_index, indexed, open_old
from magnetar.migrate.migrate_ledgers import LedgerDraft, frames_of
from magnetar.records.batch import HEADER_BYTES, MAGIC, PlainRecord, decode_records, encode_batch, read_header
from magnetar.records.check import check_batch
from magnetar.records.entry import broker_entry_head, kafka_message_head
from magnetar.records.errors import RecordsError
from magnetar.records.pulsar_entries import to_kafka
from magnetar.topics.names import CONSUMER_OFFSETS, Naming
from magnetar.wire.kafka.malformed import WireError

_NAMING = Naming()
_BATCH_FACTS = 1000
_MAGIC_AT = 16
Facts = dict[bytes, PlainRecord]


@dataclass(frozen=True, slots=True)
class TranslatedOffset:
    """What a group had committed for a partition, and what that is now."""

    group: str
    topic: str
    partition: int
    packed: int
    offset: int
    landing: Landing


def is_offsets_log(name: str) -> bool:
    """Return whether a managed ledger is a partition of a ``__consumer_offsets``, whichever tenant's."""
    return name.rpartition("/")[2].startswith(f"{CONSUMER_OFFSETS}-partition-")


def live_facts(root: Path, ledgers: Iterable[LedgerSummary]) -> tuple[Facts, int]:
    """Return the newest record of each key, and the offset behind the last; raise `AdminError`."""
    facts: Facts = {}
    next_offset = 0
    for summary in ledgers:
        for frame in frames_of(root, summary, may_be_torn=True):
            try:
                if has_index(frame.entry):
                    data: bytes | memoryview = frame.entry
                else:
                    data = indexed(open_old(frame.entry), next_offset).data
                batch = to_kafka(data)
                header = read_header(batch)
                next_offset = header.last_offset + 1
                if not header.is_control:
                    _keep(facts, decode_records(batch))
            except RecordsError as error:
                place = f"ledger {summary.ledger_id}, entry {frame.entry_id} at byte {frame.at}"
                raise AdminError(f"committed offsets cannot be read: {place}: {error}") from error
    return facts, next_offset


def _keep(facts: Facts, records: Iterable[PlainRecord]) -> None:
    for outer in records:
        for record in _inner(outer):
            if record.key is None:
                continue
            facts.pop(record.key, None)  # so that the newest come last
            if record.value is not None:
                facts[record.key] = record


def _inner(record: PlainRecord) -> list[PlainRecord]:
    """Return the records in KoP's message, or the record itself where it is none of those."""
    value = record.value
    if value is None or len(value) <= HEADER_BYTES or value[_MAGIC_AT] != MAGIC:
        return [record]
    try:
        check_batch(memoryview(value))
    except RecordsError:
        return [record]
    return decode_records(value)


def translated(
    facts: Facts, logs: Mapping[str, PackedLog]
) -> tuple[Facts, list[TranslatedOffset], list[bytes]]:
    """Return the facts that speak of migrated partitions anew, what became of each, and the keys they stood under."""
    changed: Facts = {}
    told: list[TranslatedOffset] = []
    keys: list[bytes] = []
    for key, record in facts.items():
        fact = _offset_in(key, record.value)
        if fact is None or fact.committed is None:
            continue
        name = _kafka_name(fact.topic)
        log = _log_of(fact, logs)
        if name is None or log is None:
            continue
        offset, landing = log.translate(fact.committed.offset)
        told.append(
            TranslatedOffset(fact.group_id, name, fact.partition, fact.committed.offset, offset, landing)
        )
        committed = fact.committed._replace(offset=offset, leader_epoch=-1)
        new = offset_fact(fact.group_id, name, fact.partition, committed)
        changed[new.key] = record._replace(key=new.key, value=new.value, headers=())
        keys.append(key)
    return changed, told, keys


def _offset_in(key: bytes, value: bytes | None) -> OffsetFact | None:
    try:
        fact = read_fact(key, value)
    except WireError as error:
        raise AdminError(f"a committed offset cannot be read (key {key.hex()}): {error}") from error
    return fact if isinstance(fact, OffsetFact) else None


def _kafka_name(topic: str) -> str | None:
    try:
        return _NAMING.kafka_name(_NAMING.parse(topic))
    except InvalidTopic:
        return None


def _log_of(fact: OffsetFact, logs: Mapping[str, PackedLog]) -> PackedLog | None:
    try:
        name = _NAMING.parse(fact.topic)
    except InvalidTopic:
        return None
    found = logs.get(name.ledger_name(fact.partition))
    if found is None and fact.partition == 0:  # KoP took a topic without partitions for one of one
        found = logs.get(f"{name.namespace_name}/persistent/{name.metadata_name}")
    return found


def write_facts(
    root: Path, records: list[PlainRecord], first_offset: int, now_ms: int, new_id: Callable[[], int]
) -> LedgerSummary:
    """Write facts as one ledger, in batches as the coordinators write them; give the ledger."""
    draft = LedgerDraft(root, new_id(), first_offset, now_ms)
    try:
        offset = first_offset
        for part in _parts(records):
            batch = encode_batch(part, base_offset=offset)
            head = broker_entry_head(now_ms, offset + len(part) - 1) + kafka_message_head(now_ms, len(part))
            draft.add(head + batch, len(part), read_header(batch).max_timestamp)
            offset += len(part)
        return draft.end()
    finally:
        draft.abandon()


def _parts(records: list[PlainRecord]) -> Iterator[list[PlainRecord]]:
    for start in range(0, len(records), _BATCH_FACTS):
        yield records[start : start + _BATCH_FACTS]
