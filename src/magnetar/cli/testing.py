"""``magnetar testing``: a broker for a test suite in any language, which ends with the process that started it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence

from magnetar.base.errors import BrokerError
from magnetar.testing.broker import AsyncBroker


def run(overrides: Sequence[str], ready_fd: int | None) -> int:
    """Serve until SIGTERM, SIGINT or the end of standard input; return the exit status.

    Writes one line of JSON once clients may connect, with ``bootstrap_servers``, ``pulsar_url``, ``http_url``,
    ``schema_registry_url`` and ``pid``: to the file descriptor ``ready_fd``, by default to standard output.
    """
    import uvloop

    pairs = (each.partition("=") for each in overrides)
    try:
        broker = AsyncBroker({name: value for name, _, value in pairs})
    except BrokerError as error:
        print(f"magnetar: {error}", file=sys.stderr)
        return 2
    try:
        uvloop.run(_serve(broker, sys.stdout.fileno() if ready_fd is None else ready_fd))
    except (BrokerError, OSError) as error:
        print(f"magnetar: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(broker: AsyncBroker, ready_fd: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with broker:
        line = {
            "bootstrap_servers": broker.bootstrap_servers,
            "pulsar_url": broker.pulsar_url,
            "http_url": broker.http_url,
            "schema_registry_url": broker.schema_registry_url,
            "pid": os.getpid(),
        }
        os.write(ready_fd, json.dumps(line).encode() + b"\n")
        if ready_fd > sys.stderr.fileno():
            os.close(ready_fd)  # a reader that waits for its end goes on
        _watch_input(loop, stop)
        await stop.wait()


def _watch_input(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Stop at the end of standard input where that is a pipe: then the process at its other end is gone."""
    standard_input = sys.stdin.fileno()

    def look() -> None:
        if not os.read(standard_input, 4096):
            loop.remove_reader(standard_input)
            stop.set()

    if not os.isatty(standard_input):
        try:
            loop.add_reader(standard_input, look)
        except (OSError, ValueError):  # a file, or /dev/null: it has no end that says anything
            return
