"""The table of all actions."""

from __future__ import annotations

from magnetar.console.actions import groups, permissions, records, subscriptions, topics, transactions
from magnetar.console.actions.action import ConsoleAction

ACTIONS: tuple[ConsoleAction, ...] = (
    records.PRODUCE,
    records.SEND_AGAIN,
    records.DROP,
    groups.RESET,
    groups.DELETE,
    subscriptions.RESET,
    subscriptions.SKIP,
    subscriptions.DELETE,
    topics.CREATE,
    topics.CONFIGURE,
    topics.COMPACT,
    topics.DELETE,
    permissions.GRANT,
    permissions.REVOKE,
    transactions.ABORT,
)
