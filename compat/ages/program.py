"""What a program of any language does for the matrix of ages, and the part of it that Python's three share.

A program is started with an address, the time of record 0 (ms), and what its client does not have (``headers``,
``timestamps``). It takes a command a line and answers each with a line of JSON, ``{"error": ...}`` where it failed:

    create TOPIC                                            with one partition, by the client's own admin
    produce TOPIC CODEC FIRST END plain|idempotent          records FIRST to END - 1, each acknowledged by acks=all
    transaction TOPIC ID FIRST END commit|abort             the same in one transaction; a producer for each ID
    read TOPIC GROUP COUNT read_uncommitted|read_committed  {"numbers": [...]}: COUNT records or a few more, by
                                                            subscribing; then it commits, and leaves
    committed TOPIC GROUP                                   {"offset": ...} of partition 0
    time TOPIC MS                                           {"offset": ...} of the first record that is not older

Record i has the key ``key-(i % 10)``, the header ``n`` with its number, the value below, and t0 + i as its time. All is
in partition 0, and consumers ask for metadata each second. The programs know nothing of Magnetar.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

REPEATED = "a line that repeats itself " * 4


def value(number: int) -> bytes:
    return f"{number:05d} {REPEATED}".encode()


def key(number: int) -> bytes:
    return f"key-{number % 10}".encode()


def number_of(found: bytes) -> int:
    return int(found[:5])


class Started:
    """What the command line says."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.bootstrap, t0 = arguments[:2]
        self.t0 = int(t0)
        without = arguments[2].split(",") if len(arguments) > 2 else []
        self.headers = "headers" not in without
        self.timestamps = "timestamps" not in without

    def time_of(self, number: int) -> int | None:
        return self.t0 + number if self.timestamps else None

    def headers_of(self, number: int) -> list[tuple[str, bytes]]:
        return [("n", b"%d" % number)]


def serve(commands: dict[str, Callable[..., dict[str, Any] | None]]) -> None:
    """Answer commands until there are no more; ``commands`` take their words as text."""
    for line in sys.stdin:
        name, *words = line.split()
        try:
            answer = commands[name](*words) or {}
        except BaseException as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    os._exit(0)  # a client thread that hangs must not keep the run
