"""Where to serve and what clients are told."""

from __future__ import annotations

import logging

import pytest

from magnetar.base.errors import InvalidConfig
from magnetar.kafka.listeners import parse_listeners
from magnetar.serving.listeners import Endpoint, Listener, warn_open
from magnetar.settings.settings import Settings


def listeners(
    served: str, told: str = "", protocols: str = "", controllers: str = ""
) -> tuple[Listener, ...]:
    texts = {
        "listeners": served,
        "advertised.listeners": told,
        "listener.security.protocol.map": protocols,
        "controller.listener.names": controllers,
    }
    return parse_listeners(Settings().with_values(texts))


def test_by_default_only_this_machine_is_served() -> None:
    (only,) = parse_listeners(Settings())
    assert (only.name, only.bind, only.advertised) == (
        "PLAINTEXT",
        Endpoint("127.0.0.1", 9092),
        Endpoint("127.0.0.1", 9092),
    )
    assert only.is_loopback


def test_several_listeners_tell_their_own_clients_their_own_address() -> None:
    inside, outside = listeners(
        "INSIDE://[::1]:9092,outside://0.0.0.0:9093",
        "OUTSIDE://kafka.example:443",
        "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    )
    assert (inside.bind.host, str(inside.advertised), inside.is_loopback) == ("::1", "[::1]:9092", True)
    assert (outside.name, outside.bind.port, str(outside.advertised)) == (
        "OUTSIDE",
        9093,
        "kafka.example:443",
    )
    assert not outside.is_loopback


def test_a_port_that_the_system_chose_is_told() -> None:
    (only,) = listeners("PLAINTEXT://127.0.0.1:0")
    assert only.bound(4711).advertised.port == only.bound(4711).bind.port == 4711
    (told,) = listeners("PLAINTEXT://127.0.0.1:0", "PLAINTEXT://broker:99")
    assert told.bound(4711).advertised == Endpoint("broker", 99)


def test_kafkas_controllers_are_not_served() -> None:
    both = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert [one.name for one in listeners(both, both, "CONTROLLER:PLAINTEXT", "CONTROLLER")] == ["PLAINTEXT"]


@pytest.mark.parametrize(
    ("served", "told", "protocols", "message"),
    [
        ("", "", "", "at least one"),
        ("127.0.0.1:9092", "", "", "expected NAME://HOST:PORT"),
        ("PLAINTEXT://localhost", "", "", "expected NAME://HOST:PORT"),
        ("PLAINTEXT://localhost:70000", "", "", "expected NAME://HOST:PORT"),
        ("PLAINTEXT://::1:9092", "", "", "expected NAME://HOST:PORT"),
        ("PLAINTEXT://a:1,PLAINTEXT://b:2", "", "", "there twice"),
        ("INSIDE://a:1", "", "", "INSIDE has no security protocol"),
        ("PLAINTEXT://a:1", "OTHER://a:1", "", "OTHER is not among listeners"),
        ("PLAINTEXT://a:1", "PLAINTEXT://0.0.0.0:1", "", "name a host"),
        ("PLAINTEXT://a:1", "", "PLAINTEXT", "expected NAME:PROTOCOL"),
        ("PLAINTEXT://a:1", "", "PLAINTEXT:HTTP", "one of PLAINTEXT"),
        (
            "SASL_SSL://a:1",
            "",
            "",
            "SASL_SSL asks its clients to authenticate by SASL, which takes tokens or passwords here",
        ),
    ],
)
def test_wrong_listeners_are_named(served: str, told: str, protocols: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        listeners(served, told, protocols)


KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


@pytest.mark.parametrize(
    ("served", "settings", "sasl", "client_auth"),
    [
        ("PLAINTEXT", {}, False, "none"),
        ("SSL", {}, False, "none"),
        ("SSL", {"ssl.client.auth": "requested"}, False, "requested"),
        ("SSL", {"ssl.client.auth": "required"}, False, "required"),
        ("SSL", {"tlsRequireTrustedClientCertOnConnect": "true"}, False, "required"),
        ("SASL_PLAINTEXT", {}, True, "none"),
        ("SASL_SSL", {}, True, "none"),
        ("SASL_SSL", {"ssl.client.auth": "required"}, True, "none"),  # as in Kafka
        ("SASL_SSL", {"tlsRequireTrustedClientCertOnConnect": "true"}, True, "required"),
        ("PLAINTEXT", {"authenticationEnabled": "true"}, True, "none"),  # as in KoP
        ("PLAINTEXT", {"authenticationEnabled": "true", "anonymousUserRole": "guest"}, False, "none"),
        ("SSL", {"authenticationEnabled": "true", "ssl.client.auth": "required"}, False, "required"),
        ("SSL", {"authenticationEnabled": "true", "ssl.client.auth": "requested"}, True, "requested"),
    ],
)
def test_what_a_listener_asks_of_clients(
    served: str, settings: dict[str, str], sasl: bool, client_auth: str, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {"listeners": f"{served}://0.0.0.0:0", "tokenSecretKey": KEY} | settings
    (only,) = parse_listeners(Settings().with_values(texts))
    assert (only.sasl, only.client_auth, only.tls) == (sasl, client_auth, served.endswith("SSL"))
    assert warn_open(only) is not only.authenticates
    assert only.authenticates is (sasl or client_auth == "required")


@pytest.mark.parametrize(
    ("host", "open_"),
    [("127.0.0.1", False), ("localhost", False), ("[::1]", False), ("", True), ("[::]", True)],
)
def test_an_open_door_is_warned_of(host: str, open_: bool, caplog: pytest.LogCaptureFixture) -> None:
    (only,) = listeners(f"PLAINTEXT://{host}:9092")
    with caplog.at_level(logging.WARNING):
        assert warn_open(only) is open_
    assert ("WITHOUT AUTHENTICATION" in caplog.text) is open_
