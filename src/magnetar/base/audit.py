"""Who did what: one line for each administrative act, whichever protocol it came by.

A line is one JSON object: when, who and from where, what was done to which resource, what it was before and is after,
and whether it was done, refused, or failed. The logger is ``magnetar.audit``; with ``audit.log.file`` the lines go to
a file of their own, written by a thread and rotated by Python's own handler. A file that cannot be written stops
nothing: the main log says so, sparingly.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from magnetar.base.logs import Sparingly, fields
from magnetar.base.printable import printable_json

if TYPE_CHECKING:
    from logging.handlers import QueueListener

ANONYMOUS = "anonymous"
"""Whom the broker does not ask who it is."""
MOST_REFUSALS = 300
_SECRET = ("password", "secret", "salt", "hmac", "token", "private", "credential", "jaas")
_HIDDEN = "(hidden)"
_MOST_ITEMS = 100
_MOST_LETTERS = 1000
_DEEPEST = 6
recent: deque[Mapping[str, str]] = deque(maxlen=50)
"""The last acts of this process, the oldest first: what was done to which resource by which client, and the outcome."""
_MOST_OF_RECENT = 200
_audit = logging.getLogger("magnetar.audit")
_log = logging.getLogger("magnetar.broker")


class Outcome(StrEnum):
    """The outcome of an act."""

    DONE = "done"
    REFUSED = "refused"
    """The client may not."""
    FAILED = "failed"
    """It may, but it could not be done."""

    @classmethod
    def of_status(cls, status: int) -> Outcome:
        """Return what an answer's HTTP status says."""
        if status < 400:
            return cls.DONE
        return cls.REFUSED if status in (401, 403) else cls.FAILED


@dataclass(frozen=True, slots=True)
class Actor:
    """A client that acts, and its address."""

    principal: str
    protocol: str
    """kafka, admin-rest, schema-registry, console, or socket for operators of the broker's machine."""
    address: str = ""
    client: str = ""
    """What the client calls itself."""
    listener: str = ""
    proxy: str = ""
    """The role of the proxy that speaks for it."""
    request: str = ""
    """What tells the request from others of its client."""


@dataclass(frozen=True, slots=True)
class Act:
    """An operation on one resource, done or not. ``before`` and ``after`` are JSON, None for what is not there."""

    operation: str
    kind: str
    """topic, namespace, tenant, group, broker, acl, user, quota, subject ..."""
    name: str
    outcome: Outcome = Outcome.DONE
    error: str = ""
    before: Any = None
    after: Any = None
    asked: Any = None
    """What was asked for, where ``after`` does not tell."""


class _Refusals:
    """Counts the refusals of one minute."""

    def __init__(self) -> None:
        self._since_s = time.monotonic()
        self._count = 0

    def has_room(self) -> bool:
        """Count one, and return whether it is written; the first one of a minute tells how many were not before."""
        now = time.monotonic()
        if now - self._since_s >= 60:
            left_out, self._since_s, self._count = self._count - MOST_REFUSALS, now, 0
            if left_out > 0:
                _log.warning("%d refusals have no audit line: there were too many in a minute", left_out)
        self._count += 1
        return self._count <= MOST_REFUSALS


_refusals = _Refusals()


def note(actor: Actor, act: Act) -> None:
    """Write the line of one act. Of refusals, which strangers can cause, only `MOST_REFUSALS` have one in a minute."""
    if not _audit.isEnabledFor(logging.INFO) or (act.outcome is Outcome.REFUSED and not _refusals.has_room()):
        return
    recent.append(_brief(actor, act))
    before, after = _differing(act.before, act.after)
    known = {
        "principal": actor.principal or ANONYMOUS,
        "proxy": actor.proxy,
        "address": actor.address,
        "protocol": actor.protocol,
        "listener": actor.listener,
        "client": actor.client,
        "request": actor.request,
        "operation": act.operation,
        "resource": act.kind,
        "name": act.name,
        "outcome": act.outcome.value,
        "error": act.error,
        "before": shown(before),
        "after": shown(after),
        "asked": shown(act.asked),
    }
    told = {name: value for name, value in known.items() if value not in ("", None)}
    _audit.info("%s %s %s", act.operation, act.kind, act.outcome.value, extra=fields(**told))


