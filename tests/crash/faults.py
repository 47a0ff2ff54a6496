"""A disk that fails as it is told to, beneath real processes, which load ``faults.c`` before the C library."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCE = Path(__file__).with_name("faults.c")
MAX_RULES = 64
FOR_EVER = -1
SHORT = 0
"""As an error: the write is made, but only half of it."""
_HEAD = struct.Struct("=IIQQ")
_RULE = struct.Struct("=IIiiI12x96s")


class Operation(IntFlag):
    OPEN = 1
    WRITE = 2
    SYNC = 4
    TRUNCATE = 8
    RENAME = 16
    REMOVE = 32
    MKDIR = 64
    READ = 128
    AIO = 256


CHANGES = ~Operation.READ
ERRORS = {
    "EIO": errno.EIO,
    "ENOSPC": errno.ENOSPC,
    "EDQUOT": errno.EDQUOT,
    "EROFS": errno.EROFS,
    "EMFILE": errno.EMFILE,
    "short": SHORT,
}


@dataclass(frozen=True, slots=True)
class Rule:
    """Of the calls that match, let ``skip`` pass, then make ``times`` fail."""

    operations: Operation
    error: int
    file: str = ""
    skip: int = 0
    times: int = 1

    def __str__(self) -> str:
        names = "|".join(each.name or "" for each in Operation if each in self.operations)
        error = next(name for name, number in ERRORS.items() if number == self.error)
        count = "for ever" if self.times < 0 else f"{self.times}x"
        return f"{names} of {self.file or 'any file'}: {error} {count} after {self.skip}"


class Plan:
    """What is to fail, shared with the processes that were started with `environment`."""

    def __init__(self, file: Path, root: Path) -> None:
        self.file, self.root = file, root
        file.write_bytes(bytes(_HEAD.size + MAX_RULES * _RULE.size))
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), 0)

    @classmethod
    def attached(cls, file: Path, root: Path) -> Plan:
        """Return the plan that another process made."""
        made = cls.__new__(cls)
        made.file, made.root = file, root
        with file.open("r+b") as opened:
            made._map = mmap.mmap(opened.fileno(), 0)
        return made

    def arm(self, rules: Sequence[Rule]) -> None:
        """Have these rules hold from now on, their counts and those of all calls beginning at 0."""
        self.disarm()
        for number, rule in enumerate(rules):
            packed = _RULE.pack(
                rule.operations & 0xFFFFFFFF, rule.skip, rule.times, rule.error, 0, rule.file.encode()
            )
            at = _HEAD.size + number * _RULE.size
            self._map[at : at + _RULE.size] = packed
        self._map[: _HEAD.size] = _HEAD.pack(1, len(rules), 0, 0)

    def disarm(self) -> None:
        """Let everything pass."""
        self._map[:4] = bytes(4)

    @property
    def calls(self) -> int:
        """How many calls were seen since it was armed."""
        return int(_HEAD.unpack_from(self._map)[2])

    @property
    def failed(self) -> int:
        """How many of them failed."""
        return int(_HEAD.unpack_from(self._map)[3])

    def seen(self, number: int) -> int:
        """How many calls have matched a rule."""
        return int(_RULE.unpack_from(self._map, _HEAD.size + number * _RULE.size)[4])

    def environment(self, library: Path) -> dict[str, str]:
        """Return what a process needs to be in this plan's hand."""
        return {"LD_PRELOAD": str(library), "FAULT_ROOT": str(self.root), "FAULT_PLAN": str(self.file)}


@contextmanager
def quick_folder() -> Iterator[Path]:
    """Return a folder in memory where there is such a place: what fails is not the disk's doing, and waits for none."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="magnetar-faults-") as folder:
        yield Path(folder)


def compiler() -> str | None:
    """Return a C compiler, if there is one here."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def build(folder: Path) -> Path:
    """Compile the library; raise ``CalledProcessError``."""
    library = folder / "faults.so"
    if not library.exists():
        draft = folder / f"faults-{os.getpid()}.so"
        cc = compiler()
        assert cc is not None
        subprocess.run(
            [cc, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", draft, SOURCE, "-ldl"], check=True
        )
        draft.rename(library)
    return library
