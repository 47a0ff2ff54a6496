"""Exactly once: a decided batch goes into its topics, however often publishing is begun.

The decision fixes everything: which staged files, in which order, under which producer id, with which sequences. So
every attempt to publish sends the very same batches, and Kafka's idempotence (KIP-98) takes each once. Brokers remember
only the last five batches of a producer, and for a day; therefore every attempt begins by looking into the partitions'
logs, from where they ended before the decision, for what this producer has there already.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from magnetar.client.cluster import EARLIEST, LATEST, Cluster
from magnetar.client.errors import BrokerRefused, ClientError
from magnetar.client.fetch import headers
from magnetar.client.produce import Batch, ProducerIdentity, new_producer, send
from magnetar.pipeline.sink_options import SinkOptions
from magnetar.pipeline.sink_staging import BatchDecision, StagedDamaged, StagingDirectory, Target
from magnetar.records.encoder import stamped

_MAX_SEQUENCE = 1 << 31
_MAX_PAUSE_S = 1.0

Partition = tuple[str, int]


class CannotTell(Exception):
    """Whether records were published cannot be found out any more."""


def publish(options: SinkOptions, query: str, batch_id: int, files: Sequence[str]) -> None:
    """Bring a batch into its topics, once: nothing happens if it is there. Raises ``ClientError`` or `CannotTell`."""
    assert options.staging is not None
    staging = StagingDirectory(options.staging, query)
    with Cluster(options.client) as cluster:
        for decision in staging.open_decisions():
            _publish(cluster, staging, decision)
        done = staging.last_done()
        if done is None or done.batch_id < batch_id:
            drawn_up = _draw_up(cluster, staging, batch_id, files, done)
            holds = None if drawn_up is None else staging.decide(drawn_up)
            if holds is not None:
                _publish(cluster, staging, holds)
        else:
            staging.finish(done)  # what was staged again for it is not needed


def _draw_up(
    cluster: Cluster,
    staging: StagingDirectory,
    batch_id: int,
    files: Sequence[str],
    before: BatchDecision | None,
) -> BatchDecision | None:
    """Draw up the decision of a new batch: it goes on where the one before it ended. None if it is done by now."""
    counts: dict[Partition, int] = defaultdict(int)
    try:
        for name in sorted(files):
            for block in staging.read(name, data=False):
                counts[block.topic, block.partition] += block.records
    except StagedDamaged:
        if staging.is_done(batch_id):
            return None  # another driver published the batch, and removed what was staged for it
        raise
    sequences = {} if before is None else {(t, p): next_one for t, p, next_one in before.sequences}
    if before is None or any(sequences.get(at, 0) + count >= _MAX_SEQUENCE for at, count in counts.items()):
        producer, sequences = new_producer(cluster), {}
    else:
        producer = ProducerIdentity(before.producer_id, before.producer_epoch)
    ends = cluster.retrying(lambda: cluster.list_offsets(dict.fromkeys(counts, LATEST)))
    targets = tuple(
        Target(
            topic,
            partition,
            sequences.get((topic, partition), 0),
            ends[topic, partition],
            cluster.topic(topic).topic_id.hex(),
        )
        for topic, partition in sorted(counts)
    )
    after = sequences | {at: sequences.get(at, 0) + count for at, count in counts.items()}
    following = tuple((topic, partition, after[topic, partition]) for topic, partition in sorted(after))
    return BatchDecision(batch_id, *producer, tuple(sorted(files)), targets, following)


def _publish(cluster: Cluster, staging: StagingDirectory, decision: BatchDecision) -> None:
    """Send what is not there yet, again and again while that may help, and note that it is done."""
    there = {(each.topic, each.partition): each.first_sequence - 1 for each in decision.targets}
    deadline = time.monotonic() + cluster.settings.delivery_timeout_s
    pause = cluster.settings.backoff_s

    def noted(batch: Batch) -> None:
        nonlocal deadline
        there[batch.topic, batch.partition] = batch.last_sequence
        deadline = time.monotonic() + cluster.settings.delivery_timeout_s

    while True:
        try:
            cluster.retrying(lambda: _look(cluster, decision, there))
            before = dict(there)
            send(cluster, _missing(staging, decision, before), acknowledged=noted)
            break
        except ClientError as error:
            moved = isinstance(error, BrokerRefused) and error.out_of_order
            if not (error.retriable or moved) or time.monotonic() + pause > deadline:
                raise
        except StagedDamaged:
            if staging.is_done(decision.batch_id):
                return  # another driver, which shares our decision, was quicker
            raise
        time.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_S)
    staging.finish(decision)


def _missing(
    staging: StagingDirectory, decision: BatchDecision, there: Mapping[Partition, int]
) -> Iterator[Batch]:
    """Yield the decision's batches, but for those that are in the logs, each as its producer's."""
    following = {(each.topic, each.partition): each.first_sequence for each in decision.targets}
    for name in decision.files:
        for block in staging.read(name):
            first = following[block.topic, block.partition]
            last = following[block.topic, block.partition] = first + block.records
            if last - 1 > there[block.topic, block.partition]:
                assert block.data is not None
                data = stamped(block.data, decision.producer_id, decision.producer_epoch, first)
                yield Batch(block.topic, block.partition, last - 1, data)


def _look(cluster: Cluster, decision: BatchDecision, there: dict[Partition, int]) -> None:
    """Note in ``there`` the last sequence of this decision in each partition's log."""
    wanted = {(each.topic, each.partition): each for each in decision.targets}
    starts = cluster.list_offsets(dict.fromkeys(wanted, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(wanted, LATEST))
    for at, target in wanted.items():
        _check_topic(cluster, target, ends[at])
        found = False
        for header in headers(cluster, *at, max(target.offset, starts[at]), ends[at]):
            if (
                header.producer_id == decision.producer_id
                and header.producer_epoch == decision.producer_epoch
            ):
                there[at] = max(there[at], header.last_sequence)
                found = True
        if starts[at] > target.offset and not found and there[at] < target.first_sequence:
            raise CannotTell(
                f"records of {target.topic}-{target.partition} from offset {target.offset} to {starts[at]} were "
                f"deleted while batch {decision.batch_id} was being published; whether it is among them cannot be "
                f"told. Look yourself, then remove {decision.batch_id}.decided in the staging directory, or rename "
                "it to end in .done"
            )


def _check_topic(cluster: Cluster, target: Target, end: int) -> None:
    if cluster.topic(target.topic).topic_id.hex() != target.topic_id or end < target.offset:
        raise CannotTell(
            f"topic {target.topic!r} was deleted and made anew while a batch was being published to it"
        )
