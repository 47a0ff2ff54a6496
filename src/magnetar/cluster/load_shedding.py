"""Which bundles move from which broker to which, so that none has much more load than the others.

As Pulsar's ThresholdShedder: a broker whose usage is a threshold above the average sheds bundles, the largest first
that fit. This continues until it is half a threshold above (hysteresis), a few moves at a time, and a bundle that was
moved stays for a while, so that a moving load is not chased. A function of the reports and of the time: no clock, no
I/O.

Where no broker is busy, brokers get about as many bundles each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from magnetar.cluster.ownership import Bundle

_HISTORY = 0.5
"""Share of the past in a broker's smoothed usage: one busy moment moves nothing."""


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The report of one broker. ``usage`` is in percent of its capacity; ``bundles`` are its bundles' parts of that."""

    node_id: int
    usage: float
    bundles: Mapping[Bundle, float]


class BundleMove(NamedTuple):
    """A bundle, its owner, and its next owner."""

    bundle: Bundle
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class SheddingLimits:
    """``threshold`` is in points of percent above the average; ``grace_s`` is how long a moved bundle stays."""

    threshold: float = 10.0
    moves: int = 4
    """In one round."""
    grace_s: float = 1800.0


class LoadShedder:
    """The leader's memory between its rounds."""

    def __init__(self, limits: SheddingLimits) -> None:
        self.limits = limits
        self._usage: dict[int, float] = {}
        self._shedding: set[int] = set()
        """Brokers that were above the threshold, and are not yet half a threshold above the average."""
        self._moved: dict[Bundle, float] = {}
        """When each bundle was moved last."""

    def moves(self, loads: Sequence[BrokerLoad], now_s: float) -> list[BundleMove]:
        """Return the moves to make now; in most rounds, none."""
        self._remember(loads, now_s)
        if len(loads) < 2:
            return []
        usage = {each.node_id: self._usage[each.node_id] for each in loads}
        average = sum(usage.values()) / len(usage)
        limits = self.limits
        self._shedding = {
            node
            for node, used in usage.items()
            if used > average + limits.threshold * (0.5 if node in self._shedding else 1)
        }
        left = {each.node_id: self._movable(each, now_s) for each in loads}
        found: list[BundleMove] = []
        while len(found) < limits.moves and (move := self._heaviest(usage, left, average)):
            part = left[move.source].pop(move.bundle)
            usage[move.source] -= part
            usage[move.target] += part
            found.append(move)
        if not found:
            counts = {each.node_id: len(each.bundles) for each in loads}
            while len(found) < limits.moves and (move := self._lightest(counts, usage, left)):
                del left[move.source][move.bundle]
                counts[move.source] -= 1
                counts[move.target] += 1
                found.append(move)
        for each in found:
            self._moved[each.bundle] = now_s
        return found

    def _remember(self, loads: Sequence[BrokerLoad], now_s: float) -> None:
        self._usage = {
            each.node_id: _HISTORY * self._usage.get(each.node_id, each.usage) + (1 - _HISTORY) * each.usage
            for each in loads
        }
        self._shedding &= self._usage.keys()
        grace_s = self.limits.grace_s
        self._moved = {bundle: since for bundle, since in self._moved.items() if now_s - since < grace_s}

    def _movable(self, load: BrokerLoad, now_s: float) -> dict[Bundle, float]:
        return {bundle: part for bundle, part in load.bundles.items() if bundle not in self._moved}

    def _heaviest(
        self, usage: Mapping[int, float], left: Mapping[int, Mapping[Bundle, float]], average: float
    ) -> BundleMove | None:
        """Return the largest bundle that may go from the busiest broker without making another one as busy."""
        enough = average + self.limits.threshold / 2
        busy = [node for node in self._shedding if usage[node] > enough]
        for source in sorted(busy, key=lambda node: (-usage[node], node)):
            target = min(usage, key=lambda node: (usage[node], node))
            room = (usage[source] - usage[target]) / 2
            fit = [(part, bundle) for bundle, part in left[source].items() if 0 < part <= room]
            if fit:
                return BundleMove(max(fit)[1], source, target)
        return None

    def _lightest(
        self,
        counts: Mapping[int, int],
        usage: Mapping[int, float],
        left: Mapping[int, Mapping[Bundle, float]],
    ) -> BundleMove | None:
        """Return the move of a bundle with little load, from the broker with most bundles to the one with fewest."""
        source = max(counts, key=lambda node: (counts[node], -node))
        target = min(counts, key=lambda node: (counts[node], node))
        spread = max(1, sum(counts.values()) // len(counts) // 10)
        if counts[source] - counts[target] <= spread or not left[source]:
            return None
        part, bundle = min((part, bundle) for bundle, part in left[source].items())
        if usage[target] + part > sum(usage.values()) / len(usage) + self.limits.threshold / 2:
            return None  # it has few bundles, but they have much load
        return BundleMove(bundle, source, target)
