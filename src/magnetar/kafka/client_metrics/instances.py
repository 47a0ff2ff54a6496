"""The clients that ask what to push and push it (KIP-714), and what is refused to them. No clock, no socket.

What they push is counted and let go of: it is in OpenTelemetry's encoding, and there is nobody here to give it to.
"""

from __future__ import annotations

import os
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from magnetar.kafka.client_metrics.names import DEFAULTS, INTERVAL_MS
from magnetar.kafka.client_metrics.subscriptions import ClientMetrics
from magnetar.wire.kafka.errors import ErrorCode

ZERO = bytes(16)
COMPRESSIONS = (4, 3, 1, 2)
"""Those that are taken, in the order that is preferred: zstd, lz4, gzip, snappy."""
MAX_BYTES = 1 << 20
"""Of one push; Kafka's ``telemetry.max.bytes``."""
_EVERYTHING = "*"
_MAX_INSTANCES = 4_000
"""They outlive connections, and take 2 MB together."""


class TelemetryRefused(Exception):
    """What a client asks for is refused with this code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class WantedMetrics(NamedTuple):
    """What one client is to push."""

    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]


@dataclass(slots=True)
class ClientInstance:
    """What is known of one client."""

    wanted: WantedMetrics
    changes: int
    asked_ms: int | None = None
    pushed_ms: int | None = None
    may_ask: bool = False
    """At once, for it was told that its subscription is no more."""
    has_ended: bool = False


class Telemetry:
    """All clients of one broker that push, the least recently seen first."""

    def __init__(self, metrics: ClientMetrics, clock_ms: Callable[[], int]) -> None:
        self._metrics = metrics
        self._clock_ms = clock_ms
        self.instances: OrderedDict[bytes, ClientInstance] = OrderedDict()
        self.pushes = 0
        self.pushed_bytes = 0

    def subscribed(self, instance_id: bytes, labels: Mapping[str, str]) -> tuple[bytes, WantedMetrics]:
        """Return a client's id, maybe a new one, and what it is to push; raise `TelemetryRefused` if it is too soon."""
        if instance_id == ZERO:
            instance_id = os.urandom(16)
        now_ms = self._clock_ms()
        found = self._instance(instance_id, labels)
        asked_ms, found.asked_ms = found.asked_ms, now_ms
        too_soon = asked_ms is not None and now_ms - asked_ms < found.wanted.interval_ms
        if too_soon and not found.may_ask:
            raise TelemetryRefused(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        found.may_ask = False
        return instance_id, found.wanted

    def push(
        self,
        instance_id: bytes,
        labels: Mapping[str, str],
        subscription_id: int,
        compression: int,
        nbytes: int,
        *,
        terminating: bool,
    ) -> None:
        """Count what a client pushes; raise `TelemetryRefused`, in Kafka's order of reasons."""
        if instance_id == ZERO:
            raise TelemetryRefused(ErrorCode.INVALID_REQUEST)
        now_ms = self._clock_ms()
        found = self._instance(instance_id, labels)
        if found.has_ended:
            raise TelemetryRefused(ErrorCode.INVALID_REQUEST)
        pushed_ms, found.pushed_ms = found.pushed_ms, now_ms
        too_soon = pushed_ms is not None and now_ms - pushed_ms < found.wanted.interval_ms
        if too_soon and not terminating:
            raise TelemetryRefused(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if subscription_id != found.wanted.subscription_id:
            found.may_ask = True
            raise TelemetryRefused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if compression not in (0, *COMPRESSIONS):
            raise TelemetryRefused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if nbytes > MAX_BYTES:
            raise TelemetryRefused(ErrorCode.TELEMETRY_TOO_LARGE)
        found.has_ended = terminating
        self.pushes += 1
        self.pushed_bytes += nbytes

    def _instance(self, instance_id: bytes, labels: Mapping[str, str]) -> ClientInstance:
        changes = self._metrics.changes
        found = self.instances.get(instance_id)
        if found is None:
            if len(self.instances) >= _MAX_INSTANCES:
                self.instances.popitem(last=False)
            found = self.instances[instance_id] = ClientInstance(self._wanted(instance_id, labels), changes)
        elif found.changes != changes:
            wanted = self._wanted(instance_id, labels)
            found.may_ask = found.may_ask or wanted != found.wanted
            found.wanted, found.changes = wanted, changes
        self.instances.move_to_end(instance_id)
        return found

    def _wanted(self, instance_id: bytes, labels: Mapping[str, str]) -> WantedMetrics:
        fitting = {name: each for name, each in self._metrics.subscriptions.items() if each.fits(labels)}
        metrics = tuple(dict.fromkeys(metric for each in fitting.values() for metric in each.metrics))
        if _EVERYTHING in metrics:
            metrics = (_EVERYTHING,)
        interval_ms = min((each.interval_ms for each in fitting.values()), default=int(DEFAULTS[INTERVAL_MS]))
        said = repr((instance_id, sorted(fitting), metrics, interval_ms)).encode()
        return WantedMetrics(zlib.crc32(said) - (1 << 31), interval_ms, metrics)
