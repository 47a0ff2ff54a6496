"""Users and passwords: Pulsar's basic authentication for its own clients, over HTTP, and in KoP's way for Kafka's."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import httpx
import pulsar
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from magnetar.auth.authentication import Authentication, AuthenticationFailed
from magnetar.auth.basic import Passwords, WrongPassword
from magnetar.base.errors import InvalidConfig
from magnetar.settings.security import SecuritySettings
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, ServerError
from tests.hostile.client import Wire
from tests.process import BrokerDidNotStart, BrokerProcess
from tests.pulsar.raw import Raw, frame

BCRYPT = bcrypt.hashpw(b"root's", bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$")


def by_openssl(kind: str, password: str) -> str:
    """A hash that another program made."""
    made = subprocess.run(["openssl", "passwd", kind, password], capture_output=True, text=True, check=True)
    return made.stdout.strip()


def by_sha1(password: str) -> str:
    return "{SHA}" + base64.b64encode(hashlib.sha1(password.encode()).digest()).decode()


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / ".htpasswd"
    path.write_text(f"# who is who\nroot:{BCRYPT}\n\nann:{by_openssl('-apr1', 'its: mine')}\n")
    return path


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, users: Path) -> Iterator[BrokerProcess]:
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "superUserRoles": "root",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderBasic",
        "basicAuthConf": f"file://{users}",
    }
    told = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    addresses = (
        "--pulsar",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--set",
        "listeners=SASL_PLAINTEXT://127.0.0.1:0",
    )
    with BrokerProcess(tmp_path_factory.mktemp("basic") / "data", *addresses, *told, kafka=None) as process:
        yield process


def connect(house: BrokerProcess, user: str, password: str) -> pulsar.Client:
    return pulsar.Client(
        house.pulsar_url,
        authentication=pulsar.AuthenticationBasic(user, password),
        operation_timeout_seconds=10,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


WRONG = [("nobody", "root's"), ("root", "guessed"), ("root", ""), ("ann", "its"), ("", "root's")]


def test_pulsars_clients_say_who_they_are(house: BrokerProcess) -> None:
    client = connect(house, "root", "root's")
    consumer = client.subscribe("basics", "s")
    client.create_producer("basics").send(b"by password")
    assert consumer.receive(10_000).data() == b"by password"
    client.close()


def test_who_has_no_grant_may_not_though_the_password_is_right(house: BrokerProcess) -> None:
    client = connect(house, "ann", "its: mine")
    with pytest.raises(pulsar.PulsarException, match="Authorization"):
        client.create_producer("basics")
    client.close()


def test_a_grant_on_a_topic_says_nothing_of_the_one_that_is_not_persistent(house: BrokerProcess) -> None:
    with httpx.Client(base_url=f"http://{house.served['http'][0]}/admin/v2", auth=("root", "root's")) as http:
        assert http.put("/persistent/public/default/granted").status_code == 204
        grant = "/persistent/public/default/granted/permissions/ann"
        assert http.post(grant, json=["produce"]).status_code == 204
        client = connect(house, "ann", "its: mine")
        client.create_producer("persistent://public/default/granted").close()
        with pytest.raises(pulsar.PulsarException, match="Authorization"):
            client.create_producer("non-persistent://public/default/granted")
        grant = "/non-persistent/public/default/granted/permissions/ann"
        assert http.post(grant, json=["produce"]).status_code == 204
        client.create_producer("non-persistent://public/default/granted").close()
        client.close()


@pytest.mark.parametrize(("user", "password"), WRONG)
def test_wrong_users_and_passwords_are_refused(house: BrokerProcess, user: str, password: str) -> None:
    with Raw(house, connect=False) as client:
        command = BaseCommand(type=BaseCommand.CONNECT)
        command.connect.client_version, command.connect.protocol_version = "raw", 19
        command.connect.auth_method_name = "basic"
        command.connect.auth_data = f"{user}:{password}".encode()
        answer = client.ask(command)
        assert answer.error.error == ServerError.AuthenticationError
        assert answer.error.message == "Unable to authenticate", "which of both was wrong is not told"
        with pytest.raises(EOFError):
            client.hear()
    with httpx.Client(base_url=f"http://{house.served['http'][0]}") as http:
        assert http.get("/admin/v2/tenants", auth=(user, password)).status_code == 401
    with Wire(house.host_and_port) as wire:
        assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        said = f"\0public/default\0basic:{user}:{password}".encode()
        refusal = wire.ask(SaslAuthenticateRequest(auth_bytes=said), 2)
        assert refusal.error_code == 58
        assert refusal.error_message == "Authentication failed: unknown user or wrong password"
        assert wire.is_closed()


def test_the_admin_rest_takes_basic_authorization(house: BrokerProcess) -> None:
    with httpx.Client(base_url=f"http://{house.served['http'][0]}") as http:
        for _ in range(2):  # the second time it is remembered
            assert "public" in http.get("/admin/v2/tenants", auth=("root", "root's")).json()
            assert http.get("/admin/v2/tenants", auth=("ann", "its: mine")).status_code == 403
        assert http.get("/admin/v2/tenants", auth=("root", "its: mine")).status_code == 401
        assert http.get("/admin/v2/tenants", headers={"Authorization": "Basic ???"}).status_code == 401
        assert http.get("/admin/v2/tenants").status_code == 401
        for method, status in (("basic", 200), ("unknown", 401)):
            named = {"X-Pulsar-Auth-Method-Name": method}
            asked = http.get("/admin/v2/tenants", auth=("root", "root's"), headers=named)
            assert asked.status_code == status


def test_whose_method_is_not_served_is_nobody_in_particular(tmp_path: Path, users: Path) -> None:
    """As with Pulsar: where there is an anonymous role such a client has it, and no more."""
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "superUserRoles": "root",
        "basicAuthConf": str(users),
        "anonymousUserRole": "anonymous",
    }
    told = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with BrokerProcess(tmp_path / "data", "--pulsar", "127.0.0.1:0", *told) as process:
        wrong = pulsar.AuthenticationBasic("root", "root's", "unknown")
        client = pulsar.Client(
            process.pulsar_url, authentication=wrong, operation_timeout_seconds=10, logger=None
        )
        with pytest.raises(pulsar.AuthorizationError):
            client.create_producer("not-for-anybody")
        client.close()


def kafka(house: BrokerProcess, password: str) -> dict[str, str]:
    return {
        "bootstrap.servers": house.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "public/default",
        "sasl.password": password,
    }


def test_kafkas_clients_say_it_in_kops_way(house: BrokerProcess) -> None:
    producer = Producer(kafka(house, "basic:root:root's"))
    failed = []
    producer.produce("by-kafka", b"x", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(20) == 0
    assert failed == [None]


def test_kafkas_clients_say_user_and_password_as_to_kafka(house: BrokerProcess) -> None:
    # KoP's convention is for passwords that say that they are of it; of others it is nobody's business what is in them.
    plain = {**kafka(house, "root's"), "sasl.username": "root", "linger.ms": 5}
    producer = Producer(plain)
    failed = []
    for number in range(20_000):
        producer.produce("by-kafka", b"%d" % number, on_delivery=lambda error, _: failed.append(error))
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failed == [None] * 20_000


@pytest.mark.parametrize(("user", "password"), [pair for pair in WRONG if all(pair)])
def test_who_says_the_wrong_password_to_kafkas_port_is_refused(
    house: BrokerProcess, user: str, password: str
) -> None:
    errors: list[KafkaError] = []
    producer = Producer({**kafka(house, password), "sasl.username": user, "error_cb": errors.append})
    while KafkaError._AUTHENTICATION not in {error.code() for error in errors}:
        producer.poll(0.1)
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=1)


def test_a_second_connect_while_a_password_is_checked_ends_the_connection(house: BrokerProcess) -> None:
    with Raw(house, connect=False) as client:
        command = BaseCommand(type=BaseCommand.CONNECT)
        command.connect.client_version, command.connect.protocol_version = "raw", 19
        command.connect.auth_method_name, command.connect.auth_data = "basic", b"root:guessed"
        client.send(frame(command) * 2)
        with pytest.raises((EOFError, ConnectionError)):
            while True:
                client.hear()


# -- the file itself


@pytest.mark.parametrize(
    "stored",
    [by_openssl("-apr1", "right"), by_openssl("-5", "right"), by_openssl("-6", "right"), by_sha1("right")],
    ids=["apr1", "sha256", "sha512", "sha1"],  # not the hashes: salted, they would be other names each time
)
def test_hashes_that_other_programs_made(stored: str) -> None:
    users = Passwords("data:;base64," + base64.b64encode(f"u:{stored}".encode()).decode())
    assert users.remembered("u:right") is None
    assert users.check("u:right") == "u"
    assert users.remembered("u:right") == "u"
    assert users.remembered("u:wrong") is None
    for wrong in ("u:wrong", "v:right", "u", ":right", "u:right\0"):
        with pytest.raises(WrongPassword):
            users.check(wrong)


def test_a_file_that_changes_is_read_again_and_a_broken_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"u:{by_sha1('old')}\n")
    users = Passwords(str(path))
    assert users.check("u:old") == "u"
    path.write_text(f"u:{by_sha1('newer')}\nv:{by_sha1('v')}\n")
    assert users.remembered("u:old") is None
    assert [users.check("u:newer"), users.check("v:v")] == ["u", "v"]
    path.write_text("this is no such file, and longer\n")
    assert users.check("v:v") == "v"


@pytest.mark.parametrize("text", ["", "u\n", "u:plaintext\n", ":{SHA}x\n", "u:$1$abc$def\n"])
def test_files_that_cannot_be_are_refused_by_their_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users"
    path.write_text(text)
    with pytest.raises(InvalidConfig, match=r"basic\.auth\.conf"):
        Passwords(str(path))


def test_basic_asks_for_users_and_is_refused_where_it_is_not_served(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"basic\.auth\.conf"):
        Authentication(SecuritySettings(authentication_enabled=True, authentication_providers=("basic",)))
    with pytest.raises(AuthenticationFailed, match="not served"):
        Authentication(SecuritySettings()).authenticate("basic", "a:b")
    with pytest.raises(BrokerDidNotStart, match=r"basic\.auth\.conf"):
        BrokerProcess(tmp_path / "data", "--set", "basicAuthConf=file:///not/there")
