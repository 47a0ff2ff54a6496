"""Whether a producer's batch may be stored: every field of every record is looked at, few of them one by one.

Producers mostly send runs of records of one shape. For such a run the same field lies at the same distance from
record to record, so a strided slice of the batch holds that field of the whole run, and one comparison in C checks
it. Records that fall out of the run are walked singly, so any batch is checked in full; only the price differs. Where
many are walked and numba is installed, machine code takes over what is well-formed (`magnetar.records.check_machine`).
Batches of a geometry that was met before are compared with what is known of it (`magnetar.records.layouts`).

On the way the earliest timestamp is found: a batch's head tells the latest one only, or, where a client leaves that
out, none, and then it is written there.
"""

from __future__ import annotations

from array import array
from sys import byteorder

from magnetar.records.batch import (
    CODEC,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    UNKNOWN_TIME,
    BatchHeader,
    check_crc,
    read_header,
    seal,
)
from magnetar.records.check_machine import NOT_WELL, Machine
from magnetar.records.compression import MAX_DECOMPRESSED_BYTES, decompress
from magnetar.records.errors import CorruptBatch, InvalidRecord, TooMuchInside
from magnetar.records.layouts import Layouts, RecordRun, Shape
from magnetar.records.varint import decode_zigzag

_CONTINUED = bytes(range(0x80, 0x100))  # bytes of a varint that more bytes follow
_MANY_RECORDS = 5000
_HURRIED_BYTES = 2 << 20
_FEW = 4  # a run this short is not worth the slices
_EVEN = bytes(range(0, 256, 2))  # last bytes of zigzag codes of numbers that are not negative
_ORDER = bytes(
    ((code >> 1) ^ -(code & 1)) + 64 & 0xFF for code in range(256)
)  # what codes of one byte say, + 64
_PARITY = bytes(code & 1 for code in range(256))
_OTHER_PARITY = bytes(code & 1 ^ 1 for code in range(256))
_MAX_WIDTH = 7  # bytes of a timestamp delta: such a one is within 4,000 years
MAX_TIME = 1 << 55  # arithmetic with later times, or with ones before its negative, could overflow
_FAR, _NONE_YET = -(1 << 62), 1 << 62
_NO_RUN = 0, b""
machine = Machine()
layouts = Layouts()


class TakesLong(Exception):
    """The batch is too much to look at in passing; check it with ``hurried=False``, away from an event loop."""


def check_batch(data: memoryview, *, hurried: bool = False) -> BatchHeader:
    """Return the header of a batch that a producer may store; raise ``RecordsError`` saying what is wrong with it.

    ``hurried`` raises ``TakesLong`` rather than spend more than a few milliseconds.
    """
    return check_and_open(data, hurried=hurried)[1]


def check_and_open(
    data: memoryview, *, hurried: bool = False
) -> tuple[memoryview, BatchHeader, memoryview, int]:
    """Do as `check_batch`; return the batch to store, its header, its records decompressed, and their earliest time.

    That time (ms) is `UNKNOWN_TIME` where times are so far apart that nobody means them, and never later than
    ``max_timestamp``. The batch is the one that came, unless its ``max_timestamp`` was not set: Sarama leaves it at -1,
    and Kafka's brokers write the latest time of the records there, by which offsets are found and retention counts.
    """
    if len(data) < HEADER_BYTES:
        raise InvalidRecord("a partition without a whole record batch")
    header = read_header(data)
    if len(data) != header.size:
        what = f"the batch claims {header.size} bytes, and {len(data)} are there"
        raise InvalidRecord(f"a partition's records must be exactly one batch: {what}")
    check_crc(data, header)
    if header.attributes & CONTROL:
        raise InvalidRecord("clients may not write control batches")
    count = header.records_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise InvalidRecord(f"batch of {count} records ends at offset delta {header.last_offset_delta}")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecord("an idempotent batch needs an epoch and a sequence")
    if hurried and count > _MANY_RECORDS:
        raise TakesLong
    body = data[HEADER_BYTES:]
    if header.attributes & CODEC:
        try:
            body = decompress(
                header.codec, body, most_bytes=_HURRIED_BYTES if hurried else MAX_DECOMPRESSED_BYTES
            )
        except TooMuchInside:
            if hurried:
                raise TakesLong from None
            raise
    least = check_records(body, count)
    base, latest = header.base_timestamp, header.max_timestamp
    if header.attributes & LOG_APPEND_TIME:
        return data, header, body, latest
    if least <= -MAX_TIME or not -MAX_TIME < base < MAX_TIME:
        return data, header, body, UNKNOWN_TIME
    if latest < base and (true := base + max_time(bytes(body), count)) != latest and true < MAX_TIME:
        latest = true
        data = memoryview(seal(header._replace(max_timestamp=latest), data[HEADER_BYTES:]))
        header = read_header(data)
    earliest = base + least
    return data, header, body, earliest if earliest < latest else latest


