"""OAUTHBEARER for Kafka's clients and OAuth 2 for Pulsar's, with tokens of a real issuer; forged ones let nobody in."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import kafka
import pulsar
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st
from kafka.net.sasl.oauth import AbstractTokenProvider

from magnetar.auth import AuthenticationFailed
from magnetar.auth.jwks import KeySet, Pauses
from magnetar.base.errors import InvalidConfig
from magnetar.kafka.sasl.oauthbearer import parse_bearer
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.hostile.client import Wire, frame, request_bytes
from tests.process import BrokerProcess
from tests.security.issuer import AUDIENCE, Issuer, issuing
from tests.security.signing import SECRET_URL, confused, public_bytes, rsa_key, token, unsigned

INVALID = b'{"status":"invalid_token","scope":"kafka"}'


def _texts(issuer: Issuer, *more: str) -> tuple[str, ...]:
    return (
        "listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "pulsar.listeners=pulsar://127.0.0.1:0",
        "sasl.enabled.mechanisms=OAUTHBEARER,PLAIN",
        "authentication.enabled=true",
        "authorization.enabled=true",
        "super.user.roles=root",
        f"sasl.oauthbearer.jwks.endpoint.url={issuer.url}/jwks",
        f"sasl.oauthbearer.expected.issuer={issuer.url}",
        f"sasl.oauthbearer.expected.audience=other,{AUDIENCE}",
        "token.scopes=kafka",
        "connection.failed.authentication.delay.ms=10",
        "group.initial.rebalance.delay.ms=0",
        *more,
    )


def started(data: Path, issuer: Issuer, *more: str) -> BrokerProcess:
    texts = _texts(issuer, *more)
    return BrokerProcess(data, *[part for text in texts for part in ("--set", text)], kafka=None)


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as made:
        yield made


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[BrokerProcess]:
    with started(tmp_path_factory.mktemp("oauth") / "data", issuer) as process:
        yield process
        assert not [line for line in process.log_lines() if "Traceback" in line]
        assert issuer.token().partition(".")[0] not in process.log.read_text(), "tokens are never logged"


def say(wire: Wire, text: str | bytes, more: bytes = b"") -> Any:
    assert wire.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0
    text = text.encode() if isinstance(text, str) else text
    return wire.ask(SaslAuthenticateRequest(auth_bytes=b"n,,\1auth=Bearer " + text + b"\1" + more + b"\1"), 2)


def gets_in(house: BrokerProcess, text: str | bytes) -> bool:
    """Say whether a token lets a client in; who is refused learns why as RFC 7628 has it, and no more."""
    with Wire(house.host_and_port) as wire:
        answer = say(wire, text)
        assert answer.error_code == 0
        if not answer.auth_bytes:
            assert wire.ask(MetadataRequest(topics=[])).brokers
            return True
        assert bytes(answer.auth_bytes) == INVALID
        last = wire.ask(SaslAuthenticateRequest(auth_bytes=b"\1"), 2)
        assert (last.error_code, last.error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            INVALID.decode(),
        )
        assert wire.is_closed()
        return False


# -- stock clients --------------------------------------------------------------------------------------------------


def librdkafka(house: BrokerProcess, issuer: Issuer) -> dict[str, Any]:
    return {
        "bootstrap.servers": house.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "anybody",
        "sasl.oauthbearer.client.secret": "anything",
        "sasl.oauthbearer.token.endpoint.url": f"{issuer.url}/token",
    }


def test_librdkafka_asks_the_issuer_itself(house: BrokerProcess, issuer: Issuer) -> None:
    before, values = issuer.given, [b"%d" % number for number in range(2000)]
    producer = Producer(librdkafka(house, issuer))
    for value in values:
        producer.produce("oauth-rd", value)
    assert producer.flush(30) == 0
    consumer = Consumer({**librdkafka(house, issuer), "group.id": "oauth", "auto.offset.reset": "earliest"})
    consumer.subscribe(["oauth-rd"])
    found: list[bytes] = []
    until = time.monotonic() + 60
    while len(found) < len(values) and time.monotonic() < until:
        found += [message.value() for message in consumer.consume(1000, 1)]
    consumer.close()
    assert found == values
    assert issuer.given >= before + 2


class _Provider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, text: str) -> None:
        self._text = text

    def token(self) -> str:
        return self._text


def test_kafka_python_shows_a_token(house: BrokerProcess, issuer: Issuer) -> None:
    given_: dict[str, Any] = {
        "bootstrap_servers": house.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }
    producer = kafka.KafkaProducer(sasl_oauth_token_provider=_Provider(issuer.token()), **given_)
    assert producer.send("oauth-kp", b"x").get(30).offset == 0
    producer.close()
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(
            sasl_oauth_token_provider=_Provider(issuer.token(aud="x")),
            bootstrap_timeout_ms=3000,
            **given_,
        ).send("oauth-kp", b"x").get(5)


async def test_aiokafka_shows_a_token(house: BrokerProcess, issuer: Issuer) -> None:
    class Provider(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return issuer.token()

    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=house.address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    await producer.start()
    assert (await producer.send_and_wait("oauth-aio", b"x")).offset == 0
    await producer.stop()


def test_pulsars_client_asks_the_issuer_itself(house: BrokerProcess, issuer: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    said = {"type": "client_credentials", "client_id": "anybody", "client_secret": "anything"}
    file.write_text(json.dumps({**said, "issuer_url": issuer.url}))
    asked = {"issuer_url": issuer.url, "private_key": str(file), "audience": AUDIENCE}
    before = issuer.given
    client = pulsar.Client(
        house.pulsar_url,
        authentication=pulsar.AuthenticationOauth2(json.dumps(asked)),
        operation_timeout_seconds=20,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    producer = client.create_producer("oauth-pulsar")
    for number in range(100):
        producer.send(b"%d" % number)
    client.close()
    assert issuer.given > before


def pulsar_gets_in(house: BrokerProcess, text: str) -> bool:
    client = pulsar.Client(
        house.pulsar_url,
        authentication=pulsar.AuthenticationToken(text),
        operation_timeout_seconds=2,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    try:
        client.get_topic_partitions("oauth-pulsar")
    except (pulsar.exceptions.AuthenticationError, pulsar.exceptions.Timeout):  # it tries again in vain
        return False
    finally:
        client.close()
    return True


# -- what proves nothing --------------------------------------------------------------------------------------------


def _bad(issuer: Issuer) -> dict[str, str]:
    now = time.time()
    good = issuer.token()
    head, body, signature = good.split(".")
    return {
        "expired": issuer.token(exp=now - 60),
        "without an end": issuer.token(exp=None),
        "without a beginning": issuer.token(iat=None),
        "from the future": issuer.token(nbf=now + 600),
        "another audience": issuer.token(aud="somebody else"),
        "audiences": issuer.token(aud=["a", "b"]),
        "no audience": issuer.token(aud=None),
        "another issuer": issuer.token(iss="https://elsewhere"),
        "no issuer": issuer.token(iss=None),
        "no scope": issuer.token(scope=None),
        "another scope": issuer.token(scope="kafkaesque openid"),
        "no subject": issuer.token(sub=None),
        "a number for a subject": issuer.token(sub=5),
        "forged": issuer.token(signed_by=rsa_key(2)),
        "a key that nobody has": issuer.token(key="second", signed_by=rsa_key(0)),
        "unsigned": unsigned("root"),
        "a public key for a secret": confused(public_bytes(rsa_key(0)), "root"),
        "another's signature": f"{head}.{body}.{issuer.token('else').split('.')[2]}",
        "another's claims": f"{head}.{issuer.token('alice').split('.')[1]}.{signature}",
        "cut off": good[:-10],
        "no token": "x",
        "a token of 70 KB": issuer.token(more="x" * 70_000),
        "of no issuer": token("root"),
    }


def test_what_proves_nothing_lets_nobody_in(house: BrokerProcess, issuer: Issuer) -> None:
    assert gets_in(house, issuer.token())
    assert pulsar_gets_in(house, issuer.token())
    let_in = [name for name, text in _bad(issuer).items() if gets_in(house, text)]
    assert not let_in
    for name in ("expired", "another audience", "another issuer", "forged", "unsigned", "another scope"):
        assert not pulsar_gets_in(house, _bad(issuer)[name]), name


def test_scopes_and_audiences_may_be_lists(house: BrokerProcess, issuer: Issuer) -> None:
    assert gets_in(house, issuer.token(scope=["kafka", "x"], aud=["x", AUDIENCE]))
    assert not gets_in(house, issuer.token(scope=["x"]))


def test_a_token_of_a_megabyte_ends_the_connection(house: BrokerProcess, issuer: Issuer) -> None:
    with Wire(house.host_and_port) as wire:
        wire.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        said = b"n,,\1auth=Bearer " + b"x" * (1 << 20) + b"\1\1"
        with suppress(ConnectionError):  # its size may be refused before all of it is sent
            wire.send(frame(request_bytes(SaslAuthenticateRequest(auth_bytes=said), 2)))
        assert wire.is_closed()
    assert gets_in(house, issuer.token())


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\1",
        b"n,,\1\1",
        b"n,,\1auth=Basic x\1\1",
        b"n,,\1auth=Bearer\1\1",
        b"n,,auth=Bearer x\1\1",
        b"n,,\1auth=Bearer x",
        b"y,,\1auth=Bearer x\1\1",
        b"n,a=\xff,\1auth=Bearer x\1\1",
        b"n,,\1auth=Bearer \xff\1\1",
        b"\xff" * 1000,
        b"n,,\1" + b"a=b\1" * 20_000,
    ],
)
def test_garbage_is_refused_at_once(house: BrokerProcess, said: bytes) -> None:
    with Wire(house.host_and_port) as wire:
        wire.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=said), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.is_closed()


@given(st.binary(max_size=200))
def test_whatever_is_said_is_read_or_refused(said: bytes) -> None:
    for text in (said, b"n,," + said, b"n,,\1auth=Bearer " + said + b"\1\1"):
        try:
            _, found, _ = parse_bearer(text)
        except AuthenticationFailed:
            continue
        assert found


def test_tenants_are_named_by_extension_or_as_in_kop() -> None:
    assert parse_bearer(b"n,,\1auth=Bearer abc\1tenant=red/ns\1\1") == ("", "abc", "red/ns")
    assert parse_bearer(b"n,,\1auth=Bearer abc__with_tenant_red\1\1") == ("", "abc", "red")
    assert parse_bearer(b"n,a=al=2Cice,\1auth=bearer  abc\1\1") == ("al,ice", "abc", "")


def test_nobody_acts_as_another(house: BrokerProcess, issuer: Issuer) -> None:
    for behalf, is_let_in in ((b"root", True), (b"alice", False)):
        with Wire(house.host_and_port) as wire:
            wire.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
            said = b"n,a=" + behalf + b",\1auth=Bearer " + issuer.token().encode() + b"\1\1"
            answer = wire.ask(SaslAuthenticateRequest(auth_bytes=said), 2)
            assert (answer.error_code == 0) is is_let_in


def test_after_a_refusal_nothing_but_its_confirmation_is_taken(house: BrokerProcess, issuer: Issuer) -> None:
    with Wire(house.host_and_port) as wire:
        assert say(wire, "forged").auth_bytes
        wire.send(frame(request_bytes(MetadataRequest(topics=[]), 4)))
        assert wire.is_closed()
    with Wire(house.host_and_port) as wire:  # and not a second token either
        assert say(wire, "forged").auth_bytes
        said = b"n,,\1auth=Bearer " + issuer.token().encode() + b"\1\1"
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=said), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_session_ends_with_its_token_and_a_client_goes_on_with_the_next(
    house: BrokerProcess, issuer: Issuer
) -> None:
    with Wire(house.host_and_port) as wire:
        answer = say(wire, issuer.token(exp=time.time() + 2))
        assert 0 < answer.session_lifetime_ms <= 2000
        assert say(wire, issuer.token(exp=time.time() + 60)).session_lifetime_ms > 50_000
        time.sleep(2.1)
        assert wire.ask(MetadataRequest(topics=[])).brokers
        assert say(wire, issuer.token("alice")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with Wire(house.host_and_port) as wire:
        say(wire, issuer.token(exp=time.time() + 1.2))
        time.sleep(1.3)
        wire.send(frame(request_bytes(MetadataRequest(topics=[]), 4)))
        assert wire.is_closed()


def test_librdkafka_authenticates_again_before_its_token_ends(house: BrokerProcess, issuer: Issuer) -> None:
    issuer.life_s = 3
    before = issuer.given
    try:
        producer = Producer(librdkafka(house, issuer))
        errors: list[Any] = []
        for _ in range(9):
            producer.produce("oauth-again", b"x", on_delivery=lambda error, _: errors.append(error))
            producer.flush(10)
            time.sleep(1)
    finally:
        issuer.life_s = 3600
    assert errors == [None] * 9
    assert issuer.given >= before + 3


# -- the issuer -----------------------------------------------------------------------------------------------------


def test_keys_rotate_and_the_issuer_may_be_down(tmp_path: Path) -> None:
    with issuing() as issuer, started(tmp_path / "data", issuer) as house:
        assert gets_in(house, issuer.token())
        issuer.keys["second"] = rsa_key(1)
        issuer.asked.clear()
        # A stranger's key ids do not have the issuer asked all the time: half a minute goes by between two looks.
        assert [gets_in(house, issuer.token(key="second")) for _ in range(20)] == [False] * 20
        assert issuer.asked == []
        issuer.down = True
        assert gets_in(house, issuer.token())


def test_who_comes_while_the_issuer_is_asked_waits_for_it(tmp_path: Path) -> None:
    """The broker starts while its issuer is down; who comes then is refused, and let in once it is back."""
    with issuing() as issuer:
        issuer.down = True
        backoff = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms=200"
        with started(tmp_path / "data", issuer, backoff) as house:
            assert not gets_in(house, issuer.token())
            issuer.down = False
            time.sleep(0.3)
            assert gets_in(house, issuer.token()), (
                "the first one that comes after the pause waits for the keys"
            )


def test_issuers_say_where_their_keys_are(tmp_path: Path) -> None:
    """As with Pulsar's OpenID provider: nothing but issuers and audiences is set."""
    with issuing() as one, issuing() as other, issuing() as stranger:
        other.keys, stranger.keys = {"first": rsa_key(1)}, {"first": rsa_key(2)}
        settings = (
            "authenticationProviders=org.apache.pulsar.broker.authentication.oidc.AuthenticationProviderOpenID",
            f"openIDAllowedTokenIssuers={one.url},{other.url}",
            f"openIDAllowedAudiences={AUDIENCE}",
            "sasl.oauthbearer.jwks.endpoint.url=",
        )
        dropped = ("sasl.oauthbearer.expected.issuer=", "sasl.oauthbearer.expected.audience=")
        kept = [text for text in _texts(one, *settings) if not text.startswith(dropped)]
        with BrokerProcess(
            tmp_path / "data", *[part for text in kept for part in ("--set", text)], kafka=None
        ) as house:
            assert gets_in(house, one.token())
            assert gets_in(house, other.token())
            assert not gets_in(house, stranger.token())
            for each in (other, stranger):
                assert not gets_in(house, each.token(iss=one.url)), "an issuer's keys are for its own tokens"
            assert pulsar_gets_in(house, other.token())


