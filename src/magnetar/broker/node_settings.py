"""The settings of the process itself: a part of `Settings`."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.setting import Feed, setting
from magnetar.broker.values import Kind, at_least, between, one_of


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Where things lie, who this broker is, and which protocols it serves."""

    data_dir: str = setting(
        "data",
        Kind.STRING,
        "Directory of ledgers, journal and metadata. One broker at a time may open it.",
        kafka=(
            Feed("log.dirs", lambda text: text.split(",")[0]),
            Feed("log.dir", lambda text: text.split(",")[0]),
        ),
    )
    metadata_url: str = setting(
        "sqlite:",
        Kind.STRING,
        "Where metadata lie: `sqlite:` in data.dir, `memory:` nowhere (for tests), or a URL that an installed package "
        "opens.",
    )
    storage_url: str = setting(
        "files:",
        Kind.STRING,
        "Where messages lie: `files:` in data.dir, `memory:` nowhere (then `metadata.url` is that, too), or a URL that "
        "an installed package opens.",
    )
    node_id: int = setting(
        0, Kind.INT, "Number of this broker, as clients see it.", rule=at_least(0), kafka=("broker.id",)
    )
    workers: int = setting(
        1,
        Kind.INT,
        "Number of processes that serve data.dir together, each as a broker of its own number, from `node.id` on.",
        rule=between(1, 64),
    )
    worker_session_ms: int = setting(
        10_000,
        Kind.INT,
        "Time without a word from one of several workers after which it is killed, and what it owned goes to others.",
        unit="ms",
        rule=between(1000, 600_000),
    )
    worker_port_step: int = setting(
        10,
        Kind.INT,
        "Distance between the ports of a listener that is bound and those of its own that workers get: with 9092 they "
        "are 9102, 9112 and so on. Free ones are chosen where the listener's is 0.",
        rule=between(1, 10_000),
    )
    broker_rack: str | None = setting(None, Kind.STRING, "Rack that clients are told, for fetching nearby.")
    log_level: str = setting(
        "INFO",
        Kind.STRING,
        "Least level that is logged.",
        rule=one_of("DEBUG", "INFO", "WARNING", "ERROR"),
    )
    log_format: str = setting(
        "text", Kind.STRING, "Form of log lines on standard error.", rule=one_of("text", "json")
    )
    messaging_protocols: tuple[str, ...] = setting(
        ("kafka",), Kind.LIST, "Protocol handlers to start.", pulsar=("messagingProtocols",)
    )
    protocol_handler_directory: str = setting(
        "",
        Kind.STRING,
        "Directory with further protocol handlers, as .py files or packages.",
        pulsar=("protocolHandlerDirectory",),
    )
    storage_failure_halt: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether the broker ends (exit status 74) once its disk has failed and only a restart can tell what is kept. "
        "If not, it goes on serving reads, and its health checks fail.",
        dynamic=True,
    )
