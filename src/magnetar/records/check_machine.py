"""The check of records in machine code, where numba is installed and enough is to be checked to be worth it.

`compiled` has another process compile `magnetar.records.kernels.check`, which takes about two seconds there and costs
this one nothing but a page. That process is gone before its code runs, so nothing of it lies in a file that somebody
else might change.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec

from magnetar.records.loading import LoadedLater, told_by

NOT_WELL = (1 << 63) - 1
WORTH_IT = 250_000
"""So many records walked one by one, after which the machine code is asked for: a quarter of a second of work."""
_FREE_BYTES = 1 << 20  # larger ones are checked in threads, which let others run meanwhile
_COMPILE = "from magnetar.records.kernels.check import instructions; sys.stdout.buffer.write(instructions())"
_log = logging.getLogger(__name__)
_ARGUMENTS = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)

LeastTime = Callable[[bytes, int], int]
"""Gives the least timestamp delta of so many well-formed records, or `NOT_WELL`."""


class Machine(LoadedLater):
    """The machine code, once it is there."""

    def __init__(self) -> None:
        super().__init__()
        self.min_time: LeastTime | None = None

    def saw(self, walked: int) -> None:
        """Note that so many records were walked one by one; past `WORTH_IT` the code is got in the background."""
        self.goes_without(walked, WORTH_IT)

    def load(self) -> None:
        self.min_time = compiled()
        if self.min_time is not None:
            _log.info("batches of records of many shapes are checked in machine code from now on")


def compiled() -> LeastTime | None:
    """Compile the check now; None where that cannot be done."""
    if find_spec("numba") is None or sys.platform != "linux":
        return None
    code = told_by(_COMPILE)
    try:
        return _callable(_mapped(code)) if code else None
    except OSError:
        return None


def _mapped(code: bytes) -> int:
    """Put instructions where they may be run, and never be written; give their address. Raises ``OSError``."""
    number = os.memfd_create("check", os.MFD_CLOEXEC)
    try:
        os.write(number, code)
        library = ctypes.CDLL(None, use_errno=True)
        library.mmap.restype = ctypes.c_void_p
        library.mmap.argtypes = (
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        )
        protection = mmap.PROT_READ | mmap.PROT_EXEC
        address = library.mmap(None, len(code), protection, mmap.MAP_PRIVATE, number, 0)
    finally:
        os.close(number)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "instructions may not be mapped here")
    return int(address)


def _callable(address: int) -> LeastTime:
    # To let go of the interpreter's lock and to get it back costs more than a usual batch.
    held = ctypes.PYFUNCTYPE(ctypes.c_int32, *_ARGUMENTS)(address)
    free = ctypes.CFUNCTYPE(ctypes.c_int32, *_ARGUMENTS)(address)

    def min_time(body: bytes, count: int) -> int:
        answer = ctypes.c_int64(NOT_WELL)
        call = held if len(body) < _FREE_BYTES else free
        failed = call(ctypes.addressof(answer), None, body, len(body), count)
        return NOT_WELL if failed else answer.value

    return min_time
