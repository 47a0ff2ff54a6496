"""How busy this broker is, told to the others; what the leader makes of it; and bundles that are too large, split.

A broker tells of its load in the node by which others know that it lives, in the words of Pulsar's
``LocalBrokerData``: usage of the processor, traffic, counts, and of its busiest bundles each one's part
(``lastStats``). What is measured is what the broker counts of its logs anyway; what Pulsar's subscriptions have sent
counts once they end. The leader decides by `magnetar.cluster.load_shedding` and writes down where single bundles are to
be; owners do the rest.
"""

from __future__ import annotations

import logging
import os
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from magnetar.base.background import Background
from magnetar.base.errors import BrokerError
from magnetar.base.slices import sliced
from magnetar.cluster.bundle_splits import bundle_cuts, hash_of
from magnetar.cluster.cluster_ownership import ClusterOwnership
from magnetar.cluster.load_shedding import BrokerLoad, LoadShedder, SheddingLimits
from magnetar.cluster.ownership import Bundle
from magnetar.logs.open_logs import OpenLogs
from magnetar.metadata import MetadataError
from magnetar.settings.load import LoadSettings
from magnetar.settings.settings import Settings

_TOLD_BUNDLES = 200
"""The busiest, of which a report tells; the others have their share of what is left."""
_TOLD_AT_LEAST_S = 60.0
_CHANGED = 0.1
_MESSAGE_BYTES = 512
"""What a message costs besides its bytes, as if it were so many more."""
_log = logging.getLogger("magnetar.load")


@dataclass(slots=True)
class BundleTraffic:
    """What came into a bundle and went out of it: in all, or a second."""

    messages_in: float = 0
    bytes_in: float = 0
    messages_out: float = 0
    bytes_out: float = 0
    topics: int = 0

    @property
    def weight(self) -> float:
        """What it costs, in bytes."""
        messages = self.messages_in + self.messages_out
        return self.bytes_in + self.bytes_out + _MESSAGE_BYTES * messages

    def as_pulsar(self) -> dict[str, float]:
        """Return it as Pulsar's ``NamespaceBundleStats``."""
        return {
            "msgRateIn": round(self.messages_in, 1),
            "msgThroughputIn": round(self.bytes_in),
            "msgRateOut": round(self.messages_out, 1),
            "msgThroughputOut": round(self.bytes_out),
            "topics": self.topics,
        }


