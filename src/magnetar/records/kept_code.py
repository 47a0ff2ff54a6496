"""Where machine code is kept from one process to the next, and whether what is kept there fits this machine.

numba keeps what it compiled of a function as long as the function's own file stays what it was. But machine code has in
it what it calls, and the constants that were imported: after an upgrade in place a file that did not change would go on
with what others were before. So the directory's name says what all sources here are.

This module does not import numba, which takes half a second: who finds that the code is there need not ask it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import stat
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import magnetar

KEPT = 4
"""Directories of other sources that stay when a new one is made: processes that run may still want theirs."""
_NAME = f"kernels-{sha256(__file__.encode()).hexdigest()[:8]}-"
"""How the directories of this installation begin: another one may keep its own in the same place."""


def _digest() -> str:
    """Return 16 hexadecimal digits of the version and of each source here: kernels import from no other."""
    digest = sha256(magnetar.__version__.encode())
    for source in _sources():
        name = str(source.relative_to(Path(__file__).parent))
        digest.update(b"%s\0%s\0" % (name.encode(), sha256(source.read_bytes()).digest()))
    return digest.hexdigest()[:16]


def _sources() -> list[Path]:
    """Return the sources in this folder and below it, in order."""
    return sorted(Path(__file__).parent.rglob("*.py"))


def _roots() -> Iterator[Path]:
    """Yield where directories may be made: where numba was told to, beside the sources, in the user's cache."""
    if "NUMBA_CACHE_DIR" in os.environ:
        yield Path(os.environ["NUMBA_CACHE_DIR"])
    yield Path(__file__).parent / "__pycache__"
    yield Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "magnetar"


@cache
def directory() -> Path:
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
    import tempfile  # rarely needed, and every broker loads this module

    place = Path(tempfile.gettempdir()) / f"magnetar-{os.getuid()}-{_NAME}{_digest()}"
    place.mkdir(mode=0o700, exist_ok=True)
    found = place.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return place if ours else Path(tempfile.mkdtemp(prefix=f"magnetar-{_NAME}"))


def _forget_others(place: Path) -> None:
    """Remove the directories of earlier sources beside a new one, but for the youngest of them."""
    import shutil  # as above

    made = [(each.stat().st_mtime, each) for each in place.parent.glob(_NAME + "*") if each != place]
    for _, each in sorted(made, reverse=True)[KEPT:]:
        shutil.rmtree(each, ignore_errors=True)


def is_kept(modules: Sequence[str]) -> bool:
    """Whether `note_kept` was called for these modules, of what is here now."""
    with contextlib.suppress(OSError, ImportError):  # of a package without metadata
        return _note(modules).exists()
    return False


def note_kept(modules: Sequence[str]) -> None:
    """Note that all which these modules compile is in the directory: that it can be loaded without being compiled."""
    with contextlib.suppress(OSError, ImportError):
        _note(modules).touch()


def _note(modules: Sequence[str]) -> Path:
    return directory() / f"kept-{sha256(' '.join((_circumstances(), *modules)).encode()).hexdigest()[:16]}"


@cache
def _circumstances() -> str:
    """Return all that numba's code depends upon beside the sources' content: who compiled, for what, of which files."""
    from importlib.metadata import version  # it loads much that few brokers need

    flags = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        flags = "|".join(line for line in lines if line.startswith(("model", "flags", "Features", "CPU")))
    stamps = [f"{each.stat().st_mtime_ns} {each.stat().st_size}" for each in _sources()]
    who = [sys.version, *map(version, ("numba", "llvmlite", "numpy"))]
    return "\n".join([*who, platform.machine(), flags, os.environ.get("NUMBA_CPU_NAME", ""), *stamps])
