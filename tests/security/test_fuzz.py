"""Whatever a stranger says before it is known: an answer or a closed connection, and never somebody else's rights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magnetar.auth import AuthenticationFailed
from magnetar.kafka.connection import KafkaConnection
from magnetar.kafka.handler import KafkaProtocolHandler
from magnetar.kafka.login import AuthenticationRequired, login_for
from magnetar.kafka.sasl.plain import parse_plain
from magnetar.node.service import BrokerService
from magnetar.records.compression import Buffer
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.frames import KafkaFrameReader
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.accounts import account
from tests.hostile.client import frame, request_bytes
from tests.security.signing import OTHER_SECRET, SECRET_URL, expiring, token, unsigned

BAD_TOKENS = ("", "x.y.z", token("root", OTHER_SECRET), expiring(-9, "root"), unsigned("root"))


@given(st.binary(max_size=200))
def test_plain_takes_anything_apart_or_refuses_it(said: bytes) -> None:
    try:
        user, password = parse_plain(said)
    except AuthenticationFailed:
        return
    assert user
    assert password
    assert said.endswith(f"\0{user}\0{password}".encode())


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[BrokerService]:
    texts = {
        "data.dir": str(tmp_path / "data"),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "tokenSecretKey": SECRET_URL,
        "connection.failed.authentication.delay.ms": "0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    }
    service = BrokerService(Settings().with_values(texts))
    await service.start()
    yield service
    await service.close()


def sayings() -> st.SearchStrategy[bytes]:
    plain = st.sampled_from(BAD_TOKENS).map(lambda text: b"\0public\0token:" + text.encode())
    scram = st.builds(
        lambda user, more: b"n,,n=" + user + b",r=abc" + more, st.binary(max_size=9), st.binary(max_size=9)
    )
    said = st.one_of(plain, scram, st.binary(max_size=60))
    requests = st.one_of(
        st.builds(
            lambda each, version: request_bytes(SaslAuthenticateRequest(auth_bytes=each), version),
            said,
            st.integers(0, 2),
        ),
        st.builds(
            lambda name, version: request_bytes(SaslHandshakeRequest(mechanism=name), version),
            st.sampled_from(["PLAIN", "plain", "", "SCRAM-SHA-256"]),
            st.integers(0, 1),
        ),
        st.just(request_bytes(ApiVersionsRequest(), 0)),
        st.just(request_bytes(MetadataRequest(topics=None), 4)),
        said,
        st.binary(max_size=60),
    )
    return requests.map(frame)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.lists(sayings(), max_size=6))
async def test_a_stranger_stays_a_stranger(service: BrokerService, said: list[bytes]) -> None:
    handler = service.handlers[0]
    assert isinstance(handler, KafkaProtocolHandler)
    login = login_for(service.broker, service.listeners["kafka"][0], None)
    assert login is not None
    frames, answers, held, ended = KafkaFrameReader(1 << 16), [], account(), []

    def send(parts: Sequence[Buffer]) -> None:
        answers.append(b"".join(parts))

    conversation = KafkaConnection(
        handler.services,
        service.listeners["kafka"][0],
        "127.0.0.1",
        frames,
        send,
        lambda: ended.append(1),
        held,
        login,
    )
    for each in said:
        frames.feed(each)
        conversation.go_on()
        for _ in range(6):
            await asyncio.sleep(0)
    assert login.principal is None
    with pytest.raises(AuthenticationRequired):
        login.check(MetadataRequest.API_KEY)
    conversation.close()
    assert held.held_bytes == 0
