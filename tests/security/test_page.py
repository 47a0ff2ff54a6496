"""The page about security does what it says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs import test_tutorials


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="the page makes its certificates with openssl")
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    test_tutorials.test_a_tutorial_does_what_it_says(test_tutorials.DOCS / "security.md", tmp_path)
