"""What the proxy counts, and how `/metrics` tells it: plain integers, counted per request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from magnetar.wire.kafka.messages import API_KEYS


class RelayFigures:
    """Of Kafka's clients."""

    __slots__ = ("broken", "connections", "moved", "questions", "requests", "seconds")

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.seconds: Counter[int] = Counter()
        """Each by API; from when a request could be begun to its answer."""
        self.moved = 0
        self.broken = 0
        self.questions = 0
        self.connections = 0

    def answered(self, api_key: int, seconds: float) -> None:
        self.requests[api_key] += 1
        self.seconds[api_key] += seconds  # type: ignore[assignment]


class PassingFigures:
    """Of Pulsar's clients."""

    __slots__ = ("bytes_in", "bytes_out", "lookups", "refused", "through")

    def __init__(self) -> None:
        self.lookups = 0
        self.through = 0
        self.refused = 0
        self.bytes_in = 0
        self.bytes_out = 0


Gauge = tuple[str, str, Callable[[], int]]
"""Name, what it tells, and what it is now."""


class ProxyFigures:
    """All of them, as one text (Prometheus' format 0.0.4)."""

    def __init__(self) -> None:
        self.kafka = RelayFigures()
        self.pulsar = PassingFigures()
        self.gauges: list[Gauge] = []

    def text(self) -> str:
        """Return what Prometheus reads."""
        return "".join(self._lines())

    def _lines(self) -> Iterator[str]:
        kafka, pulsar = self.kafka, self.pulsar
        yield _head(
            "magnetar_proxy_kafka_requests_total",
            "counter",
            "Requests of Kafka's clients that were answered.",
        )
        for key, count in kafka.requests.items():
            yield f'magnetar_proxy_kafka_requests_total{{api="{API_KEYS[key][0]}"}} {count}\n'
        yield _head(
            "magnetar_proxy_kafka_request_seconds_total", "counter", "Seconds that their answers took."
        )
        for key, seconds in kafka.seconds.items():
            yield f'magnetar_proxy_kafka_request_seconds_total{{api="{API_KEYS[key][0]}"}} {seconds:.6f}\n'
        for name, text, value in (
            ("kafka_moved_total", "Answers that said that another broker is to be asked.", kafka.moved),
            ("kafka_broken_total", "Requests that a broker never answered.", kafka.broken),
            ("kafka_questions_total", "Questions of the proxy's own, who leads what.", kafka.questions),
            ("kafka_connections_opened_total", "Connections that were made to brokers.", kafka.connections),
            ("pulsar_lookups_total", "Lookups that were answered with the proxy's address.", pulsar.lookups),
            ("pulsar_connections_through_total", "Clients that were connected to a broker.", pulsar.through),
            (
                "pulsar_refused_total",
                "Clients that asked for what is no broker of the cluster.",
                pulsar.refused,
            ),
            ("pulsar_in_bytes_total", "Bytes from Pulsar's clients.", pulsar.bytes_in),
            ("pulsar_out_bytes_total", "Bytes to Pulsar's clients.", pulsar.bytes_out),
        ):
            yield f"{_head('magnetar_proxy_' + name, 'counter', text)}magnetar_proxy_{name} {value}\n"
        for name, text, now in self.gauges:
            yield f"{_head('magnetar_proxy_' + name, 'gauge', text)}magnetar_proxy_{name} {now()}\n"


def _head(name: str, kind: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
