"""The compatibility page says what the runs said and what the broker's routes promise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

COMPAT = Path(__file__).resolve().parents[2] / "compat"


def test_the_page_is_what_the_report_would_write() -> None:
    done = subprocess.run([sys.executable, str(COMPAT / "report.py"), "--check"], check=False, timeout=60)
    assert done.returncode == 0, "run compat/report.py"


def test_every_check_that_a_client_reported_has_a_meaning() -> None:
    checks = (COMPAT / "checks.py").read_text()
    results = json.loads((COMPAT / "results" / "clients.json").read_text())
    for clients in results.values():
        for name, entry in clients.items():
            unknown = [check for check in entry["checks"] if f'"{check}"' not in checks]
            assert unknown == [], name
