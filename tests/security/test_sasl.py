"""SASL on the wire: who is let in, who is not, and what each of them is told."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import Any

import pytest

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.fetch_request import FetchRequest
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from magnetar.wire.kafka.messages.produce_request import ProduceRequest
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.hostile.client import Wire, frame, request_bytes
from tests.process import BrokerProcess
from tests.security.conftest import LONGEST_FRAME, Secured, say
from tests.security.signing import OTHER_SECRET, confused, expiring, rsa_key, token, unsigned

FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
HANDSHAKE = SaslHandshakeRequest(mechanism="PLAIN")


def authenticated(wire: Wire, password: str, **options: Any) -> Any:
    return say(wire, password, **options)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("user", ["public", "public/default"])
def test_a_token_opens_the_door(secured: Secured, version: int, user: str) -> None:
    with secured.wire() as wire:
        answer = authenticated(wire, f"token:{token('root')}", user=user, version=version)
        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
        assert wire.ask(MetadataRequest(topics=[])).brokers


def test_an_expiring_token_tells_how_long_the_session_is(secured: Secured) -> None:
    with secured.wire() as wire:
        answer = authenticated(wire, f"token:{expiring(60, 'root')}")
        assert answer.error_code == 0
        assert 30_000 < answer.session_lifetime_ms <= 60_000


@pytest.mark.parametrize(
    ("password", "why"),
    [
        (f"token:{token('root', OTHER_SECRET)}", "Signature verification failed"),
        (f"token:{expiring(-5, 'root')}", "expired"),
        (f"token:{token('root', nbf=time.time() + 86400)}", "not yet valid"),
        (f"token:{unsigned('root')}", "alg value is not allowed"),
        (f"token:{token('root', rsa_key(), 'RS256')}", "alg value is not allowed"),
        (f"token:{confused(b'a public key that is not ours')}", "Signature verification failed"),
        (token("root"), "must be token:"),
        ("basic:admin", "must be token:"),
        ("token:", "no JSON Web Token"),
        ("token:" + "\N{SNOWMAN}" * 50, "no JSON Web Token"),
    ],
)
def test_a_bad_token_is_refused_and_the_connection_closed(secured: Secured, password: str, why: str) -> None:
    with secured.wire() as wire:
        answer = authenticated(wire, password)
        assert answer.error_code == FAILED
        assert why in answer.error_message
        assert wire.is_closed()
    assert "JWT" not in "".join(secured.process.log_lines()[-2:])


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\0",
        b"garbage",
        b"\0\0\0\0\0",
        b"\xff\xfe\0user\0token:x",
        b"\0\0token:" + token("root").encode(),
        b"\0public\0",
        b"somebody\0public\0token:" + token("root").encode(),
    ],
)
def test_garbage_for_sasl_is_refused(secured: Secured, said: bytes) -> None:
    with secured.wire() as wire:
        assert wire.ask(HANDSHAKE, 1).error_code == 0
        assert wire.ask(SaslAuthenticateRequest(auth_bytes=said), 2).error_code == FAILED
        assert wire.is_closed()


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "PLAINTEXT"])
@pytest.mark.parametrize("request_", [MetadataRequest(topics=[]), ProduceRequest(), FetchRequest()])
def test_before_authentication_nothing_else_is_answered(
    secured: Secured, request_: Message, listener: str
) -> None:
    with secured.wire(listener) as wire:
        assert wire.ask(ApiVersionsRequest(), 0).api_keys
        wire.send(frame(request_bytes(request_, 8 if isinstance(request_, ProduceRequest) else 4)))
        assert wire.is_closed()


def test_between_handshake_and_authentication_nothing_else_is_answered(secured: Secured) -> None:
    for request in (ApiVersionsRequest(), MetadataRequest(topics=[]), HANDSHAKE):
        with secured.wire() as wire:
            assert wire.ask(HANDSHAKE, 1).error_code == 0
            wire.send(frame(request_bytes(request, 1)))
            assert wire.is_closed()


def test_authentication_without_handshake_is_refused(secured: Secured) -> None:
    with secured.wire() as wire:
        said = f"\0public\0token:{token('root')}".encode()
        wire.send(frame(request_bytes(SaslAuthenticateRequest(auth_bytes=said), 1)))
        assert wire.is_closed()


def test_another_mechanism_is_told_what_is_served(secured: Secured) -> None:
    with secured.wire() as wire:
        answer = wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
        assert wire.is_closed()


def test_where_nobody_is_asked_sasl_is_out_of_place(broker: BrokerProcess) -> None:
    with Wire(broker.host_and_port) as wire:
        assert wire.ask(HANDSHAKE, 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), 2)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wire.ask(MetadataRequest(topics=[])).brokers


def test_a_stranger_may_not_say_much(secured: Secured) -> None:
    with secured.wire() as wire:
        wire.send(struct.pack(">i", LONGEST_FRAME + 1) + bytes(16))
        assert wire.is_closed()
    with secured.wire() as wire:
        assert wire.ask(HANDSHAKE, 1).error_code == 0
        wire.send(frame(request_bytes(SaslAuthenticateRequest(auth_bytes=bytes(LONGEST_FRAME)), 1)))
        assert wire.is_closed()
    with secured.wire() as wire:  # who is known may
        authenticated(wire, f"token:{token('root')}")
        metadata = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        padding = "x" * 30_000
        content = request_bytes(metadata, 4)
        header = content[:8] + struct.pack(">h", len(padding)) + padding.encode()
        wire.send(frame(header + metadata.encode(4)))
        assert wire.frame()


def test_an_old_clients_sasl_comes_without_headers(secured: Secured) -> None:
    with secured.wire() as wire:
        assert wire.ask(HANDSHAKE, 0).error_code == 0
        wire.send(frame(f"\0public\0token:{token('root')}".encode()))
        assert wire.frame() == b""
        assert wire.ask(MetadataRequest(topics=[])).brokers
    with secured.wire() as wire:
        assert wire.ask(HANDSHAKE, 0).error_code == 0
        wire.send(frame(b"\0public\0token:nonsense"))
        assert wire.is_closed()


def test_a_session_ends_with_its_token(secured: Secured) -> None:
    with secured.wire() as wire:
        answer = authenticated(wire, f"token:{expiring(1.2, 'root')}")
        assert 0 < answer.session_lifetime_ms <= 1200
        assert wire.ask(MetadataRequest(topics=[])).brokers
        time.sleep(1.3)
        wire.send(frame(request_bytes(MetadataRequest(topics=[]), 4)))
        assert wire.is_closed()


def test_a_session_goes_on_once_the_client_has_authenticated_again(secured: Secured) -> None:
    with secured.wire() as wire:
        authenticated(wire, f"token:{expiring(3, 'root')}")
        assert authenticated(wire, f"token:{expiring(60, 'root')}").error_code == 0
        time.sleep(3.1)
        assert wire.ask(MetadataRequest(topics=[])).brokers


def test_even_an_ended_session_may_be_renewed(secured: Secured) -> None:
    with secured.wire() as wire:
        authenticated(wire, f"token:{expiring(3, 'root')}")
        time.sleep(3.1)
        assert authenticated(wire, f"token:{token('root')}").error_code == 0
        assert wire.ask(MetadataRequest(topics=[])).brokers


def test_nobody_becomes_somebody_else(secured: Secured) -> None:
    for password, user in (
        (f"token:{token('mallory')}", "public/default"),
        (f"token:{token('root')}", "other"),
    ):
        with secured.wire() as wire:
            authenticated(wire, f"token:{token('root')}")
            answer = authenticated(wire, password, user=user)
            assert answer.error_code == FAILED
            assert "Cannot change principals" in answer.error_message
            assert wire.is_closed()


def test_a_refusal_comes_late_and_holds_up_nobody_else(secured: Secured) -> None:
    """The delay is 100 ms by default; another client is served meanwhile."""
    with secured.wire() as wire, secured.wire() as other:
        authenticated(other, f"token:{token('root')}")
        wire.ask(HANDSHAKE, 1)
        took: list[float] = []

        def fail() -> None:
            began = time.monotonic()
            wire.ask(SaslAuthenticateRequest(auth_bytes=b"\0a\0token:x"), 2)
            took.append(time.monotonic() - began)

        waiting = threading.Thread(target=fail)
        waiting.start()
        assert other.ask(MetadataRequest(topics=[])).brokers
        assert not took
        waiting.join()
        assert took[0] >= 0.1


def test_what_a_stranger_sends_behind_his_refusal_is_never_looked_at(secured: Secured) -> None:
    with secured.wire() as wire:
        wire.ask(HANDSHAKE, 1)
        refused = frame(request_bytes(SaslAuthenticateRequest(auth_bytes=b"\0a\0token:x"), 1, 7))
        wire.send(refused + frame(request_bytes(MetadataRequest(topics=[]), 4, 8)))
        assert struct.unpack(">i", wire.frame()[:4]) == (7,)
        assert wire.is_closed()


def test_a_half_said_request_is_harmless(secured: Secured) -> None:
    with secured.wire() as wire:
        wire.send(frame(request_bytes(HANDSHAKE, 1))[:-3])
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.is_closed()
