"""Every setting does what its page says: some line outside the settings reads it, or its page says that none does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from magnetar.settings.settings import Settings
from magnetar.topics.topic_config import CONFIGS

SETTINGS = Settings().declared.definitions
SOURCE = Path(__file__).parents[2] / "src" / "magnetar"


def functions(tree: ast.AST) -> list[ast.AST]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def names_read() -> set[str]:
    """Return every attribute that some module reads, and every text it holds: some settings are found by name."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        if "messages" in path.parts:
            continue
        tree = ast.parse(path.read_text())
        # Where settings are declared only what is computed of others reads them.
        parts = [tree] if "settings" not in path.stem else functions(tree)
        for node in (node for part in parts for node in ast.walk(part)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


@pytest.mark.slow
def test_a_setting_is_read_or_says_that_it_is_not() -> None:
    idle = {name for name, each in SETTINGS.items() if each.is_without_effect}
    # Topics show those for what they do not say themselves, and nothing comes of that either.
    shown = {each.setting for each in CONFIGS.values() if not each.honoured}
    assert set(SETTINGS) - (names_read() - shown) == idle
