"""The pipeline's client on secured listeners: it writes and reads, and is told why where it may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.client import security
from magnetar.client.errors import ClientError
from magnetar.client.settings import settings_of
from magnetar.pipeline.options import TopicPartition, parse_options
from magnetar.pipeline.plan import Plan
from magnetar.pipeline.port import RecordQuery, Visible
from magnetar.pipeline.sink_direct import send_rows
from magnetar.pipeline.sink_options import parse_sink_options
from magnetar.pipeline.watermarks import BrokerSilent, ask_broker
from tests.security.conftest import LISTENERS, Secured, secured  # noqa: F401
from tests.security.signing import OTHER_SECRET, token


def options(configuration: dict[str, str], **others: str) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in configuration.items()} | others


@pytest.mark.slow
@pytest.mark.parametrize("listener", LISTENERS)
def test_rows_go_out_and_come_back(secured: Secured, listener: str) -> None:  # noqa: F811
    topic = f"pipeline-{listener.lower()}"
    configuration = secured.client(listener)
    admin = AdminClient(configuration)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(20)
    rows = pa.RecordBatch.from_pydict({"value": [str(i) for i in range(100)]})
    sink = parse_sink_options(options(configuration, topic=topic), streaming=False)
    assert send_rows([rows], sink, first_partition=0) == 100
    plan = Plan(parse_options(options(configuration, subscribe=topic), streaming=False))
    pieces = plan.slices(plan.starts(), plan.ends())
    found = pa.Table.from_batches(batch for piece in pieces for batch in piece.read(RecordQuery(("value",))))
    assert found.column("value").to_pylist() == [str(i).encode() for i in range(100)]


def test_jaas_as_the_java_client_has_it(secured: Secured) -> None:  # noqa: F811
    configuration = secured.client("SASL_SSL")
    user, password = configuration.pop("sasl.username"), configuration.pop("sasl.password")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    configuration["sasl.jaas.config"] = f'{module} required username="{user}" password="{password}";'
    plan = Plan(parse_options(options(configuration, subscribePattern="nothing"), streaming=False))
    assert plan.visible == {}
    assert password not in repr(settings_of(configuration))


def test_beside_a_broker_settings_mean_what_they_mean_by_fetch(secured: Secured) -> None:  # noqa: F811
    configuration = secured.client("SASL_SSL")
    admin = AdminClient(configuration)
    admin.create_topics([NewTopic("beside", 1)])["beside"].result(20)
    user, password = configuration.pop("sasl.username"), configuration.pop("sasl.password")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    configuration["sasl.jaas.config"] = f'{module} required username="{user}" password="{password}";'
    # What jobs of Spark's own connector bring along, and librdkafka does not know.
    configuration |= {
        "fetch.max.wait.ms": "100",
        "default.api.timeout.ms": "9000",
        "value.deserializer": "x.Y",
    }
    which = TopicPartition("beside", 0)
    found = ask_broker(
        configuration["bootstrap.servers"], [which], settings=configuration, read_committed=True
    )
    assert found == {which: Visible(0, 0)}
    wrong = configuration | {"sasl.jaas.config": f'{module} required username="{user}" password="no";'}
    with pytest.raises(BrokerSilent, match="does not say how far records are visible"):
        ask_broker(configuration["bootstrap.servers"], [which], settings=wrong)


def test_refusals_say_why(secured: Secured) -> None:  # noqa: F811
    def complaint(**changes: str) -> str:
        configuration = secured.client("SASL_SSL") | {"delivery.timeout.ms": "1"}
        configuration |= {name.replace("_", "."): value for name, value in changes.items()}
        with pytest.raises(ClientError) as caught:
            Plan(parse_options(options(configuration, subscribe="t"), streaming=False))
        return str(caught.value)

    forged = token("root", OTHER_SECRET)
    assert "Signature verification failed" in complaint(sasl_password=f"token:{forged}")
    assert "the broker offers PLAIN" in complaint(sasl_mechanism="SCRAM-SHA-512")
    _, key = secured.authority.sign("another")
    assert key.exists()
    untrusted = secured.client("SASL_SSL")
    del untrusted["ssl.ca.location"]
    with pytest.raises(ClientError, match="certificate verify failed"):
        Plan(parse_options(options(untrusted, subscribe="t"), streaming=False))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("security.protocol", "TLS", "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not 'TLS'"),
        ("sasl.mechanism", "DIGEST-MD5", "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ("sasl.mechanism", "GSSAPI", "Kerberos"),
        ("ssl.truststore.location", "/nowhere", "there is no file '/nowhere'"),
        ("ssl.truststore.type", "BKS", "must be one of PEM, PKCS12, JKS here, not BKS"),
        ("ssl.endpoint.identification.algorithm", "no", "must be https or none"),
        ("sasl.jaas.config", "x required;", "username and password"),
        ("sasl.jaas.config", "required;", "must be like"),
        ("bootstrap.servers", "localhost", "HOST:PORT"),
        ("request.timeout.ms", "soon", "milliseconds"),
    ],
)
def test_wrong_settings_are_named(name: str, value: str, told: str) -> None:
    given: dict[str, Any] = {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'x required username="a" password="b";',
        "ssl.truststore.location": __file__,
    }
    with pytest.raises(ValueError, match=told) as caught:
        settings_of(given | {name: value})
    assert f"kafka.{name}" in str(caught.value)


def _derived(work: bytes | Callable[[], bytes]) -> bytes:
    """Do the long sum that a login leaves to who speaks for it."""
    assert not isinstance(work, bytes)
    return work()


def test_scram_as_rfc_7677_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    nonce = "rOprNGfwEbeRWgbNEkqO"
    monkeypatch.setattr(security.secrets, "token_urlsafe", lambda size: nonce)
    who = security.ClientSecurity(mechanism="SCRAM-SHA-256", username="user", password="pencil")
    both = f"r={nonce}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    challenge = f"{both},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    login = who.login()
    assert next(login) == f"n,,n=user,r={nonce}".encode()
    proof = login.send(_derived(login.send(challenge)))
    assert proof == f"c=biws,{both},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    with pytest.raises(StopIteration):
        login.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    impostor = who.login()
    next(impostor)
    impostor.send(_derived(impostor.send(challenge)))
    with pytest.raises(security.LoginFailed):
        impostor.send(b"v=AAAA")
    downgraded = who.login()
    next(downgraded)
    with pytest.raises(security.LoginFailed):
        downgraded.send(challenge.replace(b"i=4096", b"i=1"))
