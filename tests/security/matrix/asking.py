"""What a cell of the matrix is, and how one is filled in: somebody asks, and it is looked at what came of it.

.   not let in: no answer at all, or that the asker must say who it is
-   refused: told that it may not, or that there is no such thing
a   answered, with nothing of red's
s   answered, and shown something of red's that it did not name
c   answered, and something of red's was changed
b   both shown and changed
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum

from tests.security.matrix.house import MARK, Asker, House


class Outcome(StrEnum):
    """How somebody was answered."""

    not_let_in = "."
    refused = "-"
    answered = "a"


Ask = Callable[[House, Asker], Awaitable[tuple[Outcome, bytes]]]
"""Asks once; gives how it was answered, and with which bytes."""


class Asked:
    """One house after the other: who is asked next finds red as it was at first."""

    def __init__(self, furnish: Callable[[House], Awaitable[None]], *, tenants: bool) -> None:
        self._furnish = furnish
        self._tenants = tenants
        self._house: House | None = None
        self.cells = 0

    async def _furnished(self) -> House:
        if self._house is None:
            self._house = await House(tenants=self._tenants).start()
            await self._furnish(self._house)
        return self._house

    async def cell(self, ask: Ask, asker: Asker) -> str:
        """Return the cell of one asker, and hold it against what must never be."""
        house = await self._furnished()
        before = house.state_of_red()
        outcome, answer = await ask(house, asker)
        await house.settled()
        changed, shown = house.state_of_red() != before, MARK in answer
        if changed:
            await self.close()
        if outcome is not Outcome.answered:
            assert not changed, f"{asker.name} was refused, and changed something all the same"
            assert not shown, f"{asker.name} was refused, and told something all the same: {answer!r}"
        self.cells += 1
        if outcome is Outcome.answered and (changed or shown):
            return "b" if changed and shown else "c" if changed else "s"
        return str(outcome)

    async def close(self) -> None:
        if self._house is not None:
            await self._house.close()
            self._house = None
