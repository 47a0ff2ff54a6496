"""Settings that jobs of Spark's own connector bring along: Java's stores, tokens, and what is refused by its name."""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.client.cluster import Cluster
from magnetar.client.errors import ClientError
from magnetar.client.settings import ClientSettings, settings_of
from magnetar.pipeline.options import parse_options
from tests.process import BrokerProcess
from tests.security.conftest import Secured, secured  # noqa: F401
from tests.security.issuer import Issuer, issuing
from tests.security.test_oauth import started

PASSWORD, OTHER = "store secret", "key secret"
_ORACLE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def tool(*arguments: object) -> None:
    done = subprocess.run([str(each) for each in arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def stores(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """Key and trust stores of both kinds, made by the tools that people make them with."""
    place = tmp_path_factory.mktemp("stores")
    crt, key = secured.authority.sign("root")
    word = f"pass:{PASSWORD}"
    tool("openssl", "pkcs12", "-export", "-in", crt, "-inkey", key, "-name", "me", "-out", place / "key.p12",
         "-passout", word)  # fmt: skip
    tool("keytool", "-importkeystore", "-srckeystore", place / "key.p12", "-srcstoretype", "PKCS12", "-srcstorepass",
         PASSWORD, "-destkeystore", place / "key.jks", "-deststoretype", "JKS", "-deststorepass", PASSWORD, "-srcalias",
         "me", "-destkeypass", OTHER)  # fmt: skip
    for kind in ("JKS", "PKCS12"):
        tool("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", secured.authority.file, "-keystore",
             place / f"trust.{kind}", "-storetype", kind, "-storepass", PASSWORD)  # fmt: skip
    return place


def topics_of(settings: ClientSettings) -> set[str]:
    """Ask the cluster, with settings that went to an executor."""
    with Cluster(pickle.loads(pickle.dumps(settings))) as cluster:
        return set(cluster.topics())


def _ssl(secured: Secured) -> dict[str, str]:  # noqa: F811
    return {
        "bootstrap.servers": secured.address("SSL"),
        "security.protocol": "SSL",
        "delivery.timeout.ms": "5000",
    }


@pytest.mark.parametrize("trust", ["JKS", "PKCS12"])
@pytest.mark.parametrize("own", ["key.jks", "key.p12"])
def test_javas_stores_open_connections(secured: Secured, stores: Path, own: str, trust: str) -> None:  # noqa: F811
    given = _ssl(secured) | {
        "ssl.truststore.location": str(stores / f"trust.{trust}"),
        "ssl.truststore.password": PASSWORD,
        "ssl.truststore.type": trust,
        "ssl.keystore.location": str(stores / own),
        "ssl.keystore.password": PASSWORD,
    }
    if own == "key.jks":
        given["ssl.key.password"] = OTHER
    settings = settings_of(given)
    assert "PRIVATE KEY" not in repr(settings)
    topics_of(settings)


def test_pem_may_be_text(secured: Secured) -> None:  # noqa: F811
    crt, key = secured.authority.sign("root")
    one_line = Path(crt).read_text().replace("\n", "\\n")  # as a properties file carries it
    given = _ssl(secured) | {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": secured.authority.file.read_text(),
        "ssl.keystore.certificate.chain": one_line,
        "ssl.keystore.key": Path(key).read_text(),
    }
    topics_of(settings_of(given))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ssl.keystore.password": "no"}, "kafka.ssl.keystore.location: .* the password does not open it"),
        ({"ssl.key.password": "no"}, "the password does not open its key"),
        (
            {"ssl.truststore.password": "no"},
            "kafka.ssl.truststore.location: .* the password does not open it",
        ),
        ({"ssl.truststore.type": "BCFKS"}, "kafka.ssl.truststore.type must be one of PEM, PKCS12, JKS here"),
    ],
)
def test_a_store_that_does_not_open_says_which(
    secured: Secured,  # noqa: F811
    stores: Path,
    changes: dict[str, str],
    said: str,
) -> None:
    given = _ssl(secured) | {
        "ssl.truststore.location": str(stores / "trust.JKS"),
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": str(stores / "key.jks"),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": OTHER,
    }
    with pytest.raises(ValueError, match=said):
        settings_of(given | changes)


@pytest.mark.parametrize("size", [10, 60, 500, -30, -1])
def test_a_store_that_is_cut_is_refused_in_words(stores: Path, tmp_path: Path, size: int) -> None:
    (tmp_path / "cut").write_bytes((stores / "key.jks").read_bytes()[:size])
    given = {
        "bootstrap.servers": "x:1",
        "security.protocol": "SSL",
        "ssl.keystore.location": str(tmp_path / "cut"),
    }
    with pytest.raises(ValueError, match=r"kafka.ssl.keystore.location: .*cut"):
        settings_of(given)


@pytest.fixture(scope="module")
def provider() -> Iterator[Issuer]:
    with issuing() as made:
        yield made


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, provider: Issuer) -> Iterator[BrokerProcess]:
    with started(tmp_path_factory.mktemp("bearer") / "data", provider) as process:
        yield process