def test_pauses_double_and_keys_stay() -> None:
    with issuing() as issuer:
        now = 1000.0
        keys = KeySet(f"{issuer.url}/jwks", Pauses(60_000, 100, 400), lambda: now)
        asyncio.run(keys.wait())
        issuer.down = True
        now += 60
        asked = []
        for _ in range(40):
            assert keys.candidates("first")
            asyncio.run(keys.wait())
            asked.append(len(issuer.asked))
            now += 0.0501
        # At 0, 100, 300, 700, 1100, 1500, 1900 ms.
        assert asked[-1] - 1 == 7


def test_an_issuer_that_calls_itself_otherwise_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    with issuing() as issuer:
        keys = KeySet(issuer.url + "/", discover=True)
        asyncio.run(keys.wait())
        assert not keys.candidates(None)
        assert "it calls itself" in caplog.text


def test_a_key_sets_address_is_never_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with issuing() as issuer:
        secret = tmp_path / "jwks"
        secret.write_text(json.dumps(issuer._answers()["/jwks"]))
        said = {"issuer": issuer.url, "jwks_uri": secret.as_uri()}
        monkeypatch.setattr(issuer, "_answers", lambda: {"/.well-known/openid-configuration": said})
        keys = KeySet(issuer.url, discover=True)
        asyncio.run(keys.wait())
        assert not keys.candidates(None)
        assert "is no http address" in caplog.text


