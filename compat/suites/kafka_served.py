"""A broker of Kafka's protocol for a suite, ours or Apache Kafka's own, with the settings that the suite wants."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from broker import standalone
from places import cluster

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.kafka import Kafka
from examples.cluster.servers import Broker, Proxy

KINDS = ("magnetar", "kafka", "cluster", "proxy")
AUTHORIZER = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found=true",
)
"""For suites that make ACLs: nobody logs in, and who is nobody may do what no ACL is about."""
_ANONYMOUS = ("authentication.enabled=true", "anonymous.user.role=ANONYMOUS")
"""Ours asks who clients are before it asks what they may do; Kafka calls those ANONYMOUS who do not say."""


def ours(settings: Sequence[str]) -> tuple[str, ...]:
    """Return what a Magnetar broker is given for these of Kafka's settings."""
    return (*settings, *(_ANONYMOUS if set(AUTHORIZER) <= set(settings) else ()))


def _named(server: Broker | Proxy) -> dict[str, object]:
    """Return what suites expect to be said of a broker: its address, and numbers that begin with 0."""
    number = {"node.id": server.number - 1} if isinstance(server, Broker) else {}
    return {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{server.kafka}", **number}


@contextmanager
def served(kind: str, *settings: str, host: str = "127.0.0.1") -> Iterator[str]:
    """Start ``kind`` (magnetar, kafka, or ours as `places` has it), which calls itself ``host``; give its address."""
    if kind in ("cluster", "proxy"):
        if host != "127.0.0.1":
            raise ValueError(f"in a {kind} servers call themselves 127.0.0.1, not {host}")
        with cluster(kind, *ours(settings), own=_named) as (_, addresses):
            yield addresses["kafka"]
        return
    if kind == "magnetar":
        with standalone(*ours(settings), f"advertised.listeners=PLAINTEXT://{host}:0") as address:
            yield address.replace("127.0.0.1", host)
        return

    class Suited(Kafka):
        extra = settings  # a name that stands twice counts where it stands last
        advertised = host

    with (
        tempfile.TemporaryDirectory(prefix="kafka-") as directory,
        Suited(Path(directory) / "data") as broker,
    ):
        yield broker.address.replace("127.0.0.1", host)
