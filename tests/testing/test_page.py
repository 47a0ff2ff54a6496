"""What ``docs/testing.md`` shows does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
TESTS = [block for block in BLOCKS if "def test_" in block]
SCRIPTS = [block for block in BLOCKS if "def test_" not in block]

pytest_plugins = ["pytester"]


@pytest.mark.slow
def test_the_pages_tests_pass(pytester: pytest.Pytester) -> None:
    assert len(TESTS) == 2
    pytester.makepyfile(**{f"test_block_{number}": block for number, block in enumerate(TESTS)})
    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", *(f"test_block_{n}.py" for n in range(len(TESTS)))
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize(("number", "printed"), [(0, "[b'apple', b'pear']"), (1, "1")])
def test_the_pages_scripts_print_what_they_say(number: int, printed: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPTS[number]], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == printed
