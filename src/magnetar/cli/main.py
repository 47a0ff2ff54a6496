"""The command ``magnetar``. Starting a broker takes a short way that loads nothing of what the other commands need."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

_SERVE = frozenset({"standalone", "broker", "proxy"})


def main() -> None:
    """Run the command that the arguments name, and end the process with its exit status."""
    status = run(sys.argv[1:])
    if (
        (jpype := sys.modules.get("jpype")) is not None
        and jpype.isJVMStarted()
        and sys.argv[1:2] == ["broker"]
    ):
        # A thread that is in Java while the interpreter ends is unwound by the C library, which then aborts the process
        # ("FATAL: exception not rethrown"): nothing is left to be done, so nothing is taken apart.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Return the exit status: 0 done, 1 failed, 2 the command was not understood."""
    if arguments and arguments[0] in _SERVE:
        # numpy's OpenBLAS begins a thread for each processor, which spins for work: no server multiplies matrices.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if list(arguments) == ["--version"]:
        from magnetar import (
            __version__,  # the whole command line takes three times a processor's tenth of a second
        )

        print(f"magnetar {__version__}")
        return 0
    if arguments[:1] == ["standalone"] and not {"-h", "--help"} & set(arguments):
        return _standalone(arguments[1:])
    if arguments[:1] == ["proxy"] and not {"-h", "--help"} & set(arguments):
        return _proxy(arguments[1:])
    return _told(list(arguments))


def _standalone(arguments: Sequence[str]) -> int:
    """Start a broker; the same options stand in `magnetar.cli.app` for help and completion."""
    import getopt  # argparse takes a megabyte for as long as the broker runs

    names = ["data=", "kafka=", "pulsar=", "http=", "schema-registry=", "workers=", "config=", "set="]
    try:
        options, rest = getopt.gnu_getopt(list(arguments), "", names)
    except getopt.GetoptError:
        rest = ["not understood"]
    if rest:
        return _told(["standalone", *arguments])
    given = dict(options)
    data, config = given.get("--data"), given.get("--config")
    from magnetar.cli.standalone import run as serve

    return serve(
        None if data is None else Path(data),
        given.get("--kafka"),
        given.get("--pulsar"),
        given.get("--http"),
        given.get("--schema-registry"),
        None if config is None else Path(config),
        [value for name, value in options if name == "--set"],
        workers=given.get("--workers"),
    )


def _proxy(arguments: Sequence[str]) -> int:
    """Start a proxy."""
    import getopt

    try:
        options, rest = getopt.gnu_getopt(list(arguments), "", ["config=", "set="])
    except getopt.GetoptError:
        rest = ["not understood"]
    if rest:
        return _told(["proxy", *arguments])
    config = dict(options).get("--config")
    from magnetar.cli.proxy import run as serve

    return serve(
        None if config is None else Path(config), [value for name, value in options if name == "--set"]
    )


def _told(arguments: list[str]) -> int:
    """Have the whole command line do it, which knows what to say of a mistake."""
    from magnetar.cli.app import run_app

    return run_app(arguments)
