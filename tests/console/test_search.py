"""Searches by JSON path, header and pattern, and downloads: what is found, and what no search can be made to cost."""

from __future__ import annotations

import csv
import io
import json
import socket
import struct
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from magnetar.console.json_paths import NoJsonPath, path_of
from magnetar.console.sought import SoughtHeader, SoughtRecords
from magnetar.records.batch import HEADER_BYTES, Header, PlainRecord, encode_batch, read_header
from magnetar.records.errors import RecordsError
from tests.console.test_pages import check_harmless, facts, make
from tests.console.test_records import _Sends, values
from tests.process import BrokerProcess
from tests.waiting import until

ORDER = {
    "customer": {"id": 7, "name": "An O'Neil"},
    "items": [{"sku": "a"}, {"sku": "b", "n": 2}],
    "ok": True,
}


@pytest.fixture
def send(house: BrokerProcess) -> _Sends:
    return _Sends(house)


@pytest.mark.parametrize(
    "path",
    [
        "$.customer.id",
        "customer.id = 7",
        "$.customer.id >= 7",
        "$.customer.id < 7.5",
        "$['customer']['name'] ~ \"O'N\"",
        "$.customer.name = An O'Neil",
        "$.items[0].sku = a",
        "$.items[-1].n = 2",
        "$.items[*].sku = b",
        "$.*.id != 8",
        "$.ok = true",
        "$.items ~ sku",
    ],
)
def test_a_path_leads_somewhere(path: str) -> None:
    assert path_of(path).is_in(ORDER)


@pytest.mark.parametrize(
    "path",
    [
        "$.customer.no",
        "$.customer.id = 8",
        "$.customer.id = true",
        "$.ok = 1",
        "$.items[2]",
        "$.items.sku",
        "$.customer.id > 'a'",
        "$.customer.name < 3",
        "$.customer.id[0]",
    ],
)
def test_a_path_leads_nowhere(path: str) -> None:
    assert not path_of(path).is_in(ORDER)


@pytest.mark.parametrize("path", ["$..id", "$.a[?(@.b)]", "$.a b", "$.a[", "$" + ".a" * 33, "x" * 1001])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(NoJsonPath):
        path_of(path)


def test_numbers_of_protobuf_are_texts() -> None:
    assert path_of("id = 9").is_in({"id": "9"})
    assert path_of("id > 8").is_in({"id": "9"})
    assert path_of('id = "9"').is_in({"id": 9})
    assert path_of('id = "9"').words == (b"id",)  # MessagePack has the number in other bytes


def _found(records: list[PlainRecord], sought: SoughtRecords) -> list[int]:
    batch = encode_batch(records)
    body = memoryview(batch)[HEADER_BYTES:]
    return [each.offset for each in sought.among(body, read_header(batch))]


def _of_path(text: str) -> SoughtRecords:
    return SoughtRecords(path=path_of(text), decode=lambda data, version: json.loads(data or b"null"))


def test_batches_that_are_passed_over_hold_no_match() -> None:
    """What is not decoded is not taken for what it is not: letters that are escaped, and bytes of other records."""
    plain = json.dumps(ORDER).encode()
    escaped = b'{"\\u0063ustomer": {"name": "An O\'Neil"}}'
    other = b'{"name": "An O\'Neil"}'
    rows = [PlainRecord(b"Neil", each) for each in (other, plain, other * 1, b'{"customer": 1}')]
    assert _found(rows, _of_path("$.customer.name = An O'Neil")) == [1]
    assert _found([*rows, PlainRecord(None, escaped)], _of_path("$.customer.name = An O'Neil")) == [1, 4]
    assert _found([*rows, rows[1]], _of_path("$.customer.name = An O'Neil")) == [1, 4]
    assert _found(rows, _of_path("$.nowhere = Neil")) == []
    framed = struct.pack(">bI", 0, 3) + b"x"
    seen: list[Any] = []
    told = SoughtRecords(path=path_of("$.a = zz"), decode=lambda data, version: seen.append(data))
    assert _found([PlainRecord(None, framed), PlainRecord(None, b"{}")], told) == []
    assert seen == [framed, b"{}"]  # a schema may say that it holds what its bytes do not show


