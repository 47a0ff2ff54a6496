"""Functions compiled by numba, and the directory that keeps their machine code from one process to the next.

numba keeps what it compiled of a function as long as the function's own file stays what it was. But machine code has in
it what it calls, and the constants that were imported: after an upgrade in place a file that did not change would go on
with what others were before. So the directory's name says what all sources here are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import numba

import magnetar

KEPT = 4
"""Directories of other sources that stay when a new one is made: processes that run may still want theirs."""
_NAME = f"kernels-{sha256(__file__.encode()).hexdigest()[:8]}-"
"""How the directories of this installation begin: another one may keep its own in the same place."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(signature: Any) -> Callable[[_Function], _Function]:
    """Compile a function for one signature now, or load what an earlier process compiled."""
    compiler = numba.njit(signature, cache=True, nogil=True, error_model="numpy")

    def decorate(function: _Function) -> _Function:
        with _cached_here():
            made: _Function = compiler(function)
        return made

    return decorate


@contextlib.contextmanager
def _cached_here() -> Iterator[None]:
    """Have numba use our directory meanwhile: what others compile in this process stays where they want it."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(_DIRECTORY)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


def _digest() -> str:
    """Return 16 hexadecimal digits of the version and of each source in this folder: kernels import from no other."""
    digest = sha256(magnetar.__version__.encode())
    for source in sorted(files("magnetar.records").iterdir(), key=lambda each: each.name):
        if source.name.endswith(".py"):
            digest.update(b"%s\0%s\0" % (source.name.encode(), sha256(source.read_bytes()).digest()))
    return digest.hexdigest()[:16]


def _roots() -> Iterator[Path]:
    """Yield where directories may be made: where numba was told to, beside the sources, in the user's cache."""
    if "NUMBA_CACHE_DIR" in os.environ:
        yield Path(os.environ["NUMBA_CACHE_DIR"])
    yield Path(__file__).parent / "__pycache__"
    yield Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "magnetar"


def _directory() -> Path:
    """Return the directory for these sources, made if need be; it is unpickled, so nobody else may write it."""
    for root in _roots():
        place = root / (_NAME + _digest())
        with contextlib.suppress(OSError):
            if root.is_absolute() and not place.is_dir():
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                _forget_others(place)
            if os.access(place, os.W_OK):
                return place
    return _temporary()


def _temporary() -> Path:
    """Return a directory among temporary files, where others may have prepared one: only ours is used."""
    place = Path(tempfile.gettempdir()) / f"magnetar-{os.getuid()}-{_NAME}{_digest()}"
    place.mkdir(mode=0o700, exist_ok=True)
    found = place.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return place if ours else Path(tempfile.mkdtemp(prefix=f"magnetar-{_NAME}"))


def _forget_others(place: Path) -> None:
    """Remove the directories of earlier sources beside a new one, but for the youngest of them."""
    made = [(each.stat().st_mtime, each) for each in place.parent.glob(_NAME + "*") if each != place]
    for _, each in sorted(made, reverse=True)[KEPT:]:
        shutil.rmtree(each, ignore_errors=True)


_DIRECTORY = _directory()
