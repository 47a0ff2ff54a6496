"""A cluster as ZooKeeper knows it: brokers, who has which bundle, bookies; and whether what is told there is so.

Read straight from ZooKeeper, so that it also helps where no broker answers. Nothing is changed there. Paths are those
of Pulsar and BookKeeper (`magnetar.cluster.cluster_ownership` says which).
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from magnetar.admin.errors import AdminError, Invalid, Unreachable
from magnetar.base.errors import BrokerError
from magnetar.logs.storage.cluster import ZooKeeperAddress, bookies_address, zookeeper_address
from magnetar.metadata.zookeeper_security import InvalidZooKeeperConfig, ZooKeeperSecurity, untrusted
from magnetar.topics.identity import CLUSTERS

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_BROKERS, _IDS, _OWNERS = "/loadbalance/brokers", "/magnetar/broker-ids", "/namespace"
_POLICIES, _LOCAL = "/admin/policies", "/admin/local-policies"
_TIMEOUT_S = 5.0
_AT_ONCE = 256
MOST_LEDGERS = 10_000
"""Under-replicated ledgers that are counted; more say the same."""


@dataclass(frozen=True, slots=True)
class EndpointLine:
    """Where clients of one listener are told to go, and why they cannot be connected there from here."""

    listener: str
    address: str
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class BrokerLine:
    """One broker that lives. ``clock_ms`` is how far its clock was ahead of ZooKeeper's when it last said something."""

    node_id: int
    """-1 for a broker that is not Magnetar's."""
    name: str
    version: str
    rack: str | None
    is_controller: bool
    endpoints: tuple[EndpointLine, ...]
    bundles: int
    clock_ms: int | None
    session: int
    quorums: Mapping[str, int] = field(default_factory=dict)
    """``ensemble``, ``writeQuorum``, ``ackQuorum`` of the ledgers that it makes."""
    load: Mapping[str, Any] = field(default_factory=dict)
    """What it says of its load, in Pulsar's words."""


@dataclass(frozen=True, slots=True)
class BundleLine:
    """One bundle, and the broker that has it: its number, -1 for a broker of Pulsar's, None for nobody."""

    bundle: str
    owner: int | None
    epoch: int | None


@dataclass(frozen=True, slots=True)
class BookieLine:
    """One bookie. ``state`` is writable, readonly, or lost: it has been there, has ledgers maybe, and is gone."""

    bookie: str
    state: str


@dataclass(frozen=True, slots=True)
class ZooKeeperLine:
    """One server of ZooKeeper's; what it does not tell is None. ``trouble`` is why it does not answer."""

    server: str
    version: str | None = None
    mode: str | None = None
    latency_ms: float | None = None
    outstanding: int | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """All that was found."""

    metadata: str
    names: tuple[str, ...]
    """Of the clusters whose metadata lie there; usually one."""
    brokers: tuple[BrokerLine, ...]
    claimed: Mapping[int, int]
    """The session that each broker's number belongs to."""
    bundles: tuple[BundleLine, ...]
    bookies: tuple[BookieLine, ...]
    has_bookkeeper: bool
    """Whether bookies were ever set up there."""
    auditor: str | None
    """The bookie that has lost bookies' ledgers copied; None if none does."""
    under_replicated: int
    zookeeper: tuple[ZooKeeperLine, ...]
    seconds: float

    @property
    def writable_bookies(self) -> int:
        return sum(each.state == "writable" for each in self.bookies)


def look(metadata: str, bookkeeper: str = "", client_config: str = "") -> ClusterState:
    """Return the state of the cluster at ``metadata`` (``zk:...``); ``bookkeeper`` says where else bookies lie.

    ``client_config`` names a file of ZooKeeper's client properties, as metadataStoreConfigPath does.

    Raises `Invalid`, or `Unreachable` where ZooKeeper does not answer.
    """
    began = time.monotonic()
    try:
        address = zookeeper_address(metadata)
        ledgers = bookies_address(bookkeeper) or address
    except BrokerError as error:
        raise Invalid(str(error), "As metadataStoreUrl has it: zk:HOST:PORT,HOST:PORT/PATH.") from error
    try:
        security = ZooKeeperSecurity.read(client_config)
        context = security.context()
    except InvalidZooKeeperConfig as error:
        raise Invalid(str(error)) from error
    with ThreadPoolExecutor(16) as threads:
        asked = threads.map(partial(_asked, context), address.hosts.split(","))
        with _connected(address, security) as zookeeper:
            names = _children(zookeeper, CLUSTERS)
            bundles = _bundles(zookeeper)
            brokers = _brokers(zookeeper, bundles)
            claimed = _claimed(zookeeper)
        with _connected(ledgers, security) as zookeeper:
            has_bookkeeper = zookeeper.exists("/ledgers") is not None
            bookies = _bookies(zookeeper)
            auditor, under_replicated = _auditor(zookeeper), _under_replicated(zookeeper)
        addresses = [each.address for broker in brokers for each in broker.endpoints]
        troubles = dict(zip(addresses, threads.map(_trouble, addresses), strict=True))
        servers = tuple(asked)
    return ClusterState(
        metadata,
        tuple(name for name in names if name != "global"),
        tuple(_tried(each, troubles) for each in brokers),
        claimed,
        tuple(bundles),
        tuple(bookies),
        has_bookkeeper,
        auditor,
        under_replicated,
        servers,
        round(time.monotonic() - began, 3),
    )


