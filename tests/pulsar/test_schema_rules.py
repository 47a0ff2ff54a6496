"""Which schema may follow which: ours against what a real Pulsar said to the same (``schema_rules.json``)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from magnetar.metadata.memory import MemoryStore
from magnetar.pulsar.errors import IncompatibleSchema
from magnetar.pulsar.schema_rules import Strategy
from magnetar.pulsar.schemas import TopicSchemas, strategy_named
from magnetar.schema_registry.workshop import Workshop
from magnetar.topics.names import TopicName
from tests.pulsar.schema_cases import CASES, STRATEGIES, Case

RULES = json.loads((Path(__file__).parent / "schema_rules.json").read_text())
TOPIC = TopicName("public", "default", "t")
REFUSED = "IncompatibleSchema"

# Where ours says something else, and why. Each of these lines is held to, too.
OTHERWISE = {
    # A consumer brings a schema that is none: Pulsar lets it in and keeps nothing.
    "malformed, from a consumer": "refused, as from a producer",
    # Pulsar leaves its checker of PROTOBUF (descriptions in Avro's words) out of those that it loads by default.
    "protobuf: a field without default more": "checked as AVRO is",
    # A producer whose topic has, or gets, a JSON Schema is told UnknownError by Pulsar.
    "json: Avro after a JSON Schema": "as its checker means it",
    "json: a JSON Schema after Avro": "as its checker means it",
    "json: a JSON Schema after another": "as its checker means it",
    # No client sends NONE: Java's and Python's Schema.BYTES send no schema at all.
    "plain: bytes after avro": "taken as no schema",
}


def broker(strategy: str) -> TopicSchemas:
    return TopicSchemas(MemoryStore(), lambda: 1, strategy_named(strategy), Workshop())


async def said(case: Case, strategy: str, *, consume: bool) -> str:
    schemas = broker(strategy)
    try:
        for old in case.old:
            await schemas.for_producer(TOPIC, old, "")
    except IncompatibleSchema:
        return f"old: {REFUSED}"
    try:
        if consume:
            await schemas.for_consumer(TOPIC, case.new, "")
        else:
            await schemas.for_producer(TOPIC, case.new, "")
    except IncompatibleSchema:
        return REFUSED
    return "ok"


def is_malformed(name: str) -> bool:
    """Whether a real broker refuses a producer with it under whatever strategy, or has no words for it."""
    return all(row[0] not in ("ok",) for row in RULES["answers"][name].values())


@pytest.mark.parametrize("name", CASES)
async def test_a_real_broker_says_the_same(name: str) -> None:
    for strategy, theirs in RULES["answers"][name].items():
        ours = [await said(CASES[name], strategy, consume=consume) for consume in (False, True)]
        assert ours == expected(name, strategy, theirs), (strategy, RULES["words"].get(name))


def expected(name: str, strategy: str, theirs: list[str]) -> list[str]:
    strict = Strategy[strategy] is not Strategy.ALWAYS_COMPATIBLE
    if name == "protobuf: a field without default more":
        return RULES["answers"]["json: a field without default more"][strategy]
    if name.startswith("json: ") and "UnknownError" in theirs:
        refused = strategy == "ALWAYS_INCOMPATIBLE" or (name.endswith("another") and strict)
        return [REFUSED if refused else "ok"] * 2
    if name == "plain: bytes after avro":
        return ["ok", "ok"]
    if name == "key value: native values of another root":
        return RULES["answers"]["native: another root"][strategy]
    if name != "plain: auto consume" and is_malformed(name) and not CASES[name].old:
        return [REFUSED, REFUSED]
    if name == "avro: a union":
        return [REFUSED, REFUSED]
    return theirs


def test_the_table_is_whole() -> None:
    assert set(RULES["answers"]) == set(CASES)
    assert all(set(rows) == set(STRATEGIES) for rows in RULES["answers"].values())
