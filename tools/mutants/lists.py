"""The files in ``tests/mutants`` that say what is changed, what looks, and what became of what nobody noticed.

areas.toml      [[area]]   name, sources (paths or patterns below src/magnetar), tests (nearest first)
planted.toml    [[line]]   file, old, new, tests, why: changes made by hand, each of which breaks a promise
survivors.toml  [[mutant]] key, verdict ("equivalent" or "owed"), why
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.mutants.generate import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
LISTS = ROOT / "tests/mutants"
SOURCES = "src/magnetar"
VERDICTS = ("equivalent", "owed")


class BadList(Exception):
    """A list does not fit the tree."""


@dataclass(frozen=True)
class Area:
    """Source files and the tests that are to notice what is changed in them."""

    name: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """One mutant and the tests that look."""

    mutant: Mutant
    area: str
    tests: tuple[str, ...]
    identity: str
    """Of this very change to this very text of its file, and these tests."""

    @classmethod
    def of(cls, mutant: Mutant, area: str, tests: tuple[str, ...], source: bytes) -> Case:
        """Return the case of a mutant of ``source``."""
        words = "\0".join((mutant.key, *tests)).encode()
        return cls(mutant, area, tests, hashlib.sha256(source + words).hexdigest()[:20])


def areas() -> list[Area]:
    """Return what is mutated; raise `BadList` where files or tests are named that are not there."""
    found = []
    for row in _rows("areas.toml", "area"):
        sources: list[str] = []
        for pattern in row["sources"]:
            paths = sorted((ROOT / SOURCES).glob(pattern))
            if not paths:
                raise BadList(f"areas.toml: {pattern} is no file below {SOURCES}")
            sources += [str(path.relative_to(ROOT)) for path in paths if path.name != "__init__.py"]
        _check_tests("areas.toml", row["tests"])
        found.append(Area(row["name"], tuple(dict.fromkeys(sources)), tuple(row["tests"])))
    return found


def generated(only: list[Area]) -> list[Case]:
    """Return all mutants of these areas; a file that several name belongs to the first."""
    cases: list[Case] = []
    seen: set[str] = set()
    for area in only:
        for source in area.sources:
            if source not in seen:
                seen.add(source)
                content = (ROOT / source).read_bytes()
                mutants = mutants_of(source, content)
                cases += [Case.of(mutant, area.name, area.tests, content) for mutant in mutants]
    return cases


def planted() -> list[Case]:
    """Return the changes made by hand; raise `BadList` for one whose line is not there, or is there twice."""
    cases, gone = [], []
    for row in _rows("planted.toml", "line"):
        path = f"{SOURCES}/{row['file']}"
        source = (ROOT / path).read_bytes()
        old = row["old"].encode()
        if source.count(old) != 1:
            gone.append(f"{path} has {source.count(old)} times: {row['old']}")
            continue
        start = source.index(old)
        line = source[:start].count(b"\n") + 1
        mutant = Mutant(path, row["why"], line, start, start + len(old), row["old"], row["new"])
        try:
            compile(mutant.applied(source), path, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise BadList(f"planted.toml: {path}: {row['new']}: {error}") from None
        _check_tests("planted.toml", row["tests"])
        cases.append(Case.of(mutant, "planted", tuple(row["tests"]), source))
    if gone:
        raise BadList("planted.toml is to follow what was changed:\n" + "\n".join(gone))
    return cases


def verdicts() -> Mapping[str, tuple[str, str]]:
    """Return what is said of known survivors, by key: verdict and why."""
    found = {}
    for row in _rows("survivors.toml", "mutant"):
        if row["verdict"] not in VERDICTS or not row["why"].strip():
            raise BadList(f"survivors.toml: {row['key']}: a verdict ({', '.join(VERDICTS)}) and why")
        found[row["key"]] = row["verdict"], row["why"]
    return found


def _rows(name: str, kind: str) -> list[dict[str, Any]]:
    path = LISTS / name
    found: list[dict[str, Any]] = tomllib.loads(path.read_text()).get(kind, [])
    return found


def _check_tests(name: str, tests: list[str]) -> None:
    for test in tests:
        if test.startswith("tests/") and not (ROOT / test.partition("::")[0]).exists():
            raise BadList(f"{name}: there is no {test}")
