"""What a real Pulsar broker says to each case of ``tests/pulsar/schema_cases.py`` under each strategy.

    python -m compat.pulsar_schema_rules pulsar://127.0.0.1:6650 http://127.0.0.1:8080 4.0.8 [beginning of names]

writes ``tests/pulsar/schema_rules.json``: by case and strategy what a producer and what a consumer with the new schema
are told, ``ok`` or the name of Pulsar's ``ServerError``; and by case the words of the first refusal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx

from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, Schema, ServerError
from tests.pulsar.raw import Raw, producer
from tests.pulsar.schema_cases import CASES, STRATEGIES, Case

RULES = Path(__file__).parent.parent / "tests" / "pulsar" / "schema_rules.json"


def record(service_url: str, admin_url: str, version: str, wanted: str = "") -> dict[str, Any]:
    """Ask the broker everything, or the cases wanted, and keep what is known of the others."""
    broker: Any = SimpleNamespace(served={"pulsar": [service_url.removeprefix("pulsar://")]})
    namespaces = {strategy: f"public/rules-{uuid4().hex[:8]}" for strategy in STRATEGIES}
    with httpx.Client(base_url=f"{admin_url}/admin/v2", timeout=30) as admin:
        for strategy, name in namespaces.items():
            admin.put(f"/namespaces/{name}", json={"bundles": {"numBundles": 1}}).raise_for_status()
            path = f"/namespaces/{name}/schemaCompatibilityStrategy"
            admin.put(path, json=strategy).raise_for_status()
            assert admin.get(path).json() == strategy
            # A broker serves the topics of a bundle once it was asked where one of them is.
            httpx.get(f"{admin_url}/lookup/v2/topic/persistent/{name}/t").raise_for_status()
    known: dict[str, Any] = json.loads(RULES.read_text()) if wanted else {}
    answers: dict[str, dict[str, list[str]]] = {}
    words: dict[str, str] = {}
    for name, case in CASES.items():
        if wanted and not name.startswith(wanted):
            answers[name] = known["answers"][name]
            if name in known["words"]:
                words[name] = known["words"][name]
            continue
        answers[name] = {}
        for strategy, namespace in namespaces.items():
            said = [ask(broker, namespace, case, consume=consume) for consume in (False, True)]
            answers[name][strategy] = [code for code, _ in said]
            for code, message in said:
                if code != "ok":
                    words.setdefault(name, message)
        print(name, answers[name], words.get(name), sep="\n    ", flush=True)
    return {"pulsar": version, "answers": answers, "words": words}


def ask(broker: Any, namespace: str, case: Case, *, consume: bool) -> tuple[str, str]:
    """Give a topic the old schemas, then the new one by a producer or a consumer."""
    topic = f"persistent://{namespace}/t-{uuid4().hex}"
    for old in case.old:
        # One at a time, as one that goes on would hold the topic's schema as its own.
        code, message = told(broker, producing(topic, old))
        if code != "ok":
            return f"old: {code}", message
    return told(broker, subscribing(topic, case.new) if consume else producing(topic, case.new))


def told(broker: Any, command: BaseCommand, tries: int = 2) -> tuple[str, str]:
    try:
        with Raw(broker) as raw:
            raw.patience(3)
            answer = raw.ask(command)
    except EOFError:
        return "closed", "the broker closed the connection"
    except TimeoutError:
        if tries > 1:  # a broker that has just started may be slow
            return told(broker, command, tries - 1)
        return "silence", "the broker said nothing"
    if answer.type == BaseCommand.ERROR:
        return str(ServerError.Name(answer.error.error)), answer.error.message.rpartition("Exception: ")[2][
            :160
        ]
    assert answer.type in (BaseCommand.PRODUCER_SUCCESS, BaseCommand.SUCCESS), answer
    return "ok", ""


def producing(topic: str, schema: Schema) -> BaseCommand:
    command = producer(topic)
    command.producer.schema.CopyFrom(schema)
    return command


def subscribing(topic: str, schema: Schema) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.SUBSCRIBE)
    asked = command.subscribe
    asked.topic, asked.subscription, asked.consumer_id, asked.request_id = topic, "s", 1, 1
    asked.subType = 0
    asked.schema.CopyFrom(schema)
    return command


if __name__ == "__main__":
    found = json.dumps(record(*sys.argv[1:5]), separators=(",", ":"))
    RULES.write_text(found.replace('},"', '},\n"') + "\n")
