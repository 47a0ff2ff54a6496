"""SCRAM: users kept by the admin API and by `magnetar user`, whom stock clients then are; nobody else gets in."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from hypothesis import given
from hypothesis import strategies as st
from kafka.net.sasl.scram import ScramClient

from magnetar.admin.client import ask
from magnetar.auth.errors import UserNotFound
from magnetar.auth.scram import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    Credential,
    Mechanism,
    ScramExchange,
    ScramRefused,
    of_salted_password,
    salted,
)
from magnetar.auth.scram_users import Alteration, ScramUsers
from magnetar.cli.app import run_app
from magnetar.client.security import ClientSecurity
from magnetar.metadata import MemoryStore, MetadataCorrupt, Put
from magnetar.metadata.cache import MetadataCache
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from magnetar.wire.kafka.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.hostile.client import Wire, frame, request_bytes
from tests.process import BrokerProcess
from tests.security.signing import SECRET_URL, token
from tests.turns import until

BOTH = tuple(MECHANISMS)
PASSWORD = 'root\'s, "secret"=ü'
SETTINGS = (
    "listeners=SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "authentication.enabled=true",
    "authorization.enabled=true",
    "super.user.roles=root",
    f"token.secret.key={SECRET_URL}",
    "connection.failed.authentication.delay.ms=10",
    "group.initial.rebalance.delay.ms=0",
)


def started(data: Path, *more: str) -> BrokerProcess:
    texts = [part for text in (*SETTINGS, *more) for part in ("--set", text)]
    return BrokerProcess(data, *texts, kafka=None)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of which root, its first user, was made by `magnetar user`."""
    with started(tmp_path_factory.mktemp("scram") / "data") as process:
        secret = process.data.parent / "password"
        secret.write_text(PASSWORD + "\n")
        assert (
            run_app(["user", "set", "root", "--password-file", str(secret), "--data", str(process.data)]) == 0
        )
        yield process
        assert not [line for line in process.log_lines() if "Traceback" in line]
        assert PASSWORD not in process.log.read_text()


def client(
    house: BrokerProcess, mechanism: str, user: str = "root", password: str = PASSWORD
) -> dict[str, str]:
    return {
        "bootstrap.servers": house.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": "0",
    }


def gets_in(configuration: dict[str, str]) -> bool:
    """Say whether a client that may try as often as it likes is let in."""
    failures: list[Any] = []
    admin = AdminClient({**configuration, "error_cb": failures.append})
    for _ in range(300):
        try:
            return bool(admin.list_topics(timeout=0.1).brokers)
        except KafkaException:
            admin.poll(0)
            if any(each.name() == "_AUTHENTICATION" for each in failures):
                return False
    raise AssertionError(failures)


def own(mechanism: str, user: str, password: str) -> Callable[[bytes | None], bytes]:
    """Our own client's side: what it is sent goes in, what it says comes out; its long sums are done here."""
    spoken = ClientSecurity(mechanism=mechanism, username=user, password=password).login()

    def say(said: bytes | None) -> bytes:
        step = next(spoken) if said is None else spoken.send(said)
        return step if isinstance(step, bytes) else spoken.send(step())

    return say


def log_in(wire: Wire, mechanism: str, user: str = "root", password: str = PASSWORD) -> Any:
    """Speak SCRAM as our own client does; give the last answer."""
    assert wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    say = own(mechanism, user, password)
    said = wire.ask(SaslAuthenticateRequest(auth_bytes=say(None)), 2).auth_bytes
    return wire.ask(SaslAuthenticateRequest(auth_bytes=say(bytes(said))), 2)


def alter(house: BrokerProcess, *changes: Any) -> None:
    admin = AdminClient(client(house, "SCRAM-SHA-512"))
    for future in admin.alter_user_scram_credentials(list(changes)).values():
        future.result(20)


def create(configuration: dict[str, str], topic: str) -> None:
    admin = AdminClient(configuration)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(20)


def upsertion(user: str, password: str, mechanism: str = "SCRAM-SHA-256", iterations: int = 4096) -> Any:
    which = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
    return UserScramCredentialUpsertion(
        user, ScramCredentialInfo(which[mechanism], iterations), password.encode()
    )


