"""One run, and one replay, of a project at a time: two would clear away each other's work, or send a letter twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from magnetar.pipeline.held_file import FileHeld, HeldFile


class ProjectBusy(Exception):
    """Another process is at the same work on the project; the message names it."""


@contextmanager
def alone(work: str, lock: Path) -> Iterator[None]:
    """Be the only process at ``work`` by holding the file ``lock``; raise `ProjectBusy`."""
    held = HeldFile(lock)
    try:
        held.__enter__()
    except FileHeld as error:
        raise ProjectBusy(f"{lock.parent}: another {work} is under way ({error})") from None
    try:
        yield
    finally:
        held.__exit__()
