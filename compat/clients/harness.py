"""Run one client's checks against one address and print a JSON line for each.

A check is a function named as in ``compat/checks.py`` that takes the bootstrap address, raises when the broker (or the
client) did something else than promised, and may return a few words to show.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

Check = Callable[[str], object]
NEEDS_STAGE = ("restart", "sent_twice", "retention")
"""Checks that need a broker which the runner itself has started."""

HEADERS: list[tuple[str, bytes | None]] = [
    ("trace", b"one"),
    ("trace", b"two"),
    ("empty", b""),
    ("binary", bytes(range(256))),
    ("none", None),
]
NULLS: list[tuple[bytes | None, bytes | None]] = [
    (None, b"no key"),
    (b"tombstone", None),
    (None, None),
    (b"", b"empty key"),
    (b"empty value", b""),
]
LARGE = bytes(range(256)) * 3515 + b"end!"  # a little under 900,000 bytes
VOLUME = 20_000  # records: with a handful a broker may lose most and pass
PARTITIONS = 12
COMPRESSIBLE = [b"%05d " % i + b"a line that repeats itself " * 8 for i in range(VOLUME)]
T0 = 1_700_000_000_000  # ms, an ordinary past day
ANY_TIME = {"message.timestamp.before.max.ms": "9223372036854775807", "retention.ms": "-1"}
"""Of topics whose records may be of any time, and stay."""


def fresh(prefix: str) -> str:
    """A name no earlier run has used."""
    return f"compat-{prefix}-{uuid.uuid4().hex[:10]}"


def until(what: str, ready: Callable[[], object], seconds: float = 60, pause: float = 0.05) -> None:
    """Call ``ready`` until it is true; TimeoutError names ``what`` was waited for."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(pause)


def same(got: object, expected: object, what: str) -> None:
    """Raise with both values, shortened, when they differ."""
    if got != expected:
        raise AssertionError(f"{what}: got {str(got)[:300]}, expected {str(expected)[:300]}")


def complete(got: Iterable[tuple[int, bytes]], sent: Mapping[bytes, int]) -> None:
    """Each producer's numbered values are all there, once, and within a partition in the order in which they were sent.

    ``got`` are partitions and values, ``b"NAME NUMBER"``; ``sent`` is how many each name sent.
    """
    numbers: dict[tuple[int, bytes], list[int]] = {}
    for partition, value in got:
        name, _, number = value.partition(b" ")
        numbers.setdefault((partition, name), []).append(int(number))
    for (partition, name), found in numbers.items():
        same(found == sorted(found), True, f"the order of {name!r} in partition {partition}")
    for name, count in sent.items():
        found = sorted(number for (_, of), each in numbers.items() if of == name for number in each)
        missing, more = count - len(set(found)), len(found) - len(set(found))
        same((missing, more), (0, 0), f"records of {name!r} that are missing, and that are there twice")


def numbered(name: bytes, count: int = VOLUME // 2) -> list[bytes]:
    """What ``complete`` looks for."""
    return [b"%s %d" % (name, i) for i in range(count)]


def control(asked: str) -> str:
    """Have the runner do something: ``restart`` the broker, or tell how many answers were ``lost``."""
    host, _, port = os.environ["COMPAT_CONTROL"].rpartition(":")
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rw") as lines:
        print(asked, file=lines, flush=True)
        return lines.readline().strip()


def lossy() -> str:
    """The address on whose way answers are lost."""
    return os.environ["COMPAT_LOSSY"]


def run(client: str, version: str, checks: Sequence[Check], *, limit_s: float = 150) -> None:
    """Parse ``--bootstrap`` and ``--only``, run the checks one by one, and report each, however it ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--only", action="append")
    options = parser.parse_args()
    for check in checks:
        if options.only and check.__name__ not in options.only:
            continue
        if check.__name__ in NEEDS_STAGE and "COMPAT_CONTROL" not in os.environ:
            continue
        ok, detail = bounded(check, options.bootstrap, limit_s)
        line = {"client": client, "version": version, "check": check.__name__, "ok": ok, "detail": detail}
        print(json.dumps(line), flush=True)


def bounded(check: Check, bootstrap: str, limit_s: float) -> tuple[bool, str]:
    """Run one check in a thread of its own, so that a client that hangs costs one check and not the run."""
    outcome: list[tuple[bool, str]] = []

    def body() -> None:
        try:
            outcome.append((True, str(check(bootstrap) or "")))
        except BaseException as error:
            program = Path(sys.argv[0]).name
            frames = traceback.extract_tb(error.__traceback__)
            lines = ", ".join(str(f.lineno) for f in frames if Path(f.filename).name == program)
            outcome.append((False, f"{type(error).__name__}: {error} (lines {lines})"[:500]))

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(limit_s)
    return outcome[0] if outcome else (False, f"no end after {limit_s:.0f} s")
