"""The embedded metadata store: one SQLite file behind one thread.

The event loop never waits for the disk. Commits that wait while one is written become one transaction of SQLite's with
the next, and so share one flush; each of them still succeeds or fails for itself, with its own `BadVersion`. What the
file is protected by stands in `magnetar.metadata.sqlite_file`.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from magnetar.metadata.errors import MetadataUnavailable
from magnetar.metadata.local import LocalStore, T
from magnetar.metadata.lock import DirectoryLock
from magnetar.metadata.sqlite_file import SqliteFile
from magnetar.metadata.staging import Outcome, StagedCommit

_MAX_AT_ONCE = 500


class _Asked(NamedTuple):
    what: StagedCommit | Callable[[], Any]
    answer: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class SqliteThread:
    """The one thread that works on a file for all clients within this process; it begins with the first question."""

    def __init__(self, file: SqliteFile) -> None:
        self.file = file
        self.clients = 0
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = False

    def ask(self, what: StagedCommit | Callable[[], Any]) -> asyncio.Future[Any]:
        """Return a future of a commit's outcome, or of what a function returns."""
        if self._ended:
            raise MetadataUnavailable("the metadata store is closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="magnetar-metadata", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._asked.put(_Asked(what, answer, loop))
        return answer

    async def close(self) -> None:
        """Close the file after all that was asked, and end the thread."""
        if not self._ended:
            closed = self.ask(self.file.close)
            self._ended = True
            self._asked.put(None)
            await closed

    def _work(self) -> None:
        while (first := self._asked.get()) is not None:
            waiting = [first]
            ends = False
            with suppress(queue.Empty):
                while len(waiting) < _MAX_AT_ONCE and not ends:
                    if (more := self._asked.get_nowait()) is None:
                        ends = True
                    else:
                        waiting.append(more)
            self._serve(waiting)
            if ends:
                return

    def _serve(self, waiting: Sequence[_Asked]) -> None:
        """Read what was asked for before the first commit, then commit all at once, then read the rest.

        So no read misses a commit that was asked for before it, and commits are not held apart by reads.
        """
        first = next(
            (at for at, each in enumerate(waiting) if isinstance(each.what, StagedCommit)), len(waiting)
        )
        _settle([(each, _called(each.what)) for each in waiting[:first]])
        commits = [each for each in waiting[first:] if isinstance(each.what, StagedCommit)]
        if commits:
            _settle(list(zip(commits, self._commit([each.what for each in commits]), strict=True)))  # type: ignore[misc]
            _settle(
                [
                    (each, _called(each.what))
                    for each in waiting[first:]
                    if not isinstance(each.what, StagedCommit)
                ]
            )

    def _commit(self, commits: Sequence[StagedCommit]) -> Sequence[Outcome | Exception]:
        try:
            return self.file.commit_all(commits)
        except Exception as error:  # nothing of it was kept, or nobody knows; they are all told
            return [error] * len(commits)


def _called(what: Any) -> Any:
    try:
        return what()
    except Exception as error:
        return error


def _settle(answers: Sequence[tuple[_Asked, Any]]) -> None:
    loops = {each.loop for each, _ in answers}
    for loop in loops:
        mine = [(each.answer, result) for each, result in answers if each.loop is loop]
        with suppress(RuntimeError):  # the loop has ended, and with it who would listen
            loop.call_soon_threadsafe(_give, mine)


def _give(answers: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for answer, result in answers:
        if answer.cancelled():
            continue
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result(result)


class SqliteStore(LocalStore):
    """One client of a file; raises what `SqliteFile` raises. `another` gives one more on the same file."""

    blocking: SqliteFile

    def __init__(
        self,
        file: Path,
        *,
        read_only: bool = False,
        takes_rows: bool = False,
        lock: DirectoryLock | None = None,
    ) -> None:
        self._join(SqliteThread(SqliteFile(file, read_only=read_only, takes_rows=takes_rows, lock=lock)))

    def another(self) -> SqliteStore:
        """Return another client of the same file, with a session and watches of its own."""
        made = SqliteStore.__new__(SqliteStore)
        made._join(self._thread)
        return made

    def _join(self, thread: SqliteThread) -> None:
        super().__init__(thread.file)
        self._thread = thread
        self._closed = False
        thread.clients += 1

    async def _read(self, read: Callable[[], T]) -> T:
        found: T = await self._thread.ask(read)
        return found

    async def _commit(self, commit: StagedCommit) -> Outcome:
        outcome: Outcome = await self._thread.ask(commit)
        return outcome

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._thread.clients -= 1
        await super().close()
        if not self._thread.clients:
            await self._thread.close()
