"""The conversation without a socket: whatever the pieces its bytes come in, each request gets its own answer."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.conversation import Conversation
from magnetar.client.errors import BrokerRefused, BrokerUnreachable, ClientError
from magnetar.client.security import ClientSecurity, LoginFailed
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.create_topics_request import CreateTopicsRequest
from magnetar.wire.kafka.messages.fetch_request import FetchRequest
from magnetar.wire.kafka.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_authenticate_response import SaslAuthenticateResponse
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from magnetar.wire.kafka.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.client.scripted import ScriptedBroker

VERSIONS, FETCH = ApiVersionsRequest.API_KEY, FetchRequest.API_KEY
SERVED = {
    VERSIONS: (0, 3),
    FETCH: (4, 11),
    SaslHandshakeRequest.API_KEY: (1, 1),
    SaslAuthenticateRequest.API_KEY: (0, 2),
}
PLAIN = ClientSecurity(mechanism="PLAIN", username="me", password="secret")


def echo(request: Message, version: int) -> Message:
    """As many bytes of records as were asked for, all of one value."""
    assert isinstance(request, FetchRequest)
    count = request.max_bytes
    row = PartitionData(partition_index=0, high_watermark=count, records=bytes([count % 251]) * count)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])


def fetch(count: int) -> FetchRequest:
    return FetchRequest(max_bytes=count)


def records(answer: FetchResponse) -> bytes:
    found = answer.responses[0].partitions[0].records
    return b"" if found is None else bytes(found)  # type: ignore[arg-type]


def give(conversation: Conversation, data: bytes, piece: int = 1 << 20) -> bytes:
    """Have bytes come in, at most ``piece`` at a time; return what is to be written."""
    written, at = b"", 0
    while at < len(data):
        place = conversation.get_buffer()
        count = min(len(place), piece, len(data) - at)
        assert count
        place[:count] = data[at : at + count]
        at += count
        written += conversation.buffer_updated(count)
    return written


def opened(
    broker: ScriptedBroker, security: ClientSecurity | None = None, piece: int = 1 << 20
) -> Conversation:
    conversation = Conversation("there:9092", client_id="me", security=security or ClientSecurity())
    written = conversation.open()
    while not conversation.ready:
        assert written
        written = give(conversation, broker.hears(written), piece)
    return conversation


@given(
    sizes=st.lists(st.integers(0, 300) | st.integers(65_000, 66_000) | st.integers(0, 300_000), max_size=8),
    piece=st.integers(1, 5) | st.integers(1, 200_000),
    together=st.booleans(),
)
def test_each_request_gets_its_answer_in_order(sizes: list[int], piece: int, together: bool) -> None:
    broker = ScriptedBroker(SERVED, echo)
    conversation = opened(broker)
    piece = max(piece, sum(sizes) // 2_000)
    if together:
        sent = b"".join(b"".join(conversation.send(fetch(size))) for size in sizes)
        assert conversation.awaited == len(sizes)
        assert give(conversation, broker.hears(sent), piece) == b""
    else:
        for size in sizes:
            assert give(conversation, broker.hears(b"".join(conversation.send(fetch(size)))), piece) == b""
    assert [records(answer) for answer in conversation.answers] == [bytes([n % 251]) * n for n in sizes]
    assert conversation.awaited == 0
    assert {version for _, version in broker.asked} <= {11}


@pytest.mark.parametrize(("own", "tells"), [((0, 3), True), ((0, 2), True), ((0, 0), False), ((1, 9), True)])
def test_versions_of_old_and_new_brokers(own: tuple[int, int], tells: bool) -> None:
    broker = ScriptedBroker(SERVED | {VERSIONS: own, FETCH: (4, 7)}, echo, tells=tells)
    conversation = opened(broker, piece=3)
    give(conversation, broker.hears(b"".join(conversation.send(fetch(10)))))
    assert [version for _, version in broker.asked] == [7]
    assert conversation.version_of(FetchRequest, 5) == 5
    with pytest.raises(ClientError, match="does not serve FetchRequest"):
        conversation.version_of(FetchRequest, 3)
    with pytest.raises(ClientError, match="does not serve CreateTopicsRequest"):
        conversation.send(CreateTopicsRequest())
    assert conversation.awaited == 0


def test_a_log_in() -> None:
    def answers(request: Message, version: int) -> Message:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(mechanisms=["PLAIN"])
        if isinstance(request, SaslAuthenticateRequest):
            assert bytes(request.auth_bytes) == b"\0me\0secret"
            return SaslAuthenticateResponse(auth_bytes=b"")
        return echo(request, version)

    broker = ScriptedBroker(SERVED, answers)
    conversation = opened(broker, PLAIN, piece=1)
    assert [type(request) for request, _ in broker.asked] == [SaslHandshakeRequest, SaslAuthenticateRequest]
    give(conversation, broker.hears(b"".join(conversation.send(fetch(3)))))
    assert records(conversation.answers.popleft()) == b"\3\3\3"


def test_a_log_in_that_is_refused() -> None:
    def no_such(request: Message, version: int) -> Message:
        return SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI"])

    with pytest.raises(BrokerRefused, match="offers GSSAPI"):
        opened(ScriptedBroker(SERVED, no_such), PLAIN)

    def wrong(request: Message, version: int) -> Message:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(mechanisms=["PLAIN"])
        return SaslAuthenticateResponse(error_code=58, error_message="who?")

    with pytest.raises(BrokerRefused, match="who"):
        opened(ScriptedBroker(SERVED, wrong), PLAIN)


@pytest.mark.parametrize(
    "challenge", [b"r=another,s=c2FsdA==,i=4096", b"r=x,s=c2FsdA==,i=many", b"r=x,i=1", b"\xff", b""]
)
def test_a_broker_that_does_not_speak_scram(challenge: bytes) -> None:
    def answers(request: Message, version: int) -> Message:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"])
        return SaslAuthenticateResponse(auth_bytes=challenge)

    scram = ClientSecurity(mechanism="SCRAM-SHA-256", username="me", password="secret")
    with pytest.raises(LoginFailed):
        opened(ScriptedBroker(SERVED, answers), scram)


@pytest.mark.parametrize(
    ("came", "told"),
    [
        (b"HTTP/1.1 400 Bad Request", "does not speak Kafka's protocol"),
        (struct.pack(">i", 3), "announces 3 bytes"),
        (struct.pack(">i", (1 << 30) + 1), "announces 1073741825 bytes"),
        (struct.pack(">ii", 4, 77), "answered request 77"),
        (struct.pack(">iib", 5, 3, 0), "cannot be read"),
    ],
)
@pytest.mark.parametrize("piece", [1, 100])
def test_what_is_no_answer_ends_it(came: bytes, told: str, piece: int) -> None:
    conversation = opened(ScriptedBroker(SERVED, echo))
    conversation.send(fetch(1))
    with pytest.raises(BrokerUnreachable, match=told):
        give(conversation, came, piece)


def test_an_answer_nobody_asked_for_ends_it() -> None:
    broker = ScriptedBroker(SERVED, echo)
    conversation = opened(broker)
    answer = broker.hears(b"".join(conversation.send(fetch(1))))
    with pytest.raises(BrokerUnreachable, match="nobody asked"):
        give(conversation, answer + answer)
    assert len(conversation.answers) == 1
