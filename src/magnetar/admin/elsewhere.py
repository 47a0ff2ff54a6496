"""An operator's questions where several workers share a data directory: who can answer is asked.

Any of them takes the question. One about partitions goes to the workers that have these, and what several say is put
together; one about a group goes to the worker that coordinates it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from magnetar.admin.errors import AdminError
from magnetar.admin.plain import to_line
from magnetar.admin.questions import as_error
from magnetar.base.errors import BrokerError
from magnetar.cluster.peers import PeerFailed, Peers
from magnetar.kafka.services import KafkaServices
from magnetar.node.broker import Broker

QUESTION = "operator"
Answer = Callable[[bytes], Awaitable[bytes]]


async def answered(line: bytes, broker: Broker, peers: Peers, here: Answer) -> bytes:
    """Return the answer to one line; ``here`` returns what this worker says."""
    try:
        given = json.loads(line)
        shares = _shares(given, broker)
    except (ValueError, TypeError, AttributeError, KeyError, BrokerError):
        return await here(line)  # which knows what to say of it
    if len(shares) <= 1:
        return await _asked(next(iter(shares), None), line, peers, here)
    said = [
        json.loads(await _asked(node, to_line(given | {"partitions": some}), peers, here))
        for node, some in shares.items()
    ]
    failed = next((each for each in said if "error" in each), None)
    if failed is not None:
        return to_line(failed)
    rows = [row for each in said for row in each["answer"]["partitions"]]
    whole = said[0]["answer"] | {"partitions": sorted(rows, key=lambda row: row["partition"])}
    return to_line({"answer": whole})


def _shares(given: dict[str, Any], broker: Broker) -> dict[int, list[int]]:
    """Return the workers that a question is for, and the partitions that each has; nothing if any of them will do."""
    kafka = broker.offers.find(KafkaServices)
    if "group" in given and kafka is not None:
        owner = kafka.groups.owner_of(given["group"])
        return {} if owner is None else {owner.node_id: []}
    if "topic" not in given:
        return {}
    topic = broker.topic(given["topic"])
    wanted = [given["partition"]] if "partition" in given else given["partitions"] or range(topic.partitions)
    found: dict[int, list[int]] = {}
    for index in wanted:
        owned = broker.cluster.ownership.owner(topic.name, index)
        if owned is not None:
            found.setdefault(owned.node_id, []).append(index)
    return found


async def _asked(node_id: int | None, line: bytes, peers: Peers, here: Answer) -> bytes:
    if node_id is None or node_id == peers.node_id:
        return await here(line)
    try:
        return await peers.ask(node_id, QUESTION, line)
    except PeerFailed as error:
        return to_line(as_error(AdminError(str(error), "Ask again in a moment: it is begun again.")))
