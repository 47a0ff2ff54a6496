"""The page of all settings is what the settings say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_page_is_current() -> None:
    script = ROOT / "tools" / "configuration_reference.py"
    check = subprocess.run([sys.executable, str(script), "--check"], check=False)
    assert check.returncode == 0, "run tools/configuration_reference.py"