def max_time(body: bytes, count: int) -> int:
    """Return the greatest timestamp delta of so many records, which `check_records` found well-formed and bounded."""
    at = delta = misses = 0
    greatest = _FAR
    while delta < count:
        shape = check_one(body, at, delta)
        greatest = max(greatest, shape[7])
        at += shape[0]
        delta += 1
        if misses < 3 and count - delta >= _FEW:
            run = _run_of(body, at, delta, count - delta, shape)[0]
            if run:
                greatest = max(greatest, _max_time(body, at, run, shape))
                at += run * shape[0]
                delta += run
                misses = 0
            else:
                misses += 1
    return greatest


def check_records(records: memoryview, count: int) -> int:
    """Raise ``InvalidRecord`` unless ``records`` holds exactly ``count`` well-formed ones with deltas 0, 1, 2 ...

    Returns the least timestamp delta; `_FAR` where one is out of all bounds.
    """
    body = bytes(records)  # indexing and strided slices of bytes are far quicker than a view's
    if machine.min_time is not None and (least := machine.min_time(body, count)) != NOT_WELL:
        return least
    if layouts.fit(body, count):
        return 0
    return plain_least_time(body, count)


def plain_least_time(body: bytes, count: int) -> int:
    """Do as `check_records` in plain Python: what it says, the machine code must say, too."""
    at = delta = misses = in_runs = 0
    least = _NONE_YET
    runs: list[RecordRun] = []
    try:
        while delta < count:
            shape = check_one(body, at, delta)
            if shape[7] < least:
                least = shape[7]
            at += shape[0]
            delta += 1
            if misses < 3 and count - delta >= _FEW:
                run, lowest = _run_of(body, at, delta, count - delta, shape)
                if run:
                    runs.append(RecordRun(at - shape[0], run + 1, shape))
                    # Nearly always time does not go back in it.
                    if least > 0 or lowest.translate(None, _EVEN):
                        least = min(least, _min_time(body, at, run, shape))
                    at += run * shape[0]
                    delta += run
                    in_runs += run
                    misses = 0
                else:
                    misses += 1
    except (IndexError, CorruptBatch):
        raise InvalidRecord("a record is cut short") from None
    if at != len(body):
        raise InvalidRecord(f"{len(body) - at} bytes follow the last record")
    machine.saw(count - in_runs)
    layouts.met(body, count, runs)
    return least


