"""Transactions when the first client asks for them, or once something is kept of them: most brokers never have any, and
go without their modules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.kafka.apart import load_apart

if TYPE_CHECKING:
    from magnetar.kafka.transactions.admission import Admission
    from magnetar.kafka.transactions.coordinator import TransactionCoordinator


class LazyTransactions:
    """The transaction coordinator of one broker's clients, or of one tenant's; made when it is first asked for."""

    __slots__ = ("_admission", "_admit", "_is_kept", "_make", "_making", "made")

    def __init__(
        self,
        make: Callable[[], TransactionCoordinator],
        admit: Callable[[TransactionCoordinator], Admission],
        is_kept: Callable[[], bool],
    ) -> None:
        """``is_kept`` tells whether anything may be stored of transactions: then some may have to be ended."""
        self._make = make
        self._admit = admit
        self._is_kept = is_kept
        self._making: asyncio.Lock | None = None
        self._admission: Admission | None = None
        self.made: TransactionCoordinator | None = None

    async def get(self) -> TransactionCoordinator:
        """Return it, begun to be loaded. Whoever asks may run in no task."""
        if self.made is None:
            if self._making is None:
                self._making = asyncio.Lock()
            async with self._making:
                if self.made is None:
                    await load_apart(
                        "magnetar.kafka.transactions.coordinator", "magnetar.kafka.transactions.admission"
                    )
                    made = self._make()
                    await made.start()
                    self.made = made
        return self.made

    async def admission(self) -> Admission:
        """Return what tells of a partition whether it is of one of these transactions."""
        if self._admission is None:
            self._admission = self._admit(await self.get())
        return self._admission

    @property
    def loading(self) -> int:
        """How many partitions this broker has whose transactions nobody can be told of yet."""
        return 0 if self.made is None else self.made.loading

    async def follow_ownership(self) -> None:
        """Follow what has come to this broker or gone; at its start, take up what it has."""
        if self.made is not None:
            await self.made.follow_ownership()
        elif self._is_kept():
            await self.get()

    async def close(self) -> None:
        """Finish what is in hand."""
        if self.made is not None:
            await self.made.close()
