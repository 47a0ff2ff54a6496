"""Where each leader epoch of a partition began (Kafka's leader epoch checkpoint, KIP-101 and KIP-320).

A consumer whose partition got a new leader asks where the epoch of the last record that it read ended; if that lies
before its place, records were lost, and it has to look for its place anew. So what is answered has to be true. Kept in
the metadata store from the first change of owner on: one line ``epoch offset`` for each, oldest first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from magnetar.base.slices import batched
from magnetar.metadata import MetadataCorrupt, MetadataStore
from magnetar.metadata.ops import ANY, MUST_NOT_EXIST, Delete, Put
from magnetar.topics.topic import Topic

ROOT = "/magnetar/leader-epochs"
UNDEFINED = -1
_FORGOTTEN_AT_ONCE = 1000  # in one commit, which has a bound
MAX_KEPT = 1000
"""Older ones are forgotten; a record of theirs counts as of the oldest that is known."""


class EpochStart(NamedTuple):
    """An epoch, and the offset of the first record that may be of it."""

    epoch: int
    offset: int


class LeaderEpochs:
    """The epochs of one partition, oldest first; the last one is the one that it is open under."""

    __slots__ = ("starts",)

    def __init__(self, starts: Sequence[EpochStart] = (EpochStart(0, 0),)) -> None:
        self.starts = list(starts)

    @property
    def latest(self) -> int:
        """The epoch that records get now."""
        return self.starts[-1].epoch

    def begin(self, epoch: int, offset: int) -> None:
        """An epoch begins at the log's end; epochs before it in which nothing was written are forgotten."""
        self.starts = [each for each in self.starts if each.offset < offset and each.epoch < epoch]
        self.starts = [*self.starts[-MAX_KEPT + 1 :], EpochStart(epoch, offset)]

    def of(self, offset: int) -> int:
        """Return the epoch of the record at an offset."""
        at = bisect_right(self.starts, offset, key=lambda each: each.offset) - 1
        return self.starts[max(at, 0)].epoch

    def end_of(self, epoch: int, end_offset: int) -> EpochStart:
        """Return the last epoch up to ``epoch`` with records, and the offset behind them, as Kafka does.

        ``end_offset`` is the log's end. Both are `UNDEFINED` for an epoch that has not come yet.
        """
        if epoch == self.latest:
            return EpochStart(epoch, end_offset)
        at = bisect_right(self.starts, epoch, key=lambda each: each.epoch)
        if epoch < 0 or at == len(self.starts):
            return EpochStart(UNDEFINED, UNDEFINED)
        return EpochStart(self.starts[at - 1].epoch if at else epoch, self.starts[at].offset)


NEVER_MOVED = LeaderEpochs()
"""Of all partitions whose bundle has its first owner still; nothing begins in it."""


def path_of(topic: Topic, index: int) -> str:
    """Return where a partition's epochs are kept: by the topic's id, as another one of its name begins anew."""
    return f"{ROOT}/{topic.topic_id.hex()}/{index}"


async def entered(store: MetadataStore, topic: Topic, index: int, epoch: int, offset: int) -> LeaderEpochs:
    """Return a partition's epochs, after noting that ``epoch`` begins at ``offset`` unless it has begun before.

    A partition that never had an owner but the first has nothing stored. Raises ``MetadataError``.
    """
    if epoch == 0:
        return NEVER_MOVED
    path = path_of(topic, index)
    stored = await store.get(path)
    epochs = LeaderEpochs() if stored is None else LeaderEpochs(_decoded(path, stored.value))
    if epochs.latest < epoch:
        epochs.begin(epoch, offset)
        text = "\n".join(f"{each.epoch} {each.offset}" for each in epochs.starts)
        expected = MUST_NOT_EXIST if stored is None else stored.version
        await store.commit([Put(path, text.encode(), expected)])
    return epochs


async def forget(store: MetadataStore, topic: Topic) -> None:
    """Forget the epochs of a topic that is deleted. Raises ``MetadataError``."""
    home = f"{ROOT}/{topic.topic_id.hex()}"
    for names in batched(await store.children(home), _FORGOTTEN_AT_ONCE):
        await store.commit([Delete(f"{home}/{name}", ANY) for name in names])


def _decoded(path: str, value: bytes) -> list[EpochStart]:
    try:
        return [EpochStart(*map(int, line.split())) for line in value.decode().splitlines()]
    except (ValueError, TypeError) as error:
        raise MetadataCorrupt(path, f"not leader epochs: {error!r}") from error
