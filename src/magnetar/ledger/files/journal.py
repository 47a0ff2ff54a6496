"""The journal: all appends that arrive while one write runs become durable by the next one (group commit).

A few pre-written segments are used in turn; each round is one synchronous write of whole blocks, laid out as
`magnetar.ledger.files.journal_rounds` says. The first one after a pause begins when the loop has done what it had to
do: most often that are the other appends of a request, too. The frames were already written to their ledgers' files,
but only into the page cache. A segment is reused when those files have been flushed; until then, what it holds can be
written again after a power loss. A very large round, or one for which there is no segment because the disk is full, is
made durable by flushing its ledgers' files. If the system can, the kernel writes rounds (`KernelWrites`);
otherwise a thread does.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from time import perf_counter
from typing import Protocol

from magnetar.ledger.errors import StorageFailed
from magnetar.ledger.files.disk import BLOCK_BYTES, NO_DESCRIPTOR, Disk, JournalFile
from magnetar.ledger.files.journal_rounds import HEADER_BYTES, RECORD_BYTES, Round, whole_blocks
from magnetar.ledger.formats.layout import ledger_path
from magnetar.ledger.port import Done
from magnetar.ledger.room import Room
from magnetar.records.compression import Buffer

SEGMENT_BYTES = 16 << 20
MAX_BUSY = 16
ROUND_BYTES = 4 << 20
RETRY_S = 1.0
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, *NO_DESCRIPTOR)
"""Reasons for which there may be no new segment now, which loses nothing."""
_log = logging.getLogger("magnetar.ledger")


class Runner(Protocol):
    """Runs a blocking call away from the event loop."""

    def __call__(self, call: Callable[[], None], /) -> Future[None]: ...


class Segment:
    """One journal file in its present use, and the ledgers whose files it still vouches for."""

    def __init__(self, path: Path, file: JournalFile) -> None:
        self.path = path
        self.file = file
        self.use = -1
        self.rounds = 0
        self.at = 0
        self.ledgers: set[int] = set()

    def take(self, use: int) -> None:
        self.use, self.rounds, self.at = use, 0, 0
        self.ledgers = set()


class Journal:
    """Group commit for one broker. All methods run on the event loop; only disk work leaves it."""

    def __init__(
        self,
        root: Path,
        disk: Disk,
        run: Runner,
        *,
        first_use: int = 1,
        folder: Path | None = None,
        room: Room | None = None,
        on_failed: Callable[[StorageFailed], None] | None = None,
        on_written: Callable[[float, int], None] | None = None,
    ) -> None:
        """``root`` is where ledgers lie; ``folder`` where the journal's own files do, None for the usual one.

        ``on_failed`` is called once, when nothing can be made durable any more; ``on_written`` with the seconds and
        bytes of each write. New segments are made where ``room`` has enough for them.
        """
        self._room = room or Room()
        self._root = root
        self._folder = folder or root / "journal"
        self._disk = disk
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._next_use = first_use
        self._free: list[Segment] = []
        self._busy: set[Segment] = set()  # their ledgers are being flushed
        self._segments = 0
        self._active: Segment | None = None
        self._opening = disk.buffer(BLOCK_BYTES)
        self._filling: Round | None = None
        self._waiting: deque[Round] = deque()
        self._writing = False
        self._began = 0.0  # what is being written, in perf_counter's time
        self._begins_soon = False
        self._kernel = disk.kernel_writes(self._loop)
        # What threads do, and what the kernel writes.
        self._running: set[Future[None] | asyncio.Future[None]] = set()
        self._no_room_until = 0.0
        self._buffers: list[memoryview] = []
        self.failed: StorageFailed | None = None
        self._on_failed = on_failed
        self._on_written = on_written
        """Called with how long it took to make a round durable, and how many bytes those are."""

    def append(
        self,
        ledger_id: int,
        at: int,
        length: int,
        parts: Sequence[Buffer],
        mark: Callable[[int], None],
        value: int,
        done: Done | None = None,
    ) -> Done:
        """Make one frame, or some consecutive ones, durable; return a `Done` for when they are (``done``, if given).

        ``mark(value)`` is called right after that.
        """
        if self.failed is not None:
            raise self.failed
        need = RECORD_BYTES + length
        current = self._filling
        if current is None or current.used + need > len(current.buffer):
            current = self._open_round(need)
        current.add(ledger_id, at, length, parts)
        current.marks[mark] = value
        if not (self._writing or self._begins_soon):
            self._begins_soon = True
            self._loop.call_soon(self._write_first)
        if done is None:
            return current.done
        current.told.append(done)
        return done

    def _open_round(self, need: int) -> Round:
        if self._filling is not None:
            self._waiting.append(self._filling)
        need += HEADER_BYTES
        buffer = self._buffers.pop() if self._buffers and need <= ROUND_BYTES else None
        self._filling = Round(buffer or self._disk.buffer(max(ROUND_BYTES, whole_blocks(need))), self._loop)
        return self._filling

    def _write_first(self) -> None:
        self._begins_soon = False
        self._write_next()

    def _write_next(self) -> None:
        """Begin to make the oldest round durable."""
        if not self._waiting and self._filling is not None:
            self._waiting.append(self._filling)
            self._filling = None
        if self._writing or self.failed is not None or not self._waiting:
            return
        current = self._waiting[0]
        size = whole_blocks(current.used)
        if size > ROUND_BYTES:  # too large to be worth writing twice
            self._flush_round(self._waiting.popleft())
        elif self._segment_for(size):
            self._write(self._waiting.popleft())
        elif len(self._busy) < MAX_BUSY:
            if self._loop.time() < self._no_room_until or not self._room.has(SEGMENT_BYTES):
                self._flush_round(self._waiting.popleft())
            else:
                self._create()
        # otherwise the disk is far behind: go on when a segment comes free

    def _segment_for(self, size: int) -> bool:
        """Make sure a segment with so much room is in use, without a new one; the full one's ledgers are flushed."""
        if self._active is not None and self._active.at + size <= SEGMENT_BYTES:
            return True
        if self._active is not None:
            self._flush_behind(self._active)
            self._active = None
        if not self._free:
            return False
        self._active = self._free.pop()
        self._active.take(self._next_use)
        self._next_use += 1
        return True

    def _write(self, current: Round) -> None:
        segment = self._active
        assert segment is not None
        opening = self._open_segment(segment) if not segment.rounds else None
        blocks, at = current.seal(segment.use, segment.rounds), segment.at
        segment.at += len(blocks)
        segment.rounds += 1
        segment.ledgers |= current.ledgers

        if opening is None and self._written_by_kernel(current, segment.file, blocks, at):
            return

        def write() -> None:
            if opening is not None:
                segment.file.write(opening, 0)
            segment.file.write(blocks, at)

        self._begin(write, lambda error: self._written(current, error))

    def _written_by_kernel(self, current: Round, file: JournalFile, blocks: memoryview, at: int) -> bool:
        """Let the kernel write a round; return whether it does."""
        if self._kernel is None or file.descriptor is None:
            return False

        def ended(error: OSError | None) -> None:
            self._running.discard(current.done)
            self._writing = False
            self._written(current, error)

        if not self._kernel.begin(file.descriptor, blocks, at, ended):
            return False
        self._writing = True
        self._began = perf_counter()
        self._running.add(current.done)
        return True

    def _open_segment(self, segment: Segment) -> memoryview:
        """Return an empty round to begin with: one block cannot tear, so a torn first round is told from an old use."""
        opening = Round(self._opening, self._loop)
        segment.rounds, segment.at = 1, BLOCK_BYTES
        return opening.seal(segment.use, 0)

    def _flush_round(self, current: Round) -> None:
        """Make a round durable without the journal: by flushing the files of its ledgers."""
        paths = self._paths(current.ledgers)
        self._begin(lambda: self._disk.sync(paths), lambda error: self._written(current, error))

    def _begin(self, call: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
        """Run the one call that rounds wait for."""
        self._writing = True
        self._began = perf_counter()

        def done(error: BaseException | None) -> None:
            self._writing = False
            ended(error)

        self._start(call, done)

    def _start(self, call: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
        running = self._run(call)
        self._running.add(running)

        def done(result: Future[None]) -> None:
            self._running.discard(result)
            ended(asyncio.CancelledError() if result.cancelled() else result.exception())

        # Straight to the loop: by way of a future of asyncio's it would take another of its turns. No callback refers
        # to its future: rounds of 4 MB would wait for the garbage collector.
        running.add_done_callback(lambda result: self._loop.call_soon_threadsafe(done, result))

    def _written(self, current: Round, error: BaseException | None) -> None:
        if error is not None or self.failed is not None:
            self.fail(error or self.failed, current)
            return
        # Producers first: clients that read what they write look for it by the id in its receipt.
        current.settle()
        if self._on_written is not None:
            self._on_written(perf_counter() - self._began, current.used)
        for mark, value in current.marks.items():
            mark(value)
        if len(current.buffer) == ROUND_BYTES and len(self._buffers) < 2:
            self._buffers.append(current.buffer)
        self._write_next()

    def fail(self, error: BaseException | None, *current: Round) -> None:
        """Refuse every append until a restart recovers: it is unknown what the disk stored."""
        if self.failed is None:
            self.failed = StorageFailed(f"the disk failed, and only a restart can tell what it kept: {error}")
            _log.critical(
                "%s (%s). Nothing more is made durable; look at the disk (dmesg, room, quotas), then start the broker "
                "again: what was acknowledged is recovered",
                self.failed, self._root,
            )  # fmt: skip
            if self._on_failed is not None:
                self._on_failed(self.failed)
        rounds = [*current, *self._waiting, *([self._filling] if self._filling else [])]
        self._waiting.clear()
        self._filling = None
        for each in rounds:
            each.settle(self.failed)

    def _flush_behind(self, full: Segment) -> None:
        """Flush the ledgers behind a full segment; then it is free again."""
        self._busy.add(full)
        paths = self._paths(full.ledgers)
        self._start(lambda: self._disk.sync(paths), lambda error: self._flushed(full, error))

    def _flushed(self, segment: Segment, error: BaseException | None) -> None:
        self._busy.discard(segment)
        self._free.append(segment)
        if error is not None:
            self.fail(error)
        else:
            self._write_next()

    def _paths(self, ledgers: set[int]) -> list[Path]:
        return [ledger_path(self._root, ledger_id) for ledger_id in sorted(ledgers)]

    def _create(self) -> None:
        """Write a new segment full of zeros. Without room for it, rounds flush their ledgers' files instead."""
        path = self._folder / f"{self._segments:04d}.journal"
        made: list[JournalFile] = []

        def ended(error: BaseException | None) -> None:
            if error is None:
                self._segments += 1
                self._room.take(SEGMENT_BYTES)
                self._free.append(Segment(path, made[0]))
            elif isinstance(error, OSError) and error.errno in NO_ROOM:
                self._no_room_until = self._loop.time() + RETRY_S
            else:
                self.fail(error)
            self._write_next()

        self._begin(lambda: made.append(self._disk.open_journal(path, SEGMENT_BYTES)), ended)

    @property
    def writes_for_s(self) -> float:
        """The seconds that the write under way has taken by now; 0 if there is none."""
        return perf_counter() - self._began if self._writing else 0.0

    @property
    def use(self) -> int:
        """The last use of a segment: at a clean end, nothing up to it needs to be read again."""
        return self._next_use - 1

    async def close(self) -> None:
        """Wait until all is written and no segment is being flushed; let the files go."""
        while self._running or self._begins_soon:
            if self._running:
                # What fails is told by `fail`.
                await asyncio.gather(
                    *(asyncio.wrap_future(each) for each in self._running), return_exceptions=True
                )
            await asyncio.sleep(0)
        if self._kernel is not None:
            self._kernel.close()
        for segment in (*self._free, *([self._active] if self._active else [])):
            segment.file.close()
