"""Topics from before the index made into topics with one: KoP before 2.8 packed ledger, entry and batch index instead.

All is written beside what is there, then one transaction of the metadata makes it count (`magnetar.ledger.files.swap`):
a crash at any moment leaves the old state or the new one. The old files are kept until `drop_old`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.admin.errors import AdminError, NotThere
from magnetar.ledger.errors import LedgerCorrupt, LedgerError
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.files.ids import never_give_out, take_ids
from magnetar.ledger.files.swap import FOLDER, SWAP, finish_swap, flush_folders, note_swap
from magnetar.ledger.formats.cursor_info import CursorInfo, decode_cursor, encode_cursor
from magnetar.ledger.formats.info import ROOT, ManagedLedgerInfo, decode_info, encode_info, is_managed_ledger
from magnetar.ledger.formats.layout import ledger_path
from magnetar.ledger.formats.packed import PackedLog
from magnetar.ledger.port import LedgerSummary, Position, wall_clock_ms
from magnetar.metadata import DirectoryInUse, DirectoryLock, MetadataError, SqliteStore
from magnetar.metadata.port import MetadataStore
from magnetar.migrate.migrate_ledgers import LedgerDraft, is_packed, rewrite, write_mapping
from magnetar.migrate.migrate_offsets import (
    TranslatedOffset,
    is_offsets_log,
    live_facts,
    translated,
    write_facts,
)
from magnetar.migrate.migrate_parallel import TASKS, DraftLedger, ScanLedger, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[int, int], object]
"""Told the bytes that are done, and all."""
_OF_A_BROKER = ("boot", "closed_at")


@dataclass(frozen=True, slots=True)
class MigratedLog:
    """One managed ledger that got its index: offsets 0 to ``next_offset`` - 1."""

    log: str
    ledgers: int
    entries_kafka: int
    entries_pulsar: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Migration:
    """What was done, or would be. ``resumed``: an earlier run had been killed, and its end was made up for."""

    data: str
    dry_run: bool
    resumed: bool
    bytes: int
    logs: tuple[MigratedLog, ...]
    committed: tuple[TranslatedOffset, ...]


def migrate(
    data: Path, *, dry_run: bool = False, progress: Progress = lambda done, total: None,
    spark: SparkSession | None = None,
) -> Migration:  # fmt: skip
    """Return every topic without an index one; with ``dry_run`` only check that it can be done.

    With ``spark`` its tasks read and write the ledgers side by side; what comes of it is the same.

    Raises `AdminError` while a broker runs, and for what is damaged or cannot be told apart; nothing is changed then.
    """
    root = data.absolute()
    with _opened(root, read_only=dry_run) as store:
        resumed = store.blocking.get(SWAP) is not None
        if dry_run and resumed:
            raise AdminError(
                "an earlier migration was interrupted at its very end", "Run it without --dry-run."
            )
        work = _Migrator(root, store, dry_run=dry_run, progress=progress, spark=spark)
        try:
            work.run()
        except (LedgerError, MetadataError, OSError) as error:
            raise AdminError(str(error)) from error
        finally:
            work.close()
        return Migration(str(data), dry_run, resumed, work.total, tuple(work.migrated), tuple(work.committed))


def drop_old(data: Path) -> int:
    """Delete the old files of migrated ledgers; give how many bytes that freed. Raises `AdminError`."""
    root = data.absolute()
    with _opened(root, read_only=False) as store:
        finish_swap(root, store.blocking)
        old = root / FOLDER / "old"
        freed = sum(path.stat().st_size for path in old.glob("*"))
        shutil.rmtree(old, ignore_errors=True)
        return freed


@contextmanager
def _opened(root: Path, *, read_only: bool) -> Iterator[MetadataStore]:
    """Open the metadata with brokers kept out."""
    file = root / "metadata.sqlite"
    if not file.exists():
        raise NotThere(f"{root} is no data directory: it has no metadata.sqlite")
    lock = None
    try:
        lock = DirectoryLock(root) if read_only else None
        store = SqliteStore(file, read_only=read_only)
    except DirectoryInUse as error:
        raise AdminError(str(error), "Stop the broker first.") from error
    except MetadataError as error:
        if lock is not None:
            lock.release()
        raise AdminError(f"the metadata cannot be read: {error}") from error
    try:
        yield store
    finally:
        store.blocking.close()
        if lock is not None:
            lock.release()


def _name(path: str) -> str:
    return path.removeprefix(ROOT + "/")


class _Migrator:
    """Writes drafts, collects what the metadata shall say, and puts it in force at the end."""

    def __init__(
        self, root: Path, store: MetadataStore, *, dry_run: bool, progress: Progress, spark: SparkSession | None
    ) -> None:  # fmt: skip
        self.migrated: list[MigratedLog] = []
        self.committed: list[TranslatedOffset] = []
        self.total = 0
        self._root = root
        self._metadata = store
        self._store = store.blocking
        self._dry_run = dry_run
        self._progress = progress
        self._spark = spark
        self._done = 0
        self._engine: FilesEngine | None = None
        self._infos: dict[str, ManagedLedgerInfo] = {}
        self._cursors: dict[str, CursorInfo] = {}
        self._aside: set[int] = set()
        self._in_place: set[int] = set()

    def run(self) -> None:
        if not self._dry_run:
            self._engine = FilesEngine(self._root, self._metadata, RealDisk())
            asyncio.run(self._engine.start())  # replays the journal, and ends what a killed run began
            self._drop_drafts()
        infos = {
            path: decode_info(stored.value, name=path)
            for path, stored in self._store.scan(ROOT + "/")
            if is_managed_ledger(path)
        }
        if self._engine is not None:
            never_give_out(self._store, (each.ledger_id for info in infos.values() for each in info.ledgers))
        packed = [path for path, info in infos.items() if self._is_packed(path, info)]
        self.total = sum(self._size(each) for path in packed for each in infos[path].ledgers)
        topics = {path: infos[path] for path in packed if not is_offsets_log(path)}
        if self._spark is None:
            found = {path: self._log(path, info) for path, info in topics.items()}
        else:
            found = self._logs_by(self._spark, topics)
        logs = {_name(path): log for path, log in found.items()}
        for path, info in infos.items():
            if is_offsets_log(path) and (logs or path in packed):
                self._offsets(path, info, logs, replaced=path in packed)
        if self._infos and not self._dry_run:
            self._put_in_force()

    def close(self) -> None:
        """Let go of the engine, and of drafts that came to nothing."""
        if self._engine is None:
            return
        asyncio.run(self._engine.close())
        if self._store.get(SWAP) is None:
            self._drop_drafts()

    def _drop_drafts(self) -> None:
        for folder in ("new", TASKS):
            shutil.rmtree(self._root / FOLDER / folder, ignore_errors=True)

    def _is_packed(self, path: str, info: ManagedLedgerInfo) -> bool:
        kinds = {kind for each in info.ledgers if (kind := is_packed(self._root, each)) is not None}
        if len(kinds) > 1 and not is_offsets_log(path):
            raise AdminError(
                f"{_name(path)} has ledgers with an index and ledgers without one",
                "A topic that was written on both sides of KoP 2.8 cannot be migrated yet; nothing was changed.",
            )
        return True in kinds

    def _size(self, summary: LedgerSummary) -> int:
        try:
            return ledger_path(self._root, summary.ledger_id).stat().st_size
        except FileNotFoundError:
            return 0

    def _passed(self, size: int) -> None:
        self._done += size
        self._progress(self._done, self.total)

    # -- topics

    def _log(self, path: str, info: ManagedLedgerInfo) -> PackedLog:
        name = _name(path)
        log = PackedLog()
        kept: list[LedgerSummary] = []
        kafka = pulsar = 0
        for summary in info.ledgers:
            first = log.next_offset
            draft = None if self._dry_run else self._draft(summary, first)
            try:
                counts = rewrite(self._root, summary, log, draft, self._passed)
            except ValueError as error:
                raise AdminError(f"{name} cannot be migrated: {error}", "Nothing was changed.") from error
            finally:
                made = draft.end() if draft is not None else None
            kafka, pulsar = kafka + counts[0], pulsar + counts[1]
            if sum(counts) and made is not None:
                kept.append(made)
        self._take(path, info, log, kept, kafka, pulsar)
        return log

    def _logs_by(self, spark: SparkSession, topics: Mapping[str, ManagedLedgerInfo]) -> dict[str, PackedLog]:
        """Do what `_log` does with all topics at once, by Spark's tasks."""
        ledgers = [each for info in topics.values() for each in info.ledgers]
        scanned = dict(zip(
            (each.ledger_id for each in ledgers), run(spark, [ScanLedger(self._root, each) for each in ledgers]),
            strict=True,
        ))  # fmt: skip
        logs: dict[str, PackedLog] = {}
        drafts = []
        for path, info in topics.items():
            log = logs[path] = PackedLog()
            for each in info.ledgers:
                try:
                    first = log.begin(each.ledger_id)
                except ValueError as error:
                    raise AdminError(
                        f"{_name(path)} cannot be migrated: {error}", "Nothing was changed."
                    ) from error
                for messages in scanned[each.ledger_id].messages.tolist():
                    log.add(each.ledger_id, messages)
                if len(scanned[each.ledger_id].messages):
                    drafts.append(DraftLedger(self._root, each, first))
        made = {each.ledger_id: each for each in run(spark, [] if self._dry_run else drafts)}
        for path, info in topics.items():
            kept = [made[each.ledger_id] for each in info.ledgers if each.ledger_id in made]
            found = [scanned[each.ledger_id] for each in info.ledgers]
            kafka, pulsar = sum(each.kafka for each in found), sum(each.pulsar for each in found)
            self._take(path, info, logs[path], kept, kafka, pulsar)
        self._passed(self.total)
        return logs

    def _take(
        self, path: str, info: ManagedLedgerInfo, log: PackedLog, kept: list[LedgerSummary], kafka: int, pulsar: int
    ) -> None:  # fmt: skip
        """Note what became of a managed ledger, and that its drafts shall take their places."""
        name = _name(path)
        self.migrated.append(MigratedLog(name, len(info.ledgers), kafka, pulsar, log.next_offset))
        if not self._dry_run:
            write_mapping(self._root, name, [each.ledger_id for each in info.ledgers], log)
            self._cursors |= self._moved_cursors(path, info.ledgers, kept)
            self._replace(path, info, kept, log.next_offset)

    def _draft(self, summary: LedgerSummary, first_offset: int) -> LedgerDraft:
        return LedgerDraft(self._root, summary.ledger_id, first_offset, summary.created_ms or wall_clock_ms())

    def _replace(
        self, path: str, info: ManagedLedgerInfo, ledgers: list[LedgerSummary], next_offset: int
    ) -> None:
        """Note that a managed ledger shall consist of these drafts, and its old files go aside."""
        properties = {name: value for name, value in info.properties.items() if name not in _OF_A_BROKER}
        properties |= {"first_offset": "0", "next_offset": str(next_offset)}
        self._infos[path] = ManagedLedgerInfo(ledgers, properties)
        self._aside |= {each.ledger_id for each in info.ledgers}
        self._in_place |= {each.ledger_id for each in ledgers}

    def _moved_cursors(
        self, path: str, before: list[LedgerSummary], kept: list[LedgerSummary]
    ) -> dict[str, CursorInfo]:
        """Return the cursors that stand in a ledger without entries, at the end of the one before it."""
        places: dict[int, Position] = {}
        entries = {each.ledger_id: each.entries for each in kept}
        last = Position(kept[0].ledger_id, -1) if kept else None
        for each in before:
            if each.ledger_id in entries:
                last = Position(each.ledger_id, entries[each.ledger_id] - 1)
            elif last is not None:
                places[each.ledger_id] = last
        moved = {}
        for cursor_path, stored in self._store.scan(path + "/"):
            with suppress(LedgerCorrupt):
                cursor = decode_cursor(stored.value, name=cursor_path)
                if cursor.mark_delete.ledger_id in places:
                    place = places[cursor.mark_delete.ledger_id]
                    moved[cursor_path] = replace(cursor, mark_delete=place, partly=())
        return moved

    # -- committed offsets

    def _offsets(
        self, path: str, info: ManagedLedgerInfo, logs: dict[str, PackedLog], *, replaced: bool
    ) -> None:
        facts, next_offset = live_facts(self._root, info.ledgers)
        changed, told, keys = translated(facts, logs)
        self.committed += told
        if self._engine is None or not (changed or replaced):
            return
        if replaced:
            for key in keys:
                del facts[key]
            records = [*facts.values(), *changed.values()]
            first_offset = 0
        else:
            gone = [facts[key]._replace(value=None, headers=()) for key in keys if key not in changed]
            records = [*gone, *changed.values()]
            first_offset = max(next_offset, int(info.properties.get("next_offset", 0)))
        made = []
        if records:
            made = [
                write_facts(
                    self._root, records, first_offset, wall_clock_ms(), lambda: take_ids(self._store, 1)[0]
                )
            ]
        if replaced:
            self._replace(path, info, made, len(records))
            return
        properties = info.properties | {"next_offset": str(first_offset + len(records))}
        self._infos[path] = ManagedLedgerInfo([*info.ledgers, *made], properties)
        self._in_place |= {each.ledger_id for each in made}

    # -- the end

    def _put_in_force(self) -> None:
        flush_folders(self._root, *(self._root / FOLDER / each for each in ("", "new", "mapping")))
        with self._store.transaction():
            for path, info in self._infos.items():
                self._store.put(path, encode_info(info))
            for path, cursor in self._cursors.items():
                self._store.put(path, encode_cursor(cursor))
            note_swap(self._store, aside=self._aside, in_place=self._in_place)
        finish_swap(self._root, self._store)
