"""Which member should have which tasks: as even as possible, and where a task's state is already. A pure function.

An active task stays with its member, or goes to one that had it on standby, or to another of the same process, as far
as that is even; the others go to the member that has the least. Standby tasks go to processes that do not have the task
otherwise, preferably to those that had it on standby before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from magnetar.kafka.coordinators.streams.group import TaskPair
from magnetar.kafka.coordinators.streams.reconcile import flat, tasks

Task = tuple[str, int]


class TaskOwner(NamedTuple):
    """One member as the assignor sees it."""

    member_id: str
    process_id: str
    target: TaskPair
    """Its previous target."""


def assign(
    workers: Sequence[TaskOwner], counts: Mapping[str, int], stateful: frozenset[str], standbys: int
) -> dict[str, TaskPair]:
    """Return what each member should have: ``counts`` are the numbers of tasks, of each ``standbys`` stand by."""
    if not workers:
        return {}
    dealing = _Dealing(workers)
    every = [(part, number) for part in sorted(counts) for number in range(counts[part])]
    dealing.deal_active(every)
    if standbys:
        dealing.deal_standby([task for task in every if task[0] in stateful], standbys)
    return {
        worker.member_id: TaskPair(
            tasks(dealing.active[worker.member_id]), tasks(dealing.standby[worker.member_id])
        )
        for worker in workers
    }


class _Dealing:
    def __init__(self, workers: Sequence[TaskOwner]) -> None:
        self.workers = sorted(workers, key=lambda each: each.member_id)
        self.active: dict[str, set[Task]] = {each.member_id: set() for each in workers}
        self.standby: dict[str, set[Task]] = {each.member_id: set() for each in workers}
        self._process = {each.member_id: each.process_id for each in workers}
        self._of_process: dict[str, list[str]] = {}
        for each in self.workers:
            self._of_process.setdefault(each.process_id, []).append(each.member_id)
        self._loads = dict.fromkeys(self._of_process, 0)

    def deal_active(self, every: Sequence[Task]) -> None:
        share, more = divmod(len(every), len(self.workers))
        was_active = {task: each.member_id for each in self.workers for task in flat(each.target.active)}
        stood_by: dict[Task, list[str]] = {}
        for each in self.workers:
            for task in flat(each.target.standby):
                stood_by.setdefault(task, []).append(each.member_id)
        room = {each.member_id: share for each in self.workers}
        left: list[Task] = []

        def take(task: Task, member_ids: Iterable[str]) -> bool:
            nonlocal more
            able = [each for each in member_ids if room[each] > 0 or (room[each] == 0 and more > 0)]
            if not able:
                return False
            chosen = min(able, key=lambda each: (-room[each], self._load(each), each))
            if room[chosen] == 0:
                more -= 1
            room[chosen] -= 1
            self.active[chosen].add(task)
            self._loads[self._process[chosen]] += 1
            return True

        # A member retains the same numbers in all subtopologies, as they were dealt: tasks with state, and
        # tasks without, go to all members.
        for task in sorted(every, key=lambda each: (each[1], each[0])):
            before = was_active.get(task)
            if before is None or not take(task, [before]):
                left.append(task)
        for task in sorted(left):
            before = was_active.get(task)
            near = self._of_process[self._process[before]] if before is not None else []
            if not take(task, stood_by.get(task, ())) and not take(task, near):
                assert take(task, room), "shares add up to all tasks"

    def deal_standby(self, every: Sequence[Task], standbys: int) -> None:
        had: dict[Task, list[str]] = {}
        for each in self.workers:
            for task in (*flat(each.target.standby), *flat(each.target.active)):
                had.setdefault(task, []).append(self._process[each.member_id])
        keeps = {
            task: process
            for process, ids in self._of_process.items()
            for each in ids
            for task in self.active[each]
        }
        most = -(-(sum(self._loads.values()) + len(every) * standbys) // max(len(self.workers), 1))
        for task in every:
            holders = {keeps[task]}
            for _ in range(min(standbys, len(self._of_process) - 1)):
                free = [each for each in self._of_process if each not in holders]
                known = [
                    each
                    for each in had.get(task, ())
                    if each in free and self._loads[each] < most * len(self._of_process[each])
                ]
                process = min(known or free, key=lambda each: (self._process_load(each), each))
                holders.add(process)
                member_id = min(self._of_process[process], key=lambda each: (self._load(each), each))
                self.standby[member_id].add(task)
                self._loads[process] += 1

    def _load(self, member_id: str) -> int:
        return len(self.active[member_id]) + len(self.standby[member_id])

    def _process_load(self, process: str) -> float:
        return self._loads[process] / len(self._of_process[process])
