"""Names of topics and what is asked of each, for which a real Pulsar's answers are recorded.

``compat/pulsar_name_codes.py`` asks a broker and keeps what it said in ``name_codes.json``; ``test_name_codes.py`` asks
ours. Each name has a run of its own: ``{}`` stands for what no other question has used.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, CommandLookupTopicResponse, ServerError
from tests.pulsar import raw

PARTITIONED, PLAIN = "public/default/three", "public/default/plain"
"""Are there before: one with three partitions, one with none."""

NAMES = {
    "new": "persistent://public/default/{}",
    "new, not kept": "non-persistent://public/default/{}",
    "short": "{}",
    "of a missing namespace": "persistent://public/missing/{}",
    "of a missing tenant": "persistent://missing/default/{}",
    "of a missing namespace, not kept": "non-persistent://public/missing/{}",
    "of a missing tenant, not kept": "non-persistent://missing/default/{}",
    "a partition of nothing": "persistent://public/default/{}-partition-0",
    "a partition of a missing namespace": "persistent://public/missing/{}-partition-0",
    "a partition that is there": f"persistent://{PARTITIONED}-partition-2",
    "a partition beyond the last": f"persistent://{PARTITIONED}-partition-3",
    "a partition of what has none": f"persistent://{PLAIN}-partition-1",
    "all partitions": f"persistent://{PARTITIONED}",
    "plain": f"persistent://{PLAIN}",
    "changes of policies": "persistent://public/default/__change_events",
    "changes of policies, of a missing namespace": "persistent://public/missing/__change_events",
    "states of transactions": "persistent://public/default/__transaction_buffer_snapshot",
    "with two underscores": "persistent://public/default/__{}",
    "Kafka's offsets": "persistent://public/default/__consumer_offsets",
    "of the broker's own namespace": "persistent://pulsar/system/{}",
    "the coordinators' topic": "persistent://pulsar/system/transaction_coordinator_assign",
    "with a cluster": "persistent://public/standalone/default/{}",
    "without a topic": "persistent://public/default",
    "of an empty name": "persistent://public/default/",
    "of another kind": "http://public/default/{}",
    "of an odd tenant": "persistent://pub lic/default/{}",
    "with a space": "persistent://public/default/{} x",
    "nothing": "",
}


def _lookup(name: str) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.LOOKUP)
    command.lookupTopic.topic, command.lookupTopic.request_id = name, 1
    return command


def _metadata(name: str, *, make: bool) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA)
    asked = command.partitionMetadata
    asked.topic, asked.request_id, asked.metadata_auto_creation_enabled = name, 1, make
    return command


QUESTIONS: dict[str, Callable[[str], BaseCommand]] = {
    "lookup": _lookup,
    "partitions": lambda name: _metadata(name, make=True),
    "partitions, making nothing": lambda name: _metadata(name, make=False),
    "produce": raw.producer,
    "subscribe": lambda name: raw.subscribe(name, subType=1),
}


def told(answer: BaseCommand) -> str:
    """Return what a client is told: ``ok``, with the number of partitions if it asked, or the error's name."""
    if answer.type == BaseCommand.LOOKUP_RESPONSE:
        found = answer.lookupTopicResponse
        refused = found.response == CommandLookupTopicResponse.Failed
        return ServerError.Name(found.error) if refused else "ok"
    if answer.type == BaseCommand.PARTITIONED_METADATA_RESPONSE:
        number = answer.partitionMetadataResponse
        return ServerError.Name(number.error) if number.HasField("error") else f"ok, {number.partitions}"
    if answer.type == BaseCommand.ERROR:
        return ServerError.Name(answer.error.error)
    assert answer.type in (BaseCommand.PRODUCER_SUCCESS, BaseCommand.SUCCESS), answer
    return "ok"
