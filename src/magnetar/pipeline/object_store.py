"""Data directories that were copied to an object store: ``path`` as ``s3://``, ``gs://``, ``abfs://`` or ``hdfs://``.

What is needed of one is brought to this machine, file by file: metadata and indexes to the driver, a ledger to each
machine that reads some of it. It is kept in ``MAGNETAR_OBJECT_CACHE`` (by default below the system's place for
temporary files) and brought again when size or time of the object are others. Executors need no word of where it came
from: the directory's own name says it.

    CACHE/magnetar-objects/s3%3A%2F%2Fbucket%2Fdata/+/ledgers/000000/0000000000000007.ledger
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

_ROOT = "magnetar-objects"
_END = "+"  # behind the parts of the address: quoted ones never are a plus
_MAX_NAME = 200
_PIECE = 8 << 20
_SCHEME = re.compile(r"([a-z][a-z0-9]*)://")


def place_of(path: str) -> Path:
    """Return the data directory that an option ``path`` means; raise ``ValueError`` for an address that cannot be."""
    if path.startswith("file:") or not _SCHEME.match(path):
        return Path(path.removeprefix("file:")).absolute()
    if "@" in path.split("?")[0]:
        # It would stand in names of directories, and in errors that name them.
        raise ValueError(
            "path: keys do not belong into the address of an object store; give them by the environment"
        )
    _store(path)
    name = quote(path, safe="")
    parts = [name[at : at + _MAX_NAME] for at in range(0, len(name), _MAX_NAME)]
    cache = os.environ.get("MAGNETAR_OBJECT_CACHE") or tempfile.gettempdir()
    return Path(cache).absolute().joinpath(_ROOT, *parts, _END)


def at_hand(path: Path) -> Path:
    """Return a file of a data directory, brought here if it lies in an object store and is not here as it is there.

    What is not there is not here either: then to open it raises ``FileNotFoundError``.
    """
    found = _address(path)
    if found is None:
        return path
    address, name = found
    from pyarrow.fs import FileType

    store, base = _store(address)
    (info,) = store.get_file_info([f"{base.rstrip('/')}/{name}"])
    if info.type != FileType.File:
        path.unlink(missing_ok=True)
    elif not _is_same(path, info):
        with _anew(path) as file, store.open_input_stream(info.path) as stream:
            while piece := stream.read(_PIECE):
                file.write(piece)
            file.flush()
            os.utime(file.fileno(), ns=(info.mtime_ns, info.mtime_ns))
    return path


def _address(path: Path) -> tuple[str, str] | None:
    """Return the address of the directory, and the name in it; None for a file that is simply here."""
    parts = path.parts
    if _ROOT not in parts or _END not in parts:
        return None
    first, end = parts.index(_ROOT) + 1, parts.index(_END)
    return unquote("".join(parts[first:end])), "/".join(parts[end + 1 :])


@lru_cache(maxsize=16)
def _store(address: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        store, base = FileSystem.from_uri(address)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise ValueError(
            f"path: {address} cannot be read: {error}. Allowed: a directory, or an address that "
            "pyarrow.fs.FileSystem.from_uri takes, like s3://bucket/data?region=eu-central-1"
        ) from None
    return store, str(base)


def _is_same(path: Path, info: Any) -> bool:
    try:
        here = path.stat()
    except FileNotFoundError:
        return False
    return (here.st_size, here.st_mtime_ns) == (info.size, info.mtime_ns)


@contextmanager
def _anew(path: Path) -> Iterator[Any]:
    """Open a file that takes its place when it is whole: other processes bring the same one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".bring-", delete=False) as file:
        try:
            yield file
            file.flush()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
