"""Rows of JSON in which brokers tell each other about transactions: what is none of theirs raises ``ValueError``."""

from __future__ import annotations

from typing import Any

from magnetar.coordination.transactions import Ack, TxnPartition, TxnSubscription
from magnetar.records.pulsar_transactions import TxnId

Row = list[Any]


def ack_row(ack: Ack) -> Row:
    """Return an acknowledgement's row: what remains of a large batch is a number that decimals are too slow for."""
    remaining = None if ack.remaining is None else hex(ack.remaining)
    return [ack.ledger_id, ack.entry_id, remaining, ack.messages, ack.cumulative]


def ack_of(row: object) -> Ack:
    ledger_id, entry_id, remaining, messages, cumulative = _fields(
        row, int, int, (str, type(None)), int, bool
    )
    return Ack(ledger_id, entry_id, None if remaining is None else int(remaining, 16), messages, cumulative)


def acks_of(rows: object) -> tuple[Ack, ...]:
    return tuple(map(ack_of, _all(rows)))


def txn_of(row: object) -> TxnId:
    return TxnId(*_fields(row, int, int))


def partition_of(row: object) -> TxnPartition:
    return TxnPartition(*_fields(row, str, int))


def subscription_of(row: object) -> TxnSubscription:
    return TxnSubscription(*_fields(row, str, int, str))


def fields_of(row: object, count: int) -> Row:
    found = _all(row)
    if len(found) != count:
        raise ValueError(f"{len(found)} fields where {count} are due")
    return found


def _all(rows: object) -> Row:
    if not isinstance(rows, list):
        raise ValueError(f"{type(rows).__name__} where a list is due")
    return rows


def _fields(row: object, *kinds: type | tuple[type, ...]) -> Row:
    found = fields_of(row, len(kinds))
    for each, kind in zip(found, kinds, strict=True):
        if not isinstance(each, kind) or (kind is int and isinstance(each, bool)):
            raise ValueError(f"{type(each).__name__} where another kind of field is due")
    return found
