"""What is written is read again as the same, for every message at every version."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.wire.kafka.malformed import UnsupportedVersion, WireError
from magnetar.wire.kafka.messages import API_KEYS, request_class, response_class
from magnetar.wire.kafka.messages.describe_configs_request import DescribeConfigsRequest
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from magnetar.wire.kafka.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from magnetar.wire.kafka.messages.offset_commit_response import OffsetCommitResponse
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from tests.wire.values import OUTLINE, build, message_class, versions_of


@pytest.mark.parametrize("module", OUTLINE)
@settings(max_examples=5, deadline=None, database=None)
@given(random=st.randoms(use_true_random=False))
def test_every_version_of_every_message_is_read_as_it_was_written(module: str, random: Random) -> None:
    for version in versions_of(module):
        message = build(module, version, random)
        written = message.encode(version)
        assert type(message).decode(written, version) == message
        assert type(message).decode(memoryview(written + b"behind"), version) == message


@pytest.mark.parametrize("module", OUTLINE)
def test_defaults_can_be_written_at_every_version(module: str) -> None:
    kind = message_class(module)
    for version in versions_of(module):
        written = kind().encode(version)
        assert kind.decode(written, version).encode(version) == written


def test_the_catalog_finds_both_directions_of_every_api() -> None:
    for key in ROUTE_BY_KEY:
        name, low, high, flexible_since = API_KEYS[key]
        request, response = request_class(key), response_class(key)
        assert (request.__name__, response.__name__) == (f"{name}Request", f"{name}Response")
        for kind in (request, response):
            assert (key, low, high) == (kind.API_KEY, kind.MIN_VERSION, kind.MAX_VERSION)
            assert flexible_since == kind.FLEXIBLE_SINCE


@pytest.mark.parametrize("api_key", [52, 80])  # Vote, which only controllers answer; AddRaftVoter
def test_an_api_that_is_not_served_has_no_messages(api_key: int) -> None:
    with pytest.raises(KeyError):
        request_class(api_key)


def test_the_catalog_knows_headers_of_apis_that_are_not_served() -> None:
    assert API_KEYS[80][0] == "AddRaftVoter"


@pytest.mark.parametrize("version", [-1, 3, 19, 1000])
def test_unknown_versions_are_refused_both_ways(version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        FetchRequest.decode(bytes(100), version)
    with pytest.raises(UnsupportedVersion):
        FetchRequest().encode(version)


def test_a_value_that_an_old_version_cannot_carry_is_refused() -> None:
    request = FetchRequest(replica_state=ReplicaState(replica_id=1))
    assert FetchRequest.decode(request.encode(15), 15) == request
    for version in (14, 4):
        with pytest.raises(UnsupportedVersion, match="replica_state"):
            request.encode(version)


def test_a_value_that_may_be_lost_is_dropped_silently() -> None:
    request = FetchRequest(rack_id="ignorable")
    assert FetchRequest.decode(request.encode(10), 10) == FetchRequest()


def test_null_is_written_only_where_the_version_allows_it() -> None:
    everything = MetadataRequest(topics=None)
    assert MetadataRequest.decode(everything.encode(1), 1).topics is None
    with pytest.raises(WireError, match="topics"):
        everything.encode(0)


@pytest.mark.parametrize(
    "request_",
    [
        FetchRequest(topics=[FetchTopic(topic_id=b"short")]),
        FetchRequest(max_wait_ms=2**31),
        FetchRequest(rack_id="x" * 32768),
        FetchRequest(rack_id="\ud800"),
        FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(partition="0")])]),  # type: ignore[arg-type]
    ],
)
def test_values_that_do_not_fit_their_type_are_refused(request_: FetchRequest) -> None:
    with pytest.raises(WireError):
        request_.encode(13)


def test_a_long_string_is_refused_by_old_versions_too() -> None:
    with pytest.raises(WireError):
        FetchRequest(rack_id="x" * 32768).encode(11)


def test_record_batches_are_read_in_place() -> None:
    batch = bytes(range(256)) * 64
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(records=batch)])
    written = bytearray(ProduceRequest(topic_data=[topic]).encode(12))
    read = ProduceRequest.decode(memoryview(written), 12).topic_data[0].partition_data[0].records
    assert isinstance(read, memoryview)
    assert read.obj is written
    assert read == batch


def test_record_batches_are_not_copied_into_the_parts() -> None:
    batch = bytes(100_000)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(records=batch)])
    assert any(part is batch for part in ProduceRequest(topic_data=[topic]).encode_parts(12))


def test_record_batches_of_an_answer_may_be_given_in_pieces() -> None:
    def answer(records: bytes | list[bytes | memoryview]) -> FetchResponse:
        topic = FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)])
        return FetchResponse(responses=[topic])

    pieces: list[bytes | memoryview] = [b"first", memoryview(b"second" * 100)]
    for version in (4, 12):
        assert answer(pieces).encode(version) == answer(b"".join(pieces)).encode(version)


def test_bytes_come_as_memoryviews() -> None:
    read = SaslAuthenticateRequest.decode(SaslAuthenticateRequest(auth_bytes=b"\0me\0secret").encode(2), 2)
    assert isinstance(read.auth_bytes, memoryview)
    assert read.auth_bytes == b"\0me\0secret"


def test_two_messages_never_share_a_default_list() -> None:
    one, other = OffsetCommitResponse(), OffsetCommitResponse()
    one.topics.append(None)  # type: ignore[arg-type]
    assert other.topics == []
    assert DescribeConfigsRequest().resources == []


def test_messages_compare_and_show_their_fields() -> None:
    partition = FetchPartition(partition=3, fetch_offset=7)
    assert partition == FetchPartition(partition=3, fetch_offset=7)
    assert partition != FetchPartition(partition=3, fetch_offset=8)
    assert partition != 3
    assert "fetch_offset=7" in repr(partition)
    with pytest.raises(AttributeError):
        partition.ofset = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        hash(partition)
