"""The records of ``__transaction_state``, as Kafka 4.x writes them.

    key    int16 version 0; the transactional id
    value  int16 version 0 or 1, then `TransactionLogValue`; a record without value says that the id is gone

Version 1 is written, both are read. Which role's an id is, where roles mean anything, stands beside it in a record
that Kafka skips:

    key    int16 version 0x4f57; the transactional id, UTF-8
    value  the role, UTF-8
"""

from __future__ import annotations

from collections import defaultdict

from magnetar.coordination.decision import Fact
from magnetar.kafka.transactions.metadata import NO_TIME, State, TransactionMetadata, TransactionPartition
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.messages.transaction_log_key import TransactionLogKey
from magnetar.wire.kafka.messages.transaction_log_value import PartitionsSchema, TransactionLogValue

ROLES = b"OW"
"""How keys of records about whose an id is begin."""
_KEY = b"\0\0"
_VALUE_VERSION = 1


def transaction_fact(metadata: TransactionMetadata) -> Fact:
    """Return the record of a transactional id as it is now."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(metadata.partitions):
        by_topic[topic].append(partition)
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=None
        if metadata.state is State.EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()],
        transaction_last_update_timestamp_ms=metadata.update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.version,
    )
    return Fact(_key(metadata.transactional_id), b"\0\1" + value.encode(_VALUE_VERSION))


def gone_fact(transactional_id: str) -> Fact:
    """Return the record that says that a transactional id is gone."""
    return Fact(_key(transactional_id), None)


def role_fact(transactional_id: str, role: str | None) -> Fact:
    """Return the record that says which role a transactional id is of; None says that it is gone."""
    return Fact(ROLES + transactional_id.encode(), None if role is None else role.encode())


def read_role(key: bytes, value: bytes | None) -> tuple[str, str]:
    """Return a transactional id and the role that it is of, empty if it is gone; raise ``WireError``."""
    try:
        return key[len(ROLES) :].decode(), (value or b"").decode()
    except UnicodeDecodeError as error:
        raise WireError(f"a transactional id's role that cannot be read: {error}") from None


def _key(transactional_id: str) -> bytes:
    return _KEY + TransactionLogKey(transactional_id=transactional_id).encode(0)


def read_fact(key: bytes, value: bytes | None) -> tuple[str, TransactionMetadata | None] | None:
    """Return a transactional id and what its record says of it; None for a record of another kind.

    Raises ``WireError`` for a damaged one.
    """
    if key[:2] != _KEY:
        return None
    transactional_id = TransactionLogKey.decode(key[2:], 0).transactional_id
    if value is None:
        return transactional_id, None
    stored = TransactionLogValue.decode(value[2:], int.from_bytes(value[:2], "big", signed=True))
    try:
        state = State(stored.transaction_status)
    except ValueError:
        raise WireError(f"a transaction in state {stored.transaction_status}") from None
    return transactional_id, TransactionMetadata(
        transactional_id,
        stored.producer_id,
        stored.producer_epoch,
        stored.transaction_timeout_ms,
        state,
        frozenset(
            TransactionPartition(each.topic, partition)
            for each in stored.transaction_partitions or ()
            for partition in each.partition_ids
        ),
        stored.transaction_start_timestamp_ms if stored.transaction_start_timestamp_ms > 0 else NO_TIME,
        stored.transaction_last_update_timestamp_ms,
        stored.client_transaction_version,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
    )
