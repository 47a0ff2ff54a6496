"""A broker starts with the configuration files that people have, and what they say of logins has its effect."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from magnetar.client.async_connection import AsyncConnection
from magnetar.client.errors import ClientError
from magnetar.client.security import ClientSecurity
from magnetar.client.settings import ClientSettings
from magnetar.node.service import BrokerService
from magnetar.node.setting_sources import LoadedSettings, load
from magnetar.serving.listeners import Listener
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from tests.security.certificates import Authority
from tests.security.server_files import FILES

_PORTS = re.compile(r"^(listeners|kafkaListeners|brokerServicePort\w*|webServicePort\w*)=(.*)$", re.MULTILINE)
_OTHERS_AFFAIR = re.compile(
    r"security\.inter\.broker\.protocol|sasl\.mechanism\.(inter\.broker|controller)\.protocol|principal\.builder\.class"
    r"|ssl\.endpoint\.identification\.algorithm|ssl\.truststore\.type|ssl\.keystore\.type"
    r"|listener\.name\..*\.(scram-sha-\d+|oauthbearer)\.sasl\.(jaas\.config|server\.callback\.handler\.class)"
    r"|listener\.name\.control(ler|plane-9090)\..*|zookeeper\.set\.acl|confluent\..*|brokerClientAuthentication.*"
    r"|tlsAllowInsecureConnection|proxyRoles|authenticateOriginalAuthData|max\.message\.bytes"
)
"""About logins and TLS, without meaning for those who come to this broker."""
_CONCERNS_LOGINS = re.compile(r"ssl|sasl|auth|super|acl|principal|tls", re.IGNORECASE)


WITHOUT_KAFKA = ("Pulsar: documentation of TLS authentication",)
"""Where no listener for Kafka clients is named, and the default one could let none of them in."""


@dataclass(frozen=True)
class Stores:
    """What the files name."""

    authority: Authority
    files: dict[str, str]

    def filled(self, text: str) -> str:
        for name, value in self.files.items():
            text = text.replace("{" + name + "}", value)
        return _PORTS.sub(lambda line: f"{line[1]}={_free(line[2])}", text)


def _free(ports: str) -> str:
    return (
        re.sub(r"(^|:)\d{4,5}\b", r"\g<1>0", ports)
        .replace("0.0.0.0", "127.0.0.1")
        .replace("//:", "//127.0.0.1:")
    )


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    directory = tmp_path_factory.mktemp("stores")
    authority = Authority(directory)
    certificate, key = authority.sign("broker")
    store, trust, pem = directory / "broker.keystore.jks", directory / "trust.jks", directory / "broker.pem"
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    own = x509.load_pem_x509_certificate(certificate.read_bytes())
    ca = x509.load_pem_x509_certificate(authority.file.read_bytes())
    store.write_bytes(pkcs12.serialize_key_and_certificates(b"b", private, own, [ca], encryption))  # type: ignore[arg-type]
    trust.write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, [ca], encryption))
    pem.write_bytes(key.read_bytes() + certificate.read_bytes())
    users, secret = directory / "users", directory / "secret.key"
    users.write_text("superuser:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n")
    secret.write_bytes(b"0123456789abcdef0123456789abcdef")
    paths = {"store": store, "trust": trust, "pem": pem, "ca": authority.file, "users": users, "key": secret}
    texts = {"key_text": key, "certificate_text": certificate, "ca_text": authority.file}
    files = {name: str(path) for name, path in paths.items()}
    files |= {"certificate": str(certificate), "private": str(key)}
    files |= {name: path.read_text().replace("\n", "\\n") for name, path in texts.items()}
    return Stores(authority, files)


def loaded(stores: Stores, product: str, directory: Path) -> LoadedSettings:
    file = directory / "server.properties"
    file.write_text(stores.filled(FILES[product]))
    overrides = [f"data.dir={directory / 'data'}"]
    names_none = not re.search("^(kafkaL|l)isteners=", FILES[product], re.MULTILINE)
    if names_none and product not in WITHOUT_KAFKA:
        overrides.append("listeners=PLAINTEXT://127.0.0.1:0")  # instead of the default's port
    return load(file, overrides, environment={})


@pytest.mark.parametrize("product", FILES)
async def test_a_broker_starts_with_the_file(product: str, stores: Stores, tmp_path: Path) -> None:
    found = loaded(stores, product, tmp_path)
    lost = [name for name in found.ignored if _CONCERNS_LOGINS.search(name)]
    assert [name for name in lost if not _OTHERS_AFFAIR.fullmatch(name)] == []
    service = BrokerService(found.settings)
    await service.start()
    try:
        served = service.served
        assert product in WITHOUT_KAFKA or served["kafka"]
        for listener in served.get("kafka", ()):
            assert await lets_in(stores, listener) is not listener.sasl
    finally:
        await service.close()


async def lets_in(stores: Stores, listener: Listener) -> bool:
    """Whether a client is answered that shows at most a certificate."""
    crt, key = stores.authority.sign("client")
    security = ClientSecurity(
        tls=listener.tls, trusted=str(stores.authority.file), certificate=str(crt), key=str(key)
    )
    settings = ClientSettings((), client_id="c", request_timeout_s=30, security=security)
    try:
        connection = await AsyncConnection.connect("127.0.0.1", listener.bind.port, settings)
        await connection.call(MetadataRequest(topics=[]))
    except ClientError:
        return False
    connection.close()
    return True
