"""Facts and markers as record batches of a coordinator's log: plain batches, batches of a transaction, markers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from magnetar.coordination.decision import Fact, Marker, Stated, Transaction
from magnetar.records.batch import (
    NO_PRODUCER,
    TRANSACTIONAL,
    BatchHeader,
    PlainRecord,
    encode_batch,
    keys_and_values,
)
from magnetar.records.control import marker_batch, marker_of

BATCH_BYTES: Final = 16 * 1024
"""About the largest batch of facts; one big fact may exceed it. To encode 150 small facts takes 2 ms, during which
the event loop serves no other client."""
_NOBODY: Final = Transaction(NO_PRODUCER, -1)


def encode_stated(stated: Sequence[Stated], timestamp: int) -> Iterator[tuple[bytes, int]]:
    """Return batches, each with the number of its records: of `BATCH_BYTES` at most, and of one transaction or none.

    Facts of a transaction have no sequence numbers, as in Kafka: their coordinator sends none of them twice.
    """
    chunk: list[PlainRecord] = []
    room, owner = 0, _NOBODY
    for each in stated:
        size = 0 if isinstance(each, Marker) else len(each.key) + len(each.value or b"") + 16
        whose = each.transaction or _NOBODY
        if chunk and (isinstance(each, Marker) or whose != owner or room < size):
            yield _batch(chunk, owner), len(chunk)
            chunk = []
        if isinstance(each, Marker):
            yield _marker(each, timestamp), 1
            continue
        if not chunk:
            room, owner = BATCH_BYTES, whose
        chunk.append(PlainRecord(each.key, each.value, (), timestamp))
        room -= size
    if chunk:
        yield _batch(chunk, owner), len(chunk)


def stated_in(header: BatchHeader, batch: bytes | memoryview) -> Iterator[Stated]:
    """Return the facts and markers of a batch; raise ``CorruptBatch`` if no coordinator wrote it this way."""
    transaction = Transaction(header.producer_id, header.producer_epoch) if header.is_transactional else None
    for key, value in keys_and_values(batch):
        if not header.is_control:
            if key is not None:
                yield Fact(key, value, transaction)
        elif transaction is not None and key is not None:
            yield from _read_marker(transaction, key, value or b"")


def _batch(records: Sequence[PlainRecord], owner: Transaction) -> bytes:
    return encode_batch(
        records,
        attributes=0 if owner is _NOBODY else TRANSACTIONAL,
        producer_id=owner.producer_id,
        producer_epoch=owner.producer_epoch,
    )


def _marker(marker: Marker, timestamp: int) -> bytes:
    return marker_batch(
        *marker.transaction,
        timestamp,
        committed=marker.committed,
        coordinator_epoch=marker.coordinator_epoch,
    )


def _read_marker(transaction: Transaction, key: bytes, value: bytes) -> Iterator[Marker]:
    found = marker_of(key, value)
    if found is not None:
        yield Marker(transaction, found.committed, found.coordinator_epoch)
