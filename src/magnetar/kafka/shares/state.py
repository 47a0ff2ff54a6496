"""What is kept of one share partition, and the records that say so in ``__share_group_state``, as Kafka writes them.

key    int16 kind: 0 a snapshot, 1 an update of the snapshot before it; then group, topic id, partition
value  int16 version (0), then its fields; a snapshot without value says that the state is gone
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from magnetar.coordination.decision import Fact
from magnetar.coordination.shares.runs import OffsetRun, RecordState, Runs
from magnetar.coordination.shares.share_partition import StateBatch
from magnetar.wire.kafka.messages.share_snapshot_key import ShareSnapshotKey
from magnetar.wire.kafka.messages.share_snapshot_value import ShareSnapshotValue
from magnetar.wire.kafka.messages.share_snapshot_value import StateBatch as SnapshotBatch
from magnetar.wire.kafka.messages.share_update_value import ShareUpdateValue
from magnetar.wire.kafka.messages.share_update_value import StateBatch as UpdateBatch

UNSET = -1
_SNAPSHOT, _UPDATE = b"\0\0", b"\0\1"
_VERSION = bytes(2)


class ShareKey(NamedTuple):
    """One partition as one group has it."""

    group_id: str
    topic_id: bytes
    partition: int


class ShareState(NamedTuple):
    """What is kept of it."""

    state_epoch: int = 0
    """Grows each time somebody sets it anew; who writes with an earlier one is refused."""
    leader_epoch: int = 0
    start_offset: int = UNSET
    complete: int = UNSET
    batches: tuple[StateBatch, ...] = ()
    snapshot_epoch: int = 0
    updates: int = 0
    """How many updates there were since the snapshot."""


def merged(old: Sequence[StateBatch], new: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return what is stated of offsets from ``start_offset`` on: where both speak of one, ``new`` is right.

    ``old`` is in the order of offsets, and says nothing twice.
    """
    added = [batch for batch in new if batch.last >= start_offset]
    known = [batch for batch in old if batch.last >= start_offset]
    if not added and not known:
        return ()
    end = min(batch.first for batch in (*known[:1], *added))
    runs = Runs()

    def reach(offset: int) -> None:
        nonlocal end
        if offset > end:  # nobody has said anything of these
            runs.append(OffsetRun(end, offset - 1, RecordState.ACQUIRED, 0))
            end = offset

    for batch in known:
        reach(batch.first)
        runs.append(OffsetRun(*batch))
        end = batch.last + 1
    for batch in added:
        reach(batch.last + 1)
        runs.rewrite(batch.first, batch.last, _stated(batch))
    return tuple(
        StateBatch(max(run.first, start_offset), *run[1:4])
        for run in runs
        if run.state is not RecordState.ACQUIRED and run.last >= start_offset
    )


def _stated(batch: StateBatch) -> Callable[[OffsetRun], OffsetRun]:
    return lambda run: OffsetRun(run.first, run.last, batch.state, batch.deliveries)


# Writing.


def snapshot_fact(key: ShareKey, state: ShareState | None, now_ms: int) -> Fact:
    """Return the record of all that is kept, or (None) that it is gone."""
    if state is None:
        return Fact(_key(_SNAPSHOT, key), None)
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete,
        create_timestamp=now_ms,
        write_timestamp=now_ms,
        state_batches=[SnapshotBatch(**_fields(batch)) for batch in state.batches],
    )
    return Fact(_key(_SNAPSHOT, key), _VERSION + value.encode(0))


def update_fact(key: ShareKey, state: ShareState, batches: Iterable[StateBatch]) -> Fact:
    """Return the record of some batches that came to a state, which it has taken in already."""
    value = ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete,
        state_batches=[UpdateBatch(**_fields(batch)) for batch in batches],
    )
    return Fact(_key(_UPDATE, key), _VERSION + value.encode(0))


def _key(kind: bytes, key: ShareKey) -> bytes:
    # The key of an update has the same fields.
    named = ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return kind + named.encode(0)


def _fields(batch: StateBatch) -> dict[str, Any]:
    return {
        "first_offset": batch.first,
        "last_offset": batch.last,
        "delivery_state": batch.state,
        "delivery_count": batch.deliveries,
    }


# Reading.


class Stated(NamedTuple):
    """What a record says: the state is gone (None), is this, or has had this update."""

    key: ShareKey
    said: ShareSnapshotValue | ShareUpdateValue | None


def read_share_fact(key: bytes, value: bytes | None) -> Stated | None:
    """Return what a record says, None for one of another kind; raise ``WireError`` for damaged ones."""
    kind = key[:2]
    if kind not in (_SNAPSHOT, _UPDATE):
        return None
    named = ShareSnapshotKey.decode(key[2:], 0)
    name = ShareKey(named.group_id, named.topic_id, named.partition)
    if value is None:
        return Stated(name, None)
    message = ShareSnapshotValue if kind == _SNAPSHOT else ShareUpdateValue
    return Stated(name, message.decode(value[2:], 0))


def applied(state: ShareState | None, said: ShareSnapshotValue | ShareUpdateValue) -> ShareState:
    """Return the state after a record."""
    batches = [
        StateBatch(each.first_offset, each.last_offset, RecordState(each.delivery_state), each.delivery_count)
        for each in said.state_batches
    ]
    if isinstance(said, ShareSnapshotValue):
        return ShareState(
            said.state_epoch,
            said.leader_epoch,
            said.start_offset,
            said.delivery_complete_count,
            merged((), batches, said.start_offset),
            said.snapshot_epoch,
        )
    return updated(
        state or ShareState(), said.leader_epoch, said.start_offset, said.delivery_complete_count, batches
    )


def updated(
    state: ShareState, leader_epoch: int, start_offset: int, complete: int, batches: Sequence[StateBatch]
) -> ShareState:
    """Return the state with some batches more; a start of -1 stays what it was."""
    start = state.start_offset if start_offset == UNSET else start_offset
    return state._replace(
        leader_epoch=max(leader_epoch, state.leader_epoch),
        start_offset=start,
        complete=complete,
        batches=merged(state.batches, batches, start),
        updates=state.updates + 1,
    )
