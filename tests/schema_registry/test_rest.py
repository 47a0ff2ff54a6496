"""The registry's REST API: what is answered, and with which of Confluent's codes something is refused."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.schema_registry.conftest import start

STRING = json.dumps("string")


def record(name: str, *fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


def field(name: str, kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind} | more


ONE = record("R", field("a"))
TWO = record("R", field("a"), field("b", "int", default=7))
CLASH = record("R", field("a"), field("c", "int"))


def register(http: httpx.Client, subject: str, schema: str, **more: Any) -> int:
    answer = http.post(f"/subjects/{subject}/versions", json={"schema": schema} | more)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])


def refused(answer: httpx.Response) -> tuple[int, int]:
    return answer.status_code, answer.json()["error_code"]


def test_versions_and_ids(http: httpx.Client) -> None:
    first, second = register(http, "v", ONE), register(http, "v", TWO)
    assert second > first
    assert register(http, "v", json.dumps(json.loads(ONE), indent=4)) == first
    assert register(http, "v-other", ONE) == first
    assert http.get("/subjects/v/versions").json() == [1, 2]
    latest = http.get("/subjects/v/versions/latest").json()
    assert (latest["subject"], latest["version"], latest["id"]) == ("v", 2, second)
    assert json.loads(latest["schema"]) == json.loads(TWO)
    assert http.get("/subjects/v/versions/-1").json() == latest
    assert json.loads(http.get("/subjects/v/versions/1/schema").text) == json.loads(ONE)
    assert json.loads(http.get(f"/schemas/ids/{first}").json()["schema"]) == json.loads(ONE)
    assert http.get(f"/schemas/ids/{first}/subjects").json() == ["v", "v-other"]
    assert http.get(f"/schemas/ids/{second}/versions").json() == [{"subject": "v", "version": 2}]
    found = http.post("/subjects/v", json={"schema": ONE}).json()
    assert (found["version"], found["id"]) == (1, first)
    assert {"v", "v-other"} <= set(http.get("/subjects").json())
    assert http.get("/subjects", params={"subjectPrefix": "v-"}).json() == ["v-other"]
    assert sorted(http.get("/schemas/types").json()) == ["AVRO", "JSON", "PROTOBUF"]


def test_subjects_with_any_name(http: httpx.Client) -> None:
    schema_id = register(http, "public%2Fother%2Ft-value", ONE)
    assert "public/other/t-value" in http.get("/subjects").json()
    assert http.get("/subjects/public%2Fother%2Ft-value/versions/1").json()["id"] == schema_id


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/subjects/nowhere/versions", None, 404, 40401),
        ("GET", "/subjects/known/versions/9", None, 404, 40402),
        ("GET", "/schemas/ids/99999", None, 404, 40403),
        ("GET", "/subjects/known/versions/0", None, 422, 42202),
        ("GET", "/subjects/known/versions/first", None, 422, 42202),
        ("POST", "/subjects/known/versions", {"schema": "{"}, 422, 42201),
        ("POST", "/subjects/known/versions", {"schema": '{"type": "nothing"}'}, 422, 42201),
        ("POST", "/subjects/known/versions", {"schema": '{"type": "record", "name": "R"}'}, 422, 42201),
        ("POST", "/subjects/known/versions", {"schema": ""}, 422, 42201),
        ("POST", "/subjects/known/versions", {"schema": ONE, "schemaType": "XML"}, 422, 42201),
        ("POST", "/subjects/known/versions", {"schema": "{}{}", "schemaType": "JSON"}, 422, 42201),
        ("POST", "/subjects/known/versions", {"schema": '{"type": 7}', "schemaType": "JSON"}, 422, 42201),
        ("POST", "/subjects/known/versions", {"schema": "message {", "schemaType": "PROTOBUF"}, 422, 42201),
        ("POST", "/subjects/known/versions", {"schema": "\ud800", "schemaType": "PROTOBUF"}, 422, 42201),
        ("POST", "/subjects/%00/versions", {"schema": ONE}, 422, 42208),
        ("POST", "/subjects/known/versions", {"schema": CLASH}, 409, 409),
        ("POST", "/subjects/nowhere", {"schema": ONE}, 404, 40401),
        ("POST", "/subjects/known", {"schema": CLASH}, 404, 40403),
        ("POST", "/compatibility/subjects/nowhere/versions/1", {"schema": ONE}, 404, 40401),
        ("PUT", "/config/known", {"compatibility": "BACKWARDS"}, 422, 42203),
        ("PUT", "/mode/known", {"mode": "READ"}, 422, 42204),
        ("GET", "/config/nowhere", None, 404, 40408),
        ("GET", "/mode/nowhere", None, 404, 40409),
        ("DELETE", "/subjects/nowhere", None, 404, 40401),
        ("POST", "/subjects/known/versions", [1], 422, 422),
        (
            "POST",
            "/subjects/x/versions",
            {"schemaType": "JSON", "schema": '{"$schema": "http://x]"}'},
            422,
            42201,
        ),
        ("PATCH", "/subjects", None, 405, 405),
        ("GET", "/nothing", None, 404, 404),
    ],
)
def test_refusals(http: httpx.Client, method: str, path: str, body: Any, status: int, code: int) -> None:
    register(http, "known", ONE)
    content = None if body is None else json.dumps(body)
    assert refused(http.request(method, path, content=content)) == (status, code)


def test_broken_bodies_are_refused(http: httpx.Client) -> None:
    for content in (b"", b"{", b"\xff\xfe", b"[" * 100_000):
        assert http.post("/subjects/broken/versions", content=content).status_code in (400, 422)
    assert http.post("/subjects/broken/versions", content=b" " * (9 << 20)).status_code == 413
    deep = '{"type":"array","items":' * 2000 + '"int"' + "}" * 2000
    assert http.post("/subjects/broken/versions", json={"schema": deep}).status_code == 422
    assert "broken" not in http.get("/subjects").json()


def test_deletion_is_soft_then_hard_and_ids_are_never_used_again(http: httpx.Client) -> None:
    only = record("OnlyHere", field("x"))
    first = register(http, "d", only)
    register(http, "d", record("OnlyHere", field("x"), field("y", "int", default=1)))
    assert refused(http.delete("/subjects/d/versions/1", params={"permanent": True})) == (404, 40407)
    assert http.delete("/subjects/d/versions/1").json() == 1
    assert refused(http.delete("/subjects/d/versions/1")) == (404, 40406)
    assert http.get("/subjects/d/versions").json() == [2]
    assert http.get("/subjects/d/versions", params={"deleted": True}).json() == [1, 2]
    assert http.get(f"/schemas/ids/{first}").status_code == 200, (
        "records written with it are still to be read"
    )
    assert http.delete("/subjects/d/versions/1", params={"permanent": True}).json() == 1
    assert refused(http.get(f"/schemas/ids/{first}")) == (404, 40403)
    assert refused(http.delete("/subjects/d", params={"permanent": True})) == (404, 40405)
    assert http.delete("/subjects/d").json() == [2]
    assert refused(http.delete("/subjects/d")) == (404, 40404)
    assert "d" not in http.get("/subjects").json()
    assert "d" in http.get("/subjects", params={"deleted": True}).json()
    assert http.delete("/subjects/d", params={"permanent": True}).json() == [2]
    assert refused(http.get("/subjects/d/versions", params={"deleted": True})) == (404, 40401)
    assert register(http, "d", only) > first + 1


@pytest.mark.parametrize(
    ("level", "old", "new", "fits"),
    [
        ("BACKWARD", ONE, TWO, True),
        ("BACKWARD", ONE, CLASH, False),
        ("FORWARD", ONE, CLASH, True),
        ("FORWARD", TWO, record("R", field("b", "int")), False),
        ("FULL", ONE, TWO, True),
        ("FULL", ONE, CLASH, False),
        ("NONE", ONE, STRING, True),
    ],
)
def test_levels(http: httpx.Client, level: str, old: str, new: str, fits: bool) -> None:
    subject = f"level-{level}-{hash((old, new))}"
    register(http, subject, old)
    assert http.put(f"/config/{subject}", json={"compatibility": level}).json() == {"compatibility": level}
    assert http.get(f"/config/{subject}").json() == {"compatibilityLevel": level}
    path = f"/compatibility/subjects/{subject}/versions/latest"
    said = http.post(path, json={"schema": new}, params={"verbose": True}).json()
    assert said["is_compatible"] is fits
    assert bool(said["messages"]) is not fits
    status = http.post(f"/subjects/{subject}/versions", json={"schema": new}).status_code
    assert status == (200 if fits else 409)


def test_transitive_levels_look_at_all_versions(http: httpx.Client) -> None:
    http.put("/config/trans", json={"compatibility": "BACKWARD"})
    register(http, "trans", record("R", field("a", "int")))
    register(http, "trans", record("R", field("a", "int"), field("b", "int", default=1)))
    register(http, "trans", record("R", field("b", "int")))
    third = record("R", field("b", "int"), field("a", "string", default=""))
    path = "/compatibility/subjects/trans/versions"
    assert http.post(path, json={"schema": third}).json() == {"is_compatible": True}
    http.put("/config/trans", json={"compatibility": "BACKWARD_TRANSITIVE"})
    assert http.post(path, json={"schema": third}).json() == {"is_compatible": False}
    assert http.delete("/config/trans").json() == {"compatibilityLevel": "BACKWARD_TRANSITIVE"}
    assert http.get("/config/trans", params={"defaultToGlobal": True}).json() == http.get("/config").json()


def test_references(http: httpx.Client) -> None:
    town = json.dumps({"type": "record", "name": "Town", "namespace": "x", "fields": [field("name")]})
    person = json.dumps(
        {"type": "record", "name": "Person", "namespace": "x", "fields": [field("home", "x.Town")]}
    )
    reference = {"name": "x.Town", "subject": "town", "version": 1}
    assert refused(http.post("/subjects/person/versions", json={"schema": person})) == (422, 42201)
    missing = {"schema": person, "references": [reference]}
    assert refused(http.post("/subjects/person/versions", json=missing)) == (422, 42201)
    register(http, "town", town)
    schema_id = register(http, "person", person, references=[reference])
    assert http.get(f"/schemas/ids/{schema_id}").json()["references"] == [reference]
    assert http.get("/subjects/town/versions/1/referencedby").json() == [schema_id]
    assert refused(http.delete("/subjects/town/versions/1")) == (422, 42206)


def test_modes(http: httpx.Client) -> None:
    register(http, "m", ONE)
    assert http.put("/mode/m", json={"mode": "READONLY"}).json() == {"mode": "READONLY"}
    assert refused(http.post("/subjects/m/versions", json={"schema": TWO})) == (422, 42205)
    assert refused(http.delete("/subjects/m")) == (422, 42205)
    assert register(http, "m", ONE), "what is there already is found"
    assert http.delete("/mode/m").json() == {"mode": "READONLY"}
    register(http, "m", TWO)
    assert refused(http.put("/mode/m", json={"mode": "IMPORT"})) == (422, 42205)
    http.put("/mode/imported", json={"mode": "IMPORT"})
    assert refused(http.post("/subjects/imported/versions", json={"schema": ONE})) == (422, 42205)
    body = {"schema": record("Imported", field("z")), "id": 5000, "version": 3}
    assert http.post("/subjects/imported/versions", json=body).json()["id"] == 5000
    assert http.get("/subjects/imported/versions").json() == [3]
    clash = {"schema": record("Other", field("z")), "id": 5000}
    assert refused(http.post("/subjects/imported/versions", json=clash)) == (422, 42205)
    assert register(http, "after-import", record("After", field("z"))) > 5000


PROTO = 'syntax = "proto3"; message M { string a = 1; int32 b = 2; }'


@pytest.mark.parametrize(
    ("new", "fits"),
    [
        ('syntax = "proto3"; message M { string other = 1; int64 b = 2; repeated double c = 3; }', True),
        ('syntax = "proto3"; message M { string a = 1; }', True),
        ('syntax = "proto3"; message M { string a = 1; string b = 2; }', False),
        ('syntax = "proto3"; message N { string a = 1; int32 b = 2; }', False),
        ('syntax = "proto3"; message M { repeated string a = 1; repeated int32 b = 2; }', False),
        ('syntax = "proto3"; message M { oneof x { string a = 1; int32 b = 2; } }', False),
    ],
)
def test_protobuf_compatibility(http: httpx.Client, new: str, fits: bool) -> None:
    register(http, "proto", PROTO, schemaType="PROTOBUF")
    said = http.post(
        "/compatibility/subjects/proto/versions/latest", json={"schema": new, "schemaType": "PROTOBUF"}
    )
    assert said.json() == {"is_compatible": fits}


def of(closed: bool = False, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": properties, "required": list(required)}
    return made | ({"additionalProperties": False} if closed else {})


TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        (of(a=WHOLE), of(a=NUMBER), True),
        (of(a=NUMBER), of(a=WHOLE), False),
        (of(a=TEXT), of(a=TEXT, b=TEXT), False),
        (of(True, a=TEXT), of(True, a=TEXT, b=TEXT), True),
        (of(True, a=TEXT, b=TEXT), of(True, a=TEXT), False),
        (of(a=TEXT, b=TEXT), of(a=TEXT), True),
        (of(True, a=TEXT), of(True, ("b",), a=TEXT, b=TEXT), False),
        (of(True, a=TEXT), of(True, ("b",), a=TEXT, b=TEXT | {"default": ""}), True),
        (of(required=("a",), a=TEXT), of(a=TEXT), True),
        ({"enum": [1, 2]}, {"enum": [1, 2, 3]}, True),
        ({"enum": [1, 2]}, {"enum": [1]}, False),
        (TEXT | {"maxLength": 5}, TEXT | {"maxLength": 9}, True),
        (TEXT | {"maxLength": 5}, TEXT | {"maxLength": 4}, False),
        (TEXT, {"oneOf": [TEXT, WHOLE]}, True),
        ({"oneOf": [TEXT, WHOLE]}, TEXT, False),
        ({"type": "array", "items": WHOLE}, {"type": "array", "items": TEXT}, False),
        ({"type": ["string", "null"]}, TEXT, False),
        (TEXT, {"type": ["string", "null"]}, True),
    ],
)
def test_json_compatibility(http: httpx.Client, old: Any, new: Any, fits: bool) -> None:
    subject = f"json-{abs(hash(json.dumps([old, new])))}"
    register(http, subject, json.dumps(old), schemaType="JSON")
    said = http.post(
        f"/compatibility/subjects/{subject}/versions/latest",
        json={"schema": json.dumps(new), "schemaType": "JSON"},
        params={"verbose": True},
    ).json()
    assert said["is_compatible"] is fits, said


@pytest.mark.parametrize(
    ("server", "request_line"),
    [("schema-registry", "POST /subjects/s/versions"), ("http", "PUT /admin/v2/tenants/t")],
)
def test_a_client_that_leaves_amid_its_request_leaves_one_line(
    tmp_path: Path, server: str, request_line: str
) -> None:
    with start(tmp_path / "data", "--http", "127.0.0.1:0") as process:
        address = process.served[server][0]
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(f"{request_line} HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{{".encode())
        assert httpx.get(f"http://{address}/nowhere").status_code == 404
        process.end()
        told = [line for line in process.log_lines() if "the client left" in line]
        assert len(told) == 1
        assert request_line in told[0]
        assert not any("Traceback" in line for line in process.log_lines())


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", f"/subjects/low/versions/{'7' * 5000}", None, 422),
        ("GET", f"/subjects/low/versions/-{'7' * 5000}", None, 422),
        ("GET", "/subjects/low/versions/٣", None, 422),
        ("GET", f"/schemas/ids/{'7' * 5000}", None, 404),
        ("GET", f"/subjects?offset={'7' * 5000}", None, 400),
        ("POST", "/subjects/low/versions", {"schema": ONE, "id": "seven"}, 422),
        ("POST", "/subjects/low/versions", {"schema": ONE, "id": 1 << 70}, 422),
        ("POST", "/subjects/low/versions", {"schema": ONE, "version": [1]}, 422),
        ("POST", "/subjects/low/versions", {"schema": ONE, "references": 7}, 422),
        ("POST", "/subjects/low/versions", {"schema": ONE, "references": {"name": "x"}}, 422),
        *(
            (
                "POST",
                "/subjects/low/versions",
                {"schema": PROTO, "schemaType": "PROTOBUF", "references": [each]},
                422,
            )
            for each in (
                {"name": ".", "subject": "low", "version": 1},
                {"name": "", "subject": "low", "version": 1},
                {"name": "a\0b", "subject": "low", "version": 1},
                {"name": "a" * 5000, "subject": "low", "version": 1},
                {"name": "x", "subject": "low", "version": float("inf")},
                {"name": "x", "subject": "low", "version": "7" * 5000},
                {"name": "x", "subject": "low", "version": True},
            )
        ),
    ],
)
def test_what_is_out_of_all_bounds_is_the_clients_fault(
    http: httpx.Client, method: str, path: str, body: Any, status: int
) -> None:
    register(http, "low", ONE)
    content = None if body is None else json.dumps(body)
    assert http.request(method, path, content=content).status_code == status


def test_a_schema_outlives_one_of_its_subjects(http: httpx.Client) -> None:
    shared = record("Shared", field("x"))
    schema_id = register(http, "goes", shared)
    assert register(http, "stays", shared) == schema_id
    assert http.delete("/subjects/goes").json() == [1]
    assert http.delete("/subjects/goes", params={"permanent": True}).json() == [1]
    assert http.get(f"/schemas/ids/{schema_id}").status_code == 200
    assert http.get("/subjects/stays/versions/1").json()["id"] == schema_id