# -- stock clients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", BOTH)
def test_librdkafka_writes_and_reads(house: BrokerProcess, mechanism: str) -> None:
    topic, configuration = f"rd-{mechanism}", client(house, mechanism)
    create(configuration, topic)
    producer = Producer({**configuration, "linger.ms": 5})
    values = [b"%d" % number for number in range(3000)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({**configuration, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < len(values):
        found += [message.value() for message in consumer.consume(1000, 1)]
    consumer.close()
    assert found == values


@pytest.mark.parametrize("mechanism", BOTH)
def test_kafka_python_writes_and_reads(house: BrokerProcess, mechanism: str) -> None:
    topic = f"kp-{mechanism}"
    given_: dict[str, Any] = {
        "bootstrap_servers": house.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "root",
        "sasl_plain_password": PASSWORD,
    }
    producer = kafka.KafkaProducer(**given_)
    for number in range(300):
        producer.send(topic, b"%d" % number)
    producer.flush(30)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=20000, **given_)
    found = [next(consumer).value for _ in range(300)]
    consumer.close()
    assert found == [b"%d" % number for number in range(300)]


@pytest.mark.parametrize("mechanism", BOTH)
async def test_aiokafka_writes(house: BrokerProcess, mechanism: str) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=house.address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="root",
        sasl_plain_password=PASSWORD,
    )
    await producer.start()
    told = [await producer.send_and_wait(f"aio-{mechanism}", b"x") for _ in range(3)]
    await producer.stop()
    assert [each.offset for each in told] == [0, 1, 2]


@pytest.mark.parametrize("mechanism", BOTH)
@pytest.mark.parametrize(
    ("user", "password"), [("root", "guessed"), ("nobody", PASSWORD), ("Root", PASSWORD)]
)
def test_others_are_not_let_in(house: BrokerProcess, mechanism: str, user: str, password: str) -> None:
    assert not gets_in(client(house, mechanism, user, password))


def test_users_come_change_and_go_by_the_admin_api(house: BrokerProcess) -> None:
    name = "ann, of =sales= / ünit"
    alter(house, upsertion(name, "first", iterations=8192))
    assert gets_in(client(house, "SCRAM-SHA-256", name, "first"))
    assert not gets_in(client(house, "SCRAM-SHA-512", name, "first")), "each mechanism has its own"
    alter(house, upsertion(name, "second", "SCRAM-SHA-512"))
    admin = AdminClient(client(house, "SCRAM-SHA-512"))
    told = admin.describe_user_scram_credentials([name])[name].result(20)
    assert {(each.mechanism.name, each.iterations) for each in told.scram_credential_infos} == {
        ("SCRAM_SHA_256", 8192),
        ("SCRAM_SHA_512", 4096),
    }
    assert set(admin.describe_user_scram_credentials().result(20)) >= {name, "root"}
    alter(house, upsertion(name, "third"))
    assert not gets_in(client(house, "SCRAM-SHA-256", name, "first"))
    assert gets_in(client(house, "SCRAM-SHA-256", name, "third"))
    alter(house, UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256))
    assert not gets_in(client(house, "SCRAM-SHA-256", name, "third"))
    assert gets_in(client(house, "SCRAM-SHA-512", name, "second"))


def test_users_are_there_after_a_crash(tmp_path: Path) -> None:
    with started(tmp_path / "data") as process:
        ask(process.data, "set-user", user="root", password=PASSWORD, mechanisms=[], iterations=5000)
        process.kill()
    with started(tmp_path / "data") as process:
        assert gets_in(client(process, "SCRAM-SHA-256"))
        assert gets_in(client(process, "SCRAM-SHA-512"))
        (user,) = ask(process.data, "users")  # type: ignore[misc]
        assert user.mechanisms == dict.fromkeys(BOTH, 5000)


