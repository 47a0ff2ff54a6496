"""Two checkouts of Magnetar against each other: the broker's processor time per record, in turn, on the same machine.

    python -m benchmarks.before_after BEFORE AFTER [--rounds 5] [--turns 8] [--records 600000] [--bar 1.03]
        [--dispatch]

Each is a checkout with its own ``.venv``. The clients (librdkafka) are this checkout's. Two brokers of each take turns
as in `benchmarks.paired`, ``--turns`` times in a round, with ``--dispatch`` for Pulsar's consumers of a Shared
subscription: as much as the two of one checkout differ by says nothing about the checkouts. The median of the turns'
ratios is held against the bar. The status is 1 if something costs more than ``--bar`` times what it did.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.paired import AGAIN, measure, measure_dispatch, rotated, told
from benchmarks.peers.magnetar import MagnetarForPulsarOs
from benchmarks.samples import Samples


class Checkout(MagnetarForPulsarOs):
    """The broker of another checkout."""

    def __init__(self, data: Path, name: str, root: Path) -> None:
        self.name = name
        self._executable = root / ".venv" / "bin" / "magnetar"
        super().__init__(data)

    def command(self) -> list[str]:
        return [str(self._executable), *super().command()[1:]]


def main() -> int:
    """Print a table of medians and ratios."""
    parser = argparse.ArgumentParser(prog="before_after", description=__doc__.split("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--records", type=int, default=600_000)
    parser.add_argument("--bar", type=float, default=1.03)
    parser.add_argument(
        "--dispatch", action="store_true", help="what a Shared subscription costs, not Kafka's clients"
    )
    given = parser.parse_args()
    samples = Samples()
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(given.rounds):
            sides = (("before", given.before.resolve()), ("after", given.after.resolve()))
            each = [(side + again, root) for again in ("", AGAIN) for side, root in sides]
            with ExitStack() as running:
                servers = [
                    running.enter_context(Checkout(Path(scratch) / name, name, root))
                    for name, root in rotated(each, number)
                ]
                (measure_dispatch if given.dispatch else measure)(
                    servers, samples, given.records, given.turns
                )
    ratios = told(samples, "before", "after")
    worst = max(ratio for name, ratio in ratios.items() if name.endswith("us/record"))
    return int(worst > given.bar)


if __name__ == "__main__":
    sys.exit(main())