def test_records_of_all_sizes_are_walked_over() -> None:
    rows = [
        PlainRecord(b"k%d" % size, b"v" * size, (Header("h", b"x"),)) for size in (0, 60, 61, 8100, 1_200_000)
    ]
    for number in range(len(rows)):
        assert _found(rows, SoughtRecords(text=b"k%d" % len(rows[number].value or b""))) == [number]
    assert _found(rows, SoughtRecords(header=SoughtHeader("h", b"x"), text=b"v")) == [1, 2, 3, 4]
    batch = encode_batch(rows[:2])
    body = bytearray(batch[HEADER_BYTES:])
    body[0] = 0x7F
    with pytest.raises(RecordsError):
        list(SoughtRecords(text=b"k60").among(memoryview(bytes(body)), read_header(batch)))


def test_records_are_found_by_path_header_and_pattern(
    house: BrokerProcess, http: httpx.Client, send: _Sends
) -> None:
    make(house, "paths")
    for number in range(20):
        send("paths", (b"k", json.dumps({"order": {"id": number, "at": ["x", f"y{number}"]}})))
    send("paths", (b"k", b"no JSON"), headers=[("trace", b"abc"), ("other", b"1")])
    registry = SchemaRegistryClient({"url": f"http://{house.served['schema-registry'][0]}"})
    proto = 'syntax = "proto3"; message Order { int64 id = 1; string note = 2; }'
    number = registry.register_schema("paths-value", Schema(proto, "PROTOBUF"))
    send("paths", (b"p", struct.pack(">bIb", 0, number, 0) + b"\x08\x09\x12\x02ok"))

    def found(**query: str) -> list[int]:
        answer = http.get("/console/records.json", params={"topic": "paths", **query})
        assert answer.status_code == 200, answer.text
        return [each["offset"] for each in answer.json()["records"]]

    assert found(path="$.order.id = 7") == [7]
    assert found(path="$.order.id >= 18") == [19, 18]
    assert found(path="$.order.at[*] = y3") == [3]
    assert found(path="$.id = 9") == [21]
    assert found(path="$.note ~ o") == [21]
    assert found(header="trace=abc") == [20]
    assert found(header="trace") == [20]
    assert found(header="trace=ab") == []
    assert found(pattern='"id": 1[0-2],') == [12, 11, 10]
    assert found(pattern="^abc$") == [20]
    assert found(pattern="y1$", path="$.order") == []
    hostile = {"path": "$['<script>'] = \u202e", "header": "<b>", "pattern": "<i>"}
    check_harmless(http.get("/console/records", params={"topic": "paths", **hostile}))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pattern", "("),
        ("pattern", "a{1000}{1000}"),
        ("pattern", "x" * 1001),
        ("pattern", "(?=a)"),
        ("path", "$..a"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(
    house: BrokerProcess, http: httpx.Client, send: _Sends, name: str, text: str
) -> None:
    if facts(http, "/console/topics", q="refused")["found"] == 0:
        make(house, "refused")
    answer = http.get("/console/records", params={"topic": "refused", name: text})
    assert answer.status_code == 400
    check_harmless(answer)


def test_a_pattern_that_explodes_elsewhere_is_answered(
    house: BrokerProcess, http: httpx.Client, send: _Sends
) -> None:
    make(house, "explodes")
    send("explodes", *((None, b"x" * 900_000) for _ in range(20)))
    for pattern in ("(x+x+)+y", "(x|xx|x?)*$y", "(.*)*(.*)*z"):
        told = facts(http, "/console/records", topic="explodes", pattern=pattern, order="newer")
        looked = told["read_records"]
        while not told["is_end"]:
            told = facts(
                http, "/console/records", topic="explodes", pattern=pattern, order="newer", at=told["goes_on"]
            )
            looked += told["read_records"]
        assert (looked, told["records"]) == (20, [])


def test_records_are_downloaded_as_tables(house: BrokerProcess, http: httpx.Client, send: _Sends) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    make(house, "files")
    rows = [(b"=1+1", b'{"a": 1}'), (b"-5", b"\xff"), (None, None), ("@é".encode(), b'say "x",\nnow')]
    send("files", *rows, headers=[("h", b"\xfe")])
    asked = {"topic": "files", "order": "newer"}
    answer = http.get("/console/records", params={**asked, "download": "csv"})
    assert answer.headers["content-disposition"] == 'attachment; filename="records.csv"'
    assert "link" not in answer.headers
    told = list(csv.DictReader(io.StringIO(answer.text)))
    assert [each["key"] for each in told] == ["'=1+1", "-5", "", "'@é"]
    assert [each["value"] for each in told] == ['{"a": 1}', "ff", "", 'say "x",\nnow']
    assert [int(each["offset"]) for each in told] == [0, 1, 2, 3]
    answer = http.get("/console/records", params={**asked, "download": "parquet", "limit": "2"})
    table = pq.read_table(io.BytesIO(answer.content)).to_pydict()
    assert table["key"] == [b"=1+1", b"-5"]
    assert table["decoded"] == ['{"a": 1}', None]
    assert table["headers"][0] == [{"key": "h", "value": b"\xfe"}]
    more = answer.headers["link"].partition(">")[0].removeprefix("<")
    table = pq.read_table(io.BytesIO(http.get(more).content)).to_pydict()
    assert table["offset"] == [2, 3]
    assert http.get("/console/records", params={**asked, "download": "exe"}).status_code == 400


@pytest.mark.slow
def test_downloads_that_are_broken_off_make_room_for_others(
    house: BrokerProcess, http: httpx.Client, send: _Sends
) -> None:
    make(house, "broken-off")
    send("broken-off", *((None, b"x" * 900_000) for _ in range(30)))
    host, _, port = house.served["http"][0].rpartition(":")
    asks = (
        b"GET /console/records?topic=broken-off&limit=1000&download=jsonl HTTP/1.1\r\nhost: localhost\r\n\r\n"
    )

    def is_full() -> bool:
        answer = http.get("/console/records", params={"topic": "broken-off", "limit": "1", "download": "csv"})
        assert answer.status_code in (200, 503)
        return answer.status_code == 503

    def is_crowded(readers: list[socket.socket]) -> bool:
        reader = socket.create_connection((host, int(port)), 60)
        readers.append(reader)
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.sendall(asks)  # and reads nothing
        return is_full()

    for _ in range(2):
        readers: list[socket.socket] = []
        until(lambda readers=readers: is_crowded(readers))  # type: ignore[misc]
        for each in readers:
            each.close()
        until(lambda: not is_full())


def test_message_pack_is_shown_and_searched(house: BrokerProcess, http: httpx.Client, send: _Sends) -> None:
    msgpack = pytest.importorskip("msgpack")
    make(house, "packed")
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    send("packed", (None, msgpack.packb({"id": 5, "b": b"\xff", "t": ["é"]})), (None, msgpack.packb(deep)))
    send("packed", (None, b"\xdf\xff\xff\xff\xff"), (None, "ߐ text".encode()))
    told = facts(http, "/console/records", topic="packed", order="newer")["records"]
    assert [each["value"]["format"] for each in told] == ["messagepack", "hex", "hex", "text"]
    assert json.loads(told[0]["value"]["text"]) == {"id": 5, "b": {"base64": "/w=="}, "t": ["é"]}
    found = http.get("/console/records.json", params={"topic": "packed", "path": "$.id = 5"}).json()
    assert values(found) == [told[0]["value"]["text"]]
