"""Pulsar's transactions in a log: whose a message is, and the markers that end one (Pulsar's PulsarMarkers.proto).

A message of a transaction bears its id in its metadata, 64 bits twice: the coordinator (most) and a number of that
(least). A marker is an entry without payload that bears the id, too, with marker type 21 for a commit and 22 for an
abort. Both are as Pulsar's own brokers write them.

For whoever reads the log as Kafka's, each transaction is that of a producer of its own, in epoch 0. Its id cannot be
any that Kafka's producers are given: these count from 0.

    bit 62  set
    48-61   the coordinator
     0-47   the coordinator's number
"""

from __future__ import annotations

from typing import Final, NamedTuple

COMMIT_MARKER: Final = 21
ABORT_MARKER: Final = 22
MAX_COORDINATOR: Final = (1 << 14) - 1
MAX_NUMBER: Final = (1 << 48) - 1
_FIRST: Final = 1 << 62
_SHIFT: Final = 48


class TxnId(NamedTuple):
    """A transaction's id."""

    most: int
    least: int

    @property
    def producer_id(self) -> int:
        """The producer that the transaction is one of, for Kafka's readers; ids of strangers may share one."""
        return _FIRST | (self.most & MAX_COORDINATOR) << _SHIFT | self.least & MAX_NUMBER

    @classmethod
    def of_producer(cls, producer_id: int) -> TxnId | None:
        """Return whose transaction a producer id stands for; None for a producer of Kafka's."""
        if not is_transactions(producer_id):
            return None
        return cls(producer_id >> _SHIFT & MAX_COORDINATOR, producer_id & MAX_NUMBER)

    @classmethod
    def parse(cls, text: str) -> TxnId | None:
        """Read what `str` gives; None for anything else."""
        most, comma, least = text.removeprefix("(").removesuffix(")").partition(",")
        if not (comma and most.isdecimal() and least.isdecimal() and most.isascii() and least.isascii()):
            return None
        made = cls(int(most), int(least))
        return made if str(made) == text else None

    def __str__(self) -> str:
        """As Pulsar's tools show it."""
        return f"({self.most},{self.least})"


def is_transactions(producer_id: int) -> bool:
    """Whether a producer id stands for one of Pulsar's transactions."""
    return producer_id >= _FIRST
