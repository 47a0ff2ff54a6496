"""Control batches: the markers with which a partition's log ends a transaction (KIP-98).

key    version (2), kind (2): 0 abort, 1 commit; other kinds are passed over
value  version (2), coordinator epoch (4)
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from magnetar.records.batch import CONTROL, TRANSACTIONAL, PlainRecord, each_record, encode_batch
from magnetar.records.compression import Buffer
from magnetar.records.errors import CorruptBatch

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1


class ControlMarker(NamedTuple):
    """What a marker says."""

    committed: bool
    coordinator_epoch: int


def marker_batch(
    producer_id: int,
    epoch: int,
    timestamp: int,
    *,
    committed: bool,
    coordinator_epoch: int,
    leader_epoch: int = 0,
) -> bytes:
    """Return the control batch that ends a producer's transaction."""
    key = _KEY.pack(0, _COMMIT if committed else _ABORT)
    value = _VALUE.pack(0, coordinator_epoch)
    return encode_batch(
        [PlainRecord(key, value, (), timestamp)],
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=epoch,
        leader_epoch=leader_epoch,
    )


def read_marker(batch: Buffer) -> ControlMarker | None:
    """Return what a control batch says; None for other kinds. Raises ``CorruptBatch``."""
    for record in each_record(batch):
        return marker_of(record.key or b"", record.value or b"")
    return None


def marker_of(key: bytes, value: bytes) -> ControlMarker | None:
    """Return what a control record says; None for other kinds. Raises ``CorruptBatch``."""
    if len(key) < _KEY.size:
        raise CorruptBatch(f"a control record has a key of {len(key)} bytes")
    _, kind = _KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):  # of others readers know nothing, and pass over them
        return None
    epoch = _VALUE.unpack_from(value)[1] if len(value) >= _VALUE.size else 0
    return ControlMarker(kind == _COMMIT, epoch)