def bearer(house: BrokerProcess, provider: Issuer, **more: str) -> dict[str, str]:
    return {
        "bootstrap.servers": house.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "delivery.timeout.ms": "3000",
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.jaas.config": f'kafkashaded.{_ORACLE} required clientId="me" clientSecret="s" scope="kafka";',
        "sasl.login.callback.handler.class": _ORACLE.replace("LoginModule", "LoginCallbackHandler"),
    } | {name.replace("_", "."): value for name, value in more.items()}


def test_tokens_of_a_provider_log_in_and_serve_several_connections(
    house: BrokerProcess, provider: Issuer
) -> None:
    settings = settings_of(bearer(house, provider))
    topics_of(settings)
    given = provider.given
    topics_of(settings)
    assert provider.given == given, "one token serves until it is old"


def test_a_token_in_a_file_logs_in(house: BrokerProcess, provider: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(provider.token("root"))
    given = bearer(house, provider, sasl_oauthbearer_token_endpoint_url=file.as_uri())
    topics_of(settings_of(given))
    file.write_text("no token")
    with pytest.raises(ClientError, match="OAUTHBEARER"):
        topics_of(settings_of(given))


def test_a_provider_that_gives_none_is_named(house: BrokerProcess, provider: Issuer) -> None:
    given = bearer(house, provider, sasl_oauthbearer_token_endpoint_url=f"{provider.url}/down")
    provider.down = True
    try:
        with pytest.raises(ClientError, match=r"/down gives client .me. no token: HTTP Error 503"):
            topics_of(settings_of(given))
    finally:
        provider.down = False


_IAM = "software.amazon.msk.auth.iam.IAMLoginModule required;"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": _IAM}, "AWS_MSK_IAM is Amazon"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "AWS_MSK_IAM is Amazon"),
        ({"sasl.mechanism": "GSSAPI"}, "Kerberos"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x"}, "kafka.sasl.jaas.config must be like"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "a.B required password='tip' ;x"},
            "behind its option 1",
        ),
        ({"sasl.mechanism": "OAUTHBEARER"}, "token.endpoint.url"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "http://x"}, "clientId"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.client.callback.handler.class": "my.Handler"},
            "my.Handler is a class",
        ),
    ],
)
def test_what_does_not_run_here_is_refused_before_anything_runs(given: dict[str, str], said: str) -> None:
    named = {"bootstrap.servers": "x:1", "security.protocol": "SASL_SSL"} | given
    with pytest.raises(ValueError, match=said) as refused:
        settings_of(named)
    assert "tip" not in str(refused.value)


@pytest.mark.parametrize("name", ["auto.offset.reset", "enable.auto.commit", "value.deserializer"])
def test_what_sparks_source_refuses_is_refused(name: str) -> None:
    given = {"path": "/nowhere", "subscribe": "t", f"kafka.{name}": "x"}
    with pytest.raises(ValueError, match=f"option kafka.{name} is not supported"):
        parse_options(given, streaming=False)
