"""Kafka's CLIENT_METRICS resources: named subscriptions in the metadata store, one to a path, JSON of texts by name.

/magnetar/client-metrics/slow-producers   {"metrics": "org.apache.kafka.producer.", "interval.ms": "10000",
                                           "match": "client_software_name=apache-kafka-java,client_id=app.*"}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from magnetar.base.errors import InvalidConfig
from magnetar.kafka.client_metrics.names import DEFAULTS, INTERVAL_MS, MATCH, METRICS
from magnetar.kafka.configs.changes import InvalidChange
from magnetar.metadata import MUST_NOT_EXIST, Delete, MetadataCorrupt, Op, Put, Stored
from magnetar.metadata.cache import MetadataCache

if TYPE_CHECKING:
    import re2

_ROOT = "/magnetar/client-metrics"
_MIN_INTERVAL_MS, _MAX_INTERVAL_MS = 100, 3_600_000
_LABELS = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
"""What of a client patterns may ask for."""


class MetricsSubscription(NamedTuple):
    """What is asked for, how often, and of whom."""

    texts: Mapping[str, str]
    metrics: tuple[str, ...]
    interval_ms: int
    patterns: tuple[tuple[str, re2._Regexp], ...]

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Return whether a client is meant: all of each of its labels fits the pattern for it."""
        return all(pattern.fullmatch(labels.get(label, "")) for label, pattern in self.patterns)


class ClientMetrics:
    """All subscriptions, held in memory."""

    root = _ROOT

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self.subscriptions: dict[str, MetricsSubscription] = {}
        self._versions: dict[str, int] = {}
        self.changes = 0
        """Grows with each change."""

    def known(self) -> Iterable[str]:
        return tuple(map(_path, self.subscriptions))

    def apply(self, path: str, stored: Stored | None) -> None:
        """Take over what is stored of one subscription."""
        if path == _ROOT:
            return
        name = unquote(path.removeprefix(_ROOT + "/"))
        try:
            made = None if stored is None else subscription(json.loads(stored.value))
        except (ValueError, AttributeError, TypeError, InvalidConfig) as error:
            raise MetadataCorrupt(path, f"not a subscription of client metrics: {error}") from error
        self.changes += 1
        if stored is None or made is None:
            self.subscriptions.pop(name, None)
            self._versions.pop(name, None)
        else:
            self.subscriptions[name], self._versions[name] = made, stored.version

    def own(self, name: str) -> dict[str, str]:
        """Return what is set for one subscription; nothing for one that there is not."""
        found = self.subscriptions.get(name)
        return {} if found is None else dict(found.texts)

    async def change(
        self, name: str, change: Callable[[dict[str, str]], dict[str, str]], *, validate_only: bool
    ) -> None:
        """Put what ``change`` makes of a subscription in its place, nothing takes it away; raise `InvalidConfig`."""
        if not name:
            raise InvalidChange("MetricsSubscription name can't be empty")

        def plan() -> list[Op]:
            texts = change(self.own(name))
            subscription(texts)
            version = self._versions.get(name, MUST_NOT_EXIST)
            if not texts:
                return [] if version == MUST_NOT_EXIST else [Delete(_path(name), version)]
            return [Put(_path(name), json.dumps(texts, sort_keys=True).encode(), version)]

        if validate_only:
            plan()
        else:
            await self._cache.change(plan)


def subscription(texts: Mapping[str, str]) -> MetricsSubscription:
    """Return what configurations come to; raise `InvalidConfig` as Kafka does."""
    for name in texts:
        if name not in DEFAULTS:
            raise InvalidChange(f"Unknown client metrics configuration: {name}")
    both = DEFAULTS | dict(texts)
    interval = both[INTERVAL_MS]
    try:
        interval_ms = int(interval)
    except ValueError:
        raise InvalidConfig(
            f"Invalid value {interval} for configuration {INTERVAL_MS}: Not a number of type INT"
        ) from None
    if not _MIN_INTERVAL_MS <= interval_ms <= _MAX_INTERVAL_MS:
        raise InvalidChange(
            f"Invalid value {interval} for {INTERVAL_MS}, interval must be between {_MIN_INTERVAL_MS} and "
            f"{_MAX_INTERVAL_MS} (1 hour)"
        )
    return MetricsSubscription(
        dict(texts), _items(both[METRICS]), interval_ms, tuple(map(_pattern, _items(both[MATCH])))
    )


def _pattern(text: str) -> tuple[str, re2._Regexp]:
    import re2  # RE2: linear in what it looks at, whoever wrote the pattern

    label, equals, pattern = text.partition("=")
    try:
        if not equals or label.strip() not in _LABELS:
            raise InvalidConfig(f"Illegal client matching pattern: {text}")
        return label.strip(), re2.compile(pattern.strip(), _quiet(re2))
    except re2.error:
        raise InvalidConfig(f"Illegal client matching pattern: {text}") from None


def _quiet(module: type[re2] | object) -> re2.Options:
    options: re2.Options = module.Options()  # type: ignore[union-attr]
    options.log_errors = False
    return options


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _path(name: str) -> str:
    # A subscription may be called "..", a node of ZooKeeper may not.
    return f"{_ROOT}/{quote(name, safe='').replace('.', '%2E')}"