def test_a_user_has_the_grants_of_its_name_and_no_more(house: BrokerProcess) -> None:
    alter(house, upsertion("bert", "bert's"))
    bert = client(house, "SCRAM-SHA-256", "bert", "bert's")
    for topic in ("berts", "others"):
        create(client(house, "SCRAM-SHA-256"), topic)
    ask(house.data, "grant", target="berts", role="bert", actions=["produce"])
    sent: dict[str, Any] = {}
    producer = Producer(bert)
    for topic in ("berts", "others"):
        producer.produce(
            topic, b"x", on_delivery=lambda error, message: sent.update({message.topic(): error})
        )
    producer.flush(20)
    assert sent["berts"] is None
    assert sent["others"].name() == "TOPIC_AUTHORIZATION_FAILED"
    admin = AdminClient(bert)
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        admin.alter_user_scram_credentials([upsertion("root", "mine")])["root"].result(20)
    with Wire(house.host_and_port) as wire:  # librdkafka frees what is not its own when it is refused this
        log_in(wire, "SCRAM-SHA-256", "bert", "bert's")
        told = wire.ask(DescribeUserScramCredentialsRequest(users=[UserName(name="root")]))
        assert told.error_code == told.results[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not told.results[0].credential_infos
    assert gets_in(client(house, "SCRAM-SHA-512"))


def test_only_what_is_enabled_is_served(tmp_path: Path) -> None:
    with started(tmp_path / "data", "sasl.enabled.mechanisms=SCRAM-SHA-512", "token.secret.key=") as process:
        ask(process.data, "set-user", user="root", password=PASSWORD, mechanisms=list(BOTH), iterations=4096)
        assert gets_in(client(process, "SCRAM-SHA-512"))
        with Wire(process.host_and_port) as wire:
            answer = wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert answer.mechanisms == ["SCRAM-SHA-512"]


# -- the admin API's own words --------------------------------------------------------------------------------------


@pytest.fixture
def root(house: BrokerProcess) -> Iterator[Wire]:
    with Wire(house.host_and_port) as wire:
        said = f"\0public\0token:{token('root')}".encode()
        assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        assert wire.ask(SaslAuthenticateRequest(auth_bytes=said), 2).error_code == 0
        yield wire


def row(
    name: str, iterations: int = 4096, mechanism: int = 1, salt: bytes = b"salt"
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=b"p" * 32
    )


@pytest.mark.parametrize(
    ("upserted", "code", "message"),
    [
        (row(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (row("x" * 1025), ErrorCode.UNACCEPTABLE_CREDENTIAL, "1024 bytes"),
        (row("x\0y"), ErrorCode.UNACCEPTABLE_CREDENTIAL, "zero character"),
        (row("x", MIN_ITERATIONS - 1), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (row("x", MAX_ITERATIONS + 1), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (row("x", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (row("x", salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt must not be empty"),
    ],
)
def test_what_cannot_be_is_refused_in_kafkas_words(
    root: Wire, upserted: ScramCredentialUpsertion, code: ErrorCode, message: str
) -> None:
    """One row is refused, another of the same request is taken."""
    answer = root.ask(AlterUserScramCredentialsRequest(upsertions=[upserted, row("good")]))
    assert [(each.user, each.error_code) for each in answer.results] == [("good", 0), (upserted.name, code)]
    assert message in answer.results[1].error_message
    assert (
        root.ask(DescribeUserScramCredentialsRequest(users=[UserName(name="good")])).results[0].error_code
        == 0
    )


def test_nobody_is_altered_twice_at_once(root: Wire) -> None:
    gone = ScramCredentialDeletion(name="good", mechanism=1)
    for request in (
        AlterUserScramCredentialsRequest(upsertions=[row("twice"), row("twice", mechanism=2)]),
        AlterUserScramCredentialsRequest(deletions=[gone], upsertions=[row("good")]),
        AlterUserScramCredentialsRequest(deletions=[gone, gone]),
    ):
        root.ask(AlterUserScramCredentialsRequest(upsertions=[row("good")]))
        (told,) = root.ask(request).results
        assert told.error_code == ErrorCode.DUPLICATE_RESOURCE
    names = [UserName(name="twice"), UserName(name="good"), UserName(name="good")]
    told = root.ask(DescribeUserScramCredentialsRequest(users=names)).results
    assert [each.error_code for each in told] == [
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.DUPLICATE_RESOURCE,
    ]


def test_who_is_not_there_cannot_go(root: Wire) -> None:
    gone = [ScramCredentialDeletion(name="never", mechanism=1)]
    (told,) = root.ask(AlterUserScramCredentialsRequest(deletions=gone)).results
    assert (told.error_code, told.error_message) == (
        ErrorCode.RESOURCE_NOT_FOUND,
        "Attempt to delete a user credential that does not exist",
    )


def test_a_thousand_users_at_once(root: Wire) -> None:
    names = [f"user-{number}" for number in range(1200)]
    told = root.ask(AlterUserScramCredentialsRequest(upsertions=[row(name) for name in names])).results
    assert {each.user for each in told if not each.error_code} == set(names)
    found = {each.user for each in root.ask(DescribeUserScramCredentialsRequest(users=None)).results}
    assert found >= set(names)
    gone = [ScramCredentialDeletion(name=name, mechanism=1) for name in names]
    assert not any(
        each.error_code for each in root.ask(AlterUserScramCredentialsRequest(deletions=gone)).results
    )
    found = {each.user for each in root.ask(DescribeUserScramCredentialsRequest(users=None)).results}
    assert found.isdisjoint(names)


# -- strangers ------------------------------------------------------------------------------------------------------


def challenge(house: BrokerProcess, user: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
    with Wire(house.host_and_port) as wire:
        assert wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=f"n,,n={user},r=abc".encode()), 2)
        assert answer.error_code == 0
        return dict(part.split("=", 1) for part in bytes(answer.auth_bytes).decode().split(","))


@pytest.mark.parametrize("mechanism", BOTH)
def test_whether_there_is_a_user_does_not_show(house: BrokerProcess, mechanism: str) -> None:
    real, made_up, again = (challenge(house, user, mechanism) for user in ("root", "nobody", "nobody"))
    assert made_up["s"] == again["s"] != challenge(house, "nobody2", mechanism)["s"]
    assert made_up["r"] != again["r"]
    if mechanism == "SCRAM-SHA-512":  # of the other one tests have altered users
        assert (len(real["s"]), real["i"]) == (len(made_up["s"]), made_up["i"])
    last = []
    for user in ("root", "nobody"):
        with Wire(house.host_and_port) as wire:
            wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
            said = wire.ask(SaslAuthenticateRequest(auth_bytes=f"n,,n={user},r=abc".encode()), 2).auth_bytes
            nonce = bytes(said).decode().split(",")[0]
            proof = base64.b64encode(bytes(MECHANISMS[mechanism].size)).decode()
            answer = wire.ask(SaslAuthenticateRequest(auth_bytes=f"c=biws,{nonce},p={proof}".encode()), 2)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert wire.is_closed()
            last.append(answer.error_message)
    assert last[0] == last[1]


def test_between_the_two_messages_nothing_else_is_answered(house: BrokerProcess) -> None:
    for request in (MetadataRequest(topics=[]), SaslHandshakeRequest(mechanism="SCRAM-SHA-256")):
        with Wire(house.host_and_port) as wire:
            wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            assert wire.ask(SaslAuthenticateRequest(auth_bytes=b"n,,n=root,r=abc"), 2).error_code == 0
            wire.send(frame(request_bytes(request, 1)))
            assert wire.is_closed()


def test_an_old_clients_messages_come_without_headers(house: BrokerProcess) -> None:
    with Wire(house.host_and_port) as wire:
        assert wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 0).error_code == 0
        say = own("SCRAM-SHA-512", "root", PASSWORD)
        wire.send(frame(say(None)))
        wire.send(frame(say(wire.frame())))
        with pytest.raises(StopIteration):
            say(wire.frame())
        assert wire.ask(MetadataRequest(topics=[])).brokers


def test_nobody_becomes_somebody_else_by_another_mechanism(house: BrokerProcess) -> None:
    with Wire(house.host_and_port) as wire:
        assert log_in(wire, BOTH[0]).error_code == 0
        answer = log_in(wire, BOTH[1])
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "is not supported for re-authentication of mechanism" in answer.error_message
        assert wire.is_closed()


# -- the exchange by itself -----------------------------------------------------------------------------------------


def kept(mechanism: Mechanism, password: str, iterations: int = 4096, salt: bytes = b"salt") -> Credential:
    return of_salted_password(
        mechanism, salted(mechanism, password.encode(), salt, iterations), salt, iterations
    )


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(NAMES, NAMES, st.sampled_from(BOTH), st.binary(min_size=1, max_size=40))
def test_who_knows_the_password_gets_in_and_knows_the_broker(
    user: str, password: str, mechanism: str, salt: bytes
) -> None:
    credential = kept(MECHANISMS[mechanism], password, salt=salt)
    exchange = ScramExchange(MECHANISMS[mechanism], lambda name, by_token: credential)
    say = own(mechanism, user, password)
    answer = exchange.final(say(exchange.first(say(None))))
    with pytest.raises(StopIteration):
        say(answer)
    assert (exchange.user, exchange.by_token) == (user, False)


@given(NAMES, NAMES, st.sampled_from(BOTH))
def test_who_does_not_know_it_does_not(password: str, guess: str, mechanism: str) -> None:
    exchange = ScramExchange(
        MECHANISMS[mechanism], lambda name, by_token: kept(MECHANISMS[mechanism], password)
    )
    say = own(mechanism, "user", guess)
    last = say(exchange.first(say(None)))
    if guess == password:
        exchange.final(last)
    else:
        with pytest.raises(ScramRefused, match="unknown user or wrong password"):
            exchange.final(last)


@pytest.mark.parametrize("mechanism", BOTH)
def test_the_exchange_is_that_of_another_client(mechanism: str) -> None:
    """kafka-python's side, which shares nothing with ours."""
    exchange = ScramExchange(
        MECHANISMS[mechanism], lambda name, by_token: kept(MECHANISMS[mechanism], "pass", 8192)
    )
    other = ScramClient("user", "pass", mechanism)
    other.process_server_first_message(exchange.first(other.first_message()))
    other.process_server_final_message(exchange.final(other.final_message()))


def test_a_known_exchange_of_rfc_7677() -> None:
    """The example of section 3."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = kept(MECHANISMS["SCRAM-SHA-256"], "pencil", 4096, salt)
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchange = ScramExchange(MECHANISMS["SCRAM-SHA-256"], lambda name, by_token: credential, nonce)
    assert exchange.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    last = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert exchange.final(last) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\xff",
        b"n,,n=,r=abc",
        b"n,,n=a,r=",
        b"n,,n=a",
        b"y,,n=a,r=abc",
        b"p=tls-unique,,n=a,r=abc",
        b"n,,m=x,n=a,r=abc",
        b"n,a=b,n=a,r=abc",
        b"n,,n=a=b,r=abc",
        b"n,,n=a,r=a c",
        b"n,,n=" + b"a" * 2000 + b",r=abc",
        b"n,,n=a\0b,r=abc",
    ],
)
def test_a_first_message_that_is_none(said: bytes) -> None:
    exchange = ScramExchange(
        MECHANISMS["SCRAM-SHA-256"], lambda name, by_token: kept(MECHANISMS[BOTH[0]], "p")
    )
    with pytest.raises(ScramRefused):
        exchange.first(said)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c="),
        (b"r=", b"r=x"),
        (b",p=", b",q=1,p"),
        (b",p=", b",p=AAAA"),
        (b",p=", b",p=="),
        (b"c=biws,", b""),
    ],
)
def test_a_last_message_that_was_touched(before: bytes, after: bytes) -> None:
    exchange = ScramExchange(
        MECHANISMS["SCRAM-SHA-256"], lambda name, by_token: kept(MECHANISMS[BOTH[0]], "p")
    )
    say = own(BOTH[0], "user", "p")
    last = say(exchange.first(say(None)))
    assert before in last
    with pytest.raises(ScramRefused):
        exchange.final(last.replace(before, after, 1))


@pytest.mark.parametrize(("binding", "nonce"), [("eSws", ""), ("", ""), ("biws", "x")])
def test_who_knows_the_password_answers_this_challenge_all_the_same(binding: str, nonce: str) -> None:
    """A last message that is signed well, but over another first message or nonce."""
    mechanism = MECHANISMS["SCRAM-SHA-256"]
    credential = kept(mechanism, "p")
    exchange = ScramExchange(mechanism, lambda name, by_token: credential)
    challenge = exchange.first(b"n,,n=user,r=abc").decode()
    told = dict(part.split("=", 1) for part in challenge.split(","))
    bare = f"c={binding},r={told['r']}{nonce}"
    message = f"n=user,r=abc,{challenge},{bare}".encode()
    key = mechanism.mac(salted(mechanism, b"p", b"salt", 4096), b"Client Key")
    signature = mechanism.mac(credential.stored_key, message)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
    with pytest.raises(ScramRefused, match="another"):
        exchange.final(bare.encode() + b",p=" + proof)


def test_an_endless_name_is_looked_at_once() -> None:
    """No message makes the pattern that reads it go back and forth."""
    exchange = ScramExchange(
        MECHANISMS["SCRAM-SHA-256"], lambda name, by_token: kept(MECHANISMS[BOTH[0]], "p")
    )
    began = time.process_time()
    for said in (
        b"n,,n=" + b"=2C" * 100_000,
        b"n,,n=a,r=abc" + b",x=y" * 100_000 + b",",
        b"n,a=" + b"=3D" * 100_000,
    ):
        with pytest.raises(ScramRefused):
            exchange.first(said)
    assert time.process_time() - began < 5


# -- what is kept ---------------------------------------------------------------------------------------------------


async def test_others_changes_are_followed() -> None:
    store = MemoryStore()
    one, other = ScramUsers(MetadataCache(store)), ScramUsers(MetadataCache(store))
    await one.start()
    await other.start()
    mechanism = MECHANISMS["SCRAM-SHA-256"]
    salt = one.stand_in(mechanism, "nobody").salt
    assert other.stand_in(mechanism, "nobody").salt == salt, "all brokers of a cluster know one secret"
    credential = kept(mechanism, "p")
    for name in ("..", ".", "a/b", "%2E", "ü"):
        await one.alter([Alteration(name, mechanism, credential)])
        await until(lambda name=name: other.credential(mechanism, name) == credential)
    assert other.names() == sorted(["..", ".", "a/b", "%2E", "ü"])
    await other.alter([Alteration("a/b", mechanism, None)])
    await until(lambda: "a/b" not in one.names())
    with pytest.raises(UserNotFound):
        await one.alter([Alteration("a/b", mechanism, None)])


async def test_a_damaged_credential_is_refused_and_harms_no_other() -> None:
    store = MemoryStore()
    users = ScramUsers(MetadataCache(store))
    await users.start()
    mechanism = MECHANISMS["SCRAM-SHA-256"]
    await users.alter([Alteration("good", mechanism, kept(mechanism, "p"))])
    for value in (b"", b"{}", b'{"iterations": 1, "salt": "?", "stored_key": "", "server_key": ""}', b"\xff"):
        await store.commit([Put("/magnetar/scram/SCRAM-SHA-256/bad", value, -2)])
        other = ScramUsers(MetadataCache(store))
        with pytest.raises(MetadataCorrupt):
            await other.start()
    assert users.names() == ["good"]


def test_a_credential_does_not_show() -> None:
    assert "salt" not in repr(kept(MECHANISMS["SCRAM-SHA-256"], "p"))


def test_the_command(house: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        status = run_app([*arguments, "--data", str(house.data)])
        said = capsys.readouterr()
        return status, said.out, said.err

    secret = house.data.parent / "carls"
    secret.write_text("carl's")
    assert run("user", "set", "carl", "--password-file", str(secret), "-m", "SCRAM-SHA-512")[0] == 0
    assert gets_in(client(house, "SCRAM-SHA-512", "carl", "carl's"))
    status, out, _ = run("user", "list")
    assert status == 0
    assert "carl" in out
    for wrong in (["-m", "SCRAM-SHA-1"], ["--iterations", "1"], ["--password-file", "/nowhere"]):
        assert run("user", "set", "carl", "--password-file", str(secret), *wrong)[0] == 2
    assert run("user", "delete", "carl")[0] == 0
    assert not gets_in(client(house, "SCRAM-SHA-512", "carl", "carl's"))
    status, _, err = run("user", "delete", "carl")
    assert (status, "there is no user carl" in err) == (1, True)


def test_our_own_client_says_who_it_is_so(house: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    alter(house, upsertion("dora", "dora's"))
    file = house.data.parent / "client.properties"
    for password, status in (("dora's", 0), ("guessed", 1)):
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f"sasl.username=dora\nsasl.password={password}\n"
        )
        monkeypatch.setenv("MAGNETAR_COMMAND_CONFIG", str(file))
        assert run_app(["topic", "list", "-b", house.address]) == status
