"""Machine code that numba makes, in a process that may end at any time.

LLVM compiles for seconds. Where a process ends meanwhile, what LLVM needs is taken apart under the thread that
compiles, and a broker that had closed in order ended by a crash after all. So a process of its own compiles, and is
ended with this one; what it left to the cache is loaded from there, which is soon done, and this one's end waits for
that.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from magnetar.records.kept_code import is_kept, note_kept

_COMPILE_S = 900.0  # of a machine that has much else to do
_IMPORT = "for each in sys.argv[1:]: __import__(each)"
_compilers: set[subprocess.Popen[bytes]] = set()
_loads = threading.Lock()
"""Held by whoever loads, and for good by the process's end."""


class LoadedLater(ABC):
    """What is loaded in a thread of its own, once so much was done without it that this is worth it."""

    def __init__(self) -> None:
        self._without = 0
        self._loading: threading.Thread | None = None

    def goes_without(self, size: int, worth_it: int) -> None:
        """Note that so much is done without it; once that comes to ``worth_it`` it is loaded."""
        self._without += size
        if self._without >= worth_it and self._loading is None:
            self._loading = threading.Thread(target=self.load, name="machine-code", daemon=True)
            self._loading.start()

    @abstractmethod
    def load(self) -> None:
        """Load it now, if it can be had."""


def loaded(*modules: str) -> list[ModuleType] | None:
    """Import modules of compiled functions, which takes as long as it takes to compile them; None without numba.

    A thread in which the process's end finds this goes no further.
    """
    if find_spec("numba") is None or find_spec("numpy") is None:
        return None
    # What an earlier process left is there at once, and another process to find that out would take a second.
    there = all(each in sys.modules for each in modules) or is_kept(modules)
    if not there and told_by(_IMPORT, *modules) is not None:  # where that fails, the import below says why
        note_kept(modules)
    with _loads:
        return [import_module(each) for each in modules]


def told_by(program: str, *arguments: str) -> bytes | None:
    """Return what a Python program writes that runs apart and makes way for others; None if it fails."""
    command = [sys.executable, "-c", f"import os, sys; os.nice(5)\n{program}", *arguments]
    none = subprocess.DEVNULL
    try:
        compiler = subprocess.Popen(command, stdin=none, stdout=subprocess.PIPE, stderr=none)
    except OSError:
        return None
    _compilers.add(compiler)
    try:
        told, _ = compiler.communicate(timeout=_COMPILE_S)
    except subprocess.TimeoutExpired:
        compiler.kill()
        compiler.wait()
        return None
    finally:
        _compilers.discard(compiler)
    return None if compiler.returncode else told


def _end() -> None:
    for compiler in list(_compilers):
        compiler.kill()
    _loads.acquire()


atexit.register(_end)
