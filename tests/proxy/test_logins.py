"""Clients that must say who they are, in TLS, by way of the proxy: it passes on what they say, and knows nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.proxy.processes import PATIENCE_S, ClusterProcess, ProxyProcess
from tests.security.certificates import Authority
from tests.security.signing import SECRET_URL, token

RECORDS = 2000


@pytest.fixture(scope="module")
def authority(home: Path) -> Authority:
    return Authority(home)


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[ClusterProcess]:
    settings = (
        "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT",
        "authentication.enabled=true",
        "authorization.enabled=true",
        "super.user.roles=root",
        f"token.secret.key={SECRET_URL}",
        "sasl.enabled.mechanisms=PLAIN,OAUTHBEARER",
        "connection.failed.authentication.delay.ms=0",
    )
    with ClusterProcess(home, 3, *settings) as made:
        yield made


@pytest.fixture(scope="module")
def proxy(home: Path, cluster: ClusterProcess, authority: Authority) -> Iterator[ProxyProcess]:
    certificate, key = authority.sign("proxy")
    settings = (
        "listeners=SASL_SSL://127.0.0.1:0",
        "advertised.listeners=SASL_SSL://localhost:0",
        f"tls.certificate.file.path={certificate}",
        f"tls.key.file.path={key}",
    )
    with ProxyProcess(home, cluster, *settings) as made:
        yield made
        assert "Traceback" not in made.log.read_text()


def client(
    proxy: ProxyProcess, authority: Authority, role: str, word: str | None = None
) -> dict[str, object]:
    return {
        "bootstrap.servers": proxy.kafka,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.file),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "public/default",
        "sasl.password": f"token:{token(role)}" if word is None else word,
    }


def test_a_role_writes_to_all_brokers_and_another_may_not(proxy: ProxyProcess, authority: Authority) -> None:
    root = client(proxy, authority, "root")
    topic = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(root)
    (made,) = admin.create_topics([NewTopic(topic, 12)]).values()
    made.result(PATIENCE_S)
    failed: list[object] = []
    sender = ck.Producer(root)
    for number in range(RECORDS):
        sender.produce(
            topic, b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert sender.flush(PATIENCE_S) == 0
    assert not failed
    reader = ck.Consumer({**root, "group.id": topic, "auto.offset.reset": "earliest"})
    reader.subscribe([topic])
    found: set[bytes] = set()
    while len(found) < RECORDS:
        (message,) = reader.consume(1, PATIENCE_S)
        assert message.error() is None
        found.add(message.value())
    reader.close()
    stranger = ck.Producer(client(proxy, authority, "nobody"))
    stranger.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error.code() if error else None))
    stranger.flush(PATIENCE_S)
    assert failed == [ck.KafkaError.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("word", ["token:nonsense", "wrong"])
def test_who_proves_nothing_is_not_let_in(proxy: ProxyProcess, authority: Authority, word: str) -> None:
    errors: list[int] = []
    admin = AdminClient(
        {**client(proxy, authority, "root", word), "error_cb": lambda error: errors.append(error.code())}
    )
    with pytest.raises(ck.KafkaException):
        admin.list_topics(timeout=3)
    while not errors:
        admin.poll(PATIENCE_S)
    assert ck.KafkaError._AUTHENTICATION in errors


def test_oauthbearer_is_passed_on(proxy: ProxyProcess, authority: Authority) -> None:
    import time

    config = {
        "bootstrap.servers": proxy.kafka,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.file),
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token("root"), time.time() + 3600),
    }
    admin = AdminClient(config)
    admin.poll(1)
    assert admin.list_topics(timeout=PATIENCE_S).brokers


def test_scram_is_refused_by_name(proxy: ProxyProcess, authority: Authority) -> None:
    errors: list[str] = []
    config = {**client(proxy, authority, "root"), "sasl.mechanism": "SCRAM-SHA-256"}
    admin = AdminClient({**config, "error_cb": lambda error: errors.append(error.str())})
    with pytest.raises(ck.KafkaException):
        admin.list_topics(timeout=3)
    while not errors:
        admin.poll(PATIENCE_S)
    assert any("PLAIN" in each for each in errors), errors


def test_nothing_is_asked_before_it_is_known_who_asks(proxy: ProxyProcess, authority: Authority) -> None:
    import socket
    import ssl

    host, _, port = proxy.kafka.rpartition(":")
    context = ssl.create_default_context(cafile=str(authority.file))
    plain = socket.create_connection(("127.0.0.1", int(port)), PATIENCE_S)
    with context.wrap_socket(plain, server_hostname=host) as sock:
        body = (3).to_bytes(2, "big") + (9).to_bytes(2, "big") + bytes(4) + b"\xff\xff\0\0\1\0\0\0\0"
        sock.sendall(len(body).to_bytes(4, "big") + body)
        assert sock.recv(100) == b""
    assert "before authentication" in proxy.log.read_text()
