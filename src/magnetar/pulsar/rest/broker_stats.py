"""What one broker has to do, as ``pulsar-admin broker-stats`` and Pulsar Manager ask for it."""

from __future__ import annotations

import re
import resource
from collections.abc import AsyncIterator, Mapping
from typing import Any

from magnetar import __version__
from magnetar.base.slices import sliced
from magnetar.figures.exposition import exposed
from magnetar.node.process_figures import ProcessFigures
from magnetar.pulsar.rates import Rates
from magnetar.pulsar.rest.request import AdminRequest, RequiredLevel, RestRoute
from magnetar.pulsar.rest.stats import topic_stats
from magnetar.pulsar.topic import PulsarTopic

_LINE = re.compile(r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)\n?")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
_OF_SINGLE_TOPICS = ("topic", "partition", "subscription", "group")
"""Labels of figures that there are for each topic: Pulsar's monitoring metrics go down to namespaces."""


async def topics(ask: AdminRequest) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Return the stats of the topics that are open at this broker: by namespace, bundle, and kind of topic."""
    ownership = ask.services.broker.cluster.ownership
    found: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    async for topic in sliced(ask.services.topics.all_open()):
        bundle = ownership.bundle_of(topic.topic.name, topic.index)
        hashes = str(bundle).rpartition("/")[2]
        by_kind = found.setdefault(bundle.namespace, {}).setdefault(hashes, {"persistent": {}})
        by_kind["persistent"][str(topic.name)] = _topic(topic)
    return found


def _topic(topic: PulsarTopic) -> dict[str, Any]:
    """Return a topic's stats under the names that this page of Pulsar's has, which are not those of a topic's own."""
    stats = topic_stats(topic)
    same = (
        "publishers", "replication", "subscriptions", "averageMsgSize", "msgRateIn", "msgRateOut", "msgThroughputIn",
        "msgThroughputOut", "storageSize", "backlogSize",
    )  # fmt: skip
    return {name: stats[name] for name in same} | {
        "producerCount": len(stats["publishers"]),
        "msgInCount": stats["msgInCounter"],
        "bytesInCount": stats["bytesInCounter"],
        "msgOutCount": stats["msgOutCounter"],
        "bytesOutCount": stats["bytesOutCounter"],
        "pendingAddEntriesCount": 0,
    }


async def metrics(ask: AdminRequest) -> list[dict[str, Any]]:
    """Return what ``/metrics`` has of the broker and of namespaces: figures together that have the same dimensions."""
    broker = ask.services.broker
    found: dict[str, dict[str, Any]] = {}
    async for line in _lines(exposed(broker.figures, None, ProcessFigures(broker))):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        text = match["labels"] or ""
        dimensions = dict(_LABEL.findall(text))
        if not any(label in dimensions for label in _OF_SINGLE_TOPICS):
            row = found.setdefault(text, {"metrics": {}, "dimensions": dimensions})
            row["metrics"][match["name"]] = _number(match["value"])
    return list(found.values())


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Yield the lines of a text that comes in parts; others have their turn between these."""
    rest = ""
    async for part in parts:
        *lines, rest = (rest + part.decode()).split("\n")
        async for line in sliced(lines):
            yield line
    if rest:
        yield rest


def _number(text: str) -> float | int | str:
    """Return a figure as JSON has it; what JSON cannot say stays text, as with Pulsar."""
    try:
        value = float(text)
    except ValueError:
        return text
    if value != value or value in (float("inf"), float("-inf")):
        return text
    return int(value) if value.is_integer() else value


async def mbeans(ask: AdminRequest) -> list[Any]:
    """Return the JVM's management beans: there is no JVM."""
    return []


async def load_report(ask: AdminRequest) -> Mapping[str, Any]:
    """Return this broker's load, as ``LocalBrokerData`` has it; in a cluster with the figures of its last report."""
    broker, address = ask.services.broker, ask.address
    totals = dict.fromkeys(("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut"), 0.0)
    counts = {"numTopics": 0, "numConsumers": 0, "numProducers": 0}
    async for topic in sliced(ask.services.topics.all_open()):
        rate = Rates.of(topic)
        totals["msgRateIn"] += rate.messages_in
        totals["msgRateOut"] += rate.messages_out
        totals["msgThroughputIn"] += rate.bytes_in
        totals["msgThroughputOut"] += rate.bytes_out
        counts["numTopics"] += 1
        counts["numProducers"] += len(topic.producers.by_name)
        counts["numConsumers"] += sum(len(each.consumers) for each in topic.subscriptions.values())
    bundles = sorted({str(each.bundle) async for each in sliced(broker.logs.open_logs.all())})
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "webServiceUrl": address.http or None,
        "webServiceUrlTls": address.https or None,
        "pulsarServiceUrl": address.pulsar or None,
        "pulsarServiceUrlTls": address.pulsar_tls or None,
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        "memory": {"usage": round(memory_mb, 1), "limit": 0.0},
        **totals,
        **counts,
        "numBundles": len(bundles),
        "bundles": bundles,
        "lastStats": {},
        "lastBundleGains": [],
        "lastBundleLosses": [],
        "brokerVersionString": __version__,
        "protocols": {},
        "lastUpdate": ask.services.clock(),
        **broker.cluster.ownership.load,
        "loadReportType": "LocalBrokerData",
    }


ROUTES = (
    RestRoute("GET", "/broker-stats/topics", topics, RequiredLevel.super_user),
    RestRoute("GET", "/broker-stats/metrics", metrics, RequiredLevel.super_user),
    RestRoute("GET", "/broker-stats/mbeans", mbeans, RequiredLevel.super_user),
    RestRoute("GET", "/broker-stats/load-report", load_report, RequiredLevel.super_user),
)
