"""Where the keys of a batch lie: machine code and plain form alike, and both as one message at a time."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.records import sticky_keys
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.records.compression import Codec
from magnetar.records.conversion import use_machine_code
from magnetar.records.errors import EntryCorrupt
from magnetar.records.pulsar_entries import to_pulsar
from magnetar.records.pulsar_plain import plain_pulsar_message
from magnetar.records.sticky_keys import (
    EVERY_HASH,
    HASH_RANGE,
    KeyHashes,
    hash_of_key,
    key_hashes,
    murmur3_32,
    plain_key_hashes,
)
from tests.records import pulsar_oracle as oracle
from tests.records.test_pulsar_entries import NOW, kafka_entry

KEYLESS = 77


@pytest.fixture(autouse=True, scope="module")
def _machine() -> None:
    sticky_keys.use_machine_code()
    assert sticky_keys._machine._code is not None


def batch_of(messages: list[Any]) -> bytes:
    parts = []
    for single in messages:
        written = single.SerializeToString()
        parts.append(len(written).to_bytes(4, "big") + written + bytes(single.payload_size))
    return b"".join(parts)


@st.composite
def messages(draw: Any) -> list[Any]:
    found = []
    for _ in range(draw(st.integers(0, 12))):
        single = oracle.SingleMessageMetadata(payload_size=draw(st.integers(0, 5)))
        key = draw(st.none() | st.binary(max_size=9) | st.sampled_from([b"a", b"b"]))
        if key is not None and draw(st.booleans()):
            single.ordering_key = key
        if key is not None and (draw(st.booleans()) or not single.HasField("ordering_key")):
            single.partition_key = base64.b64encode(key).decode()
            single.partition_key_b64_encoded = True
        single.compacted_out = draw(st.integers(0, 4)) == 0
        found.append(single)
    return found


def by_hand(found: list[Any]) -> KeyHashes:
    each = []
    for single in found:
        key = None
        if not single.compacted_out and single.HasField("ordering_key"):
            key = single.ordering_key
        elif not single.compacted_out and single.HasField("partition_key"):
            key = base64.b64decode(single.partition_key)
        each.append(None if key is None else murmur3_32(key) % HASH_RANGE)
    distinct = tuple(dict.fromkeys(hashed for hashed in each if hashed is not None)) or (KEYLESS,)
    return KeyHashes(distinct, sticky_keys.array("i", [KEYLESS if one is None else one for one in each]))


@settings(deadline=None)  # machine code may be compiled in the first call
@given(messages())
def test_the_hashes_of_a_batch_are_those_of_its_messages(found: list[Any]) -> None:
    body = batch_of(found)
    assert key_hashes(body, len(found), keyless=KEYLESS) == by_hand(found)
    assert plain_key_hashes(body, len(found), keyless=KEYLESS) == by_hand(found)


@pytest.mark.parametrize("size", range(70))
def test_machine_code_hashes_as_pulsar_does(size: int) -> None:
    single = oracle.SingleMessageMetadata(payload_size=0, ordering_key=bytes(range(200, 200 - size, -1)))
    found = key_hashes(batch_of([single]), 1, keyless=KEYLESS)
    assert found.distinct == (hash_of_key(single.ordering_key),)


@pytest.mark.parametrize("keys", [1, 255, 256, 257, 2000])
def test_a_batch_of_very_many_keys_may_be_of_any(keys: int) -> None:
    names, number = {}, 0
    while len(names) < keys:
        names.setdefault(hash_of_key(b"%d" % number), b"%d" % number)
        number += 1
    singles = [oracle.SingleMessageMetadata(payload_size=0, ordering_key=each) for each in names.values()]
    body, first = batch_of(singles * 2), hash_of_key(b"0")
    for found in (
        key_hashes(body, 2 * keys, keyless=KEYLESS),
        plain_key_hashes(body, 2 * keys, keyless=KEYLESS),
    ):
        assert found.distinct == (tuple(names) if keys <= 256 else (first, EVERY_HASH))
        assert list(found.of_messages) == list(names) * 2


@settings(deadline=None)  # machine code may be compiled in the first call
@given(messages(), st.data())
def test_damaged_batches_are_refused_or_read_alike(found: list[Any], data: st.DataObject) -> None:
    body = bytearray(batch_of(found) or b"\0")
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    try:
        wanted = plain_key_hashes(cut, len(found), keyless=KEYLESS)
    except EntryCorrupt:
        with pytest.raises(EntryCorrupt):
            key_hashes(cut, len(found), keyless=KEYLESS)
    else:
        assert key_hashes(cut, len(found), keyless=KEYLESS) == wanted


@given(st.lists(st.integers(0, HASH_RANGE - 1), max_size=40), st.integers(0, HASH_RANGE))
def test_the_messages_of_wanted_hashes_are_told_by_their_bits(hashes: list[int], below: int) -> None:
    found = KeyHashes((), sticky_keys.array("i", hashes))
    wanted = b"\1" * below + bytes(HASH_RANGE - below)
    expected = sum(1 << index for index, each in enumerate(hashes) if each < below)
    assert found.within(wanted) == expected
    code, sticky_keys._machine._code = sticky_keys._machine._code, None
    try:
        assert found.within(wanted) == expected
    finally:
        sticky_keys._machine._code = code


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    ("keys", "partition_key", "ordering_key"),
    [
        ([b"a", b"b"], "a", b"a"),
        ([None, b"b"], None, None),
        ([b"", b"b"], "", b""),
        ([b"\xff"], "/w==", b"\xff"),
        ([bytes(1024)], "\0" * 1024, bytes(1024)),
        ([bytes(1025)], None, None),
    ],
)
def test_a_batch_of_kafkas_has_its_first_key_outside_as_pulsars_own_have(
    codec: Codec, keys: list[bytes | None], partition_key: str | None, ordering_key: bytes | None
) -> None:
    use_machine_code()
    batch = encode_batch([PlainRecord(each, b"v", (), NOW) for each in keys], codec=codec)
    for read in (to_pulsar, plain_pulsar_message):
        metadata = oracle.MessageMetadata.FromString(bytes(read(kafka_entry(batch, len(keys) - 1)).metadata))
        assert metadata.HasField("partition_key") is (partition_key is not None)
        assert metadata.HasField("ordering_key") is (ordering_key is not None)
        assert metadata.partition_key == (partition_key or "")
        assert metadata.ordering_key == (ordering_key or b"")
        assert metadata.partition_key_b64_encoded is (keys[0] == b"\xff")
