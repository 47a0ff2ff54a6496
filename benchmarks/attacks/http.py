"""The admin REST and the schema registry: strangers' bodies, guesses, schemas that ask for much."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from contextlib import suppress
from typing import Any

from benchmarks.attacks.attack import Attack
from benchmarks.attacks.kafka import nothing
from benchmarks.attacks.pulsar import chain
from benchmarks.attacks.target import Target
from benchmarks.attacks.wires import Wire

_ASKING = (
    "authenticationEnabled=true",
    "authorizationEnabled=true",
    "superUserRoles=admin",
    "basicAuthConf={data}/users",
)
_VERSIONS = "/subjects/{}/versions"


def asked(port: int, method: str, path: str, body: Any = None, user: str = "") -> tuple[int, bytes]:
    """Ask over HTTP; give status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    headers = {"Content-Type": "application/json"}
    if user:
        headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    return answer.status, said


def bodies(target: Target, _: Any) -> None:
    """100 strangers with 8.3 MB of a body each."""
    lines = (
        "PUT /admin/v2/tenants/t HTTP/1.1",
        "Host: h",
        "Content-Type: application/json",
        "Content-Length: 8380000",
    )
    head = "\r\n".join((*lines, "", "")).encode()
    wires = [Wire(target.http_port) for _ in range(100)]
    for wire in wires:
        wire.send_as_taken(head + b" " * 8_300_000, 0.05)
    time.sleep(2)
    for wire in wires:
        wire.close()


def guesses(target: Target, _: Any) -> str:
    """60 strangers who guess at users; meanwhile somebody logs in who may."""

    def guess(number: int) -> None:
        with suppress(OSError, http.client.HTTPException):
            asked(target.http_port, "GET", "/admin/v2/clusters", user=f"made-up-{number}:wrong")

    threads = [threading.Thread(target=guess, args=(number,)) for number in range(60)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    began = time.monotonic()
    status, _ = asked(target.http_port, "GET", "/admin/v2/clusters", user="admin:secret")
    took = time.monotonic() - began
    for thread in threads:
        thread.join()
    return f"an honest login {took:.2f} s ({status})"


def silent(target: Target, _: Any) -> None:
    """2,000 connections that say nothing, on three ports."""
    wires = []
    for port in (target.http_port, target.registry_port, target.port):
        wires += [Wire(port) for _ in range(700)]
    time.sleep(2)
    for wire in wires:
        wire.close()


def schemas(kind: str, text: str, times: int = 1) -> Any:
    """Register a schema, and see how long a small one of another subject takes beside it."""

    def strike(target: Target, _: Any) -> str:
        said = {"schema": text, "schemaType": kind}
        statuses: list[int] = []

        def register(number: int) -> None:
            statuses.append(asked(target.registry_port, "POST", _VERSIONS.format(f"evil{number}"), said)[0])

        threads = [threading.Thread(target=register, args=(number,)) for number in range(times)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        began = time.monotonic()
        asked(target.registry_port, "POST", _VERSIONS.format("good"), {"schema": '"string"'})
        took = time.monotonic() - began
        for thread in threads:
            thread.join()
        return f"answered {statuses[0]}, a registration beside it {took * 1000:.0f} ms"

    return strike


def json_chain(definitions: int) -> str:
    """Return a JSON Schema in which each definition refers twice to the next."""
    made: dict[str, Any] = {f"d{definitions}": {"type": "string"}}
    for number in range(definitions):
        to = {"$ref": f"#/definitions/d{number + 1}"}
        made[f"d{number}"] = {"type": "object", "properties": {"a": to, "b": to}}
    return json.dumps({"definitions": made, "$ref": "#/definitions/d0"})


def references(count: int) -> Any:
    """A chain of subjects that each name the one before twice, then compatibility and text of the last."""

    def strike(target: Target, _: Any) -> str:
        statuses = set()
        for number in range(count):
            before = [
                {"name": f"{letter}.json", "subject": f"s{number - 1}", "version": 1}
                for letter in "ab"
                if number
            ]
            text = json.dumps(
                {"type": "object", "properties": {r["name"][0]: {"$ref": r["name"]} for r in before}}
            )
            said = {"schema": text, "schemaType": "JSON", "references": before}
            statuses.add(asked(target.registry_port, "POST", _VERSIONS.format(f"s{number}"), said)[0])
            asked(target.registry_port, "GET", f"/subjects/s{number}/versions/1?format=serialized")
        return f"answered {sorted(statuses)}"

    return strike


ATTACKS = (
    Attack("http: 100 strangers' bodies", nothing, bodies, _ASKING),
    Attack("http: 60 guesses", nothing, guesses, _ASKING),
    Attack("http: 2,100 silent connections", nothing, silent),
    Attack("registry: Avro of 40 records", nothing, schemas("AVRO", json.dumps(chain(40)))),
    Attack("registry: Avro of 40 records, 20 times", nothing, schemas("AVRO", json.dumps(chain(40)), 20)),
    Attack("registry: JSON, 40 definitions", nothing, schemas("JSON", json_chain(40))),
    Attack("registry: JSON of 5 MB", nothing, schemas("JSON", json.dumps({"enum": ["x" * 50] * 90_000}))),
    Attack("registry: chain of 22 references", nothing, references(22)),
)
