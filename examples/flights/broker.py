"""A broker for the demo: the one that already runs on the directory, or one that we start and stop."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

READY = "ready kafka="


@contextmanager
def broker(data: Path) -> Iterator[str]:
    """Return the address that Kafka's clients may connect to; a broker of our own ends with the block."""
    address = running(data)
    if address is not None:
        yield address
        return
    command = [
        Path(sys.executable).with_name("magnetar"),
        "standalone",
        "--data",
        data,
        "--kafka",
        "127.0.0.1:0",
    ]
    with (data / "broker.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        yield wait_until_ready(process, data)
    finally:
        process.terminate()
        process.wait(30)


def wait_until_ready(process: subprocess.Popen[str], data: Path) -> str:
    """Return the address in the line that the broker prints once clients may connect."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(READY):
            return line.removeprefix(READY).split()[0]
    raise SystemExit(f"the broker did not start; see {data / 'broker.log'}")


def running(data: Path) -> str | None:
    """Return the address of the broker that runs on this directory, if one does; a killed one answers nobody."""
    with suppress(OSError, ValueError, KeyError):
        address = str(json.loads((data / "broker.json").read_text())["kafka"][0])
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=2).close()
        return address
    return None
