"""An account of a budget of its own, for conversations without a server."""

from __future__ import annotations

from magnetar.serving.memory import Account, MemoryBudget


def account(limit_bytes: int = 64 << 20) -> Account:
    """Return one that has room, and is told nothing."""
    return MemoryBudget(limit_bytes, limit_bytes // 8).account(lambda: None, known=True)
