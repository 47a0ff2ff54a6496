"""What a real Pulsar broker says to each name of ``tests/pulsar/name_cases.py``, question by question.

    python -m compat.pulsar_name_codes pulsar://127.0.0.1:6650 http://127.0.0.1:8080 4.0.8

writes ``tests/pulsar/name_codes.json``. The broker must be fresh, as some of the questions make topics.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx

from tests.pulsar.name_cases import NAMES, PARTITIONED, PLAIN, QUESTIONS, told
from tests.pulsar.raw import Raw

CODES = Path(__file__).parent.parent / "tests" / "pulsar" / "name_codes.json"
PATIENCE_S = 20


def record(service_url: str, admin_url: str, version: str) -> dict[str, Any]:
    """Ask the broker everything."""
    broker: Any = SimpleNamespace(served={"pulsar": [service_url.removeprefix("pulsar://")]})
    with httpx.Client(base_url=f"{admin_url}/admin/v2", timeout=30) as admin:
        admin.put(f"/persistent/{PARTITIONED}/partitions", json=3).raise_for_status()
        admin.put(f"/persistent/{PLAIN}").raise_for_status()
    answers: dict[str, dict[str, str]] = {}
    for case, name in NAMES.items():
        answers[case] = {each: ask(broker, name, each) for each in QUESTIONS}
        print(case, answers[case], sep="\n    ", flush=True)
    return {"pulsar": version, "answers": answers}


def ask(broker: Any, name: str, question: str) -> str:
    """Put one question, after a LOOKUP if it is about what only the broker that owns a topic does."""
    topic = name.format(uuid4().hex)
    try:
        with Raw(broker) as raw:
            raw.patience(PATIENCE_S)
            if question in ("produce", "subscribe"):
                raw.ask(QUESTIONS["lookup"](topic))
            return told(raw.ask(QUESTIONS[question](topic)))
    except EOFError:
        return "closed"
    except TimeoutError:
        return "silence"


if __name__ == "__main__":
    found = json.dumps(record(*sys.argv[1:4]), separators=(",", ":"))
    CODES.write_text(found.replace('},"', '},\n"') + "\n")
