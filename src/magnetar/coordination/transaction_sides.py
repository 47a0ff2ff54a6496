"""Where Pulsar's side of transactions and the coordinator find each other, in every broker. Their ports are in
`magnetar.coordination.transactions`, which is loaded only where there are transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.coordination.transactions import Coordinator, Participants


@dataclass(slots=True)
class PulsarTransactions:
    """One per broker. Each side registers how the other one reaches it; neither is made before it is needed."""

    coordinator_of: Callable[[], Awaitable[Coordinator]] | None = None
    """None where Kafka's handler, which has the coordinator, does not run."""
    participants_of: Callable[[], Participants] | None = None
    """None until Pulsar's handler, which has the subscriptions, runs."""
    _waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def join(self, participants_of: Callable[[], Participants]) -> None:
        """Register topics and subscriptions: they are ready for requests."""
        self.participants_of = participants_of
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def participants(self) -> Participants:
        """Return them once they are ready: a coordinator may resume before Pulsar's handler has started."""
        while self.participants_of is None:
            waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waits)
            await waits
        return self.participants_of()
