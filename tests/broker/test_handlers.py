"""Protocol handlers are found by name, and what is wrong with one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.base.errors import HandlerError
from magnetar.node.handlers import find_handlers

ECHO = """
from magnetar.node.handlers import ProtocolHandler

class EchoHandler(ProtocolHandler):
    protocol_name = "echo"
    def initialize(self, settings): self.settings = settings
    async def start(self, broker): ...
    def new_connection(self, listener): return None
    async def close(self): ...
"""


def test_a_file_or_a_package_brings_a_handler(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text(ECHO)
    package = tmp_path / "other"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import NAME\n" + ECHO.replace('"echo"', "NAME"))
    (package / "inner.py").write_text('NAME = "other"\n')
    (tmp_path / "_ignored.py").write_text("raise ValueError")
    (tmp_path / "readme.txt").write_text("not Python")
    handlers = find_handlers(["echo", "other", "echo"], str(tmp_path))
    assert [handler.protocol_name for handler in handlers] == ["echo", "other"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nowhere_to_be_found", r"broken\.py cannot be loaded: ModuleNotFoundError"),
        ("1 / 0", "ZeroDivisionError"),
        ("def (", "SyntaxError"),
        (ECHO.replace("async def close(self): ...", ""), "EchoHandler does not say how to close"),
        (ECHO.replace('protocol_name = "echo"', ""), "protocol_name"),
    ],
)
def test_a_broken_handler_is_named(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "broken.py").write_text(source)
    with pytest.raises(HandlerError, match=message):
        find_handlers(["echo"], str(tmp_path))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(HandlerError, match="no handler for protocol 'smoke'"):
        find_handlers(["smoke"], str(tmp_path))
    with pytest.raises(HandlerError, match="is not a directory"):
        find_handlers(["echo"], str(tmp_path / "nowhere"))
    (tmp_path / "a.py").write_text(ECHO)
    (tmp_path / "b.py").write_text(ECHO)
    with pytest.raises(HandlerError, match="already has a handler"):
        find_handlers(["echo"], str(tmp_path))
