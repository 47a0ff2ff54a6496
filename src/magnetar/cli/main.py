"""The command ``magnetar``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> None:
    """Run the command that the arguments name."""
    parser = argparse.ArgumentParser(prog="magnetar")
    commands = parser.add_subparsers(required=True)
    standalone = commands.add_parser("standalone", help="one broker in the foreground, on embedded storage")
    standalone.add_argument("--data", type=Path)
    standalone.add_argument("--kafka", metavar="HOST:PORT")
    standalone.add_argument("--config", type=Path)
    standalone.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    from magnetar.cli.standalone import run

    sys.exit(run(given.data, given.kafka, given.config, given.set))
