"""Writes that Linux carries out asynchronously (AIO, ``io_submit(2)``), so that no thread has to wait for them.

A thread that waits for the disk takes the interpreter's lock when it begins and when it ends, and the loop, which
lets go of that lock at each write to a file, gets it back only after a change of threads: under load that took more of
the processor than the journal's writes themselves. Files must be open for direct writes (``O_DIRECT``): with others the
kernel would wait in ``io_submit``, which is noticed, and nothing more is begun this way then.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import platform
import time
from collections.abc import Callable

_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""The numbers of io_setup, io_destroy, io_getevents and io_submit, for which the C library has no names."""

_PWRITE = 1
_TELL_EVENTFD = 1
_SLOW_S = 0.005
_MAX_SLOW = 5  # in a row: one alone may be the system's scheduler
_log = logging.getLogger("magnetar.ledger")


class _Request(ctypes.Structure):
    """``struct iocb``, as machines that store the low byte first lay it out."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("file", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("at", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("eventfd", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """``struct io_event``."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class KernelWrites:
    """One write at a time. Raises ``OSError`` where the system has no AIO, or no more of it; see `open_for`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        numbers = _CALLS.get(platform.machine())
        if numbers is None or not hasattr(os, "eventfd"):
            raise _system_error(errno.ENOSYS)
        setup, self._destroy, self._get_events, self._submit = map(ctypes.c_long, numbers)
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._context = ctypes.c_uint64(0)
        if self._call(setup, ctypes.c_long(1), ctypes.byref(self._context)) < 0:
            raise _system_error(ctypes.get_errno())
        self._loop = loop
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._request = _Request(opcode=_PWRITE, flags=_TELL_EVENTFD, eventfd=self._eventfd)
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._event = _Event()
        self._under_way: tuple[memoryview, Callable[[OSError | None], None]] | None = None
        self._slow = 0
        loop.add_reader(self._eventfd, self._look)

    @classmethod
    def open_for(cls, loop: asyncio.AbstractEventLoop) -> KernelWrites | None:
        """Return one, or None if the system does not offer it."""
        try:
            return cls(loop)
        except OSError as error:
            _log.info("writes wait in threads: the system has no AIO for us", extra={"why": str(error)})
            return None

    def begin(self, file: int, data: memoryview, at: int, ended: Callable[[OSError | None], None]) -> bool:
        """Begin to write ``data`` to a file at ``at``; ``ended`` is called on the loop when that is done.

        Returns False if it cannot be begun; then nothing was written.
        """
        if self._slow >= _MAX_SLOW or self._under_way is not None:
            return False
        request = self._request
        request.file, request.at, request.size = file, at, len(data)
        request.buffer = ctypes.addressof(ctypes.c_char.from_buffer(data))
        began = time.perf_counter()
        if self._call(self._submit, self._context, ctypes.c_long(1), self._requests) != 1:
            return False
        self._under_way = data, ended
        self._note(time.perf_counter() - began)
        return True

    def _note(self, seconds: float) -> None:
        """Note how long the loop had to wait."""
        self._slow = self._slow + 1 if seconds > _SLOW_S else 0
        if self._slow >= _MAX_SLOW:
            _log.warning("writes wait in threads: this file system makes AIO wait, %.0f ms", seconds * 1000)

    def _look(self) -> None:
        """Report a write that has ended."""
        os.eventfd_read(self._eventfd)
        done = self._call(
            self._get_events,
            self._context,
            ctypes.c_long(0),
            ctypes.c_long(1),
            ctypes.byref(self._event),
            None,
        )
        if done == 0 or self._under_way is None:
            return
        (data, ended), self._under_way = self._under_way, None
        result = int(self._event.result) if done > 0 else -ctypes.get_errno()
        if result == len(data):
            ended(None)
        elif result < 0:
            ended(_system_error(-result))
        elif result == 0 or not self._go_on(data[result:], result, ended):
            ended(OSError(errno.EIO, f"{result} of {len(data)} bytes were written"))

    def _go_on(self, rest: memoryview, done: int, ended: Callable[[OSError | None], None]) -> bool:
        """Write the rest; a failure of the disk shows then."""
        return self.begin(self._request.file, rest, self._request.at + done, ended)

    def close(self) -> None:
        """Wait for the write under way, without reporting it, and free everything."""
        self._loop.remove_reader(self._eventfd)
        self._call(self._destroy, self._context)
        os.close(self._eventfd)
        self._under_way = None


def _system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
