"""The records of Pulsar's transactions in ``__transaction_state``. Kafka's own have key version 0; it skips others.

key    int16 version 0x5054; int64 the coordinator, uint64 its number of the transaction; and for what it
       acknowledged, uint32: the how manieth time that was
value  JSON: of the transaction, or of what was acknowledged; a record without value says that all of it is gone
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from magnetar.coordination.decision import Fact
from magnetar.coordination.transactions import (
    Ack,
    PulsarTransaction,
    TxnId,
    TxnPartition,
    TxnStatus,
    TxnSubscription,
)
from magnetar.wire.kafka.malformed import WireError

VERSION = b"PT"
_KEY = struct.Struct(">qQ")
_NUMBER = struct.Struct(">I")


class AckFact(NamedTuple):
    """What was acknowledged at one time."""

    txn: TxnId
    number: int
    where: TxnSubscription
    acks: tuple[Ack, ...]


def txn_fact(each: PulsarTransaction) -> Fact:
    """Return the record of a transaction as it is now."""
    value = {
        "status": each.status,
        "timeout_ms": each.timeout_ms,
        "start_ms": each.start_ms,
        "owner": each.owner,
        "partitions": sorted(each.partitions),
        "subscriptions": sorted(each.subscriptions),
        "names": sorted((*where, name) for where, name in each.names),
        "ended_ms": each.ended_ms,
    }
    return Fact(_key(each.txn), _json(value))


def gone_fact(txn: TxnId) -> Fact:
    """Return the record that says that a transaction, and what it acknowledged, is forgotten."""
    return Fact(_key(txn), None)


def ack_fact(txn: TxnId, number: int, where: TxnSubscription, acks: Sequence[Ack]) -> Fact:
    """Return the record of what a transaction acknowledges in one subscription."""
    rows = [
        (
            each.ledger_id,
            each.entry_id,
            None if each.remaining is None else f"{each.remaining:x}",
            each.messages,
            each.cumulative,
        )
        for each in acks
    ]
    return Fact(_key(txn) + _NUMBER.pack(number), _json({"where": where, "acks": rows}))


def read_fact(key: bytes, value: bytes | None) -> tuple[TxnId, PulsarTransaction | None] | AckFact | None:
    """Return what a record says; None for one of another kind. Raises ``WireError`` for a damaged one."""
    if key[:2] != VERSION:
        return None
    try:
        txn = TxnId(*_KEY.unpack_from(key, 2))
        rest = key[2 + _KEY.size :]
        if value is None:
            return txn, None
        said = json.loads(value)
        if not rest:
            return txn, _transaction(txn, said)
        acks = tuple(
            Ack(ledger_id, entry_id, None if remaining is None else int(remaining, 16), messages, cumulative)
            for ledger_id, entry_id, remaining, messages, cumulative in said["acks"]
        )
        return AckFact(txn, _NUMBER.unpack(rest)[0], TxnSubscription(*said["where"]), acks)
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise WireError(f"a transaction of Pulsar's that cannot be read: {error!r}") from None


def _transaction(txn: TxnId, said: dict[str, Any]) -> PulsarTransaction:
    return PulsarTransaction(
        txn,
        TxnStatus(said["status"]),
        int(said["timeout_ms"]),
        int(said["start_ms"]),
        said["owner"],
        frozenset(TxnPartition(*each) for each in said["partitions"]),
        frozenset(TxnSubscription(*each) for each in said["subscriptions"]),
        frozenset((TxnPartition(topic, partition), name) for topic, partition, name in said["names"]),
        int(said["ended_ms"]),
    )


def _key(txn: TxnId) -> bytes:
    return VERSION + _KEY.pack(txn.most, txn.least)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