def check_one(body: bytes, start: int, delta: int) -> Shape:
    """Check one record; give its shape: its size, and where in it lie the body, the offset delta, key, value, headers.

    Behind these come the number of headers and the timestamp delta.

    The usual case of each number is written out: this runs for every record that falls out of a run.
    """
    length = body[start]
    if length < 0x80:
        length, first = (length >> 1) ^ -(length & 1), start + 1
    elif (more := body[start + 1]) < 0x80 and not length & 1:
        length, first = (length & 0x7E) >> 1 | more << 6, start + 2
    else:
        length, first = decode_zigzag(body, start)
    end = first + length
    if length < 6 or end > len(body):
        raise InvalidRecord("a record claims more bytes than its batch holds")
    time = body[first + 1]
    if time < 0x80:
        time, offset_at = (time >> 1) ^ -(time & 1), first + 2
    else:
        time, offset_at = decode_zigzag(body, first + 1, most_bytes=10)
        if offset_at - first - 1 > _MAX_WIDTH:
            time = _FAR
    number = body[offset_at]
    if number < 0x80:
        number, key_at = (number >> 1) ^ -(number & 1), offset_at + 1
    else:
        number, key_at = decode_zigzag(body, offset_at)
    if number != delta:
        raise InvalidRecord(f"offset delta {number} where {delta} is due")
    number = body[key_at]
    if number == 1:
        value_at = key_at + 1
    elif number < 0x80 and not number & 1:
        value_at = key_at + 1 + (number >> 1)
    else:
        value_at = _skip_bytes(body, key_at, end)
    headers_at = _skip_bytes(body, value_at, end)
    headers = body[headers_at]
    if headers or headers_at + 1 != end:
        headers = _check_headers(body, headers_at, end)
    return (
        end - start,
        first - start,
        offset_at - start,
        key_at - start,
        value_at - start,
        headers_at - start,
        headers,
        time,
    )


def _check_headers(body: bytes, at: int, end: int) -> int:
    """Check that the headers, and nothing else, fill the record up to ``end``; give how many they are."""
    count, at = decode_zigzag(body, at)
    if count < 0 or count > end - at:
        raise InvalidRecord(f"a record claims {count} headers")
    for _ in range(count):
        if body[at] & 1:
            raise InvalidRecord("a header has no key")
        at = _skip_bytes(body, _skip_bytes(body, at, end), end)
    if at != end:
        raise InvalidRecord("a record's fields do not fill its length")
    return count


def _skip_bytes(body: bytes, at: int, end: int) -> int:
    length = body[at]
    if length < 0x80:
        length, at = (length >> 1) ^ -(length & 1), at + 1
    elif (more := body[at + 1]) < 0x80 and not length & 1:
        length, at = (length & 0x7E) >> 1 | more << 6, at + 2
    else:
        length, at = decode_zigzag(body, at)
    if length < -1 or at + length > end:
        raise InvalidRecord("a field claims more bytes than its record holds")
    return at if length == -1 else at + length


