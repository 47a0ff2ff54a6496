"""Log lines on standard error: ``key=value`` for people, or one JSON object per line for machines.

What is said about a thing is given as ``extra={"fields": {...}}`` and stays apart from the sentence. Where strangers
can cause a line, `Sparingly` keeps them from filling the disk.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from magnetar.base.printable import printable_json, printable_lines

recent_lines: deque[str] = deque(maxlen=500)
"""The newest lines of this process, cut at `_MOST_OF_A_LINE`, for operators."""
_MOST_OF_A_LINE = 1000
_NAMES = {logging.CRITICAL: "FATAL", logging.WARNING: "WARN"}


def set_up(level: str = "INFO", form: str = "text", stream: TextIO | None = None, *, worker: int = 0) -> None:
    """Send all that is logged from ``level`` on to ``stream`` (standard error) in the ``form`` text or json.

    With ``worker`` each line says which of several processes it is of.
    """
    handler = _RememberingHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines() if form == "json" else KeyValues())
    if worker:
        handler.addFilter(_OfWorker(worker))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def fields(**known: object) -> dict[str, Mapping[str, object]]:
    """Return what a logging call takes as ``extra``: ``log.info("segment sealed", extra=fields(ledger=7))``."""
    return {"fields": known}


class _RememberingHandler(logging.StreamHandler[TextIO]):
    """Writes lines, and remembers the newest: where nothing can be written, too."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        recent_lines.append(line[:_MOST_OF_A_LINE])
        return line


class _OfWorker(logging.Filter):
    """Adds the field ``worker`` to each line."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def filter(self, record: logging.LogRecord) -> bool:
        record.fields = {**_fields(record), "worker": self._number}
        return True


class KeyValues(logging.Formatter):
    """``2026-11-20T20:15:04.123Z INFO magnetar.broker: sentence key=value``, one line whatever is in it."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {_level(record)} {record.name}: {_one_line(record.getMessage())}"
        line += "".join(f" {key}={_quoted(value)}" for key, value in _fields(record).items())
        if record.exc_info is None:
            return line
        return f"{line}\n{printable_lines(self.formatException(record.exc_info))}"


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, the fields, and the exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        content: dict[str, object] = {
            "time": _time(record),
            "level": _level(record),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info is not None:
            content["exception"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(content, default=str, ensure_ascii=False))


class Sparingly:
    """Log what hostile or broken peers cause: a few lines per window, then one that counts the rest."""

    def __init__(
        self,
        logger: logging.Logger,
        *,
        lines: int = 10,
        window_s: float = 60,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger, self._lines, self._window_s, self._now = logger, lines, window_s, now
        self._began = now()
        self._said = 0

    def warning(self, message: str, *args: object, **known: object) -> None:
        """Say it, unless enough was said in this window."""
        now = self._now()
        if now - self._began >= self._window_s:
            held_back = max(0, self._said - self._lines)
            self._began, self._said = now, 0
            if held_back:
                self._logger.warning("held back %d lines like the following", held_back)
        self._said += 1
        if self._said <= self._lines:
            self._logger.warning(message, *args, extra=fields(**known))


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    found = getattr(record, "fields", None)
    return found if isinstance(found, Mapping) else {}


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, record.levelname)


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and not set(text) & set(' ="') else json.dumps(text)


def _one_line(text: str) -> str:
    """Keep a peer's line breaks and control characters from forging log lines."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
