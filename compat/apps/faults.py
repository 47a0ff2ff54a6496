"""A broker that is killed; and one that is broken, to see that a check fails: it loses records, or has some twice."""

from __future__ import annotations

import os

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from apps import topics
from benchmarks.peers.server import Server

BROKEN = "COMPAT_APPS_BROKEN"
"""In the environment, ``loses`` or ``doubles``: what a killed broker does to what it had acknowledged."""
_TWICE = 10


def killed(broker: Server, topic: str) -> int:
    """Kill the broker and start it again; return how many records of ``topic`` a broken one has lost."""
    broker.kill()
    broker.start()
    return {"": _nothing, "loses": _lost, "doubles": _doubled}[os.environ.get(BROKEN, "")](broker, topic)


def _nothing(_: Server, __: str) -> int:
    return 0


def _lost(broker: Server, topic: str) -> int:
    """Have all records gone that the fullest partition has by now."""
    first_end = topics.bounds(broker.address, topic)
    index = max(first_end, key=lambda each: first_end[each][1] - first_end[each][0])
    gone = [each for each in topics.read(broker.address, topic) if each.partition() == index]
    before = TopicPartition(topic, index, gone[-1].offset() + 1)
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_records([before])[before].result(30)
    return len(gone)


def _doubled(broker: Server, topic: str) -> int:
    """Have the first records once more at the end."""
    again = topics.read(broker.address, topic)[:_TWICE]
    records = [(each.key() and each.key().decode(), each.value().decode(), []) for each in again]
    topics.produce(broker.address, topic, records)
    return 0
