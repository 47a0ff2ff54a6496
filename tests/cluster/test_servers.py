"""Where BookKeeper cannot be brought, whole modules are skipped: what is said outside of a test must allow for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.servers import class_path, java


@pytest.fixture(autouse=True)
def nothing_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have neither Maven nor jars nor Java."""
    for name in ("PATH", "JAVA_HOME", "MAGNETAR_JARS"):
        monkeypatch.setenv(name, str(tmp_path))


def test_modules_that_need_jars_are_skipped_without_maven() -> None:
    with pytest.raises(pytest.skip.Exception, match="Maven") as skipped:
        class_path()
    assert skipped.value.allow_module_level


def test_modules_that_need_java_are_skipped_without() -> None:
    with pytest.raises(pytest.skip.Exception, match="no Java") as skipped:
        java()
    assert skipped.value.allow_module_level
