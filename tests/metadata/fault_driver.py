"""Commits, deletions and transactions on a store whose disk fails, each case in a process of its own (a fork).

Run with ``faults.c`` loaded: ``fault_driver.py PLAN ROOT FIRST STEP ERRORS...``. It counts the calls that a run without
faults makes, then lets each ``STEP``th of them fail, from ``FIRST`` on, once and for ever, and opens the store again
without faults. Prints one line, or what went wrong.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import traceback
from pathlib import Path

from magnetar.metadata import MetadataError, MetadataFailed, SqliteFile
from tests.crash.faults import CHANGES, ERRORS, FOR_EVER, Operation, Plan, Rule

State = dict[str, bytes]


class Case:
    """What the store promised so far: `sure` it has, and it may have `doubtful` instead."""

    def __init__(self, file: Path, said: Path) -> None:
        self.sure: State = {}
        self.doubtful: list[State] = []
        self._file = file
        self._said = said

    def run(self, seed: int) -> None:
        dice = random.Random(seed)
        store = SqliteFile(self._file)
        for number in range(12):
            wanted = dict(self.sure)
            try:
                with store.transaction():
                    for _ in range(dice.choice((1, 1, 3))):
                        self._change(store, wanted, dice, number)
            except MetadataFailed:
                if store.in_doubt:
                    self.doubtful.append(wanted)
                if seed == 2:
                    break
            else:
                self.sure, self.doubtful = wanted, []
            try:
                found = content(store)
            except MetadataFailed:
                continue  # the disk does not even let us read
            assert found == self.sure, f"{found} after {number}, not {self.sure}"
        self._say()
        if dice.random() < 0.5:
            store.close()

    @staticmethod
    def _change(store: SqliteFile, wanted: State, dice: random.Random, number: int) -> None:
        path = f"/n/{dice.randrange(6)}"
        if path in wanted and dice.random() < 0.3:
            store.delete(path)
            del wanted[path]
        else:
            wanted[path] = b"%d:" % number + b"x" * dice.choice((10, 9000))
            store.put(path, wanted[path])

    def _say(self) -> None:
        states = [self.sure, *self.doubtful]
        self._said.write_text(json.dumps([{p: v.decode() for p, v in each.items()} for each in states]))


def content(store: SqliteFile) -> State:
    return {path: stored.value for path, stored in store.scan("/n/")}


def in_a_fork(work: object) -> int:
    """Return the exit status of a child that did it: 0, or 1 after a traceback."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 0
    try:
        work()  # type: ignore[operator]
    except MetadataError:
        status = 3  # it could not even be opened, or not be closed in order
    except BaseException:
        traceback.print_exc()
        status = 1
    os._exit(status)  # as a crash would: nothing is closed that the case did not close


def one(plan: Plan, root: Path, seed: int, rules: list[Rule]) -> int:
    """Return how many calls were made to fail; raise for a promise that was broken."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    said = root.parent / "said.json"
    said.unlink(missing_ok=True)
    # What is opened must have been there before, whole.
    SqliteFile(root / "metadata.sqlite").close()
    plan.arm(rules)
    status = in_a_fork(lambda: Case(root / "metadata.sqlite", said).run(seed))
    plan.disarm()
    words = f"seed {seed}, {'; '.join(map(str, rules))}"
    assert status in (0, 3), f"{words}: exit status {status}"
    store = SqliteFile(root / "metadata.sqlite")
    found = {path: value.decode() for path, value in content(store).items()}
    store.put("/n/after", b"!")
    store.close()
    SqliteFile(root / "metadata.sqlite").close()
    allowed = json.loads(said.read_text()) if said.exists() else [{}]
    assert found in allowed, f"{words}: {found} is none of {allowed}"
    return plan.failed


def refused_stays_refused(plan: Plan, root: Path) -> None:
    """A commit whose flush failed stands in the log, whole; a crash right after must not bring it back."""
    root.mkdir(exist_ok=True)

    def work() -> None:
        store = SqliteFile(root / "metadata.sqlite")
        store.put("/n/kept", b"1")
        plan.arm([Rule(Operation.SYNC, ERRORS["EIO"], "-wal")])
        try:
            store.put("/n/refused", b"2")
        except MetadataFailed:
            assert not store.in_doubt
        else:
            raise AssertionError("the commit was not refused")

    assert in_a_fork(work) == 0
    plan.disarm()
    store = SqliteFile(root / "metadata.sqlite")
    assert [path for path, _ in store.scan("/n/")] == ["/n/kept"]
    store.close()


def main() -> None:
    plan = Plan.attached(Path(sys.argv[1]), Path(sys.argv[2]))
    root, first, step, errors = plan.root, int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]
    refused_stays_refused(plan, root)
    cases = failures = 0
    for seed in (1, 2, 3):  # of these one is closed at the end, and one is killed after the first failure
        one(plan, root, seed, [])
        calls = plan.calls
        for name in errors:
            for times in (1, 2, FOR_EVER):
                for skip in range(first, calls, step):
                    failures += one(plan, root, seed, [Rule(CHANGES, ERRORS[name], skip=skip, times=times)])
                    cases += 1
    print(f"{cases} cases, {failures} calls failed")


if __name__ == "__main__":
    main()
