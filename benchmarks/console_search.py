"""What a search of the console passes over: records a second of one processor, by what is searched for.

    python -m benchmarks.console_search

In memory, of batches of 1,000 JSON records of 160 bytes each: the part of a search that a thread does, without the
reading of entries. The best of three rounds, in processor time, so that other programs of the machine do not count.
"""

from __future__ import annotations

import json
import time

from magnetar.console.decoding import value_of
from magnetar.console.json_paths import path_of
from magnetar.console.sought import SoughtRecords
from magnetar.records.batch import HEADER_BYTES, PlainRecord, encode_batch, read_header

RECORDS = 1000
ROUNDS = 3


def _path(text: str) -> SoughtRecords:
    return SoughtRecords(path=path_of(text), decode=lambda data, version: value_of(data, {}))


SEARCHES = (
    ("a text that is nowhere", SoughtRecords(text=b"needle"), 500),
    ("a text of one in 1,000", SoughtRecords(text=b'"id": 500,'), 300),
    ("a key of one in 1,000", SoughtRecords(key=b"key-500"), 300),
    ("$.order.customer = zzzz, nowhere", _path("$.order.customer = zzzz"), 500),
    ("$.order.customer = c50, one in 100", _path("$.order.customer = c50"), 100),
    ("$.order.id = 500, a number", _path("$.order.id = 500"), 10),
    ("a pattern", SoughtRecords(pattern="zz+y"), 10),
)


def main() -> None:
    """Print a line for each search."""
    batch = encode_batch(
        [PlainRecord(b"key-%d" % number, _value(number), (), 1000, number) for number in range(RECORDS)]
    )
    header, body = read_header(batch), memoryview(batch)[HEADER_BYTES:]
    for name, sought, times in SEARCHES:
        best = float("inf")
        for _ in range(ROUNDS):
            began = time.process_time()
            for _ in range(times):
                found = len(list(sought.among(body, header)))
            best = min(best, time.process_time() - began)
        print(f"{name:36} {times * RECORDS / best:12,.0f} records/s, {found} found in each {RECORDS}")


def _value(number: int) -> bytes:
    order = {"id": number, "customer": f"c{number % 97}", "total": number * 3.5}
    return json.dumps({"order": order, "state": "open", "note": "n" * 60}).encode()


if __name__ == "__main__":
    main()
