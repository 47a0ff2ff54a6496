"""What stands in ledger files, entry by entry, damaged places included; nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from magnetar.admin.errors import AdminError, NotThere
from magnetar.admin.explain import compression_name
from magnetar.doctor.ledgers import mapped
from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.files.inspection import frames, inspect
from magnetar.ledger.formats.info import ROOT, decode_info, is_managed_ledger, path_of
from magnetar.ledger.formats.layout import FRAME_BYTES, LedgerFrame, ledger_path
from magnetar.ledger.port import LedgerSummary
from magnetar.metadata import MetadataError, SqliteFile
from magnetar.records.batch import read_header
from magnetar.records.entry import decode_entry
from magnetar.records.errors import RecordsError
from magnetar.records.pulsar_metadata import MessageMetadata


@dataclass(frozen=True, slots=True)
class DumpedEntry:
    """One entry, or a damaged place (``problem`` says so). Times in ms, sizes in bytes, -1 for none."""

    ledger: int
    entry: int
    at: int
    size: int
    first_offset: int
    last_offset: int
    messages: int = -1
    appended: int = -1
    entry_format: str = ""
    codec: str = ""
    max_timestamp: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    attributes: int = -1
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DumpedLedger:
    """One ledger's file. ``torn`` bytes at its end are no entry."""

    log: str
    ledger: int
    file: str
    size: int
    sealed: bool
    header: str
    torn: int
    entries: tuple[DumpedEntry, ...]


@dataclass(frozen=True, slots=True)
class Dump:
    """The ledgers that were asked for, oldest first."""

    data: str
    ledgers: tuple[DumpedLedger, ...]


def dump(
    data: Path, *, log: str | None = None, ledger: int | None = None, first_entry: int = 0, most: int = 1000
) -> Dump:
    """Return the entries of a managed ledger (``tenant/ns/persistent/topic-partition-N``) or of one ledger.

    Of each ledger they begin with ``first_entry``, ``most`` of them. Raises `NotThere`.
    """
    found = [
        _ledger(data, name, summary, first_entry, most)
        for name, summary in _wanted(data, log, ledger)
        if ledger_path(data, summary.ledger_id).exists()
    ]
    if not found:
        raise NotThere(
            f"{data} has no ledger {ledger}" if log is None else f"{data} has no ledgers of {log}",
            "'magnetar ledger list TOPIC-PARTITION --data DIRECTORY' names a partition's.",
        )
    return Dump(str(data), tuple(found))


def _wanted(data: Path, log: str | None, ledger: int | None) -> list[tuple[str, LedgerSummary]]:
    path = None if log is None else path_of(log)
    try:
        store = SqliteFile(data / "metadata.sqlite", read_only=True)
        try:
            nodes = [node for node in store.scan(path or ROOT + "/") if is_managed_ledger(node[0])]
        finally:
            store.close()
        return [
            (name, summary)
            for name, stored in nodes
            if path in (None, name)
            for summary in decode_info(stored.value, name=name).files()
            if ledger in (None, summary.ledger_id)
        ]
    except (MetadataError, LedgerCorrupt) as error:
        raise AdminError(f"the metadata cannot be read: {error}") from error


def _ledger(data: Path, name: str, summary: LedgerSummary, first_entry: int, most: int) -> DumpedLedger:
    path = ledger_path(data, summary.ledger_id)
    with mapped(path) as content:
        found = inspect(content, summary.ledger_id, summary.first_offset)
        rows: list[DumpedEntry] = []
        damages = iter(found.damages)
        for run in found.runs:
            whole = frames(content, summary.ledger_id, run.start, run.first_entry, run.index.end)
            wanted = (frame for frame in whole if frame.entry_id >= first_entry)
            rows += (_entry(summary.ledger_id, frame) for frame in islice(wanted, most - len(rows)))
            damage = next(damages, None)
            if damage is not None and damage.next_entry > first_entry:
                rows.append(
                    DumpedEntry(
                        summary.ledger_id, damage.entry, damage.at, damage.until - damage.at,
                        damage.first_lost, damage.next_offset - 1, problem="damaged",
                    )
                )  # fmt: skip
            if len(rows) >= most:
                break
    header = "whole" if found.header_is_whole else "damaged"
    return DumpedLedger(
        name, summary.ledger_id, str(path), found.size, summary.sealed, header, found.size - found.tail,
        tuple(rows[:most]),
    )  # fmt: skip


def _entry(ledger_id: int, frame: LedgerFrame) -> DumpedEntry:
    entry = decode_entry(frame.entry)
    row = DumpedEntry(
        ledger_id, frame.entry_id, frame.at, FRAME_BYTES + len(frame.entry),
        entry.base_offset, entry.broker.index, entry.message.num_messages_in_batch, entry.broker.broker_timestamp,
        entry.message.entry_format,
    )  # fmt: skip
    if entry.message.entry_format == "pulsar":
        return _with_message(row, entry.message)
    try:
        batch = read_header(entry.payload)
        codec = batch.codec.name
    except (RecordsError, ValueError) as error:
        return replace(row, problem=f"its batch cannot be read: {error}")
    return replace(
        row,
        codec=codec,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        attributes=batch.attributes,
    )


def _with_message(row: DumpedEntry, message: MessageMetadata) -> DumpedEntry:
    try:
        kept = message.kafka_batch
    except RecordsError as error:
        return replace(row, problem=f"its metadata cannot be read: {error}")
    row = replace(row, codec=compression_name(message), max_timestamp=message.publish_time)
    if kept is None:
        return row
    return replace(
        row,
        producer_id=kept.producer_id,
        producer_epoch=kept.producer_epoch,
        base_sequence=kept.base_sequence,
        attributes=kept.attributes,
    )
