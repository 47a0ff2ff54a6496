"""One of several workers: a broker that whoever looks after them begins, and that ends with it."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys

from magnetar.base import logs
from magnetar.node.workers.place import WorkerPlace
from magnetar.settings.settings import Settings

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>


def main() -> int:
    """Serve until SIGTERM, or until there is nobody to serve for; return the exit status."""
    settings, place = pickle.load(sys.stdin.buffer)
    assert isinstance(settings, Settings)
    assert isinstance(place, WorkerPlace)
    end_with(place.parent)
    place.keep_from_children()
    logs.set_up(settings.node.log_level, settings.node.log_format, worker=place.number)
    from magnetar.cli.standalone import serve

    return serve(settings, place)


def end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent is gone, whatever it is doing; not every system can."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    except AttributeError:
        pass  # then it ends when it finds that nobody keeps its metadata
    if os.getppid() != parent:
        os._exit(os.EX_UNAVAILABLE)


if __name__ == "__main__":
    sys.exit(main())
