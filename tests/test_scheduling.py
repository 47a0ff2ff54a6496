"""Tests of Sparks and clusters are given to two workers of three, and every test to one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.scheduling import BesideEachOther, is_aside

TEXTS = ("pytest.mark.slow", "pytest.mark.spark", "from tests.cluster.servers import Cluster", "", "", "")


class OneWorker:
    """What a scheduler knows of a worker; it has run what it was given as soon as it is asked."""

    def __init__(self, number: int, names: list[str]) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.names = names
        self.waiting: list[int] = []
        self.ran: list[str] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.waiting += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def run(root: Path, workers: int, turns: list[int]) -> list[OneWorker]:
    """Give out six modules of four tests each; the worker whose turn it is runs one."""
    for number, text in enumerate(TEXTS):
        (root / f"test_{number}.py").write_text(text)
    names = [f"test_{number}.py::test_{each}" for number in range(len(TEXTS)) for each in range(4)]
    option = SimpleNamespace(loadscopereorder=False)
    told = SimpleNamespace(
        rootpath=root, option=option, getvalue=lambda name: [f"{workers}*popen"] if name == "tx" else None
    )
    scheduler = BesideEachOther(cast(Any, told), cast(Any, SimpleNamespace(loadscopesched=lambda *_: None)))
    found = [OneWorker(number, names) for number in range(workers)]
    for each in found:
        scheduler.add_node(cast(Any, each))
    for each in found:
        scheduler.add_node_collection(cast(Any, each), names)
    scheduler.schedule()
    for turn in [*turns, *list(range(workers)) * len(names)]:
        worker = found[turn % workers]
        if worker.waiting:
            index = worker.waiting.pop(0)
            worker.ran.append(names[index])
            scheduler.mark_test_complete(cast(Any, worker), index)
    assert scheduler.tests_finished
    return found


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("first", range(4))
def test_every_test_runs_once_and_heavy_ones_beside_no_more_than_two(
    tmp_path: Path, workers: int, first: int
) -> None:
    found = run(tmp_path, workers, [first] * 30)  # one of them is faster than all others
    ran = [name for each in found for name in each.ran]
    assert sorted(ran) == sorted(found[0].names)
    for each in found:
        if is_aside(each.gateway.id, workers):
            assert {name[:7] for name in each.ran}.isdisjoint({"test_1.", "test_2."})
    assert sum(not is_aside(each.gateway.id, workers) for each in found) == {1: 1, 2: 2, 3: 2, 4: 3}[workers]
