"""Any interleaving of plain, transactional, aborted, chunked, batched and encrypted writes and deletions of few keys,
compacted at any moment, with restarts by old snapshots: whoever reads from the beginning ends with what a map holds.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from magnetar.records import compaction
from tests.compaction.model import World

SEEDS = int(os.environ.get("MAGNETAR_SEEDS", "300")) // 3
FIRST = int(os.environ.get("MAGNETAR_SEED", random.randrange(1 << 30)))


@pytest.mark.slow
@pytest.mark.parametrize("machine", [False, True], ids=["plain", "machine code"])
def test_a_reader_ends_with_what_a_map_holds(machine: bool) -> None:
    code = compaction.machine_code() if machine else None
    if machine and code is None:
        pytest.skip("numba is not installed")
    for seed in range(FIRST + machine, FIRST + SEEDS, 2):
        try:
            asyncio.run(World(seed, code).run())
        except BaseException as error:
            raise AssertionError(
                f"seed {seed}, run it alone with MAGNETAR_SEED={seed - machine} MAGNETAR_SEEDS=6"
            ) from error
