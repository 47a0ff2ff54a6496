"""SCRAM by way of the proxy: a login is passed on to one broker, and a token of minutes opens the others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka as ck
import kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.create_delegation_token_request import CreateDelegationTokenRequest
from magnetar.wire.kafka.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from magnetar.wire.kafka.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from magnetar.wire.kafka.messages.share_acknowledge_request import ShareAcknowledgeRequest
from magnetar.wire.kafka.messages.share_fetch_request import ShareFetchRequest
from tests.hostile.client import Wire, frame, request_bytes
from tests.proxy.processes import PATIENCE_S, ClusterProcess, ProxyProcess
from tests.security.conftest import say
from tests.security.signing import SECRET_URL, token
from tests.security.test_delegation_tokens import log_in, password_of
from tests.waiting import until

TOOLS = Path(__file__).parents[2] / "compat" / "kafka-tools.sh"
RECORDS = 20_000
PARTITIONS = 12
SECRET = "delegation.token.secret.key=a secret of all brokers"
ONE = encode_batch([PlainRecord(None, b"x", [], 0, 0)])
BOTH = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SETTINGS = (
    "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT",
    "authentication.enabled=true",
    "authorization.enabled=true",
    "super.user.roles=root",
    f"token.secret.key={SECRET_URL}",
    "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "connection.failed.authentication.delay.ms=10",
)
LISTENS = (
    "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT",
    "listeners=PLAINTEXT://127.0.0.1:0",
)


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[ClusterProcess]:
    with ClusterProcess(home, 3, *SETTINGS, SECRET) as made:
        yield made


@pytest.fixture(scope="module")
def proxy(home: Path, cluster: ClusterProcess) -> Iterator[ProxyProcess]:
    # The last broker is asked first: it is not the controller.
    first = f"proxy.bootstrap.servers={','.join(reversed(cluster.served['kafka']))}"
    with ProxyProcess(home, cluster, *LISTENS, first) as made:
        yield made
        assert "Traceback" not in made.log.read_text()


def as_root(cluster: ClusterProcess) -> dict[str, Any]:
    """The settings of who may do everything, directly at the brokers."""
    return {
        "bootstrap.servers": ",".join(cluster.served["kafka"]),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "public/default",
        "sasl.password": f"token:{token('root')}",
    }


def by_scram(
    at: ClusterProcess | ProxyProcess, user: str, password: str = "secret", mechanism: str = BOTH[0]
) -> dict[str, Any]:
    return {
        "bootstrap.servers": at.kafka,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def ask(cluster: ClusterProcess, what: str, given: list[Any]) -> None:
    """Have root do something: a method of the admin client."""
    admin = AdminClient(as_root(cluster))
    for each in getattr(admin, what)(given).values():
        each.result(PATIENCE_S)


def keep(cluster: ClusterProcess, user: str, password: str = "secret") -> None:
    """Make a user, or give it another password."""
    for each in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion(user, ScramCredentialInfo(each, 4096), password.encode())
        ask(cluster, "alter_user_scram_credentials", [change])


def delete(cluster: ClusterProcess, user: str) -> None:
    for each in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialDeletion(user, each)
        ask(cluster, "alter_user_scram_credentials", [change])


def allow(cluster: ClusterProcess, user: str, *names: str) -> None:
    """Let a user do everything with topics and groups of these names."""
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for name in names
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    ask(cluster, "create_acls", bindings)


@pytest.fixture
def topic(cluster: ClusterProcess) -> str:
    """A topic that several brokers lead partitions of."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    ask(cluster, "create_topics", [NewTopic(name, PARTITIONS)])
    admin = AdminClient(as_root(cluster))
    led_by = {each.leader for each in admin.list_topics(name, PATIENCE_S).topics[name].partitions.values()}
    assert len(led_by) > 1
    return name


@pytest.fixture
def user(cluster: ClusterProcess, topic: str) -> str:
    """A user who may use the topic, and a group of its name; its password is "secret"."""
    name = f"u-{uuid.uuid4().hex[:8]}"
    keep(cluster, name)
    allow(cluster, name, topic)
    return name


def write(client: dict[str, Any], topic: str, count: int, *, first: int = 0) -> None:
    """Write numbers, each to the partition that it is by the number of partitions."""
    failed: list[object] = []
    producer = ck.Producer({**client, "enable.idempotence": True, "linger.ms": 5})
    for number in range(first, first + count):
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert not failed


