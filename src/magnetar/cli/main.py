"""The command ``magnetar``. Starting a broker takes a short way that loads nothing of what the other commands need."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def main() -> None:
    """Run the command that the arguments name, and end the process with its exit status."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Return the exit status: 0 done, 1 failed, 2 the command was not understood."""
    if arguments[:1] == ["standalone"] and not {"-h", "--help"} & set(arguments):
        return _standalone(arguments[1:])
    from magnetar.cli.app import run_app

    return run_app(list(arguments))


def _standalone(arguments: Sequence[str]) -> int:
    """Start a broker; the same options stand in `magnetar.cli.app` for help and completion."""
    import argparse

    parser = argparse.ArgumentParser(prog="magnetar standalone")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--kafka", metavar="HOST:PORT")
    parser.add_argument("--pulsar", metavar="HOST:PORT")
    parser.add_argument("--http", metavar="HOST:PORT")
    parser.add_argument("--schema-registry", metavar="HOST:PORT")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args(arguments)
    from magnetar.cli.standalone import run as serve

    return serve(
        given.data, given.kafka, given.pulsar, given.http, given.schema_registry, given.config, given.set
    )