def test_without_keys_oauthbearer_cannot_be() -> None:
    from magnetar.kafka.listeners import parse_listeners
    from magnetar.settings.settings import Settings

    texts = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER"}
    with pytest.raises(InvalidConfig, match=r"token\.secret\.key"):
        parse_listeners(Settings().with_values(texts))
    parse_listeners(Settings().with_values({**texts, "token.secret.key": SECRET_URL}))


def test_an_admin_client_with_a_bad_token_hears_so(house: BrokerProcess, issuer: Issuer) -> None:
    failures: list[Any] = []
    issuer.claims = {"aud": "somebody else"}
    try:
        admin = AdminClient({**librdkafka(house, issuer), "error_cb": failures.append, "log_level": 0})
        for _ in range(100):
            with pytest.raises(KafkaException):
                admin.list_topics(timeout=0.2)
            admin.poll(0)
            if any(each.name() == "_AUTHENTICATION" for each in failures):
                break
        else:
            raise AssertionError(failures)
    finally:
        issuer.claims = {}


@pytest.mark.parametrize("address", [5, None, ["http://127.0.0.1"]])
def test_an_issuer_whose_key_sets_address_is_none_is_not_believed(
    address: object, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with issuing() as issuer:
        configuration = {"issuer": issuer.url, "jwks_uri": address}
        monkeypatch.setattr(issuer, "_answers", lambda: {"/.well-known/openid-configuration": configuration})
        keys = KeySet(issuer.url, discover=True)
        asyncio.run(keys.wait())
        assert not keys.candidates(None)
        assert "its jwks_uri is no address" in caplog.text