def number_in(message: Any) -> int:
    return int(message.value())


def read(client: dict[str, Any], topic: str, count: int) -> list[int]:
    """Read with a group; what came, sorted."""
    consumer = ck.Consumer({**client, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[int] = []
    while len(found) < count:
        messages = consumer.consume(1000, PATIENCE_S / 10)
        assert messages, f"{len(found)} of {count} came"
        for message in messages:
            assert message.error() is None, message.error()
            found.append(number_in(message))
    consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(found)


def address(at: ClusterProcess | ProxyProcess) -> tuple[str, int]:
    host, _, port = at.kafka.rpartition(":")
    return host, int(port)


def produce_request(topic: str, partitions: Iterable[int] = range(PARTITIONS)) -> ProduceRequest:
    """One record for each partition."""
    rows = [PartitionProduceData(index=each, records=ONE) for each in partitions]
    return ProduceRequest(
        acks=-1, timeout_ms=20_000, topic_data=[TopicProduceData(name=topic, partition_data=rows)]
    )


def produce_to_all(wire: Wire, topic: str, partitions: Iterable[int] = range(PARTITIONS)) -> list[int]:
    """Write a record to each partition in one request; the codes that came, by partition."""
    answer = wire.ask(produce_request(topic, partitions), 9)
    rows = [row for each in answer.responses for row in each.partition_responses]
    return [row.error_code for row in sorted(rows, key=lambda row: row.index)]


def tokens_of(cluster: ClusterProcess, user: str) -> list[Any]:
    """The delegation tokens of a user, as a broker tells root."""
    for at in cluster.served["kafka"]:
        host, _, port = at.rpartition(":")
        try:
            wire = Wire((host, int(port)))
        except ConnectionError:
            continue
        with wire:
            assert say(wire, f"token:{token('root')}").error_code == 0  # type: ignore[attr-defined]
            told = wire.ask(DescribeDelegationTokenRequest(owners=None))
            assert told.error_code == 0
            return [each for each in told.tokens if each.principal_name == user]
    raise AssertionError


def no_tokens_are_left(cluster: ClusterProcess, user: str) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while tokens_of(cluster, user):
        assert time.monotonic() < give_up
        time.sleep(0.05)


class Recorder:
    """A `Wire` that keeps what is said by SASL."""

    def __init__(self, wire: Wire, said: list[bytes]) -> None:
        self._wire = wire
        self._said = said

    def ask(self, message: Any, version: int | None = None) -> Any:
        if isinstance(message, SaslAuthenticateRequest):
            self._said.append(bytes(message.auth_bytes))
        return self._wire.ask(message, version)


@pytest.mark.parametrize("mechanism", BOTH)
def test_a_user_writes_to_all_brokers_and_reads_with_a_group(
    proxy: ProxyProcess, topic: str, user: str, mechanism: str
) -> None:
    client = by_scram(proxy, user, mechanism=mechanism)
    write(client, topic, RECORDS)
    assert read(client, topic, RECORDS) == list(range(RECORDS))


def test_who_may_not_is_refused_by_every_broker(
    proxy: ProxyProcess, cluster: ClusterProcess, topic: str
) -> None:
    stranger = f"u-{uuid.uuid4().hex[:8]}"
    keep(cluster, stranger)
    client = by_scram(proxy, stranger)
    codes: list[int | None] = []
    producer = ck.Producer(client)
    for partition in range(PARTITIONS):
        producer.produce(
            topic,
            b"x",
            partition=partition,
            on_delivery=lambda error, _: codes.append(error.code() if error else None),
        )
    assert producer.flush(PATIENCE_S) == 0
    assert codes == [ck.KafkaError.TOPIC_AUTHORIZATION_FAILED] * PARTITIONS
    with Wire(address(proxy)) as wire:
        assert log_in(wire, stranger, "secret", more="").error_code == 0
        rows = produce_to_all(wire, topic)
        assert rows == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * PARTITIONS
    consumer = ck.Consumer({**client, "group.id": topic})
    consumer.subscribe([topic])
    (refused,) = consumer.consume(1, PATIENCE_S)
    consumer.close()
    error = refused.error()
    assert error is not None
    assert error.code() in (
        ck.KafkaError.GROUP_AUTHORIZATION_FAILED,
        ck.KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )


def refusal(client: dict[str, Any]) -> str:
    """What a client is told that is not let in, without the address."""
    errors: list[str] = []
    config: dict[str, Any] = {**client, "error_cb": lambda error: errors.append(error.str())}
    admin = AdminClient(config)
    with pytest.raises(ck.KafkaException):
        admin.list_topics(timeout=2)
    while not errors:
        admin.poll(PATIENCE_S)
    return errors[0].partition("bootstrap: ")[2].partition(" (after")[0]


@pytest.mark.parametrize("mechanism", BOTH)
def test_a_wrong_password_is_refused_in_the_brokers_words(
    proxy: ProxyProcess, cluster: ClusterProcess, user: str, mechanism: str
) -> None:
    told = refusal(by_scram(proxy, user, "wrong", mechanism))
    assert told == refusal(by_scram(cluster, user, "wrong", mechanism))
    assert f"invalid credentials with SASL mechanism {mechanism}" in told
    assert told == refusal(by_scram(proxy, "nobody", "secret", mechanism))


def test_what_the_proxy_or_a_broker_does_not_know_is_not_offered(
    proxy: ProxyProcess, cluster: ClusterProcess
) -> None:
    with Wire(address(proxy)) as wire:
        answer = wire.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", *BOTH]  # not OAUTHBEARER, which these brokers do not serve


def test_a_changed_password_and_a_deleted_user_are_as_at_a_broker(
    proxy: ProxyProcess, cluster: ClusterProcess, topic: str, user: str
) -> None:
    """Who is in stays in, whoever comes is asked: the same at both."""
    told = []
    for at in (proxy, cluster):
        keep(cluster, user)
        with Wire(address(at)) as wire, Wire(address(at)) as later:
            assert log_in(wire, user, "secret", more="").error_code == 0
            assert log_in(later, user, "secret", more="").error_code == 0
            keep(cluster, user, "another")
            codes = [
                log_in_once(at, user, "secret"),
                log_in_once(at, user, "another"),
                wire.ask(MetadataRequest(topics=[]), 9).brokers != [],
            ]
            if at is proxy:
                assert produce_to_all(wire, topic) == [0] * PARTITIONS
            delete(cluster, user)
            codes += [
                log_in_once(at, user, "another"),
                later.ask(MetadataRequest(topics=[]), 9).brokers != [],
            ]
            if at is proxy:
                assert produce_to_all(later, topic) == [0] * PARTITIONS
            told.append(codes)
    refused = ErrorCode.SASL_AUTHENTICATION_FAILED
    assert told[0] == told[1] == [refused, 0, True, refused, True]


def log_in_once(at: ClusterProcess | ProxyProcess, user: str, password: str) -> int:
    with Wire(address(at)) as wire:
        code: int = log_in(wire, user, password, more="").error_code
        return code


def test_there_is_a_token_only_while_it_is_needed(
    proxy: ProxyProcess, cluster: ClusterProcess, topic: str, user: str
) -> None:
    with Wire(address(proxy)) as wire:
        assert log_in(wire, user, "secret", more="").error_code == 0
        assert wire.ask(MetadataRequest(topics=[]), 9).brokers
        leads = AdminClient(as_root(cluster)).list_topics(topic, PATIENCE_S).topics[topic].partitions
        here = [number for number, each in leads.items() if each.leader == 3]
        assert produce_to_all(wire, topic, here) == [0] * len(here)
        assert tokens_of(cluster, user) == []
        assert produce_to_all(wire, topic) == [0] * PARTITIONS
        (made,) = tokens_of(cluster, user)
        assert made.max_timestamp == made.expiry_timestamp == made.issue_timestamp + 600_000
        assert produce_to_all(wire, topic) == [0] * PARTITIONS
        assert [each.token_id for each in tokens_of(cluster, user)] == [made.token_id]
    no_tokens_are_left(cluster, user)


def test_tokens_are_made_and_ended_through_the_proxy_as_at_a_broker(
    proxy: ProxyProcess, cluster: ClusterProcess, topic: str, user: str
) -> None:
    with Wire(address(proxy)) as wire:
        assert log_in(wire, user, "secret", more="").error_code == 0
        assert produce_to_all(wire, topic) == [0] * PARTITIONS
        made = wire.ask(CreateDelegationTokenRequest(max_lifetime_ms=3_600_000))
        assert (made.error_code, made.principal_name) == (0, user)
        told = wire.ask(DescribeDelegationTokenRequest(owners=None))
        assert made.token_id in {each.token_id for each in told.tokens}
        renewed = wire.ask(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1_800_000))
        assert renewed.error_code == 0
        with Wire(address(cluster)) as worker:
            assert log_in(worker, made.token_id, password_of(made)).error_code == 0
        with Wire(address(proxy)) as worker:
            answer = log_in(worker, made.token_id, password_of(made))
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "KIP-48" in answer.error_message
            assert worker.is_closed()
        ended = wire.ask(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1))
        assert ended.error_code == 0
        again = wire.ask(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1_800_000))
        assert again.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert wire.ask(CreateDelegationTokenRequest(max_lifetime_ms=3_600_000)).error_code == 0


