"""A broker of Kafka's protocol for a suite, ours or Apache Kafka's own, with the settings that the suite wants."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker import standalone

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.kafka import Kafka

KINDS = ("magnetar", "kafka")


@contextmanager
def served(kind: str, *settings: str) -> Iterator[str]:
    """Start ``kind`` (magnetar, kafka); give its address."""
    if kind == "magnetar":
        with standalone(*settings) as address:
            yield address
        return

    class Suited(Kafka):
        extra = settings  # a name that stands twice counts where it stands last

    with (
        tempfile.TemporaryDirectory(prefix="kafka-") as directory,
        Suited(Path(directory) / "data") as broker,
    ):
        yield broker.address
