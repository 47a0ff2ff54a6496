"""The other process that does the passes of a compaction, seen from the broker, and what runs in it.

It is a module of its own because pickle and multiprocessing take 1 MB that a broker which compacts little goes without.

Questions and answers are pickled: both ends are this program. Entries go as one array of numbers and one of bytes.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from magnetar.ledger.compaction.job import Copies, InThread, Job, Worker
from magnetar.ledger.compaction.passes import Passes, machine_code
from magnetar.ledger.errors import LedgerCorrupt, LedgerError
from magnetar.ledger.port import NewEntry, StoredEntry

WORTH_IT = 20_000
"""From so many messages on a run uses machine code: to load it takes as long as a few thousand messages do."""
_IDLE_S = 30.0
_SERVE = "from magnetar.ledger.compaction.process import serve; serve()"


class ProcessWorker(Worker):
    """Runs the passes in another process. Threads wait for its answers without the interpreter's lock."""

    def __init__(self, in_thread: InThread[Any]) -> None:
        self._in_thread = in_thread
        self._process: subprocess.Popen[bytes] | None = None
        self._questions: Connection | None = None
        self._answers: Connection | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def begin(self, job: Job) -> None:
        if self._idle is not None:
            self._idle.cancel()
        await self._ask("begin", job)

    async def note(self, entries: Sequence[StoredEntry]) -> int:
        return int(await self._ask("note", *_packed(entries)))

    async def looks_back(self) -> bool:
        return bool(await self._ask("looks_back"))

    async def look_back(self, copies: Sequence[StoredEntry]) -> None:
        await self._ask("look_back", *_packed(copies))

    async def copy(self, entries: Sequence[StoredEntry], *, are_copies: bool) -> Copies:
        numbers, data, removed, complaints, ended, unnoted = await self._ask(
            "copy", *_packed(entries), are_copies
        )
        copies = Copies(removed=removed, complaints=complaints, ended=ended, unnoted=unnoted)
        view, at = memoryview(data), 0
        for last_offset, latest, origin, size in _rows(numbers):
            copies.entries.append(NewEntry(view[at : at + size], last_offset, latest))
            copies.origins.append(origin)
            at += size
        return copies

    async def end(self) -> None:
        if self._process is not None:
            await self._ask("end")
            self._idle = asyncio.get_running_loop().call_later(_IDLE_S, self.stop)

    def stop(self) -> None:
        """End the process; the next run starts another one."""
        if self._idle is not None:
            self._idle.cancel()
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()  # it does nothing that is worth waiting for
        process.wait()
        self._questions = self._answers = None  # closed when no thread holds them any more

    async def _ask(self, *question: object) -> Any:
        try:
            kind, answer = await self._in_thread(lambda: self._asked(question))
        except (OSError, EOFError) as error:
            self.stop()
            raise LedgerError(f"the process that compacts is gone: {error!r}") from error
        except asyncio.CancelledError:
            self.stop()  # the answer on its way is not wanted any more
            raise
        if kind == "corrupt":
            raise LedgerCorrupt(answer)
        if kind == "failed":
            raise LedgerError(f"the process that compacts failed: {answer}")
        return answer

    def _asked(self, question: object) -> tuple[str, Any]:
        if self._process is None:
            self._start()
        questions, answers = self._questions, self._answers
        assert questions is not None
        assert answers is not None
        questions.send_bytes(pickle.dumps(question, pickle.HIGHEST_PROTOCOL))
        answer: tuple[str, Any] = pickle.loads(answers.recv_bytes())
        return answer

    def _start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._questions = Connection(os.dup(process.stdin.fileno()), readable=False)
        self._answers = Connection(os.dup(process.stdout.fileno()), writable=False)
        process.stdin.close()
        process.stdout.close()
        self._process = process


def _packed(entries: Sequence[StoredEntry]) -> tuple[bytes, bytes]:
    numbers = array("q")
    for entry in entries:
        numbers.extend((entry.ledger_id, entry.entry_id, entry.last_offset, len(entry.data)))
    return numbers.tobytes(), b"".join([entry.data for entry in entries])


def _rows(data: bytes) -> zip[tuple[int, int, int, int]]:
    """Return the rows of four numbers that lie in ``data``."""
    numbers = array("q", data)
    return zip(*(numbers[column::4] for column in range(4)), strict=True)


# --- in the other process -----------------------------------------------------------------------------------------


def serve() -> None:
    """Answer questions from the standard input until there are no more."""
    _stand_back()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its pipe
    questions = Connection(os.dup(0), writable=False)
    answers = Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # printed text must not come between
    passes = None
    while True:
        try:
            verb, *given = pickle.loads(questions.recv_bytes())
        except EOFError:
            return
        answer: tuple[str, Any]
        try:
            if verb in ("begin", "end"):
                passes = _begun(given[0]) if given else None
                answer = "done", None
            else:
                assert passes is not None
                answer = "done", _done(passes, verb, *given)
        except LedgerCorrupt as error:
            answer = "corrupt", str(error)
        except Exception as error:
            answer = "failed", f"{type(error).__name__}: {error}"
        try:
            answers.send_bytes(pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
        except BrokenPipeError:
            return


def _begun(job: Job) -> Passes:
    return Passes(job, machine_code() if job.messages >= WORTH_IT else None)


def _stand_back() -> None:
    """Lower the priority, so that clients come first, also for a broker with real-time priority (``chrt``)."""
    os.nice(2)
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _done(
    passes: Passes, verb: str, numbers: bytes = b"", data: bytes = b"", are_copies: bool = False
) -> Any:
    if verb == "looks_back":
        return passes.looks_back()
    entries, view, at = [], memoryview(data), 0
    for ledger_id, entry_id, last_offset, size in _rows(numbers):
        entries.append(StoredEntry(ledger_id, entry_id, last_offset, view[at : at + size], at))
        at += size
    if verb == "note":
        return passes.note(entries)
    if verb == "look_back":
        return passes.look_back(entries)
    copies = passes.copy(entries, are_copies=are_copies)
    rows = array("q")
    for entry, origin in zip(copies.entries, copies.origins, strict=True):
        rows.extend((entry.last_offset, entry.max_timestamp, origin, len(entry.data)))
    made = b"".join([entry.data for entry in copies.entries])
    return rows.tobytes(), made, copies.removed, copies.complaints, copies.ended, copies.unnoted
