"""Gathers what `magnetar.admin.broker_state` has, from a running broker and on its loop."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar import __version__
from magnetar.admin.broker_state import BrokerState, ClientsOfSoftware, Inventory, ServedListener
from magnetar.admin.health import health_of
from magnetar.admin.shown_settings import shown_settings, without_effect
from magnetar.base.slices import sliced
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.server import KafkaServer
from magnetar.kafka.services import KafkaServices
from magnetar.node.vitals import end_of, memory_limit
from magnetar.pulsar.services import PulsarServices
from magnetar.wire.kafka.messages import API_KEYS

if TYPE_CHECKING:
    from magnetar.node.broker import Broker

MOST_CLIENTS = 200
MOST_NAMES = 10_000
MOST_TASKS = 200


async def state_of(broker: Broker) -> BrokerState:
    """Return a running broker's state."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used, memory, memory_most = await asyncio.to_thread(_of_process)
    told = broker.settings.told
    return BrokerState(
        version=__version__,
        python=platform.python_version(),
        system=platform.platform(),
        pid=os.getpid(),
        data=str(Path(broker.settings.node.data_dir).absolute()),
        workers=broker.settings.node.workers,
        health=await health_of(broker),
        descriptors=used,
        descriptor_limit=-1 if limit == resource.RLIM_INFINITY else limit,
        memory_bytes=memory,
        memory_limit_bytes=memory_most,
        listeners=await _listeners(broker),
        clients=(*await _kafka_clients(broker), *await _pulsar_clients(broker)),
        settings=shown_settings(broker.settings),
        ignored=told.ignored,
        without_effect=without_effect(broker.settings),
    )


def _of_process() -> tuple[int, int, int | None]:
    used = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        pages = 0
    return used, pages * os.sysconf("SC_PAGE_SIZE"), memory_limit()


async def _listeners(broker: Broker) -> tuple[ServedListener, ...]:
    return tuple(
        [
            ServedListener(
                each.protocol,
                each.name,
                each.bind.host,
                each.bind.port,
                each.advertised.host,
                each.advertised.port,
                each.scheme,
                each.context is not None,
                each.client_auth,
                await end_of(each),
            )
            for each in broker.serving.listeners
        ]
    )


async def _kafka_clients(broker: Broker) -> list[ClientsOfSoftware]:
    server = broker.offers.find(KafkaServer)
    counts: Counter[tuple[str, str]] = Counter()
    lowest: dict[tuple[str, str], dict[str, int]] = {}
    async for each in sliced(() if server is None else list(server.connections)):
        said = each.conversation
        key = said.software.name or "unknown", said.software.version or "unknown"
        counts[key] += 1
        lowest[key] = {
            API_KEYS[api][0]: version for api, version in said.asked.items() if api in API_KEYS
        } or lowest.get(key, {})
    return [
        ClientsOfSoftware("kafka", *key, count, lowest[key])
        for key, count in counts.most_common(MOST_CLIENTS)
    ]


async def _pulsar_clients(broker: Broker) -> list[ClientsOfSoftware]:
    services = broker.offers.find(PulsarServices)
    if services is None:
        return []
    versions: dict[int, str] = {}
    async for topic in sliced(services.topics.all_open()):
        for producer in topic.producers.by_name.values():
            versions[id(producer.sink)] = producer.sink.client_version or "unknown"
        for subscription in topic.subscriptions.values():
            versions |= {
                id(each.sink): each.sink.client_version or "unknown" for each in subscription.consumers
            }
    counts = Counter(versions.values())
    return [ClientsOfSoftware("pulsar", name, "", count) for name, count in counts.most_common(MOST_CLIENTS)]


async def knows_client(broker: Broker, software: str) -> bool:
    """Return whether a client is connected that says it is this software."""
    server = broker.offers.find(KafkaServer)
    async for each in sliced(() if server is None else list(server.connections)):
        if each.conversation.software.version == software:
            return True
    return False


async def inventory_of(broker: Broker) -> Inventory:
    """Return what topics and groups there are."""
    topics = broker.topics()
    services = broker.offers.find(KafkaServices)
    groups: dict[str, str] = {}
    states: Counter[str] = Counter()
    count = 0
    try:
        async for group in sliced(() if services is None else services.groups.list_groups()):
            count += 1
            states[str(group.state)] += 1
            if len(groups) < MOST_NAMES:
                groups[group.group_id] = str(group.state)
    except CoordinatorRefused:
        pass  # they are being loaded
    return Inventory(
        len(topics),
        sum(topic.partitions for topic in topics),
        count,
        dict(states),
        {topic.kafka_name: topic.partitions for topic in topics[:MOST_NAMES]},
        groups,
    )


def stacks(tasks: Iterable[asyncio.Task[object]]) -> str:
    """Return where all threads and tasks are, without the values that they work with."""
    frames = sys._current_frames()
    parts = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        lines = "" if frame is None else "".join(traceback.format_stack(frame))
        parts.append(f"thread {thread.name}{' (daemon)' if thread.daemon else ''}\n{lines}")
    known = sorted(tasks, key=lambda each: each.get_name())
    parts.append(f"{len(known)} tasks\n")
    for task in known[:MOST_TASKS]:
        lines = "".join(
            f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}\n"
            for frame in task.get_stack(limit=5)
        )
        parts.append(f"task {task.get_name()}\n{lines}")
    return "\n".join(parts)
