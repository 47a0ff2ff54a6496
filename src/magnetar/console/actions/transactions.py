"""Transactions: one that its producer has left open, aborted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.admin import transactions
from magnetar.auth import Right
from magnetar.auth.rights import TransactionalId
from magnetar.console.actions.action import ActionOutcome, ConsoleAction, Doing, FormField
from magnetar.console.page import Command, kafka_tool, magnetar
from magnetar.console.rendering import url


def _may_abort(doing: Doing) -> bool:
    if not doing.text("transaction"):
        return doing.may(Right.operate)
    return doing.may(Right.operate) or doing.may(Right.transact, TransactionalId(doing.text("transaction")))


async def _fields(doing: Doing) -> Sequence[FormField]:
    return [FormField("transaction", "Transactional id", required=True)]


async def _preview(doing: Doing) -> ActionOutcome:
    name = doing.needed("transaction", "the transactional id")
    found = await doing.by_kafka(lambda cluster: transactions.describe_transaction(cluster, name))
    return ActionOutcome(
        f"{found.state} in {', '.join(found.partitions[:20]) or 'no partition'}, by producer {found.producer_id}. "
        "Its records would be aborted, and its producer fenced: it has to begin again."
    )


async def _abort(doing: Doing) -> ActionOutcome:
    name = doing.needed("transaction", "the transactional id")
    done = await doing.by_kafka(lambda cluster: transactions.abort_transaction(cluster, name))
    return ActionOutcome(
        f"The transaction of {name} is aborted in {', '.join(done.partitions[:20]) or 'no partition'}.",
        links=[("Transactions", url("transactions"))],
    )


def _commands(doing: Doing) -> Sequence[Command]:
    name = doing.text("transaction", "ID")
    return [
        magnetar("txn", "abort", name),
        kafka_tool(doing.ask, "kafka-transactions", "forceTerminateTransaction", "--transactionalId", name),
    ]


def _has_some(facts: Mapping[str, Any]) -> bool:
    return bool(facts.get("transactions"))


ABORT = ConsoleAction(
    "abort-transaction",
    "Abort a transaction",
    (),
    ("transactions",),
    _may_abort,
    _fields,
    _abort,
    _commands,
    "Abort it",
    "Ends what a producer has left open, which keeps all readers of committed records waiting behind it.",
    _preview,
    fits=_has_some,
)
