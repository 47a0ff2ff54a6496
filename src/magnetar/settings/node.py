"""The settings of the process itself: a part of `Settings`."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import Feed, setting
from magnetar.base.values import Kind, at_least, between, one_of


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Directories, identity and protocols of a broker."""

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
    broker_rack: str | None = setting(
        None, Kind.STRING, "Rack of this broker, returned to clients so that they fetch from a near one."
    )
    log_level: str = setting(
        "INFO",
        Kind.STRING,
        "Least level that is logged.",
        rule=one_of("DEBUG", "INFO", "WARNING", "ERROR"),
    )
    log_format: str = setting(
        "text", Kind.STRING, "Form of log lines on standard error.", rule=one_of("text", "json")
    )
    audit_log_file: str = setting(
        "",
        Kind.STRING,
        "File of audit lines, one JSON object for each administrative act of any protocol; without it they go to the "
        "log, by the logger magnetar.audit. Each of several workers has its own, with its number behind the name.",
    )
    audit_log_max_bytes: int = setting(
        64 << 20,
        Kind.INT,
        "Size at which the audit file is put aside and a new one begun.",
        unit="bytes",
        rule=at_least(1 << 10),
    )
    audit_log_backups: int = setting(
        10, Kind.INT, "Number of audit files that are retained next to the newest.", rule=between(1, 10_000)
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
    disk_min_free_bytes: int = setting(
        -1,
        Kind.LONG,
        "What is to stay free in data.dir's file system: with less, producers are refused as by a full disk, so that "
        "committed offsets and metadata can still be written. 0 for nothing; negative: a twentieth of the file system, "
        "256 MiB at most.",
        unit="bytes",
        rule=at_least(-1),
        dynamic=True,
    )
    storage_failure_halt: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether the broker ends (exit status 74) once its disk has failed and only a restart can find out what "
        "is stored. If not, it goes on serving reads, and its health checks fail.",
        dynamic=True,
    )
