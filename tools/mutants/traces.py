"""Which tests come where: recorded in a marked copy, kept in ``.mutants/traces.json``, and asked for each mutant."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.lists import ROOT, Area, Case
from tools.mutants.marks import MODULE, MODULE_SOURCE, layout, marked

NEAR_S, FOREIGN_S = 30.0, 6.0
"""For so long tests of a mutant's area, and of others, look that come to its line, the quickest first: where hundreds
do and none of these notices, the rest seldom does."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One test: how long it took with marks, and the marks that it set, as bits."""

    test: str
    seconds: float
    marks: int

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]


class Traces:
    """The traces of all areas' tests."""

    def __init__(self, areas: Sequence[Area], kept: Path) -> None:
        self._areas = {area.name: area for area in areas}
        paths = {source for area in areas for source in area.sources}
        self._sources = {path: (ROOT / path).read_bytes() for path in sorted(paths)}
        self._marks = layout(self._sources)
        self._kept = kept
        self._traces: list[Trace] = []

    def record(self, run: Callable[[Path, Sequence[str]], None]) -> None:
        """Read what was kept, and have ``run`` note the rest: it gets a file for the notes and tests of one folder."""
        files = self._test_files()
        wanted = {file: self._identity(file) for file in files}
        kept = json.loads(self._kept.read_text()) if self._kept.exists() else {}
        known = {file: kept[file] for file in files if kept.get(file, {}).get("of") == wanted[file]}
        missing = [file for file in files if file not in known]
        for _, group in itertools.groupby(missing, key=lambda file: Path(file).parent):
            part = list(group)
            notes = self._kept.with_suffix(".notes")
            notes.unlink(missing_ok=True)
            run(notes, part)
            known |= {file: {"of": wanted[file], "rows": []} for file in part}
            for row in map(json.loads, notes.read_text().splitlines() if notes.exists() else ()):
                known[row["test"].partition("::")[0]]["rows"].append(row)
            self._kept.write_text(json.dumps(known))
        rows = itertools.chain.from_iterable(each["rows"] for each in known.values())
        self._traces = [Trace(row["test"], row["seconds"], int(row["marks"], 16)) for row in rows]

    def mark(self, home: Path) -> None:
        """Put marks into the sources of a copy, and the map beside its packages."""
        for path, source in self._sources.items():
            (home / path).write_bytes(marked(source, self._marks[path].first))
        packages = home / "src"
        (packages / f"{MODULE}.py").write_text(MODULE_SOURCE)
        (packages / f"{MODULE}.bytes").write_bytes(bytes(self._end))

    def unmark(self, home: Path) -> None:
        """Take the marks out again."""
        for path, source in self._sources.items():
            (home / path).write_bytes(source)

    def coming_to(self, case: Case) -> list[Trace] | None:
        """Return tests that come where the change is, quickest files first; None if no trace can tell."""
        source = self._sources.get(case.mutant.path)
        mark = source and self._marks[case.mutant.path].of(case.mutant, source)
        if mark is None or source is None:
            return None
        near = self._areas[case.area].tests
        left = {True: NEAR_S, False: FOREIGN_S}
        chosen: list[Trace] = []
        coming = (each for each in self._traces if each.marks >> int(mark) & 1)
        for each in sorted(coming, key=lambda each: each.seconds):
            is_near = each.test.startswith(near)
            if left[is_near] > 0:
                left[is_near] -= each.seconds
                chosen.append(each)
        return _by_file(chosen)

    @property
    def _end(self) -> int:
        return max(each.end for each in self._marks.values())

    def _test_files(self) -> list[str]:
        found: dict[str, None] = {}
        for area in self._areas.values():
            for test in area.tests:
                path = ROOT / test
                files = sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
                found |= {str(file.relative_to(ROOT)): None for file in files}
        return list(found)

    def _identity(self, file: str) -> str:
        """Of a test file and of all marks: they have other numbers after a change of the sources."""
        told = hashlib.sha256((ROOT / file).read_bytes())
        for path, source in self._sources.items():
            told.update(path.encode() + source)
        return told.hexdigest()[:20]


def _by_file(traces: Iterable[Trace]) -> list[Trace]:
    """Return them file by file, for tests of one file share what they start: the file with the quickest test first."""
    best: dict[str, float] = {}
    for each in traces:
        best[each.file] = min(best.get(each.file, each.seconds), each.seconds)
    return sorted(traces, key=lambda each: (best[each.file], each.file, each.seconds))
