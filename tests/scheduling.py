"""Which tests run beside which: a third of the workers leave those alone that start Sparks and clusters.

Those wait for much of their time, but no more than two of them get on with each other on two cores: Spark gives a
Python worker ten seconds to start, and clusters lose their sessions. All other tests fill the time that they wait.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

NICE = 5
"""A third of the time of a processor that others want, too."""


class BesideEachOther(LoadScopeScheduling):
    """pytest-xdist's ``loadscope``: some workers start no Spark and no cluster, and take the last tests first."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if is_aside(node.gateway.id, self.numnodes):
            light = next((scope for scope in reversed(self.workqueue) if not self._starts_much(scope)), None)
            if light is None:
                node.shutdown()
                return
            self.workqueue.move_to_end(light, last=False)
        super()._assign_work_unit(node)

    def schedule(self) -> None:
        """Give out tests, enough of them also to a worker that comes for one that crashed.

        It runs a test when it has the next one, or knows that there is none.
        """
        super().schedule()
        for node in self.nodes:
            while (
                self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2
            ):
                self._assign_work_unit(node)
            if not self.workqueue:
                node.shutdown()

    def mark_test_pending(self, item: str) -> None:
        """Let a test that ended its worker run again: it waits already, for ``remove_node`` has put it back."""

    def _starts_much(self, scope: str) -> bool:
        return _starts_much(self.config.rootpath / scope.partition("::")[0])


def is_aside(worker: str, workers: int) -> bool:
    """Tell whether a worker, by pytest-xdist's name ``gw`` and a number from 0, starts no Spark and no cluster.

    Who comes for one that crashed has the next number.
    """
    return int(worker.removeprefix("gw")) % workers >= workers - workers // 3


def give_way() -> None:
    """Let other workers go first, if this process is one that starts no Spark and no cluster."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker and is_aside(worker, int(os.environ["PYTEST_XDIST_WORKER_COUNT"])):
        os.nice(NICE)


@cache
def _starts_much(module: Path) -> bool:
    # Who gives out tests knows their names alone.
    text = module.read_text()
    return "mark.spark" in text or "tests.cluster" in text


def make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling | None:
    """Return what gives out tests if whole modules are to be given out."""
    return BesideEachOther(config, log) if config.getvalue("dist") == "loadscope" else None
