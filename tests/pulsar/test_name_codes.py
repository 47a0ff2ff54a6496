"""What clients are told of each kind of name: ours beside what a real Pulsar said (``name_codes.json``)."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from magnetar.topics.names import TopicName
from tests.pulsar.inside import inside
from tests.pulsar.name_cases import NAMES, PARTITIONED, PLAIN, QUESTIONS, told

CODES: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "name_codes.json").read_text())[
    "answers"
]

MADE = {"produce": "TopicNotFound", "subscribe": "TopicNotFound"}
OTHERWISE = {
    # Clients look up first, and are told TopicNotFound then; who asks at once is told the same here.
    "of a missing namespace": MADE,
    "of a missing tenant": MADE,
    "of a missing namespace, not kept": MADE,
    "of a missing tenant, not kept": MADE,
    "a partition of a missing namespace": MADE,
    # Partitions are parts of a topic: none is made by itself, and all are not one.
    "a partition of nothing": MADE,
    "a partition of what has none": MADE,
    "all partitions": dict.fromkeys(MADE, "NotAllowedError"),
    # Policies and states are kept in the metadata store, not in topics.
    "changes of policies": {"partitions, making nothing": "TopicNotFound"},
    "changes of policies, of a missing namespace": MADE,
    "of the broker's own namespace": {"lookup": "TopicNotFound", "partitions": "TopicNotFound", **MADE},
    "the coordinators' topic": {"lookup": "TopicNotFound", "partitions": "TopicNotFound", **MADE},
    # The coordinators' own, which Pulsar does not know.
    "Kafka's offsets": dict.fromkeys(MADE, "NotAllowedError"),
    # Names from before Pulsar 2.
    "with a cluster": dict.fromkeys(QUESTIONS, "InvalidTopicName"),
}
"""Where ours says something else, and why. Each of these is held to, too."""


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_gets_pulsars_answers(name: str) -> None:
    async with inside() as broker:
        for place, partitions in ((PARTITIONED, 3), (PLAIN, 1)):
            await broker.broker.create_topic(TopicName.parse(place), partitions, partitioned=partitions > 1)
        found = {}
        for question, ask in QUESTIONS.items():
            found[question] = told(await broker.client().ask(ask(NAMES[name].format(uuid4().hex))))
    assert found == CODES[name] | OTHERWISE.get(name, {})


def test_what_is_said_to_differ_differs() -> None:
    for name, ours in OTHERWISE.items():
        assert not ours.items() & CODES[name].items(), name
