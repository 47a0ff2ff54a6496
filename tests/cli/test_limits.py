"""Memory is given back to the system in the first quiet moment after a busy one."""

from __future__ import annotations

from magnetar.cli.limits import BUSY_CPU_S, Spare


async def test_memory_is_given_back_once_after_a_burst() -> None:
    used, given = [0.0], []
    spare = Spare(lambda: used[0], lambda: given.append(used[0]))

    async def later(seconds: float) -> int:
        used[0] += seconds
        await spare.give_back_when_quiet()
        return len(given)

    assert await later(0.0) == 0  # nothing was done that left any
    assert await later(BUSY_CPU_S) == 0
    assert await later(3.0) == 0  # somebody would wait for it
    assert await later(BUSY_CPU_S / 2) == 1
    assert await later(0.0) == 1
    assert await later(1.0) == 1
    assert await later(0.0) == 2
