"""One secured broker that these tests share, with each kind of listener."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.hostile.client import Wire
from tests.process import BrokerProcess
from tests.security.certificates import Authority
from tests.security.signing import SECRET_URL, token

LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LONGEST_FRAME = 20_000


@dataclass(frozen=True)
class Secured:
    """A broker that wants to know everybody, and asks for grants; ``root`` may do everything."""

    process: BrokerProcess
    authority: Authority

    def address(self, listener: str) -> str:
        return self.process.addresses[LISTENERS.index(listener)]

    def pulsar(self, *, tls: bool) -> str:
        """Return the address for Pulsar's clients."""
        address = self.process.served["pulsar"][int(tls)]
        # A certificate is for a name.
        return f"pulsar+ssl://localhost:{address.rpartition(':')[2]}" if tls else f"pulsar://{address}"

    def wire(self, listener: str = "SASL_PLAINTEXT", context: ssl.SSLContext | None = None) -> Wire:
        host, _, port = self.address(listener).rpartition(":")
        wire = Wire((host, int(port)))
        if context is not None:
            wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost")
        return wire

    def trusting(self, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Return what a client needs that trusts this broker, and shows a certificate if it has one."""
        context = ssl.create_default_context(cafile=self.authority.file)
        if certificate:
            context.load_cert_chain(*certificate)
        return context

    def client(self, listener: str, role: str = "root", user: str = "public/default") -> dict[str, str]:
        """Return librdkafka's configuration for a role."""
        found = {"bootstrap.servers": self.address(listener), "security.protocol": listener}
        if listener.endswith("SSL"):
            found["ssl.ca.location"] = str(self.authority.file)
        if listener == "PLAINTEXT":
            found["security.protocol"] = (
                "SASL_PLAINTEXT"  # as in KoP: authentication is asked for all the same
            )
        if listener == "SSL":
            crt, key = self.authority.sign(role)
            return found | {"ssl.certificate.location": str(crt), "ssl.key.location": str(key)}
        return found | {
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": f"token:{token(role)}",
        }


def say(wire: Wire, password: str, user: str = "public/default", version: int = 2) -> object:
    """Authenticate by SASL PLAIN; give the answer to SaslAuthenticate."""
    assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    return wire.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), version)


def listening(secured: Secured, role: str, topic: str, count: int) -> list[bytes]:
    """Return the first values of a topic, as a Kafka client of that role reads them without a group."""
    consumer = Consumer({**secured.client("SASL_PLAINTEXT", role), "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        for message in consumer.consume(count, 0.5):
            assert not message.error(), message.error()
            found.append(message.value())
    consumer.close()
    return found


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory)
    certificate, key = authority.sign("broker")
    texts = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "tlsCertificateFilePath": certificate,
        "tlsKeyFilePath": key,
        "ssl.truststore.location": authority.file,
        "ssl.client.auth": "required",
        "tokenSecretKey": SECRET_URL,
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "superUserRoles": "root",
        "sasl.server.max.receive.size": LONGEST_FRAME,
        "group.initial.rebalance.delay.ms": 0,
        "pulsar.listeners": "pulsar://127.0.0.1:0,pulsar+ssl://127.0.0.1:0",
        "webServicePortTls": "0",
    }
    settings = [part for name, text in texts.items() for part in ("--set", f"{name}={text}")]
    with BrokerProcess(directory / "data", *settings, kafka=None) as process:
        yield Secured(process, authority)
        assert not [line for line in process.log_lines() if "Traceback" in line or "request failed" in line]


@pytest.fixture
def wire_as(secured: Secured) -> Iterator[Callable[[str], Wire]]:
    """Return connections of roles that have authenticated."""
    opened: list[Wire] = []

    def connect(role: str) -> Wire:
        wire = secured.wire()
        opened.append(wire)
        assert say(wire, f"token:{token(role)}").error_code == 0  # type: ignore[attr-defined]
        return wire

    yield connect
    for wire in opened:
        wire.close()
