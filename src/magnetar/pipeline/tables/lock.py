"""One writer at a time on a table in a directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from magnetar.pipeline.held_file import FileHeld, HeldFile
from magnetar.pipeline.tables.directory import TableDirectory
from magnetar.pipeline.tables.errors import TableConflict

_NAME = "_magnetar/writer.lock"


@contextmanager
def writer_lock(place: TableDirectory) -> Iterator[None]:
    """Be the only writer; raise `TableConflict` naming who is. Does nothing on object stores."""
    if not place.is_local:
        yield
        return
    held = HeldFile(place.directory / _NAME)
    try:
        held.__enter__()
    except FileHeld as error:
        raise TableConflict(f"{place}: another writer is at work ({error}); one writer at a time") from None
    try:
        yield
    finally:
        held.__exit__()
