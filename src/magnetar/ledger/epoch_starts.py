"""Where each leader epoch of a log began (Kafka's leader epoch checkpoint, KIP-101 and KIP-320), and its form.

One line ``epoch offset`` for each, oldest first. The engine on bookies stores them in a property of the log's list of
ledgers, which the owner of a new epoch writes in any case; for other logs they are in a node of the metadata store
(`magnetar.logs.leader_epochs`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

UNDEFINED = -1
MAX_KEPT = 1000
"""The most epochs to store. Older ones are dropped; their records count as of the oldest known one."""


class EpochStart(NamedTuple):
    """An epoch, and the offset of the first record that may be of it."""

    epoch: int
    offset: int


class LeaderEpochs:
    """The epochs of one partition, oldest first; the last one is the current one."""

    __slots__ = ("starts",)

    def __init__(self, starts: Sequence[EpochStart] = (EpochStart(0, 0),)) -> None:
        self.starts = list(starts)

    @classmethod
    def decode(cls, text: str) -> LeaderEpochs:
        """Read what `encode` has written; raise ``ValueError`` for anything else."""
        try:
            starts = [EpochStart(*map(int, line.split())) for line in text.splitlines()]
        except TypeError as error:
            raise ValueError(f"not leader epochs: {error}") from error
        if not starts:
            raise ValueError("not leader epochs: there is none")
        return cls(starts)

    def encode(self) -> str:
        """Return a line for each."""
        return "\n".join(f"{each.epoch} {each.offset}" for each in self.starts)

    @property
    def latest(self) -> int:
        """The epoch that records get now."""
        return self.starts[-1].epoch

    def begin(self, epoch: int, offset: int) -> None:
        """Begin an epoch at the log's end; earlier epochs in which nothing was written are dropped."""
        self.starts = [each for each in self.starts if each.offset < offset and each.epoch < epoch]
        self.starts = [*self.starts[-MAX_KEPT + 1 :], EpochStart(epoch, offset)]

    def of(self, offset: int) -> int:
        """Return the epoch of the record at an offset."""
        at = bisect_right(self.starts, offset, key=lambda each: each.offset) - 1
        return self.starts[max(at, 0)].epoch

    def end_of(self, epoch: int, end_offset: int) -> EpochStart:
        """Return the last epoch up to ``epoch`` with records, and the offset after them, as Kafka does.

        ``end_offset`` is the log's end. Both are `UNDEFINED` for an epoch that has not come yet.
        """
        if epoch == self.latest:
            return EpochStart(epoch, end_offset)
        at = bisect_right(self.starts, epoch, key=lambda each: each.epoch)
        if epoch < 0 or at == len(self.starts):
            return EpochStart(UNDEFINED, UNDEFINED)
        return EpochStart(self.starts[at - 1].epoch if at else epoch, self.starts[at].offset)


def begun(text: str | None, last_epoch: int, epoch: int, offset: int) -> str | None:
    """Return the property of a list of ledgers once ``epoch`` begins at ``offset``, the log's end.

    ``text`` is the former value, and ``last_epoch`` the epoch of the list's last change. None if that is not the last
    epoch in the text, as an older broker leaves it: the epochs must be looked up elsewhere then.
    """
    if not offset:
        return LeaderEpochs([EpochStart(epoch, 0)]).encode()  # there is no record of another
    try:
        epochs = LeaderEpochs.decode(text or "")
    except ValueError:
        return None
    if epochs.latest != last_epoch:
        return None
    if epochs.latest < epoch:
        epochs.begin(epoch, offset)
    return epochs.encode()
