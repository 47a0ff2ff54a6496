"""The broker that the own scripts of Pulsar's clients start: with their configuration, tenants and grants.

Apache Pulsar and Magnetar are given the same file; only addresses, ports and the places of keys are changed in it.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

import jwt
from broker import standalone
from places import ELSEWHERE, PATIENT, cluster

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.pulsar import Pulsar
from benchmarks.peers.server import free_port
from examples.cluster.servers import Broker, Proxy
from magnetar.node.setting_sources import read_properties

_OPENER = build_opener(ProxyHandler({}))
PATIENCE_S = 60
KINDS = ("magnetar", "pulsar", *ELSEWHERE)
_PORT = re.compile("^(broker|web)ServicePort")
_OF_PROXIES = (
    "advertisedAddress",
    "tlsCertificateFilePath",
    "tlsKeyFilePath",
    "tlsTrustCertsFilePath",
)
"""What a suite's file says that a proxy must know, too."""
ANYBODY = {"namespace_auth": {"anonymous": ["produce", "consume"]}}
_TOKEN_ONLY = {"namespace_auth": {"token-principal": ["produce", "consume"]}}
Grants = tuple[tuple[str, dict[str, object]], ...]
GRANTS: Grants = (
    ("tenants/public", {"adminRoles": ["anonymous"], "allowedClusters": ["standalone"]}),
    ("namespaces/public/default", {"auth_policies": ANYBODY, "replication_clusters": ["standalone"]}),
    ("namespaces/public/default-2", {"auth_policies": ANYBODY, "replication_clusters": ["standalone"]}),
    ("tenants/private", {"adminRoles": [], "allowedClusters": ["standalone"]}),
    ("namespaces/private/auth", {"auth_policies": _TOKEN_ONLY, "replication_clusters": ["standalone"]}),
)
"""What the suites' scripts put once their brokers serve."""


class Given(NamedTuple):
    """What a suite brings for its broker."""

    conf: Path
    """Its ``standalone.conf``."""
    certificates: Path
    """The folder of the broker's certificate, its key, and whom it trusts."""
    passwords: Path
    secret: bytes
    """With which tokens are signed."""
    more: Mapping[str, str] = {}
    """Further settings whose places are not those of its conf."""
    ports: Mapping[str, int] = {}
    """Where the broker must be, by scheme; elsewhere it is where there is room."""
    grants: Grants = GRANTS


@contextmanager
def served(kind: str, given: Given) -> Iterator[dict[str, str]]:
    """Addresses of a fresh broker by scheme (``pulsar``, ``pulsar+ssl``, ``http``, ``https``), and ``token``.

    ``kind`` is magnetar, pulsar, or ours as `places` has it.
    """
    with tempfile.TemporaryDirectory(prefix="magnetar-suite-") as directory:
        there = Path(directory)
        secret = there / "secret.key"
        secret.write_bytes(given.secret)
        tls, https = (str(given.ports.get(each) or free_port()) for each in ("pulsar+ssl", "https"))
        certificates = given.certificates
        settings = {
            "brokerServicePortTls": tls,
            "webServicePortTls": https,
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "localhost",
            "tlsCertificateFilePath": str(certificates / "broker-cert.pem"),
            "tlsKeyFilePath": str(certificates / "broker-key.pem"),
            "tlsTrustCertsFilePath": str(certificates / "cacert.pem"),
            "tokenSecretKey": secret.as_uri(),
            "basicAuthConf": str(given.passwords),
            **given.more,
        }
        encrypted = {"pulsar+ssl": f"localhost:{tls}", "https": f"localhost:{https}"}
        with _starts(kind, given.ports)(there, given.conf, settings) as addresses:
            _put_grants(addresses, _token(secret, "superUser"), given.grants)
            yield encrypted | addresses | {"token": _token(secret, "token-principal")}


_Start = Callable[[Path, Path, Mapping[str, str]], AbstractContextManager[dict[str, str]]]


def _starts(kind: str, ports: Mapping[str, int]) -> _Start:
    if kind in ELSEWHERE:
        return lambda _, conf, settings: _in_cluster(kind, conf, settings)
    return partial(_pulsar if kind == "pulsar" else _magnetar, ports)


