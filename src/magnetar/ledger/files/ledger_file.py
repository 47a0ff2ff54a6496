"""One ledger: its file and its sparse index, to append to while it is open and to read from ever after."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound, StorageFailed, StorageFull
from magnetar.ledger.files.disk import Disk, File
from magnetar.ledger.files.walk import Walked, walk
from magnetar.ledger.formats.layout import FRAME_BYTES, encode_header, frame_head, ledger_path
from magnetar.ledger.formats.sparse import POINT_EVERY_BYTES, Mark, SparseIndex
from magnetar.ledger.looking import first_wanted
from magnetar.ledger.port import StoredEntry
from magnetar.records.compression import Buffer

_FRAMES_BYTES = 1 << 10  # about what the frames of entries that take max_bytes have beside these
INLINE_BYTES = 2 << 20  # a copy of this much out of the page cache takes well under a millisecond
_NO_END = 1 << 62
_MAX_HINTS = 32


class OpenFiles:
    """The files that the event loop keeps open; the least recently used is closed first."""

    def __init__(self, disk: Disk, *, most: int) -> None:
        self.disk = disk
        self._most = most
        # By a string: to look for a path is a call of Python's each time.
        self._files: OrderedDict[str, File] = OrderedDict()

    def get(self, path: str) -> File:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = self.disk.open(Path(path))
            if len(self._files) > self._most:
                self._files.popitem(last=False)[1].close()
        else:
            self._files.move_to_end(path)
        return file

    def forget(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


class LedgerFile:
    """One ledger's file. Appends run on the event loop and end in the page cache; cold reads leave the loop."""

    __slots__ = ("_file_name", "_files", "_has_rest", "_hints", "_in_thread", "index", "ledger_id", "path")

    def __init__(
        self,
        root: Path,
        files: OpenFiles,
        index: SparseIndex,
        in_thread: Callable[[Callable[[], bytes]], asyncio.Future[bytes]],
    ) -> None:
        self.ledger_id = index.ledger_id
        self.path = ledger_path(root, index.ledger_id)
        self._file_name = str(self.path)
        self.index = index
        self._files = files
        self._in_thread = in_thread
        self._has_rest = False  # something lies after the end that could not be cut
        self._hints: dict[int, tuple[int, int]] = {}

    @staticmethod
    def create(disk: Disk, path: Path, ledger_id: int, created_ms: int) -> None:
        """Make the file of a new ledger; raise ``StorageFull`` with nothing left behind."""
        try:
            file = disk.open(path, create=True)
            try:
                file.write([encode_header(ledger_id, created_ms)], 0)
            finally:
                file.close()
        except OSError as error:
            with contextlib.suppress(OSError):
                disk.remove(path)
            raise as_storage_error(error) from error

    def add(
        self,
        head: bytes,
        rest: Sequence[Buffer],
        *,
        messages: int,
        timestamp_ms: int,
        earliest_ms: int,
        tail_crc: int | None = None,
    ) -> list[Buffer]:
        """Place one more entry (``head`` then ``rest``) at the end, and return what must be written there."""
        index = self.index
        length = len(head) + sum(map(len, rest))
        begin = frame_head(self.ledger_id, index.entries, head, rest, length, tail_crc)
        index.add(FRAME_BYTES + length, messages, timestamp_ms, earliest_ms)
        return [begin, *rest]

    def write(self, parts: list[Buffer], at: int) -> None:
        """Write what was added from ``at`` on; if it fails, the caller has to `take_back`."""
        file = self._files.get(self._file_name)
        if self._has_rest:
            file.truncate(at)
            self._has_rest = False
        file.write(parts, at)

    def take_back(self, mark: Mark) -> None:
        """Restore the ledger as it was at ``mark``: what was added since was not written completely."""
        self.index.back_to(mark)
        try:
            self._files.get(self._file_name).truncate(mark.end)
        except OSError:
            # Whole entries may lie there. Were they only written over in part, recovery would take them for the end of
            # a log with a damaged middle.
            self._has_rest = True

    async def read(self, offset: int, *, max_bytes: int, up_to: int = _NO_END) -> list[StoredEntry]:
        """Return the entries from the one that contains ``offset`` on; see ``ManagedLedger.read``."""
        hint = self._hints.get(offset)
        at, entry_id = hint or self.index.before_offset(offset)
        before = 0 if hint else POINT_EVERY_BYTES
        walked = await self._walk(
            at, entry_id, offset=offset, max_bytes=max_bytes, up_to=up_to, before=before
        )
        if walked.entries:
            self._remember(walked)
        return walked.entries

    async def read_entry(self, entry_id: int) -> StoredEntry:
        """Return one entry by its id."""
        at, first = self.index.before_entry(entry_id)
        while at < self.index.end:
            walked = await self._walk(at, first, offset=-1, max_bytes=POINT_EVERY_BYTES, up_to=_NO_END)
            for entry in walked.entries:
                if entry.entry_id == entry_id:
                    return entry
            at, first = walked.at, walked.entry_id
        raise LedgerNotFound(f"ledger {self.ledger_id} has no entry {entry_id}")

    async def find(self, at: int, entry_id: int, wanted: Callable[[StoredEntry], bool]) -> StoredEntry | None:
        """Return the first entry from position ``at`` on for which ``wanted`` holds."""
        while at < self.index.end:
            walked = await self._walk(at, entry_id, offset=-1, max_bytes=4 * POINT_EVERY_BYTES, up_to=_NO_END)
            found = await first_wanted(walked.entries, wanted)
            if found is not None:
                return found
            at, entry_id = walked.at, walked.entry_id
        return None

    def _remember(self, walked: Walked) -> None:
        """Note where the next offset begins: readers mostly read straight on."""
        hints = self._hints
        if len(hints) >= _MAX_HINTS:
            hints.pop(next(iter(hints)))
        hints[walked.entries[-1].last_offset + 1] = walked.at, walked.entry_id

    async def _walk(
        self, at: int, entry_id: int, *, offset: int, max_bytes: int, up_to: int,
        before: int = POINT_EVERY_BYTES,
    ) -> Walked:  # fmt: skip
        """Walk from a known frame, reading more where it takes more to find the first entry wanted.

        So many bytes are expected ``before`` that entry.
        """
        want = before + max_bytes + _FRAMES_BYTES
        while True:
            size = min(want, self.index.end - at)
            data = memoryview(await self._bytes(size, at))
            if len(data) < size:
                raise LedgerCorrupt(f"{self.path}: ends at byte {at + len(data)}, not at {self.index.end}")
            walked = walk(
                data,
                at,
                self.ledger_id,
                entry_id,
                offset=offset,
                max_bytes=max_bytes,
                up_to=up_to,
                path=self.path,
            )
            if walked.entries or (not walked.short_by and walked.at < at + size - FRAME_BYTES):
                return walked
            if at + size + walked.short_by > self.index.end or at + size == self.index.end:
                if walked.short_by:
                    raise LedgerCorrupt(
                        f"{self.path}: entry {walked.entry_id} at byte {walked.at} runs past the end"
                    )
                return walked
            want = max(max_bytes, at + size - walked.at + walked.short_by) + POINT_EVERY_BYTES
            at, entry_id = walked.at, walked.entry_id

    async def _bytes(self, size: int, at: int) -> Buffer:
        try:
            if size <= INLINE_BYTES:
                found = self._files.get(self._file_name).read_now(size, at)
                if found is not None:
                    return found
            return await self._in_thread(lambda: self.read_apart(size, at))
        except OSError as error:
            raise as_storage_error(error) from error

    def read_apart(self, size: int, at: int) -> bytes:
        """Read in a thread, through a separate file: the loop may close its own at any time."""
        file = self._files.disk.open(self.path)
        try:
            return file.read(size, at)
        finally:
            file.close()


def as_storage_error(error: Exception) -> StorageFull | StorageFailed | LedgerNotFound:
    """Return an error of the operating system as a storage error."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no room on the disk: {error}")
    if isinstance(error, FileNotFoundError):
        return LedgerNotFound(f"a ledger's file is gone: {error}")
    return StorageFailed(f"the disk failed: {str(error) or repr(error)}")
