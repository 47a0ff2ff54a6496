"""The records of ``__consumer_offsets``: ours are Kafka's, byte for byte, and damaged ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.coordination.decision import Fact
from magnetar.kafka.coordinators.decider import GroupsDecider
from magnetar.kafka.coordinators.facts import (
    Committed,
    GroupFact,
    OffsetFact,
    group_fact,
    offset_fact,
    read_fact,
)
from magnetar.kafka.coordinators.groups import partition_of
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.messages.offset_commit_key import OffsetCommitKey
from magnetar.wire.kafka.messages.offset_commit_value import OffsetCommitValue

RECORDS = [
    (int(partition), Fact(bytes.fromhex(key), None if value == "-" else bytes.fromhex(value)))
    for partition, key, value in (
        line.split()
        for line in (Path(__file__).parent / "kafka_records.txt").read_text().splitlines()
        if not line.startswith("#")
    )
]


@pytest.mark.parametrize(("partition", "fact"), RECORDS)
def test_kafkas_records_are_ours(partition: int, fact: Fact) -> None:
    said = read_fact(fact.key, fact.value)
    if isinstance(said, OffsetFact):
        written = offset_fact(said.group_id, said.topic, said.partition, said.committed)
    else:
        assert isinstance(said, GroupFact)
        written = group_fact(said.group_id, said.value)
    assert written == fact
    assert partition_of(said.group_id, 50) == partition


def test_kafkas_log_can_be_taken_over() -> None:
    decider = GroupsDecider(GroupSettings(), lambda: "1")
    for _, fact in RECORDS:
        decider.replay(fact)
    assert decider.offsets.fetch("keeps")["t"][0].offset == 7
    again = GroupsDecider(GroupSettings(), lambda: "1")
    for facts in decider.snapshot():
        for fact in facts:
            again.replay(fact)
    assert list(again.snapshot()) == list(decider.snapshot())
    assert len(list(again.snapshot())) > 1


@given(
    st.text(max_size=20),
    st.text(max_size=20),
    st.integers(0, 2**31 - 1),
    st.builds(
        Committed,
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-1, 2**31 - 1),
        st.text(max_size=50),
        st.integers(0, 2**62),
        st.just(-1),
        st.binary(min_size=16, max_size=16),
    ),
)
def test_an_offset_comes_back_as_it_was(group_id: str, topic: str, partition: int, kept: Committed) -> None:
    fact = offset_fact(group_id, topic, partition, kept)
    assert read_fact(fact.key, fact.value) == OffsetFact(group_id, topic, partition, kept)


@pytest.mark.parametrize("metadata", ["", "m"])
def test_an_offset_is_what_the_schema_says_whatever_byte_is_another(metadata: str) -> None:
    fact = offset_fact("gr", "t", 5, Committed(7, 3, metadata, 9, -1, b"i" * 16))
    key, value = fact.key, fact.value or b""
    for at in range(2, len(key)):
        for other in range(256):
            _is_as_the_schema_has_it(_changed(key, at, other), value)
        _is_as_the_schema_has_it(key[:at], value)
    for at in range(1, len(value)):
        for other in range(256):
            _is_as_the_schema_has_it(key, _changed(value, at, other))
        _is_as_the_schema_has_it(key, value[:at])
    for version in (1, 3):  # as long as one of ours
        other = OffsetCommitValue(offset=7, metadata="x" * 50)
        for _ in range(50):
            other.metadata = other.metadata[1:]
            _is_as_the_schema_has_it(key, version.to_bytes(2, "big") + other.encode(version))


def _changed(data: bytes, at: int, other: int) -> bytes:
    return data[:at] + bytes([other]) + data[at + 1 :]


def _is_as_the_schema_has_it(key: bytes, value: bytes) -> None:
    try:
        name = OffsetCommitKey.decode(key[2:], 0)
        stored = OffsetCommitValue.decode(value[2:], int.from_bytes(value[:2], "big", signed=True))
    except WireError:
        with pytest.raises(WireError):
            read_fact(key, value)
        return
    kept = Committed(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        stored.topic_id,
    )
    assert read_fact(key, value) == OffsetFact(name.group, name.topic, name.partition, kept)


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\4\0\0", b"\x7f\xff" + bytes(40), b"\xff\xff" + bytes(40)])
def test_a_damaged_value_is_refused(value: bytes) -> None:
    for fact in (offset_fact("g", "t", 0, None), group_fact("g", None)):
        with pytest.raises(WireError):
            read_fact(fact.key, value)


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_garbage_is_refused_or_passed_over(key: bytes, value: bytes | None) -> None:
    try:
        GroupsDecider(GroupSettings(), lambda: "1").replay(Fact(key, value))
    except WireError:
        pass


def test_records_of_other_kinds_are_passed_over() -> None:
    decider = GroupsDecider(GroupSettings(), lambda: "1")
    for kind in (18, 24, 99):
        decider.replay(Fact(kind.to_bytes(2, "big") + b"\0\1g", b"\0\0what"))
    assert not decider.groups