@contextmanager
def _connected(address: ZooKeeperAddress, security: ZooKeeperSecurity) -> Iterator[KazooClient]:
    try:
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        from magnetar.metadata.kazoo_client import SecuredClient
    except ImportError as error:
        raise AdminError("kazoo is not installed", "pip install 'magnetar[cluster]'") from error
    client = SecuredClient(address.hosts + address.root, security, timeout=_TIMEOUT_S, read_only=True)
    try:
        client.start(_TIMEOUT_S)
        yield client
    except (KazooTimeoutError, KazooException) as error:
        raise Unreachable(
            f"no ZooKeeper answers at {address.hosts}: {error} ({client.trouble})",
            "Is it running, does it have a majority, and is this what metadataStoreUrl says?",
        ) from error
    finally:
        with suppress(KazooException):
            client.stop()
            client.close()


def _children(zookeeper: KazooClient, path: str) -> list[str]:
    from kazoo.exceptions import NoNodeError

    try:
        return sorted(zookeeper.get_children(path))
    except NoNodeError:
        return []


def _nodes(zookeeper: KazooClient, paths: Sequence[str]) -> Iterator[tuple[str, bytes, Any]]:
    """Yield those that are there, many asked for at once."""
    from kazoo.exceptions import NoNodeError

    for begin in range(0, len(paths), _AT_ONCE):
        some = paths[begin : begin + _AT_ONCE]
        for path, asked in [(path, zookeeper.get_async(path)) for path in some]:
            with suppress(NoNodeError):
                value, stat = asked.get()
                yield path, value, stat


def _below(zookeeper: KazooClient, path: str, depth: int) -> list[str]:
    """Return the paths of nodes so many levels below one."""
    level = [path]
    for _ in range(depth):
        level = [f"{each}/{name}" for each in level for name in _children(zookeeper, each)]
    return level


