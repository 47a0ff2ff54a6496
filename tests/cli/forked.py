"""Run commands in processes forked from one that has loaded the program already: most of a short command's time
is the loading. Each has the arguments, environment, standard streams and exit status it would have at a shell;
that ``magnetar`` itself starts so is for tests that start it (``Operator.start``, ``BrokerProcess``)."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from magnetar.cli.main import main

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    [
        "tests.cli.forked",
        "magnetar.cli.app",
        "confluent_kafka.admin",
        "rich.console",
        "rich.table",
        "typer.rich_utils",
        "typer.completion",
    ]
)


def run(
    arguments: Sequence[str], stdin: str, environment: dict[str, str], seconds: float
) -> tuple[int, str, str]:
    """Return the exit status of a command, and what it wrote to standard output and to standard error."""
    with tempfile.TemporaryDirectory(prefix="command-") as name:
        place = Path(name)
        (place / "0").write_text(stdin)
        process = _forks.Process(
            target=_be_the_command, args=(list(arguments), place, environment, os.getcwd())
        )
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"{arguments} has not ended after {seconds} s: {(place / '2').read_text()}")
        return process.exitcode, (place / "1").read_text(), (place / "2").read_text()


def _be_the_command(arguments: list[str], place: Path, environment: dict[str, str], directory: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.stdin = _stream(0, place, "r")
    sys.stdout = _stream(1, place, "w")
    sys.stderr = _stream(2, place, "w")
    sys.argv = ["magnetar", *arguments]
    main()


def _stream(number: int, place: Path, mode: str) -> TextIO:
    """Put a file where a standard stream was, for C libraries too."""
    opened = os.open(
        place / str(number), os.O_RDONLY if mode == "r" else os.O_WRONLY | os.O_CREAT | os.O_APPEND
    )
    os.dup2(opened, number)
    os.close(opened)
    return open(number, mode, closefd=False, errors="backslashreplace" if number == 2 else "strict")
