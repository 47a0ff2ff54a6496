"""Damaged requests and schemas: whatever comes, the answer is the client's fault, memory stays flat, nothing is logged.

``MAGNETAR_REGISTRY_REQUESTS`` says how many there are (default 400).
"""

from __future__ import annotations

import base64
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from google.protobuf import descriptor_pb2

from tests.process import BrokerProcess
from tests.schema_registry.conftest import registry_url, start
from tests.schema_registry.test_avro_work import chain
from tests.schema_registry.test_work import json_chain

REQUESTS = int(os.environ.get("MAGNETAR_REGISTRY_REQUESTS", "400"))
_PROTOC_EVERY = 400  # a process each time
_ODD: tuple[Any, ...] = (
    None, True, 0, -1, 7, 2**31, 2**70, 1e308, float("inf"), "", "x", "7" * 5000, "\0", "\ud800", ".", "../x", [], {},
    {"name": 7}, [{"name": "x", "subject": "s0", "version": 1}], [{"name": "x", "subject": "s0", "version": 1}] * 50,
)  # fmt: skip
_AVRO = json.dumps(
    {"type": "record", "name": "n.R", "aliases": ["Q"], "fields": [
        {"name": "a", "type": ["null", "n.R"], "default": None}, {"name": "e", "type": {"type": "enum", "name": "E",
         "symbols": ["X"], "default": "X"}}, {"name": "f", "type": {"type": "fixed", "name": "F", "size": 4}},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "bytes", "logicalType": "decimal",
         "precision": 4, "scale": 2}}}]}
)  # fmt: skip
_JSON = json.dumps(
    {"$schema": "http://json-schema.org/draft-07/schema#", "type": ["object", "null"], "required": ["a"],
     "properties": {"a": {"$ref": "#/definitions/x"}, "b": {"oneOf": [{"const": 1}, {"enum": ["x", None]}]},
                    "c": {"items": [{"minLength": 1, "pattern": "^a+$"}], "additionalItems": False}},
     "definitions": {"x": {"not": {"multipleOf": 3}}}, "dependencies": {"a": ["b"]}, "patternProperties": {"^S": True}}
)  # fmt: skip


def _descriptor() -> str:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="p", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="M")
    message.field.add(name="t", number=1, type=11, label=1, type_name=".google.protobuf.Timestamp")
    message.field.add(name="n", number=2, type=5, label=3)
    return base64.b64encode(file.SerializeToString()).decode()


def _bitten(dice: random.Random, text: str) -> str:
    """Return a text with a few characters lost, doubled, or otherwise."""
    for _ in range(dice.randrange(1, 5)):
        at = dice.randrange(len(text) + 1)
        text = dice.choice(
            (
                text[:at] + text[at + 1 :],
                text[:at] + dice.choice('{}[]",:0a\\$#/\0é') + text[at + 1 :],
                text[:at] + text[at : at + 40] * 2 + text[at + 40 :],
                text[:at],
            )
        )
    return text


def _twisted(dice: random.Random, node: Any) -> Any:
    """Return JSON with one of its values something else."""
    if isinstance(node, dict) and node and dice.randrange(4):
        name = dice.choice(list(node))
        return node | {name: _twisted(dice, node[name])}
    if isinstance(node, list) and node and dice.randrange(4):
        at = dice.randrange(len(node))
        return [*node[:at], _twisted(dice, node[at]), *node[at + 1 :]]
    return dice.choice((*_ODD, "n.R", "string", node, [node], {"type": node}, {"$ref": "#"}))