def test_a_client_that_ends_all_its_tokens_goes_on(
    proxy: ProxyProcess, cluster: ClusterProcess, topic: str, user: str
) -> None:
    with Wire(address(proxy)) as wire:
        assert log_in(wire, user, "secret", more="").error_code == 0
        assert produce_to_all(wire, topic) == [0] * PARTITIONS
        for each in wire.ask(DescribeDelegationTokenRequest(owners=None)).tokens:
            gone = wire.ask(ExpireDelegationTokenRequest(hmac=each.hmac, expiry_time_period_ms=-1))
            assert gone.error_code == 0
        assert tokens_of(cluster, user) == []
        cluster.do("end 2")  # its connection is opened anew, with the token that is no more
        cluster.do("start 2")
        for _ in range(100):
            codes = produce_to_all(wire, topic)
            if codes == [0] * PARTITIONS:
                break
            time.sleep(0.2)
        assert codes == [0] * PARTITIONS
    no_tokens_are_left(cluster, user)


# -- who is not let in


def test_nobody_comes_by_what_is_somebody_elses(
    proxy: ProxyProcess, cluster: ClusterProcess, topic: str, user: str
) -> None:
    """Wrong proofs, words that were said before, ids of tokens: none of it leads to who is in."""
    with Wire(address(proxy)) as good:
        recorded: list[bytes] = []
        assert log_in(Recorder(good, recorded), user, "secret", more="").error_code == 0  # type: ignore[arg-type]
        assert produce_to_all(good, topic) == [0] * PARTITIONS
        (made,) = tokens_of(cluster, user)

        def refused(said: list[bytes], mechanism: str = BOTH[0]) -> None:
            with Wire(address(proxy)) as wire:
                assert wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
                answers = [wire.ask(SaslAuthenticateRequest(auth_bytes=each), 2) for each in said]
                assert answers[-1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert wire.is_closed()

        refused(recorded)
        refused([recorded[0], recorded[1]], BOTH[1])
        refused([recorded[0], b"v=" + recorded[1]])
        for guessed in (made.token_id, user):
            for password in ("", made.token_id, "x" * 88):
                with Wire(address(proxy)) as wire:
                    code = log_in(wire, guessed, password, more=",tokenauth=true").error_code
                    assert code == ErrorCode.SASL_AUTHENTICATION_FAILED
                    assert wire.is_closed()
                with Wire(address(cluster)) as wire:
                    code = log_in(wire, guessed, password, more=",tokenauth=true").error_code
                    assert code == ErrorCode.SASL_AUTHENTICATION_FAILED
        for number in range(20):  # many at once: who is in has connections that are free now and then
            with Wire(address(proxy)) as wire:
                code = log_in(wire, user, f"guess {number}", more="").error_code
                assert code == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert wire.is_closed()
        # Workers may have exchanged partitions meanwhile, of which the first answer tells.
        until(lambda: produce_to_all(good, topic) == [0] * PARTITIONS)
        assert [each.token_id for each in tokens_of(cluster, user)] == [made.token_id]


def test_a_challenge_lets_nobody_in(proxy: ProxyProcess, user: str) -> None:
    """The broker's answer to the first words has no error, and does not say that the client is in."""
    first = SaslAuthenticateRequest(auth_bytes=f"n,,n={user},r=v=".encode())
    for then in (MetadataRequest(topics=[]), CreateDelegationTokenRequest(max_lifetime_ms=-1)):
        with Wire(address(proxy)) as wire:
            assert wire.ask(SaslHandshakeRequest(mechanism=BOTH[0]), 1).error_code == 0
            assert wire.ask(first, 2).error_code == 0
            wire.send(frame(request_bytes(then, type(then).MAX_VERSION)))
            assert wire.is_closed()


def test_all_in_one_go_with_a_wrong_proof_is_not_answered(proxy: ProxyProcess, user: str) -> None:
    with Wire(address(proxy)) as wire:
        asked = [
            (SaslHandshakeRequest(mechanism=BOTH[0]), 1),
            (SaslAuthenticateRequest(auth_bytes=f"n,,n={user},r=abc".encode()), 2),
            (SaslAuthenticateRequest(auth_bytes=b"c=biws,r=abc,p=AAAA"), 2),
            (MetadataRequest(topics=None), 9),
        ]
        wire.send(b"".join(frame(request_bytes(message, version)) for message, version in asked))
        for _ in range(3):
            wire.frame()
        assert wire.is_closed()


def test_connections_of_one_who_left_are_not_given_to_another(
    proxy: ProxyProcess, cluster: ClusterProcess, topic: str, user: str
) -> None:
    other = f"u-{uuid.uuid4().hex[:8]}"
    keep(cluster, other)
    for _ in range(5):
        with Wire(address(proxy)) as wire:
            assert log_in(wire, user, "secret", more="").error_code == 0
            assert produce_to_all(wire, topic) == [0] * PARTITIONS
        with Wire(address(proxy)) as wire:
            assert log_in(wire, other, "secret", more="").error_code == 0
            assert produce_to_all(wire, topic) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * PARTITIONS
            with pytest.raises(ConnectionError):  # another user needs another connection, here as at a broker
                log_in(wire, user, "secret", more="")
                wire.ask(MetadataRequest(topics=[]), 9)
    no_tokens_are_left(cluster, user)
    no_tokens_are_left(cluster, other)


def test_a_share_session_is_one_users_on_any_connection(
    proxy: ProxyProcess, cluster: ClusterProcess, user: str
) -> None:
    other = f"u-{uuid.uuid4().hex[:8]}"
    keep(cluster, other)
    member: dict[str, Any] = {"group_id": "theirs", "member_id": str(uuid.uuid4())}
    with Wire(address(proxy)) as first, Wire(address(proxy)) as second, Wire(address(proxy)) as stranger:
        for wire, name in ((first, user), (second, user), (stranger, other)):
            assert log_in(wire, name, "secret", more="").error_code == 0

        def fetch(wire: Wire, epoch: int) -> int:
            asked = ShareFetchRequest(**member, share_session_epoch=epoch, max_records=1)
            return int(wire.ask(asked).error_code)

        assert fetch(first, 0) == ErrorCode.NONE
        assert fetch(stranger, 1) == ErrorCode.SHARE_SESSION_NOT_FOUND
        told = stranger.ask(ShareAcknowledgeRequest(**member, share_session_epoch=1))
        assert told.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert fetch(second, 1) == ErrorCode.NONE, "nobody else has used the number"
        assert fetch(first, 2) == ErrorCode.NONE
        assert fetch(second, 2) == ErrorCode.INVALID_SHARE_SESSION_EPOCH


# -- other clients


@pytest.mark.slow
def test_kafka_python_writes_and_reads(proxy: ProxyProcess, topic: str, user: str) -> None:
    client: dict[str, Any] = {
        "bootstrap_servers": proxy.kafka,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": BOTH[1],
        "sasl_plain_username": user,
        "sasl_plain_password": "secret",
    }
    producer = kafka.KafkaProducer(**client, linger_ms=5)
    for number in range(RECORDS):
        producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    producer.flush(PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **client, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    found = sorted(int(message.value) for message, _ in zip(consumer, range(RECORDS), strict=False))
    consumer.close()
    assert found == list(range(RECORDS))


async def test_aiokafka_writes_and_reads(proxy: ProxyProcess, topic: str, user: str) -> None:
    client: dict[str, Any] = {
        "bootstrap_servers": proxy.kafka,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": BOTH[0],
        "sasl_plain_username": user,
        "sasl_plain_password": "secret",
    }
    async with aiokafka.AIOKafkaProducer(**client, linger_ms=5) as producer:
        for number in range(RECORDS):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        await producer.flush()
    found: list[int] = []
    consumer = aiokafka.AIOKafkaConsumer(topic, **client, group_id=topic, auto_offset_reset="earliest")
    async with consumer:
        while len(found) < RECORDS:
            some = await consumer.getmany(timeout_ms=20_000)
            assert some
            found += [int(each.value) for messages in some.values() for each in messages]
    assert sorted(found) == list(range(RECORDS))


# -- brokers that end, bundles that move, a proxy that is killed


def test_all_is_there_once_and_in_order_while_brokers_end_and_the_proxy_is_killed(
    proxy: ProxyProcess, cluster: ClusterProcess, topic: str, user: str
) -> None:
    client = by_scram(proxy, user)
    failed: list[object] = []
    producer = ck.Producer({**client, "enable.idempotence": True, "linger.ms": 5})
    happens = {
        RECORDS // 6: lambda: cluster.do("move 5"),
        RECORDS * 2 // 6: lambda: cluster.do("end 2"),
        RECORDS * 3 // 6: lambda: cluster.do("start 2"),
        RECORDS * 4 // 6: proxy.again,
        RECORDS * 5 // 6: lambda: cluster.do("end 1"),
        RECORDS - 100: lambda: cluster.do("start 1"),
    }
    for number in range(RECORDS):
        if number in happens:
            happens[number]()
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0 if number % 100 else 0.02)
    assert producer.flush(2 * PATIENCE_S) == 0
    assert not failed
    of_partition: dict[int | None, list[int]] = {}
    consumer = ck.Consumer({**client, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    count = 0
    while count < RECORDS:
        messages = consumer.consume(1000, PATIENCE_S)  # a member that a move cut off holds others up for 45 s
        assert messages, f"{count} of {RECORDS} came"
        for message in messages:
            if message.error() is None:
                count += 1
                of_partition.setdefault(message.partition(), []).append(number_in(message))
    consumer.close()
    assert of_partition == {each: list(range(each, RECORDS, PARTITIONS)) for each in range(PARTITIONS)}


# -- sessions that end (KIP-368), and tokens that do


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Brokers that ask every client again and again who it is."""
    home = tmp_path_factory.mktemp("strict")
    with ClusterProcess(home, 3, *SETTINGS, SECRET, "connections.max.reauth.ms=2000") as made:
        yield made


@pytest.fixture(scope="module")
def in_front(tmp_path_factory: pytest.TempPathFactory, strict: ClusterProcess) -> Iterator[ProxyProcess]:
    """A proxy whose tokens last for 3 s."""
    home = tmp_path_factory.mktemp("in_front")
    lifetime = "proxy.delegation.token.lifetime.ms=3000"
    with ProxyProcess(home, strict, *LISTENS, lifetime) as made:
        yield made
        assert "Traceback" not in made.log.read_text()


def prepared(cluster: ClusterProcess) -> tuple[str, str]:
    """Return a topic and a user who may use it."""
    topic, user = f"t-{uuid.uuid4().hex[:8]}", f"u-{uuid.uuid4().hex[:8]}"
    ask(cluster, "create_topics", [NewTopic(topic, PARTITIONS)])
    keep(cluster, user)
    allow(cluster, user, topic)
    return topic, user


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", *BOTH])
def test_clients_that_prove_again_who_they_are_are_never_cut_off(
    strict: ClusterProcess, in_front: ProxyProcess, mechanism: str
) -> None:
    """Over several sessions, and several tokens; connections to brokers that are idle meanwhile are there, too."""
    topic, user = prepared(strict)
    if mechanism == "PLAIN":
        client = {**as_root(strict), "bootstrap.servers": in_front.kafka}
    else:
        client = by_scram(in_front, user, mechanism=mechanism)
    errors: list[str] = []
    failed: list[object] = []
    producer = ck.Producer(
        {**client, "enable.idempotence": True, "error_cb": lambda error: errors.append(error.str())}
    )
    log_before = len(strict.log.read_text())
    ends = time.monotonic() + 9
    count = 0
    while time.monotonic() < ends:
        partitions = range(PARTITIONS) if count % 5 == 0 else (0,)
        for partition in partitions:
            producer.produce(
                topic,
                b"%d" % count,
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            count += 1
        producer.poll(0.1)
        assert len(tokens_of(strict, user)) <= 3  # of a client's connections, each has one
    assert producer.flush(PATIENCE_S) == 0
    assert not failed
    assert not errors
    assert "did not let in again" not in in_front.log.read_text()
    assert "authentication failed" not in strict.log.read_text()[log_before:]
    del producer
    assert len(read(client, topic, count)) == count
    no_tokens_are_left(strict, user)


def test_who_does_not_prove_it_again_is_let_go(strict: ClusterProcess, in_front: ProxyProcess) -> None:
    topic, user = prepared(strict)
    for mechanism in ("PLAIN", BOTH[0]):
        with Wire(address(in_front)) as wire:
            if mechanism == "PLAIN":
                answer: Any = say(wire, f"token:{token('root')}")
            else:
                answer = log_in(wire, user, "secret", more="")
            assert answer.error_code == 0
            assert 0 < answer.session_lifetime_ms <= 2000
            assert produce_to_all(wire, topic) == [0] * PARTITIONS
            time.sleep(2.1)
            request = produce_request(topic)
            wire.send(frame(request_bytes(request, 9)))
            assert wire.is_closed()


def test_who_proves_it_again_with_a_password_that_is_no_more_is_let_go(
    strict: ClusterProcess, in_front: ProxyProcess
) -> None:
    topic, user = prepared(strict)
    with Wire(address(in_front)) as wire:
        assert log_in(wire, user, "secret", more="").error_code == 0
        assert produce_to_all(wire, topic) == [0] * PARTITIONS
        assert log_in(wire, user, "secret", more="").error_code == 0
        assert produce_to_all(wire, topic) == [0] * PARTITIONS
        keep(strict, user, "another")
        answer = log_in(wire, user, "secret", more="")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.is_closed()
    no_tokens_are_left(strict, user)


def test_nobody_becomes_somebody_else_on_the_way(strict: ClusterProcess, in_front: ProxyProcess) -> None:
    _, user = prepared(strict)
    _, other = prepared(strict)
    for mechanism, name in ((BOTH[1], user), (BOTH[0], other), ("PLAIN", "")):
        with Wire(address(in_front)) as wire:
            assert log_in(wire, user, "secret", more="").error_code == 0
            if mechanism == "PLAIN":
                answer: Any = say(wire, f"token:{token('root')}")
            else:
                answer = log_in(wire, name, "secret", mechanism, more="")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert wire.is_closed()
    with Wire(address(in_front)) as wire:
        assert say(wire, f"token:{token('root')}").error_code == 0  # type: ignore[attr-defined]
        answer = log_in(wire, user, "secret", more="")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "not supported for re-authentication" in answer.error_message
        assert wire.is_closed()


def test_nothing_is_asked_before_it_is_proved_again(strict: ClusterProcess, in_front: ProxyProcess) -> None:
    topic, user = prepared(strict)
    for mechanism in ("PLAIN", BOTH[0]):
        with Wire(address(in_front)) as wire:
            if mechanism == "PLAIN":
                assert say(wire, f"token:{token('root')}").error_code == 0  # type: ignore[attr-defined]
            else:
                assert log_in(wire, user, "secret", more="").error_code == 0
            assert produce_to_all(wire, topic) == [0] * PARTITIONS
            assert wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
            wire.send(frame(request_bytes(produce_request(topic), 9)))
            assert wire.is_closed()


def test_whose_broker_has_gone_does_not_prove_it_to_another(
    proxy: ProxyProcess, cluster: ClusterProcess, topic: str, user: str
) -> None:
    """That one would not know that it has to be the same client: it logs in on a new connection."""
    with Wire(address(proxy)) as wire:
        assert log_in(wire, user, "secret", more="").error_code == 0
        assert produce_to_all(wire, topic) == [0] * PARTITIONS
        cluster.do("end 3")
        wire.send(frame(request_bytes(SaslHandshakeRequest(mechanism=BOTH[0]), 1)))
        assert wire.is_closed()
        with Wire(address(proxy)) as again:
            assert log_in(again, user, "secret", more="").error_code == 0
        cluster.do("start 3")


# -- brokers without tokens


@pytest.mark.slow
def test_without_tokens_the_refusal_says_what_to_do(tmp_path: Path) -> None:
    with (
        ClusterProcess(tmp_path, 1, *SETTINGS) as cluster,
        ProxyProcess(tmp_path, cluster, *LISTENS) as proxy,
    ):
        keep(cluster, "alice")
        with Wire(address(cluster)) as wire:
            assert log_in(wire, "alice", "secret", more="").error_code == 0
        told = refusal(by_scram(proxy, "alice"))
        assert "delegation.token.secret.key" in told
        with Wire(address(proxy)) as wire:
            assert log_in(wire, "alice", "secret", more="").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert wire.is_closed()
        with Wire(address(proxy)) as wire:  # what else there is passes
            assert say(wire, f"token:{token('root')}").error_code == 0  # type: ignore[attr-defined]
            assert wire.ask(MetadataRequest(topics=[]), 9).brokers


needs_tools = pytest.mark.skipif(
    shutil.which("mvn") is None and "KAFKA_LIBS" not in os.environ, reason="no Maven"
)


class KafkasTools:
    """Kafka's own tools, and with them Java's client, as one user."""

    def __init__(
        self, folder: Path, user: str, password: str, *, mechanism: str = BOTH[0], more: str = ""
    ) -> None:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        self._file = folder / f"{uuid.uuid4().hex}.properties"
        self._file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} required username="{user}" password="{password}"{more};\n'
            "default.api.timeout.ms=20000\nrequest.timeout.ms=20000\n"
        )

    def say(
        self, at: ClusterProcess | ProxyProcess, name: str, *arguments: str, flag: str = "--command-config"
    ) -> str:
        """Run a tool; give all that it said."""
        command = [str(TOOLS), name, "--bootstrap-server", at.kafka, flag, str(self._file), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr


@needs_tools
@pytest.mark.slow
@pytest.mark.parametrize("mechanism", BOTH)
def test_javas_client_writes_and_reads_and_is_refused(
    proxy: ProxyProcess, topic: str, user: str, mechanism: str, tmp_path: Path
) -> None:
    tools = KafkasTools(tmp_path, user, "secret", mechanism=mechanism)
    said = tools.say(proxy, "verifiable-producer", "--topic", topic, "--max-messages", str(RECORDS))
    assert f'"acked":{RECORDS}' in said.replace(" ", ""), said[-2000:]
    said = tools.say(
        proxy, "verifiable-consumer", "--topic", topic, "--group-id", topic, "--max-messages", str(RECORDS),
        "--reset-policy", "earliest",
    )  # fmt: skip
    counts = [json.loads(line)["count"] for line in said.splitlines() if '"records_consumed"' in line]
    assert sum(counts) == RECORDS, said[-2000:]
    wrong = KafkasTools(tmp_path, user, "wrong", mechanism=mechanism)
    said = wrong.say(proxy, "topics", "--list")
    assert f"invalid credentials with SASL mechanism {mechanism}" in said, said[-2000:]


@needs_tools
@pytest.mark.slow
def test_javas_client_with_a_token_gets_in_at_a_broker_and_is_told_why_not_at_the_proxy(
    proxy: ProxyProcess, cluster: ClusterProcess, topic: str, user: str, tmp_path: Path
) -> None:
    said = KafkasTools(tmp_path, user, "secret").say(
        proxy, "delegation-tokens", "--create", "--max-life-time-period", "3600000"
    )
    row = next(line for line in said.splitlines() if f"User:{user}" in line).split()
    worker = KafkasTools(tmp_path, row[0], row[1], more=" tokenauth=true")
    said = worker.say(cluster, "verifiable-producer", "--topic", topic, "--max-messages", "1000")
    assert '"acked":1000' in said.replace(" ", ""), said[-2000:]
    said = worker.say(proxy, "topics", "--list")
    assert "KIP-48" in said, said[-2000:]
    forged = KafkasTools(tmp_path, row[0], "bm9uZQ==", more=" tokenauth=true")
    assert "invalid credentials" in forged.say(cluster, "topics", "--list")
    ended = KafkasTools(tmp_path, user, "secret").say(
        proxy, "delegation-tokens", "--expire", "--expiry-time-period", "-1", "--hmac", row[1]
    )
    assert "xpir" in ended, ended
    assert "invalid credentials" in worker.say(cluster, "topics", "--list")
