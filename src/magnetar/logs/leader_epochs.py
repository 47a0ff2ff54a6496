"""The leader epochs of partitions (Kafka's leader epoch checkpoint, KIP-101 and KIP-320), wherever they are stored.

A consumer whose partition got a new leader asks where the epoch of the last record that it read ended; if that lies
before its place, records were lost, and it has to look for its place anew. So what is answered has to be true.

On bookies they are part of the log's list of ledgers, for an opening there should cost no request more than it must. Of
other engines' logs a node of the metadata store has them, from the first change of owner on; so had it of logs on
bookies, for which it is read one last time.
"""

from __future__ import annotations

from magnetar.base.slices import batched
from magnetar.ledger.epoch_starts import UNDEFINED, EpochStart, LeaderEpochs
from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.port import ManagedLedger
from magnetar.metadata import MetadataCorrupt, MetadataStore
from magnetar.metadata.ops import ANY, MUST_NOT_EXIST, Delete, Put
from magnetar.topics.topic import Topic

__all__ = ["NEVER_MOVED", "ROOT", "UNDEFINED", "EpochStart", "LeaderEpochs", "entered", "forget", "path_of"]

ROOT = "/magnetar/leader-epochs"
_FORGOTTEN_AT_ONCE = 1000  # in one commit, which has a bound

NEVER_MOVED = LeaderEpochs()
"""Of all partitions whose bundle has its first owner still; nothing begins in it."""


def path_of(topic: Topic, index: int) -> str:
    """Return where a partition's epochs are kept: by the topic's id, as another one of its name begins anew."""
    return f"{ROOT}/{topic.topic_id.hex()}/{index}"


async def entered(
    store: MetadataStore, topic: Topic, index: int, epoch: int, log: ManagedLedger
) -> LeaderEpochs:
    """Return a partition's epochs, after noting that ``epoch`` begins at the log's end unless it has begun before.

    A partition that never had an owner but the first has nothing stored. Raises ``MetadataError``.
    """
    if epoch == 0:
        return NEVER_MOVED
    if log.keeps_epochs and log.epoch_starts is not None:
        try:
            return LeaderEpochs.decode(log.epoch_starts)
        except ValueError as error:
            raise LedgerCorrupt(f"{log.name}: {error}") from error
    path = path_of(topic, index)
    stored = await store.get(path)
    epochs = LeaderEpochs() if stored is None else _decoded(path, stored.value)
    if epochs.latest < epoch:
        epochs.begin(epoch, log.log_end_offset)
        if not log.keeps_epochs:
            expected = MUST_NOT_EXIST if stored is None else stored.version
            await store.commit([Put(path, epochs.encode().encode(), expected)])
    if log.keeps_epochs:
        log.epoch_starts = epochs.encode()  # stored before there is a record of this epoch
    return epochs


async def forget(store: MetadataStore, topic: Topic) -> None:
    """Forget the epochs of a topic that is deleted. Raises ``MetadataError``."""
    home = f"{ROOT}/{topic.topic_id.hex()}"
    for names in batched(await store.children(home), _FORGOTTEN_AT_ONCE):
        await store.commit([Delete(f"{home}/{name}", ANY) for name in names])


def _decoded(path: str, value: bytes) -> LeaderEpochs:
    try:
        return LeaderEpochs.decode(value.decode())
    except ValueError as error:
        raise MetadataCorrupt(path, f"not leader epochs: {error!r}") from error
