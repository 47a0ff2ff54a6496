"""How a cross-test client is talked to: a JSON line each way, so that one process (and one JVM) serves a whole run.

    {"do": "write", "topic", "codec", "batched", "chunked", "records"}   ->  {"places": [...]}
    {"do": "read", "topic", "from", "count", "whole"}                             ->  {"records": [{..., "place"}]}

A place is Kafka's offset, or Pulsar's ``ledger:entry:batch index``; ``from`` is one of the client's own places, or null
for the beginning. ``whole`` asks for large values themselves in place of their SHA-256. What goes wrong is
answered with {"error"}. The first line out is {"version"}.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

SHOWN = 1024
SECONDS = 30


def unb64(text: str | None) -> bytes | None:
    """Bytes of base64; null stays null."""
    return None if text is None else base64.b64decode(text)


def b64(data: bytes | None) -> str | None:
    """Bytes as base64; null stays null."""
    return None if data is None else base64.b64encode(data).decode()


def shown(data: bytes | None, whole: bool) -> str | None:
    """A value as it is reported: a large one as its SHA-256, unless it is wanted whole."""
    if data is None or whole or len(data) <= SHOWN:
        return b64(data)
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def serve(
    version: str,
    write: Callable[[dict[str, Any]], list[Any]],
    read: Callable[[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    """Answer requests until there are no more."""
    print(json.dumps({"version": version}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            done = write(request) if request["do"] == "write" else read(request)
            answer: dict[str, Any] = {"places" if request["do"] == "write" else "records": done}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-800:]}
        print(json.dumps(answer), flush=True)
