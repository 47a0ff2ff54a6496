"""What reads frames and records into tables: machine code once that is there, plain Python until then.

Machine code is compiled once for a machine, which takes seconds on a quiet one and minutes on a busy one; no reader
waits for it. A process apart compiles, one on a machine, and goes on when this one ends, so that commands that are
over soon leave it to the next. From then on machine code is loaded, in the middle of a read too; but to load it takes
half a second, in which plain Python reads what most syncs find new.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import subprocess
import sys
from importlib import import_module
from typing import Any

from magnetar.records import batch_table, plain_arrow, plain_frames
from magnetar.records.kept_code import directory, is_kept, note_kept

READERS = ("magnetar.records.kernels.arrow", "magnetar.records.kernels.frames")
CONVERTERS = tuple(f"magnetar.records.kernels.{each}" for each in ("pulsar_many", "kafka", "pulsar"))
"""Of Pulsar's entries; see `magnetar.records.conversion`, which loads them."""
GROUPS = (READERS, CONVERTERS)
WORTH_IT = 1 << 20
"""So many bytes are read without machine code before it is loaded: a tenth of a second of work."""
_BYTES_OF_RECORD = 64
_log = logging.getLogger("magnetar.pipeline")


class _Machine:
    """The machine code of this process, and the process that compiles it."""

    def __init__(self) -> None:
        self.decode_rows: Any = plain_arrow.decode_rows
        self.walk: Any = plain_frames.walk
        self.loaded = False
        self._asked = False
        self._without = 0
        self._compiler: subprocess.Popen[bytes] | None = None

    def get(self, size: int) -> _Machine:
        """Load the machine code where ``size`` bytes more are worth it; start compiling it if it is not there."""
        self._without += 0 if self.loaded else size
        if not self.loaded and (self._without >= WORTH_IT or _are_loaded(READERS)) and self.there(READERS):
            arrow, frames = map(import_module, READERS)
            self.decode_rows, self.walk, self.loaded = arrow.decode_rows, frames.walk, True
            note_kept(READERS)
        return self

    def there(self, modules: tuple[str, ...]) -> bool:
        """Return whether modules can be imported without waiting for a compiler."""
        return _are_loaded(modules) or is_kept(modules) or not self.compiling()

    def compiling(self) -> bool:
        """Start a process that compiles what is not there; return False if that failed and importing must."""
        if not self._asked:
            self._asked = True
            _log.warning(
                "what decodes records is compiled for this machine now, once; until then reading takes more of the "
                "processor"
            )
            with contextlib.suppress(OSError):
                self._compiler = _compile()
        return self._compiler is not None and not self._compiler.poll()


def _are_loaded(modules: tuple[str, ...]) -> bool:
    return all(each in sys.modules for each in modules)


_machine = _Machine()


def converts() -> bool:
    """Return whether machine code for Pulsar's entries is there; if not, it is compiled meanwhile."""
    return _machine.there(CONVERTERS)


def decode_rows(*columns: Any) -> None:
    """Lay records out as columns: see `magnetar.records.kernels.arrow.decode_rows`."""
    batches = columns[2]
    _machine.get(_BYTES_OF_RECORD * int(batches[:, batch_table.COUNT].clip(0).sum())).decode_rows(*columns)


def walk(*of: Any) -> tuple[int, int, int, int]:
    """Walk along frames: see `magnetar.records.kernels.frames.walk`."""
    _, at, end, *_, most_bytes, _ = of
    found: tuple[int, int, int, int] = _machine.get(min(end - at, most_bytes)).walk(*of)
    return found


def _compile() -> subprocess.Popen[bytes]:
    """Start the process that compiles: it is no child to wait for, and signals to this one's group are not its."""
    none = subprocess.DEVNULL
    command = [sys.executable, "-m", __name__]
    return subprocess.Popen(command, stdin=none, stdout=none, stderr=none, start_new_session=True)


def main() -> None:
    """Compile all of `GROUPS` unless another process does."""
    with (directory() / "compiling").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        for modules in GROUPS:
            if not is_kept(modules):
                for each in modules:
                    import_module(each)
                note_kept(modules)


if __name__ == "__main__":
    main()
