"""The states of cursors that are too large for the metadata: a ledger's file for each, new with every change.

The state lies in entries of at most a megabyte, behind the head that every entry has. A crash between such a file and
the commit that names it leaves the file behind; nothing refers to it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from magnetar.ledger.cursors.store import CursorLedgers
from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound
from magnetar.ledger.files.disk import Disk
from magnetar.ledger.files.ledger_file import as_storage_error
from magnetar.ledger.files.shared import EngineParts
from magnetar.ledger.files.streams import LedgerFileWriter
from magnetar.ledger.files.walk import walk
from magnetar.ledger.formats.cursor_info import STATE_BEGINS
from magnetar.ledger.formats.layout import HEADER_BYTES, check_header, ledger_path
from magnetar.ledger.port import NewEntry
from magnetar.records.copied import behind_broker_head
from magnetar.records.entry import broker_entry_head

_ENTRY_BYTES = 1 << 20
_NO_END = 1 << 62
_log = logging.getLogger("magnetar.ledger")


class FilesCursorLedgers(CursorLedgers):
    """The ledgers of one engine's cursors."""

    def __init__(self, shared: EngineParts) -> None:
        self._shared = shared

    async def write(self, state: bytes) -> int:
        writer = LedgerFileWriter(self._shared, await self._shared.ids.new(), 0)
        now_ms = self._shared.clock()
        pieces = [state[at : at + _ENTRY_BYTES] for at in range(0, len(state), _ENTRY_BYTES)]
        try:
            await writer.append(
                [NewEntry(broker_entry_head(now_ms, n) + piece, n, now_ms) for n, piece in enumerate(pieces)]
            )
            await writer.seal()
        except BaseException:
            await writer.discard()
            raise
        return writer.ledger_id

    async def read(self, ledger_id: int) -> bytes:
        try:
            return await self._shared.work.in_thread(
                lambda: read_state(self._shared.disk, self._shared.root, ledger_id)
            )
        except OSError as error:
            raise as_storage_error(error) from error

    def forget(self, ledger_ids: Iterable[int]) -> None:
        for ledger_id in ledger_ids:
            self._shared.work.background(self._forget(ledger_id))

    async def _forget(self, ledger_id: int) -> None:
        """Remove a ledger if it is a cursor's: a node that came from elsewhere may name one that is a topic's here."""
        try:
            state = await self.read(ledger_id)
        except LedgerNotFound:
            return
        if state.startswith(STATE_BEGINS):
            self._shared.remove_later([ledger_id])
        else:
            _log.error("ledger %d is no cursor's, and stays", ledger_id)


def read_state(disk: Disk, root: Path, ledger_id: int) -> bytes:
    """Return the state in a ledger; raise ``LedgerNotFound``, ``LedgerCorrupt`` or ``OSError``."""
    path = ledger_path(root, ledger_id)
    try:
        file = disk.open(path)
    except FileNotFoundError:
        raise LedgerNotFound(f"{path} is not there") from None
    try:
        data = file.read(file.size(), 0)
    finally:
        file.close()
    check_header(data, ledger_id, path)
    frames = memoryview(data)[HEADER_BYTES:]
    walked = walk(frames, HEADER_BYTES, ledger_id, 0, offset=-1, max_bytes=_NO_END, up_to=_NO_END, path=path)
    if walked.at != len(data):
        raise LedgerCorrupt(f"{path}: ends within an entry at byte {walked.at}")
    return b"".join(behind_broker_head(entry.data) for entry in walked.entries)
