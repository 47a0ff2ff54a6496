"""The ledgers of a migration side by side, by Spark's tasks: on this machine, or on a cluster that sees the directory.

Twice over all ledgers: the first pass checks every entry and counts its messages, so that the first offset of every
ledger is known; the second writes the drafts. A task writes in a folder of its own and moves its draft from there, so a
task that runs twice, or outlives its driver, leaves nothing half written. What was in the way of a ledger comes back
as a value: the first one, in the order of ledgers, is what the one-process migration would have said.
"""

from __future__ import annotations

import os
import pickle
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from magnetar.admin.errors import AdminError
from magnetar.ledger.files.swap import FOLDER, draft_path
from magnetar.ledger.formats.packed import PackedLog
from magnetar.ledger.port import LedgerSummary, wall_clock_ms
from magnetar.migrate.migrate_ledgers import LedgerDraft, rewrite

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Answer = TypeVar("Answer")
Task = Callable[[], Answer]
TASKS = "tasks"
_ANSWER = "answer binary"


@dataclass(frozen=True, slots=True)
class Scanned:
    """What one ledger holds: the messages of each entry, and how many entries are Kafka's and Pulsar's."""

    messages: Any  # an array of 64-bit numbers
    kafka: int
    pulsar: int


@dataclass(frozen=True, slots=True)
class _Refused:
    """The error of a task, which Spark would give back as a stack trace."""

    text: str
    next_step: str


@dataclass(frozen=True, slots=True)
class ScanLedger:
    """Check a ledger's entries, and count their messages."""

    root: Path
    summary: LedgerSummary

    def __call__(self) -> Scanned:
        log = PackedLog()
        kafka, pulsar = rewrite(self.root, self.summary, log, None, lambda size: None)
        return Scanned(np.diff(np.asarray(log.starts(self.summary.ledger_id), dtype=np.int64)), kafka, pulsar)


@dataclass(frozen=True, slots=True)
class DraftLedger:
    """Write a ledger with its index; its first offset is known."""

    root: Path
    summary: LedgerSummary
    first_offset: int

    def __call__(self) -> LedgerSummary:
        own = self.root / FOLDER / TASKS / uuid.uuid4().hex
        ledger_id = self.summary.ledger_id
        created_ms = self.summary.created_ms or wall_clock_ms()
        draft = LedgerDraft(own, ledger_id, self.first_offset, created_ms)
        log = PackedLog()
        log.next_offset = self.first_offset
        try:
            rewrite(self.root, self.summary, log, draft, lambda size: None)
            made = draft.end()
            written, wanted = draft_path(own, ledger_id), draft_path(self.root, ledger_id)
            wanted.parent.mkdir(parents=True, exist_ok=True)
            os.replace(written.with_suffix(".index"), wanted.with_suffix(".index"))
            os.replace(written, wanted)
            return made
        finally:
            draft.abandon()
            shutil.rmtree(own, ignore_errors=True)


def run(spark: SparkSession, tasks: Sequence[Task[Answer]]) -> list[Answer]:
    """Run tasks side by side and give their answers in order; raise `AdminError` for the first that failed."""
    if not tasks:
        return []
    pickled = [pickle.dumps(each) for each in tasks]
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(partial(_run, pickled), f"number long, {_ANSWER}").collect()
    found = {row[0]: pickle.loads(bytes(row[1])) for row in rows}
    answers = [found[number] for number in range(len(tasks))]
    for each in answers:
        if isinstance(each, _Refused):
            raise AdminError(each.text, each.next_step)
    return answers


def _run(pickled: Sequence[bytes], numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in numbers:
        for number in batch.column(0).to_pylist():
            try:
                answer = pickle.loads(pickled[number])()
            except AdminError as error:
                answer = _Refused(str(error), error.next_step)
            except OSError as error:
                answer = _Refused(str(error), "")
            columns = [pa.array([number], pa.int64()), pa.array([pickle.dumps(answer)], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["number", "answer"])