class LoadBalancing:
    """One broker's part. ``start`` once it serves."""

    def __init__(
        self,
        open_logs: OpenLogs,
        ownership: ClusterOwnership,
        settings: Callable[[], Settings],
        background: Background,
    ) -> None:
        self._open_logs = open_logs
        self._ownership = ownership
        self._in_force = settings
        self._background = background
        self._shedder = LoadShedder(SheddingLimits())
        self._before: dict[Bundle, BundleTraffic] = {}
        self._looked = time.monotonic()
        self._busy, self._busy_at = time.process_time(), self._looked
        self._told: Mapping[str, Any] = {}
        self._told_at = 0.0

    @property
    def _settings(self) -> LoadSettings:
        return self._in_force().of(LoadSettings)

    def start(self) -> None:
        """Begin to look, to tell and, as the leader, to move."""
        if not self._settings.load_balancer_enabled:
            return
        background = self._background
        report_s = lambda: self._settings.load_report_interval_ms / 1000  # noqa: E731
        background.repeat("telling the load", report_s, self.report)
        background.repeat(
            "spreading the load", lambda: float(self._settings.load_shedding_interval_s), self.spread
        )

    async def report(self) -> None:
        """Measure, tell if that says something new, and split what is too large."""
        traffic = await self._traffic()
        load = self._as_pulsar(traffic)
        now = time.monotonic()
        if now - self._told_at > _TOLD_AT_LEAST_S or _differs(load, self._told):
            await self._ownership.report(load)
            self._told, self._told_at = load, now
        if self._settings.bundle_split_enabled:
            await self._split_large(traffic)

    async def _traffic(self) -> dict[Bundle, BundleTraffic]:
        """Return what each bundle has had a second since the last look."""
        counted: dict[Bundle, BundleTraffic] = {}
        async for each in sliced(self._open_logs.all()):
            found = counted.get(each.bundle)
            if found is None:
                found = counted[each.bundle] = BundleTraffic()
            figures = each.figures
            found.messages_in += figures.messages_in
            found.bytes_in += figures.bytes_in
            found.messages_out += figures.messages_out
            found.bytes_out += figures.bytes_out
            found.topics += 1
        now = time.monotonic()
        passed = max(now - self._looked, 0.001)
        rates = {}
        for bundle, total in counted.items():
            before = self._before.get(bundle, total)  # of a bundle that has just come nothing is known yet
            # Logs that were closed count no longer.
            rates[bundle] = BundleTraffic(
                max(total.messages_in - before.messages_in, 0) / passed,
                max(total.bytes_in - before.bytes_in, 0) / passed,
                max(total.messages_out - before.messages_out, 0) / passed,
                max(total.bytes_out - before.bytes_out, 0) / passed,
                total.topics,
            )
        self._before, self._looked = counted, now
        return rates

    def _as_pulsar(self, traffic: Mapping[Bundle, BundleTraffic]) -> dict[str, Any]:
        busy = time.process_time()
        cores = len(os.sched_getaffinity(0))
        used = 100 * (busy - self._busy) / max(self._looked - self._busy_at, 0.001)
        self._busy, self._busy_at = busy, self._looked
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        busiest = sorted(traffic, key=lambda bundle: -traffic[bundle].weight)[:_TOLD_BUNDLES]
        every = traffic.values()
        incoming, outgoing = sum(each.bytes_in for each in every), sum(each.bytes_out for each in every)
        return {
            "cpu": {"usage": round(min(used / cores, 100), 1), "limit": 100.0},
            "memory": {"usage": round(memory, 1), "limit": 0.0},
            "bandwidthIn": {"usage": round(incoming / 125, 1), "limit": 0.0},
            "bandwidthOut": {"usage": round(outgoing / 125, 1), "limit": 0.0},
            "msgThroughputIn": round(incoming),
            "msgThroughputOut": round(outgoing),
            "msgRateIn": round(sum(each.messages_in for each in every), 1),
            "msgRateOut": round(sum(each.messages_out for each in every), 1),
            "numTopics": sum(each.topics for each in every),
            "numBundles": len(self._ownership.mine()),
            "lastStats": {str(bundle): traffic[bundle].as_pulsar() for bundle in busiest},
        }

    async def _split_large(self, traffic: Mapping[Bundle, BundleTraffic]) -> None:
        settings, ownership = self._settings, self._ownership
        for bundle in ownership.mine():
            if len(ownership.bundles(bundle.namespace)) >= settings.namespace_max_bundles:
                continue
            rates = traffic.get(bundle)
            if rates is None or rates.topics < 2 or not _is_large(rates, settings):
                continue  # one partition stays as busy as it is, whatever it shares its bundle with
            hashes = sorted([
                hash_of(each.topic, each.index)
                async for each in sliced(self._open_logs.all())
                if each.bundle == bundle
            ])  # fmt: skip
            try:
                cuts = bundle_cuts(bundle, settings.bundle_split_algorithm, hashes)
                for cut in cuts:
                    await ownership.split(bundle, cut)
            except (BrokerError, MetadataError) as error:
                _log.info("bundle %s cannot be split now: %s", bundle, error)
            else:
                _log.info("bundle %s had too much, and is split", bundle)
            return  # one at a time: what comes of it is looked at first

    async def spread(self) -> None:
        """Have bundles be moved, if this broker leads."""
        settings, ownership = self._settings, self._ownership
        if not settings.load_shedding_enabled or ownership.leader() != ownership.node_id:
            return
        self._shedder.limits = SheddingLimits(
            float(settings.load_shedding_threshold_percent),
            settings.load_shedding_moves,
            float(settings.load_shedding_grace_s),
        )
        loads = [
            _load_of(each.node_id, ownership.loads.get(each.node_id, {}), ownership.bundles_of(each.node_id))
            for each in ownership.brokers()
        ]
        for move in self._shedder.moves(loads, time.monotonic()):
            _log.info("bundle %s goes from broker %d to %d", move.bundle, move.source, move.target)
            await ownership.place(move.bundle, move.target)


def _is_large(rates: BundleTraffic, settings: LoadSettings) -> bool:
    messages = rates.messages_in + rates.messages_out
    mib = (rates.bytes_in + rates.bytes_out) / (1 << 20)
    return (
        rates.topics > settings.bundle_max_topics
        or messages > settings.bundle_max_messages_per_s
        or mib > settings.bundle_max_mib_per_s
    )


def _load_of(node_id: int, told: Mapping[str, Any], bundles: list[Bundle]) -> BrokerLoad:
    """Return a broker's usage, and its bundles' parts of that by what each had to do."""
    usage = float((told.get("cpu") or {}).get("usage", 0.0))
    stats: Mapping[str, Mapping[str, float]] = told.get("lastStats") or {}
    weights = {bundle: _weight_of(stats.get(str(bundle), {})) for bundle in bundles}
    whole = sum(weights.values())
    return BrokerLoad(
        node_id, usage, {bundle: usage * each / whole if whole else 0.0 for bundle, each in weights.items()}
    )


def _weight_of(stats: Mapping[str, float]) -> float:
    messages = stats.get("msgRateIn", 0) + stats.get("msgRateOut", 0)
    return stats.get("msgThroughputIn", 0) + stats.get("msgThroughputOut", 0) + _MESSAGE_BYTES * messages


def _differs(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether a figure has changed by a tenth, and by more than nothing."""
    if new.get("numBundles") != old.get("numBundles") or not old:
        return True
    usage = abs(new["cpu"]["usage"] - old["cpu"]["usage"])
    rates = ("msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut")
    return usage > 1 or any(abs(new[name] - old[name]) > _CHANGED * max(old[name], 1) for name in rates)
