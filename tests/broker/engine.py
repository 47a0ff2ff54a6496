"""An engine that holds no ledgers: the broker core only ever asks it to delete some."""

from __future__ import annotations

from magnetar.ledger.port import LedgerEngine, LedgerPolicy, LedgerSummary, ManagedLedger


class NoLedgers(LedgerEngine):
    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.fails = False

    async def start(self) -> None: ...

    async def open(self, name: str, policy: LedgerPolicy) -> ManagedLedger:
        raise NotImplementedError(name)

    async def release(self, name: str) -> None:
        """Let go of what is not open anyway."""

    async def delete(self, name: str) -> None:
        if self.fails:
            raise OSError("the disk is gone")
        self.deleted.append(name)

    async def summaries(self, name: str) -> list[LedgerSummary]:
        return []

    def opened(self) -> list[ManagedLedger]:
        return []

    async def close(self) -> None: ...
