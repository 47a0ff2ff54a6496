"""Where a table's files lie: a directory of this machine, or a URL that Arrow's file systems know."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from pyarrow import fs

from magnetar.pipeline.tables.errors import TableError

IN_CATALOG = "iceberg://"
"""How a table's name begins that a catalog has: ``iceberg://CATALOG/NAMESPACE.TABLE``, by PyIceberg's configuration."""


def in_catalog(url: str | Path) -> tuple[str, str] | None:
    """Return the catalog and the table's name in it; None for a place. Raises `TableError` for half a name."""
    text = str(url)
    if not text.startswith(IN_CATALOG):
        return None
    catalog, _, name = text.removeprefix(IN_CATALOG).partition("/")
    if not catalog or not name or "/" in name:
        raise TableError(f"{text} is no table of a catalog: write {IN_CATALOG}CATALOG/NAMESPACE.TABLE")
    return catalog, name


class TableDirectory:
    """One directory. It travels to tasks by its URL alone."""

    def __init__(self, url: str | Path) -> None:
        text = str(url)
        if text.startswith("file:"):
            text = "/" + text.removeprefix("file:").lstrip("/")
        self.is_local = "://" not in text
        self.url = str(Path(text).absolute()) if self.is_local else text.rstrip("/")

    def __reduce__(self) -> tuple[type[TableDirectory], tuple[str]]:
        return TableDirectory, (self.url,)

    def __str__(self) -> str:
        return self.url

    @property
    def directory(self) -> Path:
        """The directory of a local place."""
        assert self.is_local
        return Path(self.url)

    @cached_property
    def _system(self) -> tuple[Any, str]:
        if self.is_local:
            return fs.LocalFileSystem(), self.url
        try:
            system, path = fs.FileSystem.from_uri(self.url)
        except Exception as error:
            raise TableError(f"{self.url} is no place that tables can be in: {error}") from None
        return system, path

    @property
    def system(self) -> tuple[Any, str]:
        """Arrow's file system of the place, and the place in it."""
        return self._system

    def child(self, name: str) -> TableDirectory:
        """Return a directory in this one."""
        return TableDirectory(f"{self.url}/{name}")

    def url_of(self, name: str) -> str:
        """Return the full name of a file."""
        return f"{self.url}/{name}"

    def make(self) -> None:
        """Make the directory, if it is not there."""
        system, path = self._system
        system.create_dir(path, recursive=True)

    def write(self, name: str, content: bytes) -> None:
        """Write a small file whole."""
        with self.create(name) as sink:
            sink.write(content)

    def create(self, name: str) -> Any:
        """Return a stream into a new file."""
        system, path = self._system
        return system.open_output_stream(f"{path}/{name}")

    def open(self, name: str) -> Any:
        """Return a file to read from anywhere in it."""
        system, path = self._system
        return system.open_input_file(f"{path}/{name}")

    def names(self) -> list[str]:
        """Return the names of the files right here; none if the directory is not there."""
        system, path = self._system
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(each.base_name for each in found if each.type == fs.FileType.File)

    def age_s(self, name: str, now: float) -> float:
        """Return how long ago a file was written."""
        system, path = self._system
        (info,) = system.get_file_info([f"{path}/{name}"])
        return now - (info.mtime_ns or 0) / 1e9

    def delete(self, name: str) -> None:
        """Delete a file; one that is gone is fine."""
        system, path = self._system
        try:
            system.delete_file(f"{path}/{name}")
        except FileNotFoundError:
            pass

    def begin_sync(self, name: str, start: int, end: int) -> None:
        """Have the disk begin with what was written to ``[start, end)`` of a file; `sync` then waits for less."""
        if self.is_local and hasattr(os, "posix_fadvise"):
            handle = os.open(f"{self.url}/{name}", os.O_RDONLY)
            try:
                # Linux writes what is dirty there, without waiting, before it looks what memory it can take back.
                os.posix_fadvise(handle, start, end - start, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)

    def sync(self, names: list[str]) -> None:
        """Have files, and that they are there, survive a power failure; object stores do so by themselves."""
        if not self.is_local:
            return
        for name in (*names, ""):
            handle = os.open(f"{self.url}/{name}", os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