@contextmanager
def _magnetar(
    ports: Mapping[str, int], there: Path, conf: Path, settings: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    # Kafka's listener is not the suite's, and Pulsar never creates a namespace by itself.
    ours = {**settings, "auto.create.namespaces.enable": "false"}
    config = _changed(conf, ours, there / "broker.conf")
    with standalone(protocols=("pulsar", "http"), config=config, ports=ports) as ready:
        yield {
            scheme: address.split(",")[0].replace("127.0.0.1", "localhost")
            for scheme, address in (pair.split("=") for pair in ready.split())
        }


@contextmanager
def _in_cluster(place: str, conf: Path, settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Brokers that share the suite's file, each at ports of its own, and a proxy with the same certificate."""
    common = {**read_properties(conf), **settings, "auto.create.namespaces.enable": "false"}
    common = {name: value for name, value in common.items() if not _PORT.search(name)}
    encrypted: dict[Broker | Proxy, tuple[int, int]] = {}

    def own(server: Broker | Proxy) -> dict[str, object]:
        tls, https = encrypted[server] = free_port(), free_port()
        told: dict[str, object] = {
            "pulsar.listeners": f"pulsar://127.0.0.1:{server.pulsar},pulsar+ssl://127.0.0.1:{tls}",
            "http.listeners": f"http://127.0.0.1:{server.http},https://127.0.0.1:{https}",
        }
        if isinstance(server, Proxy):
            return told | {name: common[name] for name in _OF_PROXIES}
        # Brokers are no anonymous clients of each other: they log in, by a password of the cluster's own.
        return told | {
            "cluster.name": common["clusterName"],
            "listeners": f"SASL_PLAINTEXT://127.0.0.1:{server.kafka}",
        }

    with cluster(place, PATIENT, own=own, conf=common) as (servers, addresses):
        first = servers.proxy if place == "proxy" else servers.brokers[0]
        tls, https = encrypted[first]
        yield {
            "pulsar": addresses["pulsar"].replace("127.0.0.1", "localhost"),
            "http": addresses["http"].replace("127.0.0.1", "localhost"),
            "pulsar+ssl": f"localhost:{tls}",
            "https": f"localhost:{https}",
        }


@contextmanager
def _pulsar(
    ports: Mapping[str, int], there: Path, conf: Path, settings: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    class Suited(Pulsar):
        """With the suite's settings in place of the release's."""

        ready_path = "/metrics/"
        advertised = "localhost"  # which the suites' certificates name: the broker calls itself by it, too

        def released_conf(self) -> Path:
            return conf

        def free_port(self, scheme: str) -> int:
            return ports.get(scheme) or super().free_port(scheme)

    Suited.settings = settings
    with Suited(there / "pulsar") as broker:
        yield {
            "pulsar": f"localhost:{broker.port}",
            "http": f"localhost:{broker.http_address.rpartition(':')[2]}",
        }


def _changed(conf: Path, settings: Mapping[str, str], target: Path) -> Path:
    kept = [line for line in conf.read_text().splitlines() if line.split("=", 1)[0].strip() not in settings]
    target.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in settings.items())]) + "\n")
    return target


def _token(secret: Path, subject: str) -> str:
    return jwt.encode({"sub": subject}, secret.read_bytes(), "HS256")


def _put_grants(addresses: Mapping[str, str], token: str, grants: Grants) -> None:
    """Put what the script puts, updating what is there; Pulsar takes a moment until it takes such requests."""
    cluster = {
        "serviceUrl": f"http://{addresses['http']}/",
        "brokerServiceUrl": f"pulsar://{addresses['pulsar']}/",
    }
    for path, body in (("clusters/standalone", cluster), *grants):
        url, end = f"http://{addresses['http']}/admin/v2/{path}", time.monotonic() + PATIENCE_S
        while (status := _put(url, token, body)) // 100 != 2:
            if time.monotonic() > end:
                raise RuntimeError(f"{path} was refused with {status}")
            time.sleep(0.5)


def _put(url: str, token: str, body: Mapping[str, object]) -> int:
    status = _request(url, "PUT", token, body)
    if "/clusters/" in url and status == 409:
        return 204  # it is there, which is all that is wanted
    if status != 409:
        return status
    if "/tenants/" in url:
        return _request(url, "POST", token, body)
    return _grant(url, token, body)


def _grant(url: str, token: str, body: Mapping[str, object]) -> int:
    """Grant what ``body`` says in a namespace that is there."""
    policies = cast("dict[str, dict[str, dict[str, list[str]]]]", body)["auth_policies"]
    found = {
        _request(f"{url}/permissions/{role}", "POST", token, actions)
        for role, actions in policies["namespace_auth"].items()
    }
    return max(found)


def _request(url: str, method: str, token: str, body: object) -> int:
    request = Request(url, json.dumps(body).encode(), method=method)
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", f"Bearer {token}")
    try:
        with _OPENER.open(request, timeout=20) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except URLError:
        return 503  # Kafka's port, by which servers of a cluster are known to be ready, may be there before HTTP's
