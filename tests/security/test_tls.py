"""TLS: who is trusted, what is asked for, and files that change while the broker runs."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from magnetar.auth.tls import ServerContext, kafka_tls, pulsar_tls
from magnetar.base.errors import InvalidConfig
from magnetar.client.security import ClientSecurity
from magnetar.ledger.bookkeeper.bookie_tls import BookieTls
from magnetar.metadata.zookeeper_security import ZooKeeperSecurity
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.settings.security import SecuritySettings
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.hostile.client import Wire, produce
from tests.process import BrokerProcess
from tests.security.certificates import Authority
from tests.security.conftest import Secured


def settings(**texts: object) -> SecuritySettings:
    given = {name.replace("_", "."): str(text) for name, text in texts.items()}
    return Settings().with_values(given).security


def exchange(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[dict[str, object], ssl.SSLObject]:
    """Shake hands in memory; give the certificate that the server showed, and the server's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    for _ in range(4):
        for side in (theirs, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return theirs.getpeercert() or {}, ours  # type: ignore[return-value]


def common_name(certificate: dict[str, object]) -> str:
    return str(dict(pair for rdn in certificate["subject"] for pair in rdn)["commonName"])  # type: ignore[attr-defined]


def trusting(authority: Authority, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.file)
    if certificate:
        context.load_cert_chain(*certificate)
    return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


# What may be given.


def one_line(text: str) -> str:
    return text.replace("\n", "\\n")


@pytest.mark.parametrize("form", ["tls", "tls in one file", "PEM store", "inline", "PKCS12"])
def test_certificates_are_taken_in_each_form(form: str, authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.sign("broker")
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    store = tmp_path / "store.p12"
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"broker",
            serialization.load_pem_private_key(key.read_bytes(), None),  # type: ignore[arg-type]
            x509.load_pem_x509_certificate(certificate.read_bytes()),
            None,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    given = {
        "tls": {"tls_certificate_file_path": certificate, "tls_key_file_path": key},
        "tls in one file": {"tls_certificate_file_path": both},
        "PEM store": {"ssl_keystore_location": both, "ssl_keystore_type": "PEM"},
        "inline": {
            "ssl_keystore_certificate_chain": one_line(certificate.read_text()),
            "ssl_keystore_key": one_line(key.read_text()),
        },
        "PKCS12": {"ssl_keystore_location": store, "ssl_keystore_password": "secret"},
        "PKCS12, said": {
            "ssl_keystore_location": store,
            "ssl_keystore_password": "secret",
            "ssl_keystore_type": "PKCS12",
        },
        "PKCS12 that Java takes for JKS": {
            "ssl_keystore_location": store,
            "ssl_keystore_password": "secret",
            "ssl_keystore_type": "JKS",
        },
    }[form]
    for context in (kafka_tls(settings(**given), "none"), pulsar_tls(settings(**given))):
        assert common_name(exchange(context, trusting(authority))[0]) == "broker"


def test_an_encrypted_key_needs_its_password(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.sign("broker")
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    given = {"tls_certificate_file_path": certificate, "tls_key_file_path": key}
    exchange(kafka_tls(settings(**given, ssl_key_password="secret"), "none"), trusting(authority))
    for password in ("wrong", ""):
        with pytest.raises(InvalidConfig, match="cannot be set up"):
            kafka_tls(settings(**given, ssl_key_password=password), "none")


def test_wrong_files_are_named(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.sign("broker")
    _, other = authority.sign("other")
    java = tmp_path / "store.jks"
    java.write_bytes(b"\xfe\xed\xfe\xed rest")
    for given, why in (
        ({}, "needs a certificate"),
        ({"tls_certificate_file_path": "/no/such.crt", "tls_key_file_path": key}, "/no/such.crt"),
        ({"tls_certificate_file_path": certificate, "tls_key_file_path": "/no/such.key"}, "/no/such.key"),
        ({"tls_certificate_file_path": certificate, "tls_key_file_path": other}, "cannot be set up"),
        ({"tls_certificate_file_path": key, "tls_key_file_path": key}, "cannot be set up"),
        ({"ssl_keystore_location": java}, "keytool"),
        ({"ssl_keystore_location": java, "ssl_keystore_type": "JKS"}, "keytool"),
        ({"ssl_keystore_location": __file__}, "neither PEM nor"),
        ({"ssl_keystore_location": certificate, "ssl_keystore_type": "PKCS12"}, "PEM text, and .* PKCS12"),
        ({"ssl_keystore_location": certificate, "ssl_keystore_type": "JKS"}, "PEM text, and .* JKS"),
        ({"ssl_keystore_location": java, "ssl_keystore_type": "PEM"}, "no PEM text, and ssl.keystore.type"),
    ):
        with pytest.raises(InvalidConfig, match=why):
            kafka_tls(settings(**given), "none")
    good = {"tls_certificate_file_path": certificate, "tls_key_file_path": key}
    with pytest.raises(InvalidConfig, match="name the authorities"):
        kafka_tls(settings(**good), "required")
    with pytest.raises(InvalidConfig, match="cannot be set up"):
        kafka_tls(settings(**good, tls_ciphers="NO-SUCH-CIPHER"), "none")
    with pytest.raises(InvalidConfig, match="cannot be set up"):
        kafka_tls(settings(**good, ssl_truststore_certificates="no certificate"), "required")


def test_only_the_versions_that_are_allowed_are_spoken(authority: Authority) -> None:
    certificate, key = authority.sign("broker")
    given = {"tls_certificate_file_path": certificate, "tls_key_file_path": key}
    only = kafka_tls(settings(**given, ssl_enabled_protocols="TLSv1.3"), "none")
    old = trusting(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        exchange(only, old)
    assert exchange(kafka_tls(settings(**given), "none"), old)[1].version() == "TLSv1.2"
    with pytest.raises(InvalidConfig, match=r"TLSv1\.3, TLSv1\.2"):
        settings(ssl_enabled_protocols="TLSv1.1")


# Files that change.


@pytest.fixture
def changing(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> tuple[ServerContext, Path, Path]:
    monkeypatch.setattr("magnetar.auth.tls._LOOK_AGAIN_S", 0)
    certificate, key = authority.sign("first", file="broker")
    given = {"tls_certificate_file_path": certificate, "tls_key_file_path": key}
    trust = {"tls_trust_certs_file_path": authority.file}
    return kafka_tls(settings(**given, **trust), "required"), certificate, key


def test_a_changed_certificate_is_in_force_for_the_next_client(
    changing: tuple[ServerContext, Path, Path], authority: Authority
) -> None:
    context, *_ = changing
    client = trusting(authority, authority.sign("client"))
    assert common_name(exchange(context, client)[0]) == "first"
    authority.sign("second", file="broker")
    assert common_name(exchange(context, client)[0]) == "second"


def test_files_that_do_not_fit_are_not_taken_until_they_do(
    changing: tuple[ServerContext, Path, Path], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    context, certificate, key = changing
    client = trusting(authority, authority.sign("client"))
    old_key = key.read_bytes()
    authority.sign("second", file="broker")
    new_key = key.read_bytes()
    key.write_bytes(old_key)  # as if the certificate were there already, and its key not yet
    for _ in range(3):
        assert common_name(exchange(context, client)[0]) == "first"
    assert caplog.text.count("are not used") == 1
    certificate_text = certificate.read_bytes()
    certificate.unlink()
    assert common_name(exchange(context, client)[0]) == "first"
    certificate.write_bytes(certificate_text)
    key.write_bytes(new_key)
    assert common_name(exchange(context, client)[0]) == "second"


def test_an_authority_that_is_not_trusted_any_more_lets_nobody_in(
    changing: tuple[ServerContext, Path, Path], authority: Authority, tmp_path: Path
) -> None:
    context, *_ = changing
    client = trusting(authority, authority.sign("client"))
    exchange(context, client)
    ours = authority.file.read_bytes()
    (tmp_path / "next").mkdir()
    next_ = Authority(tmp_path / "next")
    authority.file.write_bytes(next_.file.read_bytes())
    with pytest.raises(ssl.SSLError, match="verify failed"):
        exchange(context, client)
    client.load_cert_chain(*next_.sign("client"))
    exchange(context, client)
    authority.file.write_bytes(ours)


# Against a broker.


def test_who_shows_a_good_certificate_is_let_in_under_its_name(secured: Secured) -> None:
    with secured.wire("SSL", secured.trusting(secured.authority.sign("root"))) as wire:
        assert wire.ask(MetadataRequest(topics=[])).brokers
        topics = MetadataRequest(topics=None, include_cluster_authorized_operations=True)
        assert wire.ask(topics, 10).cluster_authorized_operations > 1 << 12
        assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
    with secured.wire("SSL", secured.trusting(secured.authority.sign("nobody"))) as wire:
        topics = MetadataRequest(topics=None, include_cluster_authorized_operations=True)
        assert wire.ask(topics, 10).cluster_authorized_operations == 0


def refused(secured: Secured, certificate: tuple[Path, Path] | None, why: str) -> None:
    """With TLS 1.3 a client learns only when it reads that its certificate was not taken."""
    before = len(secured.process.log_lines())
    with (
        pytest.raises((ssl.SSLError, ConnectionError)),
        secured.wire("SSL", secured.trusting(certificate)) as wire,
    ):
        wire.ask(MetadataRequest(topics=[]))
    assert why in "\n".join(secured.process.log_lines()[before:])


def test_no_certificate_is_refused(secured: Secured) -> None:
    refused(secured, None, "did not return a certificate")


def test_an_expired_certificate_is_refused(secured: Secured) -> None:
    refused(secured, secured.authority.sign("root", days=-1, file="expired"), "expired")


def test_a_strangers_certificate_is_refused(secured: Secured, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    refused(secured, stranger.sign("root"), "unable to get local issuer certificate")


def test_a_namesakes_certificate_is_refused(secured: Secured, tmp_path: Path) -> None:
    refused(secured, Authority(tmp_path, "authority").sign("root"), "verify failed")


def test_a_certificate_without_a_name_opens_nothing(secured: Secured) -> None:
    with (
        secured.wire("SSL", secured.trusting(secured.authority.sign(""))) as wire,
        pytest.raises(ConnectionError),
    ):
        wire.ask(MetadataRequest(topics=[]))


def test_a_client_refuses_a_broker_of_another_authority(secured: Secured, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        secured.wire("SASL_SSL", ssl.create_default_context(cafile=Authority(tmp_path).file))


def trusting_kafka(certificate: Path, tmp_path: Path) -> ssl.SSLContext:
    return ClientSecurity(tls=True, trusted=str(certificate)).context()


def trusting_bookies(certificate: Path, tmp_path: Path) -> ssl.SSLContext:
    return BookieTls(str(certificate), verify_host=True).context()


def trusting_zookeeper(certificate: Path, tmp_path: Path) -> ssl.SSLContext:
    file = tmp_path / "zookeeper.properties"
    file.write_text(
        f"zookeeper.client.secure=true\nzookeeper.ssl.trustStore.location={certificate}\nzookeeper.ssl.trustStore.type=PEM\n"
    )
    context = ZooKeeperSecurity.read(str(file)).context()
    assert context is not None
    return context


@pytest.mark.parametrize("client", [trusting_kafka, trusting_bookies, trusting_zookeeper])
def test_a_server_is_trusted_whose_own_certificate_is_in_the_store(
    client: Callable[[Path, Path], ssl.SSLContext], authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.sign("broker")
    server = pulsar_tls(settings(tls_certificate_file_path=certificate, tls_key_file_path=key))
    assert common_name(exchange(server, client(certificate, tmp_path))[0]) == "broker"
    with pytest.raises(ssl.SSLCertVerificationError):
        exchange(server, client(authority.sign("another")[0], tmp_path))


def test_a_client_is_trusted_whose_own_certificate_is_in_the_store(authority: Authority) -> None:
    """Java takes whatever is in a store for trusted; OpenSSL by default only what leads to a root that is there."""
    certificate, key = authority.sign("broker")
    known, stranger = authority.sign("known"), authority.sign("stranger")
    store = {"ssl_truststore_location": known[0], "ssl_truststore_type": "PEM"}
    identity = {"tls_certificate_file_path": certificate, "tls_key_file_path": key}
    server = kafka_tls(settings(**identity, **store), "required")
    _, taken = exchange(server, trusting(authority, known))
    assert common_name(taken.getpeercert() or {}) == "known"  # type: ignore[arg-type]
    with pytest.raises(ssl.SSLError):
        exchange(server, trusting(authority, stranger))


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
def test_what_is_no_tls_is_closed_and_harms_nobody(secured: Secured, listener: str) -> None:
    for said in (b"GET / HTTP/1.1\r\n\r\n", bytes(1000), b"\x16\x03\x01\xff\xff" + bytes(100)):
        with secured.wire(listener) as wire:
            wire.send(said)
            wire.socket.settimeout(30)
            while wire.socket.recv(4096):
                pass
    with secured.wire("SSL", secured.trusting(secured.authority.sign("root"))) as wire:
        assert wire.ask(MetadataRequest(topics=[])).brokers


def test_a_running_brokers_certificate_changes_and_connections_live_on(
    authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.sign("first", file="broker")
    given = ("listeners=SSL://127.0.0.1:0", f"tlsCertificateFilePath={certificate}", f"tlsKeyFilePath={key}")
    options = [part for text in given for part in ("--set", text)]
    with BrokerProcess(tmp_path / "data", *options, kafka=None) as process:

        def connect() -> tuple[Wire, str]:
            wire = Wire(process.host_and_port)
            wire.socket = trusting(authority).wrap_socket(wire.socket, server_hostname="localhost")
            return wire, common_name(wire.socket.getpeercert())  # type: ignore[attr-defined]

        before, name = connect()
        assert name == "first"
        authority.sign("second", file="broker")
        time.sleep(0.6)  # how long the broker may go without a look at the files
        after, name = connect()
        assert name == "second"
        topic = MetadataRequest(topics=None)
        with before, after:
            assert before.ask(topic).brokers == after.ask(topic).brokers


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_large_requests_go_through_tls_in_any_pieces(secured: Secured, version: ssl.TLSVersion) -> None:
    """The frame reader lends its own memory to TLS: small frames, large ones, and what lies across both."""
    context = secured.trusting(secured.authority.sign("root"))
    context.maximum_version = version
    with secured.wire("SSL", context) as wire:
        topic = f"pieces-{version.name}"
        metadata = MetadataRequest(topics=None, allow_auto_topic_creation=True)
        assert wire.ask(metadata).brokers
        wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True))
        for size in (1, 16_000, 16_384, 16_385, 70_000, 262_144, 900_000):
            batch = encode_batch([PlainRecord(b"k", bytes([size % 251]) * size, [], 0, 0)])
            assert produce(wire, topic, batch).error_code == 0
