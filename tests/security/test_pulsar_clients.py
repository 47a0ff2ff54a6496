"""Pulsar's stock client with the same tokens, certificates and grants that Kafka's clients have."""

from __future__ import annotations

import time
from pathlib import Path

import pulsar
import pytest

from magnetar.admin.client import ask
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.process import BrokerProcess
from tests.pulsar.raw import Raw, frame
from tests.security.certificates import Authority
from tests.security.conftest import Secured, listening
from tests.security.signing import OTHER_SECRET, SECRET_URL, expiring, token, unsigned

BIG = bytes(range(256)) * 4000
VALUES = [b"%d" % index for index in range(200)] + [BIG, b"", BIG]


def connected(
    secured: Secured,
    role: str,
    *,
    tls: bool = False,
    by: str = "token",
    text: str | None = None,
    authority: Path | None = None,
    seconds: int = 10,
) -> pulsar.Client:
    options: dict[str, object] = {
        "operation_timeout_seconds": seconds,
        "logger": pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    }
    if tls:
        options |= {"tls_trust_certs_file_path": str(authority or secured.authority.file)}
        options |= {"tls_allow_insecure_connection": False, "tls_validate_hostname": True}
    if by == "token":
        options["authentication"] = pulsar.AuthenticationToken(token(role) if text is None else text)
    elif by == "certificate":
        certificate, key = secured.authority.sign(role)
        options["authentication"] = pulsar.AuthenticationTLS(str(certificate), str(key))
    return pulsar.Client(secured.pulsar(tls=tls), **options)


@pytest.mark.parametrize(("tls", "by"), [(False, "token"), (True, "token"), (True, "certificate")])
def test_who_is_known_writes_and_reads(secured: Secured, tls: bool, by: str) -> None:
    topic = f"pulsar-{by}-{tls}"
    client = connected(secured, "root", tls=tls, by=by)
    consumer = client.subscribe(topic, "sub", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(topic)
    for value in VALUES:
        producer.send_async(value, lambda *_: None)
    producer.flush()
    assert [consumer.receive(10_000).data() for _ in VALUES] == VALUES
    client.close()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (token("root", OTHER_SECRET), "Signature verification failed"),
        (expiring(-5, "root"), "expired"),
        (unsigned("root"), "alg value is not allowed"),
        (None, "does not say who it is"),
    ],
)
def test_who_proves_nothing_is_refused(secured: Secured, text: str | None, why: str) -> None:
    """The client takes any refusal of its CONNECT for a lost connection, and tries until its time is up."""
    before = len(secured.process.log_lines())
    client = connected(secured, "root", by="nothing" if text is None else "token", text=text, seconds=1)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("refused")
    client.close()
    assert why in "\n".join(secured.process.log_lines()[before:])


def test_a_broker_of_another_authority_is_not_trusted(secured: Secured, tmp_path: Path) -> None:
    client = connected(secured, "root", tls=True, authority=Authority(tmp_path).file, seconds=1)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("refused")
    client.close()


def test_a_missing_tenant_is_said_to_be_missing(secured: Secured) -> None:
    client = connected(secured, "nobody-in-particular")
    with pytest.raises(pulsar.TopicNotFound):
        client.create_producer("persistent://no-such-tenant/ns/topic")
    with pytest.raises(pulsar.AuthorizationError):
        client.create_producer("persistent://public/no-such-namespace/topic")
    client.close()


def test_one_grant_counts_for_both_protocols(secured: Secured) -> None:
    topic = "both-worlds"
    root = connected(secured, "root")
    root.create_producer(topic).send(b"first")
    root.close()
    ask(secured.process.data, "grant", target=topic, role="pulsar-reader", actions=["consume"])
    ask(secured.process.data, "grant", target=topic, role="pulsar-writer", actions=["produce"])
    reader, writer = (connected(secured, f"pulsar-{each}") for each in ("reader", "writer"))
    with pytest.raises(pulsar.AuthorizationError):
        reader.create_producer(topic)
    with pytest.raises(pulsar.AuthorizationError):
        writer.subscribe(topic, "sub")
    writer.create_producer(topic).send(b"second")
    consumer = reader.subscribe(topic, "sub", initial_position=pulsar.InitialPosition.Earliest)
    assert [consumer.receive(10_000).data() for _ in range(2)] == [b"first", b"second"]
    reader.close()
    writer.close()
    assert listening(secured, "pulsar-reader", topic, 2) == [b"first", b"second"]


@pytest.mark.slow
def test_a_token_that_ends_is_asked_for_again(tmp_path: Path) -> None:
    """The client gives its next token while its producer goes on; without a good one it is let go."""
    texts = {
        "pulsar.listeners": "pulsar://127.0.0.1:0",
        "tokenSecretKey": SECRET_URL,
        "authenticationEnabled": "true",
        "keep.alive.interval.ms": "4000",
    }
    settings = [part for name, text in texts.items() for part in ("--set", f"{name}={text}")]
    with BrokerProcess(tmp_path / "data", *settings) as process:
        given: list[str] = []

        def next_token() -> str:
            given.append(expiring(3 if len(given) < 2 else -1, "alice"))
            return given[-1]

        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(
            process.pulsar_url,
            authentication=pulsar.AuthenticationToken(next_token),
            operation_timeout_seconds=2,
            logger=quiet,
        )
        producer = client.create_producer("renewed", send_timeout_millis=10_000)
        deadline = time.monotonic() + 60
        while not (refused := [line for line in process.log_lines() if "authentication failed" in line]):
            assert time.monotonic() < deadline
            if len(given) < 3:
                try:
                    producer.send(b"still there")
                except pulsar.Timeout:
                    assert len(given) >= 3, "it was let go with a good token"
            time.sleep(0.05)
        assert "expired" in refused[0]
        assert len(given) >= 3
        client.close()


def test_nobody_becomes_somebody_else(secured: Secured) -> None:
    with Raw(secured.process, connect=False) as raw:
        assert raw.ask(hello(token("root"))).type == BaseCommand.CONNECTED
        other = BaseCommand(type=BaseCommand.AUTH_RESPONSE)
        other.authResponse.response.auth_method_name = "token"
        other.authResponse.response.auth_data = token("mallory").encode()
        raw.send(frame(other))
        assert raw.hears_nothing_more()
    assert any("would become mallory" in line for line in secured.process.log_lines())


def hello(text: str) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.CONNECT)
    command.connect.client_version, command.connect.protocol_version = "raw", 20
    command.connect.auth_method_name, command.connect.auth_data = "token", text.encode()
    return command