def _object(value: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(value)
        if isinstance(found, dict):
            return found
    return {}


def _bundles(zookeeper: KazooClient) -> list[BundleLine]:
    """Return the bundles of all namespaces whose bounds are stored, and those that somebody has for other reasons."""
    bounds = {}
    for path, value, _ in _nodes(zookeeper, _below(zookeeper, _LOCAL, 2)):
        with suppress(KeyError, TypeError):
            stored = [str(each) for each in _object(value)["bundles"]["boundaries"]]
            bounds[path.removeprefix(f"{_LOCAL}/")] = stored
    owners: dict[str, tuple[int, int]] = {}
    for path, value, _ in _nodes(zookeeper, _below(zookeeper, _OWNERS, 3)):
        told = _object(value).get("magnetar")
        owner = (-1, -1) if not isinstance(told, dict) else (told.get("nodeId", -1), told.get("epoch", -1))
        owners[path.removeprefix(f"{_OWNERS}/")] = owner
    known = [
        f"{namespace}/{first}_{end}"
        for namespace, stored in sorted(bounds.items())
        for first, end in pairwise(stored)
    ]
    every = [*known, *sorted(set(owners) - set(known))]
    return [BundleLine(each, *owners.get(each, (None, None))) for each in every]


def _brokers(zookeeper: KazooClient, bundles: Sequence[BundleLine]) -> list[BrokerLine]:
    found = []
    for path, value, stat in _nodes(zookeeper, _below(zookeeper, _BROKERS, 1)):
        told = _object(value)
        node_id = told.get("nodeId")
        number = node_id if isinstance(node_id, int) else -1
        clock = told.get("lastUpdate")
        found.append(
            BrokerLine(
                number,
                path.removeprefix(f"{_BROKERS}/"),
                str(told.get("brokerVersionString") or told.get("brokerVersion") or ""),
                told.get("rack"),
                is_controller=False,
                endpoints=tuple(_endpoints(told)),
                bundles=sum(each.owner == number for each in bundles),
                clock_ms=clock - stat.mtime if isinstance(clock, int) and number >= 0 else None,
                session=stat.ephemeralOwner,
                quorums=told.get("bookkeeper") or {},
                load={name: told[name] for name in _LOAD if name in told},
            )
        )
    leader = min((each.node_id for each in found if each.node_id >= 0), default=-1)
    found.sort(key=lambda each: (each.node_id, each.name))
    return [replace(each, is_controller=each.node_id == leader >= 0) for each in found]


_LOAD = (
    "cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut", "msgThroughputIn", "msgThroughputOut",
    "msgRateIn", "msgRateOut", "numTopics", "numBundles", "numConsumers", "numProducers",
)  # fmt: skip


def _tried(broker: BrokerLine, troubles: Mapping[str, str]) -> BrokerLine:
    """Return a broker with what was found at its addresses."""
    endpoints = [replace(each, trouble=troubles[each.address]) for each in broker.endpoints]
    return replace(broker, endpoints=tuple(endpoints))


def _endpoints(told: Mapping[str, Any]) -> Iterator[EndpointLine]:
    endpoints = told.get("endpoints")
    if isinstance(endpoints, dict):
        for listener, place in sorted(endpoints.items()):
            with suppress(TypeError, ValueError):
                host, port = place
                yield EndpointLine(listener, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        return
    for listener in ("pulsarServiceUrl", "pulsarServiceUrlTls", "webServiceUrl", "webServiceUrlTls"):
        if url := told.get(listener):
            yield EndpointLine(listener, str(url).partition("://")[2])


def _trouble(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        return str(error)
    return ""


def _claimed(zookeeper: KazooClient) -> dict[int, int]:
    claims = _nodes(zookeeper, _below(zookeeper, _IDS, 1))
    return {
        int(number): stat.ephemeralOwner
        for path, _, stat in claims
        if (number := path.rpartition("/")[2]).isdecimal()
    }


def _bookies(zookeeper: KazooClient) -> list[BookieLine]:
    writable = set(_children(zookeeper, "/ledgers/available")) - {"readonly"}
    readonly = set(_children(zookeeper, "/ledgers/available/readonly")) - writable
    lost = set(_children(zookeeper, "/ledgers/cookies")) - writable - readonly
    by_state = {"writable": writable, "readonly": readonly, "lost": lost}
    return [BookieLine(each, state) for state, some in by_state.items() for each in sorted(some)]


def _auditor(zookeeper: KazooClient) -> str | None:
    """Return what stands in the election's oldest vote: who made it is the auditor."""
    votes = sorted(_below(zookeeper, "/ledgers/underreplication/auditorelection", 1))
    for _, value, _ in _nodes(zookeeper, votes[:1]):
        return value.decode("utf-8", "replace").partition('"')[2].partition('"')[0] or "a bookie"
    return None


def _under_replicated(zookeeper: KazooClient) -> int:
    """Count the marks that the auditor has made (``.../ledgers/0000/0000/0000/0007/urL0000000007``)."""
    found, level = 0, ["/ledgers/underreplication/ledgers"]
    while level and found < MOST_LEDGERS:
        path = level.pop()
        for name in _children(zookeeper, path):
            if name.startswith("urL"):
                found += 1
            else:
                level.append(f"{path}/{name}")
    return found


def _asked(context: ssl.SSLContext | None, server: str) -> ZooKeeperLine:
    """Ask one server how it is (``srvr``), which it may have been told not to answer."""
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_S) as plain:
            connection = plain
            if context is not None:
                connection = context.wrap_socket(plain, server_hostname=host.strip("[]"))
            connection.sendall(b"srvr")
            with connection.makefile("rb") as answer:
                said = answer.read(1 << 16).decode("utf-8", "replace")
    except ssl.SSLError as error:
        return ZooKeeperLine(server, trouble=untrusted(server, error))
    except (OSError, ValueError, OverflowError) as error:
        return ZooKeeperLine(server, trouble=str(error))
    told = {
        name.strip(): value.strip() for line in said.splitlines() for name, _, value in [line.partition(":")]
    }
    if "Mode" not in told:  # it is up, but may not say more, or serves nobody for want of a majority
        is_forbidden = "whitelist" in said or not said
        return ZooKeeperLine(server, trouble="" if is_forbidden else said.strip().splitlines()[0])
    latency: float | None = None
    with suppress(KeyError, ValueError, IndexError):
        latency = float(told["Latency min/avg/max"].split("/")[1])
    outstanding = told.get("Outstanding", "")
    return ZooKeeperLine(
        server,
        told.get("Zookeeper version", "").partition("-")[0] or None,
        told["Mode"],
        latency,
        int(outstanding) if outstanding.isdecimal() else None,
    )
