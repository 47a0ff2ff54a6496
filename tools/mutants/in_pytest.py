"""What takes part in a test run in a copy: it notes where each test comes, or has chosen tests run in a chosen order.

``MUTANTS_NOTES`` names the file that gets one line of JSON for each test; ``MUTANTS_CHOSEN`` one with names of tests.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Generator
from mmap import mmap
from pathlib import Path
from typing import Any

import pytest

from tools.mutants.marks import MODULE

_WIDE = {"session", "package", "module", "class"}


def pytest_configure(config: pytest.Config) -> None:
    if "MUTANTS_NOTES" in os.environ:
        config.pluginmanager.register(Notes(Path(os.environ["MUTANTS_NOTES"])))
    if "MUTANTS_CHOSEN" in os.environ:
        config.pluginmanager.register(Chosen(Path(os.environ["MUTANTS_CHOSEN"]).read_text().splitlines()))


class Chosen:
    """Runs these tests alone, in this order."""

    def __init__(self, names: list[str]) -> None:
        self._rank = {name: number for number, name in enumerate(names)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._rank]
        items[:] = sorted(chosen, key=lambda item: self._rank[item.nodeid])


class Notes:
    """Notes for each test which marks were set, and how long it took (s).

    What a fixture of a whole module or session does is noted for every test that uses it: another may be the first.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")
        self._map: mmap = importlib.import_module(MODULE).MAP
        self._by_fixture: dict[int, int] = {}
        self._seen = 0
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    def _take(self) -> int:
        """Return the marks that were set since the last time, as bits."""
        size = len(self._map)
        now = self._map[:size]
        self._map[:size] = bytes(size)
        return int(now.translate(_DIGITS)[::-1], 2)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        self._seen |= self._take()
        try:
            return (yield)
        finally:
            bits = self._take()
            self._seen |= bits
            if fixturedef.scope in _WIDE:
                self._by_fixture[id(fixturedef)] = bits

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._seen, self._failed = 0, False
        began = time.monotonic()
        result = yield
        seconds = time.monotonic() - began
        self._seen |= self._take()
        known = getattr(item, "_fixtureinfo", None)  # private, and the only way to learn it
        for definitions in known.name2fixturedefs.values() if known else ():
            for each in definitions:
                self._seen |= self._by_fixture.get(id(each), 0)
        row = {"test": item.nodeid, "seconds": round(seconds, 3), "marks": f"{self._seen:x}"}
        if not self._failed:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()
        return result


_DIGITS = b"01" + b"1" * 254
