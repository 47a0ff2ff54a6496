"""The broker that the own scripts of Pulsar's clients start: with their configuration, tenants and grants.

Apache Pulsar and Magnetar are given the same file; only addresses, ports and the places of keys are changed in it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import jwt
from broker import standalone

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.pulsar import Pulsar
from benchmarks.peers.server import free_port

_OPENER = build_opener(ProxyHandler({}))
PATIENCE_S = 60
_ANYBODY = {"namespace_auth": {"anonymous": ["produce", "consume"]}}
_TOKEN_ONLY = {"namespace_auth": {"token-principal": ["produce", "consume"]}}
GRANTS: tuple[tuple[str, dict[str, object]], ...] = (
    ("tenants/public", {"adminRoles": ["anonymous"], "allowedClusters": ["standalone"]}),
    ("namespaces/public/default", {"auth_policies": _ANYBODY, "replication_clusters": ["standalone"]}),
    ("namespaces/public/default-2", {"auth_policies": _ANYBODY, "replication_clusters": ["standalone"]}),
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


@contextmanager
def served(kind: str, given: Given) -> Iterator[dict[str, str]]:
    """Addresses of a fresh broker by scheme (``pulsar``, ``pulsar+ssl``, ``http``, ``https``), and ``token``.

    ``kind`` is magnetar or pulsar.
    """
    with tempfile.TemporaryDirectory(prefix="magnetar-suite-") as directory:
        there = Path(directory)
        secret = there / "secret.key"
        secret.write_bytes(given.secret)
        tls, https = str(free_port()), str(free_port())
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
        start = _pulsar if kind == "pulsar" else _magnetar
        with start(there, given.conf, settings) as addresses:
            _put_grants(addresses, _token(secret, "superUser"))
            yield addresses | {
                "pulsar+ssl": f"localhost:{tls}",
                "https": f"localhost:{https}",
                "token": _token(secret, "token-principal"),
            }


@contextmanager
def _magnetar(there: Path, conf: Path, settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
    # Kafka's listener is not the suite's, and Pulsar never creates a namespace by itself.
    ours = {**settings, "auto.create.namespaces.enable": "false"}
    config = _changed(conf, ours, there / "broker.conf")
    with standalone(protocols=("pulsar", "http"), config=config) as ready:
        yield {
            scheme: address.split(",")[0].replace("127.0.0.1", "localhost")
            for scheme, address in (pair.split("=") for pair in ready.split())
        }


@contextmanager
def _pulsar(there: Path, conf: Path, settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
    class Suited(Pulsar):
        """With the suite's settings in place of the release's."""

        ready_path = "/metrics/"
        advertised = "localhost"  # which the suites' certificates name: the broker calls itself by it, too

        def released_conf(self) -> Path:
            return conf

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


def _put_grants(addresses: Mapping[str, str], token: str) -> None:
    """Put what the script puts, updating what is there; Pulsar takes a moment until it takes such requests."""
    cluster = {
        "serviceUrl": f"http://{addresses['http']}/",
        "brokerServiceUrl": f"pulsar://{addresses['pulsar']}/",
    }
    for path, body in (("clusters/standalone", cluster), *GRANTS):
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
