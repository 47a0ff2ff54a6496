"""A Magnetar broker of our own for one run: started on a temporary directory, ended with the run."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

READY_SECONDS = 300


def magnetar() -> str:
    """The ``magnetar`` command beside the Python that runs us, otherwise the one on the path."""
    beside = Path(sys.executable).parent / "magnetar"
    here = Path(__file__).resolve().parent.parent / ".venv" / "bin" / "magnetar"
    return next((str(p) for p in (beside, here) if p.exists()), "magnetar")


@contextmanager
def standalone(
    *settings: str,
    protocols: Sequence[str] = (),
    config: Path | None = None,
    data: Path | None = None,
    ports: Mapping[str, int] = {},
) -> Iterator[str]:
    """The address of a fresh standalone broker; its log goes to a file that is shown if it does not start.

    With ``listeners`` among the settings it has no other. With further protocols (pulsar, http) it is what the broker
    says when it is ready: PROTOCOL=HOST:PORT, with spaces. ``ports`` are those that it must have, by protocol.
    """
    with tempfile.TemporaryDirectory(prefix="magnetar-compat-") as directory:
        command = [
            magnetar(),
            "standalone",
            "--data",
            str(data or f"{directory}/data"),
        ]
        if not any(setting.startswith("listeners=") for setting in settings):
            command += ["--kafka", "127.0.0.1:0"]
        for protocol in protocols:
            command += [f"--{protocol}", f"127.0.0.1:{ports.get(protocol, 0)}"]
        command += ["--config", str(config)] if config else []
        for setting in settings:
            command += ["--set", setting]
        with open(f"{directory}/log", "w+") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            try:
                yield _address(process, log.name, r"ready (.+)" if protocols else r"ready kafka=(\S+)")
                if process.poll() is not None:
                    print(
                        f"the broker ended by itself:\n{Path(log.name).read_text()[-4000:]}", file=sys.stderr
                    )
            finally:
                _end(process)


def _address(process: subprocess.Popen[str], log: str, pattern: str) -> str:
    assert process.stdout is not None
    watchdog = threading.Timer(READY_SECONDS, process.kill)
    watchdog.start()
    try:
        for line in process.stdout:
            found = re.search(pattern, line)
            if found:
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return found[1]
    finally:
        watchdog.cancel()
    raise RuntimeError("the broker did not become ready:\n" + Path(log).read_text()[-2000:])


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)
