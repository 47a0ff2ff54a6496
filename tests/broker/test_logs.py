"""Log lines for people and for machines, and a limit to what strangers can cause."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from magnetar.base.logs import Sparingly, fields, set_up


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield logging.getLogger("magnetar.test_logs")
    root.handlers[:] = handlers
    root.setLevel(level)


def test_lines_for_people(log: logging.Logger) -> None:
    out = io.StringIO()
    set_up("INFO", "text", out)
    log.info("connection of %s closed", "a\nb", extra=fields(bytes=7, why="too big", key="a=b"))
    log.debug("unseen")
    line = out.getvalue()
    assert line.endswith(
        'INFO magnetar.test_logs: connection of a\\nb closed bytes=7 why="too big" key="a=b"\n'
    )
    assert line.count("\n") == 1


def test_lines_for_machines(log: logging.Logger) -> None:
    out = io.StringIO()
    set_up("INFO", "json", out)
    try:
        raise ValueError("broken")
    except ValueError:
        log.warning("it failed", exc_info=True, extra=fields(ledger=7))
    said = json.loads(out.getvalue())
    assert (said["level"], said["message"], said["ledger"]) == ("WARN", "it failed", 7)
    assert "ValueError: broken" in said["exception"]


def test_strangers_cannot_fill_the_log(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    sparingly = Sparingly(log, lines=2, window_s=60, now=lambda: clock[0])
    with caplog.at_level(logging.WARNING):
        for number in range(100):
            sparingly.warning("frame %d is broken", number, host="1.2.3.4")
        clock[0] = 61
        sparingly.warning("frame %d is broken", 100)
    assert [record.getMessage() for record in caplog.records] == [
        "frame 0 is broken",
        "frame 1 is broken",
        "held back 98 lines like the following",
        "frame 100 is broken",
    ]
