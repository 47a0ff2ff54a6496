"""Batches that another broker has kept: what compaction and transactions leave is taken, anything damaged is not."""

from __future__ import annotations

import random

import pytest

from magnetar.records.batch import (
    CONTROL,
    HEADER_BYTES,
    MAX_GAP,
    TRANSACTIONAL,
    UNKNOWN_TIME,
    PlainRecord,
    decode_records,
    encode_batch,
    gap,
    read_header,
    seal,
)
from magnetar.records.check_kept import check_kept
from magnetar.records.compression import Codec, compress
from magnetar.records.control import marker_batch
from magnetar.records.errors import RecordsError
from magnetar.records.varint import decode_zigzag

RECORDS = [
    PlainRecord(b"%d" % n, b"v" * (n % 90), [("h", b"%d" % n)] if n % 3 else (), 5000 - n) for n in range(400)
]


def compacted(keep: list[int], codec: Codec = Codec.none) -> bytes:
    """Return the batch of all records of which only some are left, as a log cleaner leaves it."""
    whole = encode_batch(RECORDS, base_offset=1000)
    body, at, parts = whole[HEADER_BYTES:], 0, []
    while at < len(body):
        length, first = decode_zigzag(body, at)
        parts.append(body[at : first + length])
        at = first + length
    header = read_header(whole)._replace(records_count=len(keep), attributes=codec)
    return seal(header, compress(codec, b"".join(parts[n] for n in keep)))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("keep", [[0], [399], [5, 6, 7, 200], list(range(1, 400, 2)), list(range(400))])
def test_what_compaction_left_is_taken(keep: list[int], codec: Codec) -> None:
    batch = compacted(keep, codec)
    assert [record.offset for record in decode_records(batch)] == [1000 + n for n in keep]
    (found,) = check_kept(memoryview(batch))
    assert found.data == batch
    assert found.earliest_ms == min(RECORDS[n].timestamp for n in keep)


def test_batches_end_to_end_markers_and_gaps_are_taken() -> None:
    marker = marker_batch(7, 0, 1234, committed=True, coordinator_epoch=3)
    laid = (
        gap(0, MAX_GAP),
        gap(MAX_GAP, 10),
        seal(read_header(marker)._replace(base_offset=MAX_GAP + 10), marker[HEADER_BYTES:]),
    )
    found = check_kept(memoryview(b"".join(laid)))
    assert [each.header.base_offset for each in found] == [0, MAX_GAP, MAX_GAP + 10]
    assert [each.earliest_ms for each in found] == [UNKNOWN_TIME, UNKNOWN_TIME, 1234]
    assert found[2].header.attributes == CONTROL | TRANSACTIONAL


def test_what_is_no_whole_batch_is_refused() -> None:
    whole = compacted([1, 2])
    header, body = read_header(whole), whole[HEADER_BYTES:]
    twice = body + body
    for wrong in (
        b"",
        whole[:-1],
        whole + b"\0",
        whole + whole,  # the second one begins before the first one ends
        seal(header._replace(records_count=3), body),
        seal(header._replace(records_count=1), body),
        seal(header._replace(records_count=-1), body),
        seal(header._replace(records_count=401), body),
        seal(header._replace(last_offset_delta=1), body),
        seal(header._replace(last_offset_delta=-1, records_count=0), b""),
        seal(header._replace(records_count=4), twice),  # deltas that go back
        seal(header._replace(attributes=CONTROL), encode_batch([PlainRecord(b"k", b"v")])[HEADER_BYTES:]),
        whole.replace(b"vvv", b"vvw", 1) if b"vvv" in whole else whole[:-1],
    ):
        with pytest.raises(RecordsError):
            check_kept(memoryview(wrong))


def test_any_flipped_byte_of_the_records_is_noticed_or_harmless() -> None:
    whole, chosen = compacted([3, 50, 51, 52, 399]), random.Random(7)
    header, body = read_header(whole), bytearray(whole[HEADER_BYTES:])
    for _ in range(2000):
        at = chosen.randrange(len(body))
        kept = body[at]
        body[at] = chosen.randrange(256)
        try:
            batch = seal(header, body)
            check_kept(memoryview(batch))
        except RecordsError:
            pass
        else:
            assert len(decode_records(batch)) == 5
        body[at] = kept
