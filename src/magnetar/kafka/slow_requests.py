"""Requests that took long: which, whose, and in which phase, in one line of the log each.

Thresholds are those of ``slow.request.ms``. What a client asked to wait for does not count, and an API that waits by
its nature (JoinGroup) is looked at only where its threshold is set by its name.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from magnetar.base.errors import InvalidConfig
from magnetar.base.logs import Sparingly
from magnetar.wire.kafka.messages import API_KEYS, ApiKey

if TYPE_CHECKING:
    from magnetar.kafka.answers import Answer

ANY = "*"
NEVER_S = float("inf")
_WAITING = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.SHARE_FETCH})
_lines = Sparingly(logging.getLogger("magnetar.slow"), lines=100)


def thresholds(words: Sequence[str]) -> Mapping[int, float]:
    """Return from which time, s, a request of each API is slow; of words as ``1000``, ``*:1000`` and ``Produce:500``.

    0 is never. Raises `InvalidConfig`.
    """
    by_name = {name.lower(): key for key, (name, *_) in API_KEYS.items()}
    general, own = NEVER_S, dict[int, float]()
    for word in words:
        name, colon, text = word.strip().rpartition(":")
        if not (text.isascii() and text.isdigit()):
            raise InvalidConfig(f"slow.request.ms: {word!r} is neither MS nor API:MS")
        seconds = int(text) / 1000 or NEVER_S
        if not colon or name == ANY:
            general = seconds
        elif name.lower() in by_name:
            own[by_name[name.lower()]] = seconds
        else:
            raise InvalidConfig(f"slow.request.ms: there is no API {name!r}; Produce and Fetch are two")
    return {key: own.get(key, NEVER_S if key in _WAITING else general) for key in API_KEYS}


def note_slow(answer: Answer, peer: str, took_s: float, slow_s: float) -> None:
    """Log a request that took so long, unless its client wanted to wait."""
    header, context = answer.header, answer.context
    waited_s = 0.0 if context is None else context.waited_s
    if took_s - waited_s < slow_s:
        return
    phases: dict[str, float] = {}
    client: dict[str, str] = {}
    if context is not None:
        if context.begun_s:
            phases["queue"] = context.begun_s - answer.came_s
        if context.placed_s:
            phases["disk"] = perf_counter() - context.placed_s
        if waited_s:
            phases["wait"] = waited_s
        principal = None if context.login is None else context.login.principal
        client = {
            "client": context.client_id,
            "software": f"{context.software.name} {context.software.version}".strip(),
            "principal": "" if principal is None else principal.role,
            "listener": context.listener.name,
        }
    phases["handler"] = max(took_s - sum(phases.values()), 0.0)
    name = API_KEYS[header.api_key][0] if header.api_key in API_KEYS else str(header.api_key)
    _lines.warning(
        "slow request",
        api=name, version=header.api_version, request=header.correlation_id, ms=round(took_s * 1000),
        **{f"{phase}_ms": round(seconds * 1000) for phase, seconds in phases.items()},
        address=peer, **{key: value for key, value in client.items() if value},
    )  # fmt: skip
