"""A variable that speaks to tests is never told to the brokers that they start: one would not start with it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.process import OURS

_READ = re.compile(r"""environ(?:\.get\(|\[)\s*"(MAGNETAR_[A-Z_]+)""")


def test_all_that_tests_read_is_kept_from_brokers() -> None:
    files = Path(__file__).parent.rglob("*.py")
    read = {name for file in files for name in _READ.findall(file.read_text())}
    assert len(read) > 5
    assert read <= OURS
