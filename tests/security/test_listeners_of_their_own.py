"""Each listener has certificates, mechanisms, users and rules of its own; clients that do not log in are ANONYMOUS."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from cryptography import x509
from cryptography.x509.oid import NameOID

from magnetar.auth.authentication import Authentication
from magnetar.auth.certificates import distinguished_name
from magnetar.base.errors import InvalidConfig
from magnetar.node.setting_sources import load
from magnetar.settings.principal_rules import principal_of, rules_of
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.create_delegation_token_request import CreateDelegationTokenRequest
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.hostile.client import Wire
from tests.process import BrokerProcess
from tests.security.certificates import Authority

NAMES = ("CLEAR", "INSIDE", "OUTSIDE", "FAR.AWAY")
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
FILE = f"""
listeners={",".join(f"{name}://127.0.0.1:0" for name in NAMES)}
listener.security.protocol.map=CLEAR:PLAINTEXT,INSIDE:SASL_PLAINTEXT,OUTSIDE:SSL,FAR.AWAY:SASL_SSL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
ssl.keystore.location={{general}}
listener.name.inside.plain.sasl.jaas.config={_PLAIN} user_admin="inside" user_ines="ines";
listener.name.inside.sasl.enabled.mechanisms=PLAIN
listener.name.far.away.plain.sasl.jaas.config={_PLAIN} user_admin="far" user_fay="fay";
listener.name.far.away.connections.max.reauth.ms=123000
listener.name.outside.ssl.keystore.location={{own}}
listener.name.outside.ssl.keystore.type=PEM
listener.name.outside.ssl.truststore.location={{trusted}}
listener.name.outside.ssl.client.auth=requested
listener.name.outside.ssl.principal.mapping.rules=RULE:^O=Magnetar's tests,CN=([a-z]+)$/$1@tests/U
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin
delegation.token.secret.key=secret
"""


@dataclass
class House:
    """A broker with four listeners, of which two show different certificates."""

    process: BrokerProcess
    general: Authority
    own: Authority
    clients: Authority

    def address(self, listener: str) -> str:
        return self.process.addresses[NAMES.index(listener)]

    def client(self, listener: str, user: str = "", password: str = "") -> dict[str, str]:
        protocol = {
            "CLEAR": "plaintext",
            "INSIDE": "sasl_plaintext",
            "OUTSIDE": "ssl",
            "FAR.AWAY": "sasl_ssl",
        }
        found = {"bootstrap.servers": self.address(listener), "security.protocol": protocol[listener]}
        if "ssl" in found["security.protocol"]:
            authority = self.own if listener == "OUTSIDE" else self.general
            found["ssl.ca.location"] = str(authority.file)
        if "sasl" in found["security.protocol"]:
            found |= {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": password}
        return found

    def certified(self, name: str) -> dict[str, str]:
        certificate, key = self.clients.sign(name)
        shown = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
        return self.client("OUTSIDE") | shown

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient(self.client("INSIDE", "admin", "inside"))

    def topic(self, name: str) -> str:
        self.admin.create_topics([NewTopic(name, 1)])[name].result(20)
        return name

    def allow(self, name: str, role: str, host: str = "*", *, deny: bool = False) -> None:
        permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
        made = AclBinding(
            ResourceType.TOPIC,
            name,
            ResourcePatternType.LITERAL,
            f"User:{role}",
            host,
            AclOperation.WRITE,
            permission,
        )
        self.admin.create_acls([made])[made].result(20)


def both_in_one(authority: Authority, name: str, directory: Path) -> Path:
    certificate, key = authority.sign(name)
    file = directory / f"{name}.pem"
    file.write_bytes(key.read_bytes() + certificate.read_bytes())
    return file


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    directory = tmp_path_factory.mktemp("listeners")
    general, own, clients = (Authority(directory, name) for name in ("general", "own", "clients"))
    text = FILE.replace("{general}", str(both_in_one(general, "of-all", directory)))
    text = text.replace("{own}", str(both_in_one(own, "of-outside", directory)))
    file = directory / "server.properties"
    file.write_text(text.replace("{trusted}", str(clients.file)))
    options = ("--config", str(file), "--pulsar", "127.0.0.1:0", "--http", "127.0.0.1:0")
    with BrokerProcess(directory / "data", *options, kafka=None) as process:
        yield House(process, general, own, clients)
        assert "Traceback" not in process.log.read_text()


def sent(client: dict[str, str], topic: str) -> str | None:
    """Produce one record; return the error's name."""
    told: list[Any] = []
    producer = Producer({"message.timeout.ms": 20_000, **client})
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error))
    producer.flush(30)
    return None if told[0] is None else str(told[0].name())


DENIED = "TOPIC_AUTHORIZATION_FAILED"


