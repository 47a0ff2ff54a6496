"""Users of SASL PLAIN in Kafka's own words: a broker's ``listener.name.NAME.plain.sasl.jaas.config``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import httpx
import kafka
import kafka.errors
import pulsar
import pytest
from confluent_kafka import KafkaError, Producer

from magnetar.auth.authentication import Authentication
from magnetar.auth.basic import Passwords, WrongPassword
from magnetar.auth.jaas import users_of
from magnetar.base.errors import InvalidConfig
from magnetar.node.setting_sources import load
from magnetar.settings.security import SecuritySettings
from tests.process import BrokerDidNotStart, BrokerProcess

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
BACKSLASH = "\\"  # in a file of Java's properties it is two
USERS = f'{MODULE} username="broker" password="secret" user_admin="admin\'s" user_alice="a \\"b\\" = c:d;";'
PASSWORDS = {"admin": "admin's", "alice": 'a "b" = c:d;'}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker by a file as Kafka's would have it."""
    directory = tmp_path_factory.mktemp("jaas")
    said = USERS.replace(BACKSLASH, BACKSLASH * 2).replace(" user_", " \\\n  user_")
    (directory / "server.properties").write_text(
        "listeners=CLIENT://127.0.0.1:0\n"
        "listener.security.protocol.map=CLIENT:SASL_PLAINTEXT\n"
        "sasl.enabled.mechanisms=PLAIN\n"
        f"listener.name.client.plain.sasl.jaas.config={said}\n"
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        "super.users=User:admin\n"
        "authenticationEnabled=true\n"
    )
    file = str(directory / "server.properties")
    addresses = ("--pulsar", "127.0.0.1:0", "--http", "127.0.0.1:0")
    with BrokerProcess(directory / "data", "--config", file, *addresses, kafka=None) as process:
        yield process


def _sasl(house: BrokerProcess, user: str, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": house.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


def test_stock_clients_log_in_and_are_who_they_say(house: BrokerProcess) -> None:
    failed: list[Any] = []
    producer = Producer(_sasl(house, "admin", PASSWORDS["admin"]))
    for number in range(2000):
        producer.produce("plainly", b"%d" % number, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(30) == 0
    assert failed == [None] * 2000
    alice = Producer(_sasl(house, "alice", PASSWORDS["alice"]))
    alice.produce("plainly", b"not hers", on_delivery=lambda error, _: failed.append(error))
    alice.flush(30)
    assert failed[-1].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


WRONG = [("admin", "guessed"), ("alice", PASSWORDS["admin"]), ("broker", "secret"), ("nobody", "x")]


@pytest.mark.parametrize(("user", "password"), WRONG)
def test_who_guesses_is_refused(house: BrokerProcess, user: str, password: str) -> None:
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(
            bootstrap_servers=house.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username=user,
            sasl_plain_password=password,
            bootstrap_timeout_ms=1000,
        )

    async def asks() -> None:
        client = aiokafka.AIOKafkaProducer(
            bootstrap_servers=house.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username=user,
            sasl_plain_password=password,
        )
        try:
            await client.start()
        finally:
            await client.stop()

    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(asks())


def test_pulsars_clients_and_http_have_the_same_users(house: BrokerProcess) -> None:
    client = pulsar.Client(
        house.pulsar_url, authentication=pulsar.AuthenticationBasic("admin", PASSWORDS["admin"])
    )
    consumer = client.subscribe("by-both", "s")
    client.create_producer("by-both").send(b"plain")
    assert consumer.receive(10_000).data() == b"plain"
    client.close()
    url = f"http://{house.served['http'][0]}/admin/v2/namespaces/public"
    assert httpx.get(url, auth=("admin", PASSWORDS["admin"])).status_code == 200
    assert httpx.get(url, auth=("admin", "guessed")).status_code == 401


def test_users_of_a_module() -> None:
    assert users_of(USERS) == PASSWORDS
    assert users_of(f"{MODULE} user_a=b user_c='d e' serviceName=kafka;") == {"a": "b", "c": "d e"}
    assert users_of(f'{MODULE} username="u" password="p";') == {}
    assert users_of(f'\n {MODULE.replace(" required", chr(9) + "required")}\n user_a="b"\n;\n') == {"a": "b"}


@pytest.mark.parametrize(
    "text",
    [
        "users",
        "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        'PlainLoginModule user_a="hidden";',
        f'{MODULE} user_a="hidden"',
        f'{MODULE} user_a="hidden;',
        f'{MODULE} user_a="hidden"; user_b="b";',
        f'{MODULE} user_a "hidden";',
        f'{MODULE} user_="hidden";',
        f'{MODULE} user_a="";',
        f"{MODULE} hidden;",
    ],
)
def test_what_is_no_such_module_is_refused_without_telling_its_passwords(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"plain\.sasl\.jaas\.config") as told:
        users_of(text)
    assert "hidden" not in str(told.value)


def test_listeners_have_their_own_users_and_all_others_those_of_all(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    users = USERS.replace(BACKSLASH, BACKSLASH * 2)
    names = [f"listener.name.{name}.plain.sasl.jaas.config" for name in ("one", "TWO")]
    other = users.replace('"broker"', '"another"')
    served = "listeners=ONE://:0,TWO://:0,THREE://:0\n"
    lines = (f"{name}={said}\n" for name, said in zip(names, (users, other), strict=True))
    file.write_text(served + "".join(lines))
    assert users_of(load(file, environment={}).settings.security.plain_sasl_jaas_config) == PASSWORDS
    file.write_text(f'{served}{names[0]}={users}\n{names[1]}={MODULE} user_alice=other user_eve="e\\\\"e";\n')
    settings = load(file, environment={}).settings
    of_all = {user: password for user, password in PASSWORDS.items() if user != "alice"} | {"eve": 'e"e'}
    assert users_of(settings.security.plain_sasl_jaas_config) == of_all
    assert users_of(settings.at("Two").security.plain_sasl_jaas_config) == {"alice": "other", "eve": 'e"e'}
    assert settings.at("THREE").security.plain_sasl_jaas_config == settings.security.plain_sasl_jaas_config
    with pytest.raises(BrokerDidNotStart, match="a semicolon must end it"):
        BrokerProcess(
            tmp_path / "data",
            "--set",
            f"listener.name.plaintext.plain.sasl.jaas.config={MODULE} user_alice=other",
            "--set",
            "authenticationEnabled=true",
        ).__enter__()


def test_a_file_of_users_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(
        "file:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\nalice:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n"
    )  # "test"
    users = Passwords(str(path), PASSWORDS)
    for said, user in (("file:test", "file"), (f"alice:{PASSWORDS['alice']}", "alice")):
        assert users.check(said) == users.remembered(said) == asyncio.run(users.prove(said)) == user
    for said in ("alice:test", "file:admin's", "nobody:test"):
        assert users.remembered(said) is None
        with pytest.raises(WrongPassword):
            users.check(said)
        with pytest.raises(WrongPassword):
            asyncio.run(users.prove(said))


def test_authentication_without_any_user_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"plain\.sasl\.jaas\.config"):
        Authentication(SecuritySettings(authentication_enabled=True))
    settings = SecuritySettings(authentication_enabled=True, plain_sasl_jaas_config=USERS)
    assert Authentication(settings).methods == ("basic",)