def _schema(dice: random.Random, number: int) -> tuple[str, str]:
    kind = dice.choice(("AVRO", "AVRO", "JSON", "JSON", "PROTOBUF"))
    if kind == "PROTOBUF":
        if number % _PROTOC_EVERY == 0:
            return kind, _bitten(
                dice, 'syntax = "proto3"; import "x"; message M { oneof o { string a = 1; M b = 2; } }'
            )
        good = base64.b64decode(_descriptor())
        at = dice.randrange(len(good))
        bad = good[:at] + bytes([dice.randrange(256)]) + good[at + dice.randrange(3) :]
        # What is no descriptor is taken for a text, and given to protoc.
        try:
            file = descriptor_pb2.FileDescriptorProto.FromString(bad)
        except Exception:
            return kind, _descriptor()
        is_one = file.message_type or file.enum_type or file.dependency
        return kind, base64.b64encode(bad).decode() if is_one else _descriptor()
    text = _AVRO if kind == "AVRO" else _JSON
    how = dice.randrange(12)
    if how == 0:
        heavy = chain(dice.randrange(30)) if kind == "AVRO" else json.loads(json_chain(dice.randrange(30)))
        return kind, json.dumps(heavy)
    if how == 1:
        deep = dice.randrange(2, 3_000)
        return kind, '{"type":"array","items":' * deep + '"int"' + "}" * deep
    if how < 5:
        return kind, _bitten(dice, text)
    content = json.loads(text)
    for _ in range(dice.randrange(1, 4)):
        content = _twisted(dice, content)
    return kind, json.dumps(content)


def _requests(dice: random.Random, count: int) -> Iterator[tuple[str, str, bytes]]:
    ends = (
        "",
        "/versions",
        "/versions/1",
        "/versions/latest",
        "/versions/latest/schema",
        "/versions/1/referencedby",
    )
    for number in range(count):
        subject = quote(
            dice.choice((*(f"s{n}" for n in range(20)), "", "\0", "a/b", ":.x:y", "é" * 300)), safe=""
        )
        kind, text = _schema(dice, number)
        body: Any = {"schema": text, "schemaType": kind}
        if dice.randrange(3) == 0:
            body[dice.choice(("schema", "schemaType", "references", "id", "version"))] = dice.choice(_ODD)
        content = json.dumps(body).encode()
        if dice.randrange(10) == 0:
            content = _bitten(dice, content.decode()).encode("utf-8", "surrogatepass")
        if dice.randrange(4):
            path = dice.choice(("/subjects/{}/versions", "/compatibility/subjects/{}/versions/latest?verbose=true",
                                "/subjects/{}", "/compatibility/subjects/{}/versions"))  # fmt: skip
            yield "POST", path.format(subject), content
        else:
            root = dice.choice(
                ("/subjects/{}", "/config/{}", "/mode/{}", "/schemas/ids/{}", "/schemas/{}", "/{}")
            )
            asked = dice.choice(
                ("", "?deleted=true", "?permanent=true", "?offset=x", "?limit=-9", "?format=serialized")
            )
            level = {"compatibility": dice.choice(("FULL", "NONE", "BACKWARD_TRANSITIVE", *_ODD))}
            content = dice.choice((content, json.dumps(level).encode()))
            yield (
                dice.choice(("GET", "GET", "PUT", "DELETE", "PATCH")),
                root.format(subject) + dice.choice(ends) + asked,
                content,
            )


def test_damaged_requests_leave_no_trace(tmp_path: Path) -> None:
    dice = random.Random(REQUESTS)
    told: Counter[int] = Counter()
    with start(tmp_path / "data", "--set", "flush=os") as process:
        sizes = []
        with httpx.Client(base_url=registry_url(process), timeout=60) as http:
            for number, (method, path, content) in enumerate(_requests(dice, REQUESTS)):
                answer = http.request(method, path, content=content)
                told[answer.status_code] += 1
                assert answer.status_code < 500, (method, path, content[:3000], answer.text)
                if number % max(REQUESTS // 20, 1) == 0:
                    sizes.append(_resident(process))
        print(f"{REQUESTS} requests: {dict(sorted(told.items()))}; resident MB {sizes}")
        process.end()
        assert not [line for line in process.log_lines() if "Traceback" in line or "ERROR" in line]
    assert told[200] > REQUESTS // 100
    assert told[422] > REQUESTS // 20
    assert sizes[-1] < sizes[len(sizes) // 4] + 64


def _resident(process: BrokerProcess) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024