def test_clients_without_login_are_anonymous_and_have_a_host(house: House) -> None:
    topic, other = house.topic("for-anonymous"), house.topic("for-another-host")
    assert sent(house.client("CLEAR"), topic) == DENIED
    house.allow(topic, "ANONYMOUS", "127.0.0.1")
    house.allow(other, "ANONYMOUS", "192.0.2.1")
    assert sent(house.client("CLEAR"), topic) is None
    assert sent(house.client("CLEAR"), other) == DENIED, "the entry is for another host"
    assert sent(house.client("OUTSIDE"), topic) is None, (
        "a client without certificate is nobody in particular, too"
    )
    assert sent(house.client("INSIDE", "ines", "ines"), topic) == DENIED
    house.allow(topic, "ANONYMOUS", deny=True)
    assert sent(house.client("CLEAR"), topic) == DENIED
    with Wire(split(house.address("CLEAR"))) as wire:
        assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        asked = CreateDelegationTokenRequest(max_lifetime_ms=-1)
        assert wire.ask(asked, 3).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def test_pulsars_clients_and_http_without_login_are_anonymous_too(house: House) -> None:
    house.allow(house.topic("pulsars-anonymous"), "ANONYMOUS")
    client = pulsar.Client(house.process.pulsar_url)
    client.create_producer("pulsars-anonymous").send(b"x")
    house.topic("not-for-pulsars")
    with pytest.raises(pulsar.AuthorizationError):
        client.create_producer("not-for-pulsars")
    client.close()
    url = f"http://{house.process.served['http'][0]}/admin/v2/tenants"
    assert httpx.get(url).status_code == 403
    assert httpx.get(url, auth=("fay", "wrong")).status_code == 401
    assert httpx.get(url, auth=("fay", "fay")).status_code == 403
    assert httpx.get(url, auth=("admin", "inside")).status_code == 401, (
        "two listeners know two passwords of that name"
    )


def test_two_listeners_show_two_certificates(house: House) -> None:
    def shown(listener: str) -> str:
        text = ssl.get_server_certificate(split(house.address(listener)))
        (name,) = x509.load_pem_x509_certificate(text.encode()).subject.get_attributes_for_oid(
            NameOID.COMMON_NAME
        )
        return str(name.value)

    assert (shown("OUTSIDE"), shown("FAR.AWAY")) == ("of-outside", "of-all")
    topic = house.topic("by-tls")
    house.allow(topic, "fay")
    assert sent(house.client("FAR.AWAY", "fay", "fay"), topic) is None


def test_a_certificates_name_becomes_a_role_by_the_listeners_rules(house: House) -> None:
    topic = house.topic("by-rule")
    house.allow(topic, "ALICE@TESTS")
    assert sent(house.certified("alice"), topic) is None
    assert sent(house.certified("bob"), topic) == DENIED
    assert sent({**house.certified("n0body"), "message.timeout.ms": "2000"}, topic) == "_MSG_TIMED_OUT"
    assert "no rule of ssl.principal.mapping.rules fits" in house.process.log.read_text()


def test_each_listener_has_its_own_users_and_mechanisms(house: House) -> None:
    def mechanisms(listener: str) -> list[str]:
        wire = Wire(split(house.address(listener)))
        if listener == "FAR.AWAY":
            context = ssl.create_default_context(cafile=house.general.file)
            wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost")
        with wire:
            return list(wire.ask(SaslHandshakeRequest(mechanism="none"), 1).mechanisms)

    assert mechanisms("INSIDE") == ["PLAIN"]
    assert mechanisms("FAR.AWAY") == ["PLAIN", "SCRAM-SHA-512"]
    for listener, user, password in (
        ("INSIDE", "fay", "fay"),
        ("FAR.AWAY", "ines", "ines"),
        ("FAR.AWAY", "admin", "inside"),
        ("INSIDE", "fay", "basic:fay:fay"),
    ):
        with pytest.raises(KafkaException):
            AdminClient(house.client(listener, user, password)).list_topics(timeout=2)
    assert AdminClient(house.client("FAR.AWAY", "admin", "far")).list_topics(timeout=20).topics


