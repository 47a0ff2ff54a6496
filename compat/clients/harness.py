"""Run one client's checks against one address and print a JSON line for each.

A check is a function named as in ``compat/checks.py`` that takes the bootstrap address, raises when the broker (or the
client) did something else than promised, and may return a few words to show.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

Check = Callable[[str], object]

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
COMPRESSIBLE = [b"%05d " % i + b"a line that repeats itself " * 8 for i in range(200)]
T0 = 1_700_000_000_000  # ms, an ordinary past day


def fresh(prefix: str) -> str:
    """A name no earlier run has used."""
    return f"compat-{prefix}-{uuid.uuid4().hex[:10]}"


def until(what: str, ready: Callable[[], object], seconds: float = 30, pause: float = 0.05) -> None:
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


def run(client: str, version: str, checks: Sequence[Check], *, limit_s: float = 75) -> None:
    """Parse ``--bootstrap`` and ``--only``, run the checks one by one, and report each, however it ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--only", action="append")
    options = parser.parse_args()
    for check in checks:
        if options.only and check.__name__ not in options.only:
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
