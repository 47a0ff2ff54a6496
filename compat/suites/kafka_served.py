"""A broker of Kafka's protocol for a suite, ours or Apache Kafka's own, with the settings that the suite wants."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from broker import standalone
from places import ELSEWHERE, PATIENT, cluster

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.kafka import Kafka
from benchmarks.peers.server import free_port
from examples.cluster.servers import Broker, Proxy, free_ports

KINDS = ("magnetar", "kafka", *ELSEWHERE)
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


@contextmanager
def in_cluster(place: str, settings: Sequence[str], host: str = "127.0.0.1") -> Iterator[dict[str, str]]:
    """Start brokers as a suite wants its own, and a proxy; give what clients of ``place`` know, by protocol.

    Servers call themselves ``host``, and count on from the settings' ``broker.id``, or 0. The schema registry is a
    broker's in either place.
    """
    first = next((int(each.partition("=")[2]) for each in settings if each.startswith("broker.id=")), 0)
    common = [each for each in ours(settings) if not each.startswith("broker.id=")]
    registries: list[int] = []

    def own(server: Broker | Proxy) -> dict[str, object]:
        told: dict[str, object] = {"advertised.listeners": f"PLAINTEXT://{host}:{server.kafka}"}
        if isinstance(server, Proxy):
            return told | {"proxy.node.id": first}
        registries.append(free_port())
        registry = f"http://127.0.0.1:{registries[-1]}"
        return told | {"node.id": first + server.number - 1, "schema.registry.listeners": registry}

    with cluster(place, PATIENT, *common, own=own) as (_, addresses):
        kafka = addresses["kafka"].replace("127.0.0.1", host)
        yield {"kafka": kafka, "schema-registry": f"127.0.0.1:{registries[0]}"}


@contextmanager
def served(kind: str, *settings: str, host: str = "127.0.0.1") -> Iterator[str]:
    """Start ``kind`` (magnetar, kafka, or ours as `places` has it), which calls itself ``host``; give its address."""
    if kind in ELSEWHERE:
        with in_cluster(kind, settings, host) as addresses:
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


class Listener(NamedTuple):
    """One of several listeners of a broker."""

    name: str
    protocol: str
    told: int = 0
    """The port that clients are told; 0 is where it listens."""


@contextmanager
def listening(
    kind: str, listeners: Sequence[Listener], *settings: str, host: str = "127.0.0.1"
) -> Iterator[list[str]]:
    """Start ``kind`` (magnetar, kafka) with these listeners; give the address of each, where it listens."""
    ports = free_ports(len(listeners) + 1)
    here, there, addresses, protocols = [], [], [], []
    for each, port in zip(listeners, ports, strict=False):
        addresses.append(f"127.0.0.1:{port}")
        here.append(f"{each.name}://{addresses[-1]}")
        there.append(f"{each.name}://{host}:{each.told or port}")
        protocols.append(f"{each.name}:{each.protocol}")
    if kind == "magnetar":
        where = _listeners(here, there, protocols)
        with standalone(*ours(settings), *where, f"inter.broker.listener.name={listeners[0].name}"):
            yield addresses
        return
    controller = f"127.0.0.1:{ports[-1]}"

    class Suited(Kafka):
        extra = (
            *_listeners([*here, f"CONTROLLER://{controller}"], there, [*protocols, "CONTROLLER:PLAINTEXT"]),
            f"inter.broker.listener.name={listeners[0].name}",
            f"controller.quorum.bootstrap.servers={controller}",
            *settings,
        )

        def prepare(self) -> None:
            self.port = ports[0]
            super().prepare()

    with tempfile.TemporaryDirectory(prefix="kafka-") as directory, Suited(Path(directory) / "data"):
        yield addresses


def _listeners(here: Sequence[str], there: Sequence[str], protocols: Sequence[str]) -> tuple[str, ...]:
    return (
        f"listeners={','.join(here)}",
        f"advertised.listeners={','.join(there)}",
        f"listener.security.protocol.map={','.join(protocols)}",
    )
