"""A process that brings a table up to its topic and kills itself at one step.

    victim.py DATA TABLE FORMAT STEP COUNT

``STEP`` ``-`` is none: then somebody else does it, at any moment.
"""

from __future__ import annotations

import os
import signal
import sys

from magnetar.pipeline import tables

LAYOUT = tables.Layout(target_bytes=40_000)


def main(data: str, where: str, kind: str, step: str, count: str) -> None:
    table = tables.open(where, kind, layout=LAYOUT)
    seen = 0

    def at(name: str) -> None:
        nonlocal seen
        seen += name == step
        if name == step and seen == int(count):
            os.kill(os.getpid(), signal.SIGKILL)

    table.steps.append(at)
    print("ready", flush=True)
    tables.sync("t", table, options={"path": data}, max_offsets_per_commit=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
