"""Lines become records and records lines; what one writes the other reads."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.admin.errors import Invalid
from magnetar.admin.lines import OutgoingRecord, Seen, parse_json, parse_text, to_json
from magnetar.admin.offsets import Spot, parse_spot
from magnetar.admin.partition_name import PartitionName, parse_place, parse_record

maybe_bytes = st.none() | st.binary(max_size=50)


@given(
    key=maybe_bytes,
    value=maybe_bytes,
    headers=st.lists(st.tuples(st.text(max_size=10), maybe_bytes), max_size=4),
    partition=st.integers(0, 1000),
    timestamp=st.integers(0, 2**53),
)
def test_json_lines_are_read_back(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    partition: int,
    timestamp: int,
) -> None:
    seen = Seen("t", partition, 7, timestamp, "CreateTime", key, value, tuple(headers))
    line = json.dumps(to_json(seen), ensure_ascii=False).encode()
    assert b"\n" not in line
    assert parse_json(line) == OutgoingRecord(value, key, tuple(headers), partition, timestamp)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_json_line_or_refused(line: bytes) -> None:
    try:
        parse_json(line)
    except Invalid:
        pass


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"1",
        b'"text"',
        b'{"partition": "1"}',
        b'{"timestamp": true}',
        b'{"headers": 5}',
        b'{"headers": ["x"]}',
        b'{"headers": "x"}',
        b'{"value": {"base64": "%%%"}}',
        b'{"key": {"base64": 5}}',
    ],
)
def test_lines_that_are_refused(line: bytes) -> None:
    with pytest.raises(Invalid):
        parse_json(line)


def test_text_lines() -> None:
    assert parse_text(b"a:b:c", None, None) == OutgoingRecord(b"a:b:c")
    assert parse_text(b"a:b:c", b":", None) == OutgoingRecord(b"b:c", b"a")
    assert parse_text(b"a::c", b"::", None) == OutgoingRecord(b"c", b"a")
    assert parse_text(b"-:-", b":", b"-") == OutgoingRecord(None, None)
    assert parse_text(b"", None, None) == OutgoingRecord(b"")
    with pytest.raises(Invalid, match="without the key separator"):
        parse_text(b"no key here", b":", None)


@pytest.mark.parametrize(
    ("text", "spot"),
    [
        ("beginning", Spot("earliest")),
        ("end", Spot("latest")),
        ("0", Spot("offset", 0)),
        ("-5", Spot("tail", 5)),
        ("s@1700000000000", Spot("time", 1_700_000_000_000)),
        ("s@2023-11-14T22:13:20+00:00", Spot("time", 1_700_000_000_000)),
    ],
)
def test_spots(text: str, spot: Spot) -> None:
    assert parse_spot(text) == spot


@pytest.mark.parametrize("text", ["", "middle", "s@", "s@soon", "+5", "1.5", "--5"])
def test_what_is_no_spot(text: str) -> None:
    with pytest.raises(Invalid):
        parse_spot(text)


def test_places() -> None:
    assert parse_place("flights-3") == PartitionName("flights", 3)
    assert parse_place("a-b-c-10") == PartitionName("a-b-c", 10)
    assert parse_record("persistent://a/b/c@d-1@7") == (PartitionName("persistent://a/b/c@d", 1), 7)
    for text in ("flights", "flights-", "-3", "flights-3@", "flights@3", "flights-3@-1", "flights-x@1"):
        with pytest.raises(Invalid):
            parse_record(text)
