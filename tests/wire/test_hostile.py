"""Whatever the bytes are, decoding either gives a message or raises WireError, soon and with little memory."""

from __future__ import annotations

import struct
import tracemalloc
from random import Random

import pytest

from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.create_topics_request import CreateTopicsRequest
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from magnetar.wire.kafka.messages.produce_request import ProduceRequest
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from magnetar.wire.kafka.primitives import varint
from tests.wire.values import OUTLINE, build, message_class, versions_of

HUGE = (
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x0f\x42\x40",
)


def survives(kind: type[Message], data: bytes, version: int) -> None:
    try:
        kind.decode(data, version)
    except WireError:
        pass


@pytest.mark.parametrize("module", OUTLINE)
def test_noise_is_refused(module: str) -> None:
    kind, random = message_class(module), Random(module)
    for version in versions_of(module):
        for _ in range(6):
            survives(kind, random.randbytes(random.randrange(60)), version)
            survives(kind, bytes(random.choice((0, 0, 1, 2, 3, 127, 255)) for _ in range(200)), version)


@pytest.mark.parametrize("module", OUTLINE)
def test_a_message_cut_short_is_refused(module: str) -> None:
    kind = message_class(module)
    for version in {versions_of(module)[0], versions_of(module)[-1]}:
        written = build(module, version, Random(module)).encode(version)
        step = max(1, len(written) // 150)
        for end in range(0, len(written), step):
            with pytest.raises(WireError):
                kind.decode(written[:end], version)


@pytest.mark.parametrize("module", OUTLINE)
def test_changed_bytes_take_no_memory_to_speak_of(module: str) -> None:
    kind, random = message_class(module), Random(module)
    version = random.choice(versions_of(module))
    written = build(module, version, random).encode(version)
    tracemalloc.start()
    try:
        for _ in range(40):
            at = random.randrange(len(written) + 1)
            evil = random.choice(HUGE) if random.random() < 0.7 else random.randbytes(2)
            survives(kind, written[:at] + evil + written[at + len(evil) :], version)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("version", "count"), [(11, b"\x7f\xff\xff\xff"), (13, varint(0x7FFFFFFF))])
def test_an_array_larger_than_the_rest_is_refused_unread(version: int, count: bytes) -> None:
    fixed = FetchRequest().encode(version)[:25]  # all before the topics
    with pytest.raises(WireError, match="topics"):
        FetchRequest.decode(fixed + count + bytes(60), version)


def test_more_than_a_million_elements_are_refused_even_when_the_bytes_are_there() -> None:
    data = struct.pack(">i", 1_000_001) + bytes(2 * 1_000_001)
    with pytest.raises(WireError, match="1000001"):
        MetadataRequest.decode(data, 0)


def test_a_million_elements_is_the_limit_of_all_arrays_together() -> None:
    assignment = struct.pack(">i", 0) + b"\x01\x00"
    topic = b"\x01" + bytes(6) + varint(300_001) + assignment * 300_000 + b"\x01\x00"
    with pytest.raises(WireError, match="300000"):
        CreateTopicsRequest.decode(varint(5) + topic * 4 + bytes(6), 5)


def test_more_than_ten_thousand_tagged_fields_are_refused() -> None:
    request = ApiVersionsRequest().encode(3)
    tags = b"".join(varint(tag) + b"\0" for tag in range(10_001))
    with pytest.raises(WireError, match="10001"):
        ApiVersionsRequest.decode(request[:-1] + varint(10_001) + tags, 3)
    fewer = b"".join(varint(tag) + b"\0" for tag in range(10_000))
    assert ApiVersionsRequest.decode(request[:-1] + varint(10_000) + fewer, 3) == ApiVersionsRequest()


def test_unknown_tags_are_skipped_beside_known_ones() -> None:
    request = FetchRequest(
        cluster_id="c", topics=[FetchTopic(topic_id=bytes(16), partitions=[FetchPartition()])]
    )
    written = request.encode(13)
    assert written.endswith(b"\x01\x00\x02\x02c")
    extended = written[:-5] + b"\x03" + b"\x00\x02\x02c" + b"\x07\x03abc" + b"\x88\x01\x00"
    assert FetchRequest.decode(extended, 13) == request


@pytest.mark.parametrize("size", [b"\x01", b"\x03", b"\x7f", b"\xff\xff\xff\xff\x0f"])
def test_a_tag_whose_size_is_not_that_of_its_value_is_refused(size: bytes) -> None:
    written = FetchRequest(cluster_id="c").encode(13)
    with pytest.raises(WireError):
        FetchRequest.decode(written[:-3] + size + written[-2:] + bytes(20), 13)


@pytest.mark.parametrize("length", [b"\xff\xff", b"\x80\x00", b"\x7f\xff", b"\x00\x03"])
def test_a_string_of_a_wrong_length_is_refused(length: bytes) -> None:
    with pytest.raises(WireError):
        SaslHandshakeRequest.decode(length + b"ab", 1)


@pytest.mark.parametrize("text", [b"\xc3\x28", b"\xff", b"\xed\xa0\x80", b"\xc0\x80"])
def test_text_that_is_not_utf8_is_refused(text: bytes) -> None:
    with pytest.raises(WireError):
        SaslHandshakeRequest.decode(struct.pack(">h", len(text)) + text, 1)


def test_a_varint_of_more_than_five_bytes_is_refused() -> None:
    with pytest.raises(WireError, match="varint"):
        ApiVersionsRequest.decode(b"\x80\x80\x80\x80\x80\x01" + bytes(50), 3)


def test_a_compact_string_of_more_than_32767_bytes_is_refused() -> None:
    with pytest.raises(WireError, match="too long"):
        ApiVersionsRequest.decode(varint(32_769) + bytes(40_000), 3)


def test_null_where_the_version_allows_none_is_refused() -> None:
    with pytest.raises(WireError, match="null"):
        MetadataRequest.decode(b"\xff\xff\xff\xff", 0)
    with pytest.raises(WireError, match="null"):
        CreateTopicsRequest.decode(b"\0" + bytes(20), 5)


def test_records_longer_than_the_request_are_refused() -> None:
    written = bytearray(ProduceRequest().encode(12))
    del written[-2:]
    partition = b"\x02" + struct.pack(">i", 0) + varint(1000) + bytes(30)
    with pytest.raises(WireError):
        ProduceRequest.decode(bytes(written) + b"\x02\x02t" + partition, 12)