def _brief(actor: Actor, act: Act) -> Mapping[str, str]:
    told = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "principal": actor.principal or ANONYMOUS,
        "address": actor.address,
        "protocol": actor.protocol,
        "operation": act.operation,
        "resource": act.kind,
        "name": act.name,
        "outcome": act.outcome.value,
        "error": act.error,
    }
    return {name: value[:_MOST_OF_RECENT] for name, value in told.items()}


def note_own(operation: str, kind: str, name: str, **details: object) -> None:
    """Write the line of what the broker decided by itself; to the main log, for no client asked for it."""
    _log.info("%s %s", operation, kind, extra=fields(name=name, **details))


def _differing(before: Any, after: Any) -> tuple[Any, Any]:
    """Leave out of two objects what is the same in both."""
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return before, after
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return (
        {name: before[name] for name in names if name in before},
        {name: after[name] for name in names if name in after},
    )


def shown(value: Any, name: str = "", depth: int = 0) -> Any:
    """Return a value as JSON for a line: without secrets, and of bounded size."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if name and any(word in name.lower() for word in _SECRET):
        return _HIDDEN
    if depth > _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        items = list(value.items())
        said = str(
            value.get("name", value.get("config_name", ""))
        )  # {"name": "sasl.jaas.config", "value": ...}
        made = {
            str(key): shown(item, said if key == "value" and said else str(key), depth + 1)
            for key, item in items[:_MOST_ITEMS]
        }
        return made if len(items) <= _MOST_ITEMS else {**made, "...": len(items) - _MOST_ITEMS}
    if isinstance(value, bytes | bytearray | memoryview):
        return f"({len(value)} bytes)"
    if isinstance(value, list | tuple | set | frozenset):
        some = [shown(item, name, depth + 1) for item in list(value)[:_MOST_ITEMS]]
        return some if len(value) <= _MOST_ITEMS else [*some, f"... {len(value) - _MOST_ITEMS} more"]
    if slots := getattr(type(value), "__slots__", None):
        return shown({each: getattr(value, each, None) for each in slots}, name, depth)
    text = str(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


class _Lines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        content = {"time": f"{seconds}.{int(record.msecs):03d}Z", **getattr(record, "fields", {})}
        return printable_json(json.dumps(content, default=str, ensure_ascii=False))


class AuditFile:
    """The file that audit lines go to instead of the main log; see `open_file`."""

    def __init__(self, listener: QueueListener, handler: logging.Handler) -> None:
        self._listener = listener
        self._handler = handler

    def close(self) -> None:
        """Write what waits, and have lines go to the main log again."""
        _audit.removeHandler(self._handler)
        _audit.propagate = True
        self._listener.stop()
        for each in self._listener.handlers:
            each.close()


def open_file(path: str, max_bytes: int, backups: int) -> AuditFile | None:
    """Send audit lines to a file, of ``max_bytes`` at most, with so many older ones retained next to it.

    Return None, and say so in the main log, where it cannot be written.
    """
    import queue
    from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler

    class Rotating(RotatingFileHandler):
        def handleError(self, record: logging.LogRecord) -> None:
            some_lines.warning("an audit line was not written to %s", path)

        def close(self) -> None:
            try:
                super().close()
            except OSError as error:  # a full disk must not make an orderly end look like a failure
                _log.warning("the last audit lines were not written to %s: %s", path, error)

    class Enqueued(QueueHandler):
        def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
            return record  # it stays in this process

    some_lines = Sparingly(_log, lines=1)
    try:
        file = Rotating(path, maxBytes=max_bytes, backupCount=backups, encoding="utf-8")
    except OSError as error:
        _log.error("audit.log.file cannot be written, audit lines come here instead: %s", error)
        return None
    file.setFormatter(_Lines())
    waiting: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = Enqueued(waiting)
    listener = QueueListener(waiting, file)
    listener.start()
    _audit.addHandler(handler)
    _audit.propagate = False
    return AuditFile(listener, handler)