def test_where_no_acl_is_found_everybody_may_if_it_is_so_set(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    text = (
        "listeners=PLAINTEXT://127.0.0.1:0\n"
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        "allow.everyone.if.no.acl.found=true\n"
    )
    file.write_text(f"{text}super.users=User:ANONYMOUS\n")
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    with BrokerProcess(tmp_path / "data", "--config", str(file), kafka=None) as process:
        admin = AdminClient({"bootstrap.servers": process.address})
        admin.create_topics([NewTopic("t", 1)])["t"].result(20)
        of_another = AclBinding(
            ResourceType.TOPIC,
            "another",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        admin.create_acls([of_another])[of_another].result(20)
        assert admin.describe_acls(everything).result(20) == [of_another]
        assert sent({"bootstrap.servers": process.address}, "another") is None, "a super user"
    file.write_text(f"{text}super.users=User:root\n")
    with BrokerProcess(tmp_path / "data", "--config", str(file), kafka=None) as process:
        client = {"bootstrap.servers": process.address}
        assert sent(client, "t") is None
        assert sent(client, "another") == DENIED, "an ACL is found"


# What stands in the settings.


@pytest.mark.parametrize(
    ("rules", "name", "role"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=kafka,OU=ServiceUsers,O=x", "kafka"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=kafka,OU=Others,O=x", None),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L,DEFAULT", "CN=Kafka,OU=Admin,O=x", "kafka@admin"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U , DEFAULT", "CN=Kafka,OU=Admin,O=x", "KAFKA@ADMIN"),
        ("RULE:^cn=(.*)$/$1/L,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", "O=x,CN=Duke.x,C=y", "duke.x"),
        (r"RULE:^CN=(\w+)\/(\w+)$/$2\/$1/", "CN=a/b", "b/a"),
        ("RULE:^CN=(?<who>.*),O=.*$/${who}$7/", "CN=a,O=b", "a$7"),
        (r"RULE:CN=a/\$1/", "CN=a", "$1"),
        ("RULE:CN=a/x/", "CN=a,O=b", None),
    ],
)
def test_rules_are_kafkas(rules: str, name: str, role: str | None) -> None:
    assert principal_of(name, rules_of(rules)) == role


@pytest.mark.parametrize(
    "rules", ["default", "RULE:a/b", "RULE:(/b/", "RULE:a/b/X", "RULE:a/b/L/g", "DEFAULT;DEFAULT"]
)
def test_what_is_no_rule_ends_the_start(rules: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules"):
        Settings().with_values({"ssl.principal.mapping.rules": rules})
    with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules"):
        Settings().with_values({"listener.name.a.ssl.principal.mapping.rules": rules})


def test_the_whole_name_is_javas() -> None:
    subject = (
        (("countryName", "DE"),),
        (("organizationName", 'a, "b"+c'),),
        (("commonName", " #x "), ("userId", "7")),
        (("emailAddress", "a@b"),),
    )
    told = distinguished_name({"subject": subject})
    assert told == r"1.2.840.113549.1.9.1=#1603614062,CN=\ #x\ +UID=7,O=a\, \"b\"\+c,C=DE"


@pytest.mark.parametrize(
    ("texts", "role"),
    [
        ({}, "a"),
        ({"ssl.principal.mapping.rules": "DEFAULT"}, "CN=a,O=b"),
        ({"super.users": "User:CN=root,O=b"}, "CN=a,O=b"),
        ({"super.users": "User:CN=root,O=b", "ssl.principal.mapping.rules": "RULE:CN=(.*),O=b/$1/"}, "a"),
    ],
)
def test_who_a_certificate_names(texts: dict[str, str], role: str) -> None:
    settings = Settings().with_values(texts).security
    certificate = {"subject": ((("organizationName", "b"),), (("commonName", "a"),))}
    assert Authentication(settings).by_certificate(certificate).role == role


def test_a_setting_of_a_listener_may_come_from_anywhere(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=A.B://:1,C://:2\nssl.client.auth=required\n"
        "listener.name.a.b.ssl.client.auth=none\nlistener.name.d.ssl.client.auth=none\n"
        "listener.name.c.no.such=1\n"
    )
    found = load(
        file,
        ["listener.name.c.ssl.keystore.location=/set"],
        {"MAGNETAR_LISTENER_NAME_A_B_SSL_KEYSTORE_LOCATION": "/env"},
    )
    assert set(found.ignored) == {"listener.name.d.ssl.client.auth", "listener.name.c.no.such"}
    first, second = found.settings.at("A.B").security, found.settings.at("C").security
    assert (first.ssl_keystore_location, first.ssl_client_auth) == ("/env", "none")
    assert (second.ssl_keystore_location, second.ssl_client_auth) == ("/set", "required")
    assert found.settings.security.ssl_keystore_location == ""
    with pytest.raises(InvalidConfig, match=r"ssl\.client\.auth"):
        load(file, ["listener.name.c.ssl.client.auth=perhaps"], {})
    with pytest.raises(InvalidConfig, match="not both"):
        from magnetar.auth.tls import kafka_tls

        both = Settings().with_values(
            {"ssl.keystore.location": "/a", "listener.name.c.ssl.keystore.key": "x"}
        )
        kafka_tls(both.at("c").security, "none")
