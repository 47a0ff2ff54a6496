"""Run mutants and say which ones no test noticed; the status is 1 if there is one that nobody has judged.

``python -m tools.mutants [--sample N] [--seed TEXT] [--planted] [--area NAME]... [--file PATH]... [--again | --fresh]
[--json]``.
Results are kept in ``.mutants/``: a run that was ended goes on where it was, and one after a change asks again only
what lies in files that are not the same any more.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tools.mutants.generate import sample
from tools.mutants.lists import ROOT, BadList, Case, areas, generated, planted, verdicts
from tools.mutants.runner import Copy, NotGreen, Outcome
from tools.mutants.traces import Traces

KEPT = ROOT / ".mutants"
_console = Console(stderr=True)


class Results:
    """What was found out earlier, in a file to which lines are added."""

    def __init__(self, *, fresh: bool) -> None:
        KEPT.mkdir(exist_ok=True)
        self._path = KEPT / "results.jsonl"
        if fresh:
            self._path.unlink(missing_ok=True)
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        self.found = {
            row["id"]: Outcome(row["result"], row["by"], row["seconds"]) for row in map(json.loads, lines)
        }

    def is_due(self, case: Case, *, again: bool) -> bool:
        """Return whether to ask; with ``again`` also of those that survived: tests may have come since."""
        earlier = self.found.get(case.identity)
        return earlier is None or (again and earlier.result == "survived")

    def add(self, case: Case, outcome: Outcome) -> None:
        self.found[case.identity] = outcome
        row = {"id": case.identity, "key": case.mutant.key, "result": outcome.result, "by": outcome.by}
        with self._path.open("a") as file:
            file.write(json.dumps(row | {"seconds": round(outcome.seconds, 1)}) + "\n")


def main() -> int:
    asked = _arguments()
    try:
        known = verdicts()
        cases = _cases(asked)
        results = Results(fresh=asked.fresh)
        due = [case for case in cases if results.is_due(case, again=asked.again)]
        traces = Traces(areas(), KEPT / "traces.json")
        if any(case.area != "planted" for case in due):
            _console.print("looking which tests come where, unless that is known: some minutes")
            with Copy() as copy:
                copy.record(traces)
        _run(due, results, traces, asked.workers, len(cases))
    except (BadList, NotGreen) as error:
        _console.print(str(error), style="red", markup=False)
        return 2
    except KeyboardInterrupt:
        _console.print("ended; what was found out is kept")
        return 130
    found = {case.mutant.key: (case, results.found[case.identity]) for case in cases}
    return _report(found, known, as_json=asked.json)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=150, help="so many mutants at most; 0 for all")
    parser.add_argument("--seed", default="1", help="which ones: the same for the same seed")
    parser.add_argument("--planted", action="store_true", help="only the lines of planted.toml")
    parser.add_argument("--area", action="append", default=[], help="only these areas")
    parser.add_argument(
        "--file", action="append", default=[], help="only mutants of files whose path has this"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="ask again for those that survived")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    return parser.parse_args()


def _cases(asked: argparse.Namespace) -> list[Case]:
    """Return what is to be run: the planted lines, and a sample of all that can be generated."""
    only = [area for area in areas() if not asked.area or area.name in asked.area]
    by_hand = planted() if not asked.area else []
    made = [] if asked.planted else generated(only)
    cases = [
        case for case in [*by_hand, *made] if not asked.file or any(x in case.mutant.path for x in asked.file)
    ]
    by_hand = [case for case in cases if case.area == "planted"]
    by_key = {case.mutant.key: case for case in cases if case.area != "planted"}
    mutants = [case.mutant for case in by_key.values()]
    chosen = sample(mutants, asked.sample or len(mutants), asked.seed)
    return by_hand + [by_key[each.key] for each in chosen]


def _run(due: list[Case], results: Results, traces: Traces, workers: int, total: int) -> None:
    """Judge every mutant that is due, in so many copies of the tree at a time."""
    waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
    for case in due:
        waiting.put(case)
    usual: dict[tuple[str, ...], float] = {}
    trouble: list[BaseException] = []
    lock = threading.Lock()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=_console) as progress:
        bar = progress.add_task("mutants", total=total, completed=total - len(due))

        def work() -> None:
            with Copy() as copy:
                while not trouble:
                    try:
                        case = waiting.get_nowait()
                    except queue.Empty:
                        return
                    try:
                        outcome = _outcome(copy, case, traces, usual)
                    except (NotGreen, OSError, subprocess.SubprocessError) as error:
                        trouble.append(error)
                        return
                    with lock:
                        results.add(case, outcome)
                        progress.advance(bar)
                        if outcome.result == "survived":
                            progress.console.print(
                                f"survived  {case.mutant.path}:{case.mutant.line}  "
                                f"{case.mutant.key.partition('::')[2]}",
                                markup=False,
                            )

        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(workers, max(len(due), 1)))]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            trouble.append(KeyboardInterrupt())
            for thread in threads:
                thread.join()
            raise
    if trouble:
        raise trouble[0]


def _outcome(copy: Copy, case: Case, traces: Traces, usual: dict[tuple[str, ...], float]) -> Outcome:
    """Have the tests that come to a generated mutant's line judge it; or those named for it."""
    chosen = None if case.area == "planted" else traces.coming_to(case)
    if chosen is not None:
        return copy.judge_by(case, chosen) if chosen else Outcome("survived", "no test comes here", 0.0)
    if case.tests not in usual:
        usual[case.tests] = copy.time_of(case.tests)
    return copy.judge(case, usual[case.tests])


def _report(
    found: Mapping[str, tuple[Case, Outcome]], known: Mapping[str, tuple[str, str]], *, as_json: bool
) -> int:
    """Print what was found; give the status to end with."""
    counts = Counter(outcome.result for _, outcome in found.values())
    survivors = [key for key, (_, outcome) in found.items() if outcome.result == "survived"]
    judged = Counter(known[key][0] for key in survivors if key in known)
    new = [key for key in survivors if key not in known]
    told = [case for case, _ in found.values()]
    real = len(found) - judged["equivalent"]
    share = (len(survivors) - judged["equivalent"]) / real if real else 0.0
    by_area = {
        area: dict(Counter(outcome.result for case, outcome in found.values() if case.area == area))
        for area in dict.fromkeys(case.area for case in told)
    }
    if as_json:
        summary = {
            "mutants": len(found), "results": dict(counts), "areas": by_area, "equivalent": judged["equivalent"],
            "owed": judged["owed"], "not judged": new, "share that survives": round(share, 4),
        }  # fmt: skip
        print(json.dumps(summary, indent=2))
    else:
        for area, each in by_area.items():
            _console.print(f"{area:16} " + ", ".join(f"{each[name]} {name}" for name in sorted(each)))
        _console.print(
            f"{len(found)} mutants: {counts['killed']} killed, {counts['timed out']} timed out, {len(survivors)} "
            f"survived ({judged['equivalent']} equivalent, {judged['owed']} owed, {len(new)} not judged); of those "
            f"that are not equivalent {share:.1%} survive"
        )
        for key in new:
            _console.print(f"  not judged: {key}", markup=False)
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