def _run_of(body: bytes, at: int, delta: int, most: int, shape: Shape) -> tuple[int, bytes]:
    """Return how many of the next ``most`` records surely have the shape of the one before ``at``.

    And the lowest bytes of their timestamp deltas, perhaps with some that follow.
    """
    stride, first, offset_at, key_at, value_at, headers_at, headers, _ = shape
    count = min(most, (len(body) - at) // stride)
    offset_bytes = key_at - offset_at
    if headers or offset_bytes > 2:
        return _NO_RUN  # headers differ too easily, and so long a batch has its runs elsewhere
    count = min(count, (64 if offset_bytes == 1 else 8192) - delta)
    if count < _FEW:
        return _NO_RUN
    before, stop = at - stride, at + (count - 1) * stride + 1
    for place in (0, key_at, value_at, headers_at):
        while True:  # every byte of the varint that begins there
            byte = body[before + place]
            column = body[at + place : stop + place : stride]
            if column.count(byte) != count:
                count = len(column) - len(column.lstrip(bytes((byte,))))
                if count < _FEW:
                    return _NO_RUN
                stop = at + (count - 1) * stride + 1
            place += 1
            if byte < 0x80:
                break
    count, lowest = _same_width(body, at, stride, first + 1, offset_at, count)
    if count < _FEW or not _counts_on(body, at, stride, offset_at, offset_bytes, delta, count):
        return _NO_RUN
    return count, lowest


def _same_width(body: bytes, at: int, stride: int, start: int, end: int, count: int) -> tuple[int, bytes]:
    """Return for how many records the varint at ``start`` ends right before ``end``, and their first bytes, or more."""
    lowest = b""
    for place in range(start, end):
        column = body[at + place : at + (count - 1) * stride + place + 1 : stride]
        lowest = lowest or column
        if place < end - 1:
            count = len(column) - len(column.lstrip(_CONTINUED))
        elif not column.isascii():
            count = next(i for i, byte in enumerate(column) if byte >= 0x80)
        if count < _FEW:
            break
    return count, lowest


def _counts_on(body: bytes, at: int, stride: int, offset_at: int, width: int, delta: int, count: int) -> bool:
    """Return whether the offset deltas of so many records go on by one."""
    for place in range(width):
        column = body[at + offset_at + place : at + (count - 1) * stride + offset_at + place + 1 : stride]
        if column != _DELTA_COLUMNS[width][place][delta : delta + count]:
            return False
    return True


def _min_time(body: bytes, at: int, count: int, shape: Shape) -> int:
    """Return the least timestamp delta of a run of ``count`` records from ``at`` on; `_FAR` if one has no bounds."""
    lowest, width = _lowest(body, at, count, shape)
    if width == 1:
        return min(lowest.translate(_ORDER)) - 64
    if width > _MAX_WIDTH:
        return _FAR
    # Above the number stands whether it is negative: the largest word is the least number if any is negative, otherwise
    # the smallest is.
    words = _words(body, at, count, shape, lowest.translate(_PARITY))
    word = max(words)
    if not word >> 56:
        word = min(words)
    return _delta_of(word)


def _max_time(body: bytes, at: int, count: int, shape: Shape) -> int:
    """Return the greatest timestamp delta of such a run, all of which have bounds."""
    lowest, width = _lowest(body, at, count, shape)
    if width == 1:
        return max(lowest.translate(_ORDER)) - 64
    # Here whether it is not negative: the largest word is the greatest number unless all are negative.
    words = _words(body, at, count, shape, lowest.translate(_OTHER_PARITY))
    word = max(words)
    if not word >> 56:
        word = min(words)
    return _delta_of(word)


def _lowest(body: bytes, at: int, count: int, shape: Shape) -> tuple[bytes, int]:
    """Return the first bytes of a run's timestamp deltas, and how many bytes each of them has."""
    start = at + shape[1] + 1
    return body[start : start + (count - 1) * shape[0] + 1 : shape[0]], at + shape[2] - start


def _words(body: bytes, at: int, count: int, shape: Shape, above: bytes) -> array[int]:
    """Return the bytes of each timestamp delta as they lie there, as one number with ``above`` on top.

    All bits that say that a byte goes on are alike.
    """
    stride, start = shape[0], at + shape[1] + 1
    codes = bytearray(8 * count)
    for place in range(at + shape[2] - start):
        codes[place::8] = body[start + place : start + place + (count - 1) * stride + 1 : stride]
    codes[7::8] = above
    words = array("Q", codes)
    if byteorder == "big":
        words.byteswap()
    return words


def _delta_of(word: int) -> int:
    return decode_zigzag(word.to_bytes(8, "little"), 0, most_bytes=_MAX_WIDTH)[0]


def _delta_columns() -> dict[int, tuple[bytes, ...]]:
    """Give, by width of the varint, the bytes that offset deltas 0, 1, 2 ... have at each place."""
    zigzag = [delta << 1 for delta in range(8192)]
    one = bytes(value if value < 0x80 else 0 for value in zigzag)
    return {1: (one,), 2: (bytes(v & 0x7F | 0x80 for v in zigzag), bytes(v >> 7 for v in zigzag))}


_DELTA_COLUMNS = _delta_columns()
