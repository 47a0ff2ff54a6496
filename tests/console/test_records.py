"""Records as pages show them: every encoding that clients use, and bytes that are none; searches that are stopped."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pulsar
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from magnetar.console.decoding import RegistrySchema, shown
from tests.console.test_pages import BIDI, ESCAPE, SCRIPT, check_harmless, facts, make, page
from tests.process import BrokerProcess

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
}
HOSTILE = (
    SCRIPT.encode(),
    BIDI.encode(),
    ESCAPE.encode(),
    b"\xff\xfe\x00broken",
    b'"><img src=x onerror=alert(1)>',
)


@dataclass
class _Sends:
    house: BrokerProcess

    def __call__(self, topic: str, *rows: tuple[Any, Any], **more: Any) -> None:
        producer = Producer({"bootstrap.servers": self.house.address, **more.pop("settings", {})})
        for key, value in rows:
            producer.produce(topic, value, key, **more)
        assert producer.flush(60) == 0


@pytest.fixture
def send(house: BrokerProcess) -> _Sends:
    return _Sends(house)


def values(told: Any) -> list[str]:
    return [each["value"]["text"] for each in told["records"]]


def test_the_newest_come_first_and_older_ones_by_a_link(
    house: BrokerProcess, http: httpx.Client, send: _Sends
) -> None:
    make(house, "pages", partitions=3)
    for partition in range(3):
        for number in range(40):
            send(
                "pages",
                (None, f"{partition}-{number}"),
                partition=partition,
                timestamp=1_000_000 + 10 * number + partition,
            )
    seen: list[str] = []
    at = ""
    while True:
        told = facts(http, "/console/records", topic="pages", limit="25", at=at)
        assert len(told["records"]) <= 25
        times = [each["timestamp"] for each in told["records"]]
        assert times == sorted(times, reverse=True)
        seen += values(told)
        if told["is_end"]:
            break
        at = told["goes_on"]
    assert seen == [f"{partition}-{number}" for number in reversed(range(40)) for partition in (2, 1, 0)]
    text = page(http, "/console/records", topic="pages", limit="25")
    assert "Older" in text
    assert "order=older" in text


def test_from_an_offset_and_from_a_time(house: BrokerProcess, http: httpx.Client, send: _Sends) -> None:
    make(house, "times")
    for number in range(10):
        send("times", (None, str(number)), timestamp=1_700_000_000_000 + 1000 * number)
    assert values(facts(http, "/console/records", topic="times", offset="7", partition="0")) == [
        "7",
        "8",
        "9",
    ]
    assert values(facts(http, "/console/records", topic="times", time="1700000008000")) == ["8", "9"]
    assert values(facts(http, "/console/records", topic="times", time="2023-11-14T22:13:29Z")) == ["9"]
    assert values(facts(http, "/console/records", topic="times", time="2040-01-01")) == []
    assert values(facts(http, "/console/records", topic="times", order="newer", limit="2")) == ["0", "1"]
    assert values(facts(http, "/console/records", topic="times", order="newer", until="1700000002000")) == [
        "0",
        "1",
    ]
    for query in (
        {"time": "soon"},
        {"at": "x"},
        {"at": "0-1..2"},
        {"order": "up"},
        {"offset": "a"},
        {"partition": "a"},
    ):
        assert http.get("/console/records.json", params={"topic": "times", **query}).status_code == 400


def test_nothing_that_is_in_a_record_hides_it_or_runs(
    house: BrokerProcess, http: httpx.Client, send: _Sends
) -> None:
    make(house, "hostile")
    for data in HOSTILE:
        send("hostile", (data, data), headers=[(data.decode("latin-1"), data), ("null", None)])
    send(
        "hostile",
        (None, None),
        (b"", b""),
        (b"k", b"x" * 900_000),
    )
    for query in ({}, {"as": "hex"}, {"as": "text"}, {"text": "alert"}):
        answer = http.get("/console/records", params={"topic": "hostile", **query})
        assert answer.status_code == 200, answer.text
        check_harmless(answer)
    told = facts(http, "/console/records", topic="hostile")
    assert len(told["records"]) == len(HOSTILE) + 3
    formats = {each["offset"]: each["value"]["format"] for each in told["records"]}
    assert formats[3] == "hex"
    assert formats[5] == "null"
    large = told["records"][0]["value"]
    assert (large["size"], large["cut"]) == (900_000, True)
    for offset in range(len(HOSTILE) + 3):
        page(http, "/console/record", topic="hostile", partition="0", offset=str(offset))
    told = facts(http, "/console/record", topic="hostile", partition="0", offset="1")
    assert told["record"]["value"]["text"] == BIDI
    assert told["explained"]["ledger"] >= 0
    assert http.get("/console/record.json", params={"topic": "hostile", "offset": "99"}).status_code == 404


def test_values_are_read_by_the_schema_they_were_written_with(
    house: BrokerProcess, http: httpx.Client, send: _Sends
) -> None:
    make(house, "schemas")
    registry = SchemaRegistryClient({"url": f"http://{house.served['schema-registry'][0]}"})
    where = SerializationContext("schemas", MessageField.VALUE)
    avro = AvroSerializer(registry, json.dumps(AVRO), conf={"auto.register.schemas": True})
    send("schemas", (b"1", avro({"id": 7, "note": SCRIPT}, where)))
    avro_id = registry.get_latest_version("schemas-value").schema_id
    as_json = json.dumps({"title": "O", "type": "object", "properties": {"id": {"type": "integer"}}})
    registry.set_compatibility("schemas-value", "NONE")
    send("schemas", (b"2", JSONSerializer(as_json, registry)({"id": 8}, where)))
    proto = 'syntax = "proto3"; message Order { int64 id = 1; string note = 2; }'
    proto_id = registry.register_schema("protos-value", Schema(proto, "PROTOBUF"))
    send("schemas", (b"3", struct.pack(">bIb", 0, proto_id, 0) + b"\x08\x09\x12\x02ok"))
    send("schemas", (b"4", struct.pack(">bI", 0, avro_id) + b"\xff\xff\xff"))
    send("schemas", (b"5", struct.pack(">bI", 0, 99_999) + b"no such schema"))
    told = {
        each["key"]["text"]: each["value"]
        for each in facts(http, "/console/records", topic="schemas")["records"]
    }
    assert json.loads(told["1"]["text"]) == {"id": 7, "note": SCRIPT}
    assert (told["1"]["format"], told["1"]["schema"]) == ("avro", f"id {avro_id}")
    assert (told["2"]["format"], json.loads(told["2"]["text"])) == ("json", {"id": 8})
    assert (told["3"]["format"], json.loads(told["3"]["text"])) == ("protobuf", {"id": "9", "note": "ok"})
    assert told["4"]["format"] == "hex"
    assert told["4"]["problem"]
    assert (told["5"]["format"], told["5"]["problem"]) == ("hex", "")
    page(http, "/console/records", topic="schemas")


@pytest.fixture
def client(house: BrokerProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(house.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


def test_messages_of_pulsar_producers(http: httpx.Client, client: pulsar.Client) -> None:
    class Order(pulsar.schema.Record):
        id = pulsar.schema.Integer()
        note = pulsar.schema.String()

    for name, schema, value in (
        ("p-avro", pulsar.schema.AvroSchema(Order), Order(id=1, note="a")),
        ("p-json", pulsar.schema.JsonSchema(Order), Order(id=1, note="a")),
        ("p-string", pulsar.schema.StringSchema(), "words"),
    ):
        producer = client.create_producer(
            f"persistent://public/default/{name}", schema=schema, producer_name=f"{name} {BIDI}"
        )
        producer.send(value, partition_key="key", properties={"p": "q"})
    (avro,) = facts(http, "/console/records", topic="p-avro")["records"]
    assert (avro["value"]["format"], json.loads(avro["value"]["text"])) == ("avro", {"id": 1, "note": "a"})
    assert avro["value"]["schema"] == "Avro of the topic"
    assert avro["key"]["text"] == "key"
    assert avro["headers"][0]["key"] == "p"
    (plain,) = facts(http, "/console/records", topic="p-json")["records"]
    assert json.loads(plain["value"]["text"]) == {"id": 1, "note": "a"}
    (words,) = facts(http, "/console/records", topic="p-string")["records"]
    assert (words["value"]["format"], words["value"]["text"]) == ("text", "words")
    told = facts(http, "/console/record", topic="p-avro", offset="0")
    assert told["explained"]["message"]["producer_name"].startswith("p-avro")
    page(http, "/console/record", topic="p-avro", offset="0")


def test_a_search_finds_by_key_text_and_header_in_every_codec(
    house: BrokerProcess, http: httpx.Client, send: _Sends
) -> None:
    make(house, "search", partitions=2)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        rows = [(f"k{each}".encode(), f"value {number} {each}".encode()) for each in range(50)]
        send("search", *rows, settings={"compression.type": codec, "linger.ms": 50}, partition=number % 2)
    send("search", (b"k7", b"with a header"), headers=[("trace", b"needle")])
    found = facts(http, "/console/records", topic="search", key="k7")
    assert sorted(values(found)) == sorted([*(f"value {number} 7" for number in range(5)), "with a header"])
    assert found["is_end"]
    assert found["read_records"] == 251
    assert values(facts(http, "/console/records", topic="search", text="needle")) == ["with a header"]
    assert values(facts(http, "/console/records", topic="search", text="value 3 49")) == ["value 3 49"]
    assert values(facts(http, "/console/records", topic="search", text="nothing has this")) == []
    assert "None of them is one" in page(http, "/console/records", topic="search", text="nothing has this")


def test_a_search_that_is_stopped_goes_on_and_misses_nothing(
    house: BrokerProcess, http: httpx.Client, send: _Sends
) -> None:
    make(house, "large")
    rows = [
        (f"k{number}".encode(), b"%d:" % number + bytes([97 + number % 26]) * 900_000)
        for number in range(150)
    ]
    send("large", *rows, settings={"queue.buffering.max.messages": 1000})
    for order in ("older", "newer"):
        found: list[str] = []
        stops, at = 0, ""
        while True:
            told = facts(http, "/console/records", topic="large", text="7:", order=order, at=at)
            found += [each["key"]["text"] for each in told["records"]]
            assert told["read_bytes"] < 100 << 20
            if told["is_end"]:
                break
            stops += 1
            at = told["goes_on"]
        wanted = [f"k{number}" for number in range(150) if number % 10 == 7]
        assert found == (wanted if order == "newer" else wanted[::-1])
        assert stops >= 1


def test_transactions_are_shown_with_their_outcome(house: BrokerProcess, http: httpx.Client) -> None:
    make(house, "outcomes")
    producer = Producer({"bootstrap.servers": house.address, "transactional.id": "console"})
    producer.init_transactions(60)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce("outcomes", end.__name__)
        producer.flush(60)
        end(60)
    producer.begin_transaction()
    producer.produce("outcomes", "open")
    producer.flush(60)
    states = {
        each["value"]["text"]: each["state"]
        for each in facts(http, "/console/records", topic="outcomes")["records"]
    }
    assert states["abort_transaction"] == "aborted"
    assert states["commit_transaction"] == ""
    assert states["open"] == "undecided"
    assert list(states.values()).count("marker") >= 1
    producer.abort_transaction(60)


def test_records_are_downloaded_as_lines_that_can_be_produced_again(
    house: BrokerProcess, http: httpx.Client, send: _Sends
) -> None:
    make(house, "lines")
    send("lines", (b"k", b"v"), (None, b"\xff"), (b"n", None), headers=[("h", b"1")])
    answer = http.get("/console/records", params={"topic": "lines", "order": "newer", "download": "jsonl"})
    assert answer.headers["content-disposition"] == 'attachment; filename="records.jsonl"'
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [each["value"] for each in rows] == ["v", {"base64": "/w=="}, None]
    assert rows[0]["headers"] == [{"key": "h", "value": "1"}]


NULLS = {"type": "record", "name": "N", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}
DEEP = {"type": "record", "name": "D", "fields": [{"name": "d", "type": ["null", "D"]}]}


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (NULLS, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"),
        (DEEP, b"\x02" * 100_000 + b"\x00"),
        (AVRO, b"\x02"),
        ({"type": "nonsense"}, b"\x02"),
    ],
)
def test_schemas_and_records_that_ask_for_much_get_nothing(schema: Any, data: bytes) -> None:
    written = {1: RegistrySchema("id 1", "AVRO", json.dumps(schema))}
    told = shown(struct.pack(">bI", 0, 1) + data, written)
    assert told.format in ("hex", "text")
    assert told.problem
