"""The admin REST, the console and the schema registry: every path of their tables, asked of the applications without a
socket."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Iterator
from functools import cache, partial
from typing import Any
from urllib.parse import quote, urlencode

from magnetar.console.actions.action import ConsoleAction
from magnetar.console.actions.forms import login_of
from magnetar.console.actions.table import ACTIONS
from magnetar.console.app import make_console
from magnetar.console.table import PAGES
from magnetar.pulsar.rest.app import make_app
from magnetar.pulsar.rest.request import Address
from magnetar.pulsar.rest.routes import ROUTES
from magnetar.schema_registry import endpoints
from magnetar.schema_registry.app import App
from tests.security.matrix.asking import Ask, Outcome
from tests.security.matrix.house import IDS_OF_RED, Asker, House

_VALUE = re.compile(r"\{(\w+)(?::\w+)?\}")
_SCHEMA = {"type": "record", "name": "R", "fields": []}
VALUES = {
    "namespace": "default",
    "topic": "ruby",
    "subscription": "readers",
    "cluster": "standalone",
    "role": "bob",
    "bundle": "0x00000000_0xffffffff",
    "seconds": "86400",
    "timestamp": "0",
    "key": "colour",
    "name": "log.retention.ms",
    "value": "60000",
    "count": "1",
    "position": "1",
    "ledger": "0",
    "entry": "0",
    "version": "0",
    "most": "0",
    "least": "2",
    "coordinator": "0",
    "timeout": "0",
    "bookie": "bookie-1:3181",
}
_BODIES = {
    "partitions": b"2",
    "properties": b'{"colour":"blue"}',
    "schema": json.dumps({"type": "AVRO", "schema": json.dumps(_SCHEMA)}).encode(),
    "compatibility": json.dumps({"type": "AVRO", "schema": json.dumps(_SCHEMA)}).encode(),
    "version": json.dumps({"type": "AVRO", "schema": json.dumps(_SCHEMA)}).encode(),
    "permissions": b'["consume"]',
    "{role}": b'["consume"]',
    "retention": b'{"retentionTimeInMinutes":1,"retentionSizeInMB":1}',
    "messageTTL": b"60",
    "deduplication": b"true",
    "{bookie}": b'{"rack":"/rack-1"}',
    "{tenant}": b'{"adminRoles":["bob"],"allowedClusters":["standalone"]}',
}
"""What is sent to paths that end so; to others an empty object."""
_HERE = Address("pulsar://127.0.0.1:6650", "", "http://127.0.0.1:8080", "")


def rest_paths() -> Iterator[tuple[str, Ask, Ask]]:
    """Yield every route of the admin REST with a way to ask it about red's things, and one about blue's namesakes."""
    for route in ROUTES:
        body = b""
        if route.method in ("PUT", "POST"):
            body = _BODIES.get(route.full_path.rpartition("/")[2], b"{}")
        of_red, of_blue = (
            partial(_rest, route.method, _filled(route.full_path, VALUES | {"tenant": tenant}), body)
            for tenant in ("red", "blue")
        )
        yield f"{route.method} {_plain(route.full_path)}", of_red, of_blue


async def _rest(method: str, path: str, body: bytes, house: House, asker: Asker) -> tuple[Outcome, bytes]:
    headers = [(b"authorization", b"Bearer " + asker.proof.encode())] if asker.proof else []
    _asked.house = house
    return _outcome(*await _call(_rest_app(), method, path, headers, body))


class _Asked:
    """The services of the house that is asked now: one application, which takes a while to make, does for all."""

    house: House

    def __getattr__(self, name: str) -> Any:
        return getattr(self.house.pulsar.services, name)


_asked = _Asked()


@cache
def _rest_app() -> Any:
    return make_app(_asked, lambda: _HERE)  # type: ignore[arg-type]


def console_paths() -> Iterator[tuple[str, Ask]]:
    """Yield every page of the console, as HTML and as JSON, asked about red's things by their names."""
    query = urlencode(
        {
            "topic": "red/default/ruby",
            "tenant": "red",
            "group": "readers",
            "transaction": IDS_OF_RED[0],
            "subject": "red/default/ruby-value",
            "partition": "0",
            "offset": "0",
        }
    )
    for page in PAGES:
        for name in (page.name, f"{page.name or 'overview'}.json"):
            path = f"/console/{name}".rstrip("/")
            way = f"GET {path}?topic=red/default/ruby" if page.of_topic else f"GET {path}"
            yield way, partial(_console, path, query)


_FORMS = {
    "produce": {"value": "x"},
    "send-again": {"to": "red/default/ruby"},
    "drop-records": {},
    "reset-group": {"to": "latest"},
    "delete-group": {"confirm": "readers"},
    "reset-subscription": {"to": "latest"},
    "skip-message": {},
    "delete-subscription": {"confirm": "readers"},
    "create-topic": {"name": "red/default/opal"},
    "configure-topic": {"config": "retention.ms", "value": "60000"},
    "compact-topic": {},
    "delete-topic": {"confirm": "red/default/ruby"},
    "grant": {"role": "bob", "target": "red/default/ruby", "consume": "yes"},
    "revoke": {"role": "carl", "target": "red/default/ruby"},
    "abort-transaction": {"transaction": IDS_OF_RED[0]},
}
"""Of each action what is filled in besides what it is about."""
_ABOUT = {
    "topic": "red/default/ruby",
    "partition": "0",
    "offset": "0",
    "group": "readers",
    "subscription": "readers",
}


def console_actions() -> Iterator[tuple[str, Ask]]:
    """Yield every action of the console: its form, and the form filled in, with a token that is right."""
    for action in ACTIONS:
        about = {key: _ABOUT[key] for key in action.keys}
        named = f"?{urlencode(about, safe='/')}" if "topic" in about else ""
        path = f"/console/act/{action.name}"
        yield f"GET {path}{named}", partial(_console, path, urlencode(about))
        yield f"POST {path}{named}", partial(_sent, action, about)


async def _sent(
    action: ConsoleAction, about: dict[str, str], house: House, asker: Asker
) -> tuple[Outcome, bytes]:
    app = make_console(house.pulsar.services, lambda: _HERE)
    proof = f"Bearer {asker.proof}" if asker.proof else ""
    token = await app.actions.tokens.made(action.name, login_of(proof) if proof else "")
    body = urlencode({**about, **_FORMS[action.name], "token": token, "step": "do"}).encode()
    headers = [
        (b"content-type", b"application/x-www-form-urlencoded"),
        (b"content-length", str(len(body)).encode()),
        (b"sec-fetch-site", b"same-origin"),
    ]
    if proof:
        headers.append((b"authorization", proof.encode()))
    return _outcome(*await _call(app, "POST", f"/console/act/{action.name}", headers, body))


async def _console(path: str, query: str, house: House, asker: Asker) -> tuple[Outcome, bytes]:
    headers = [(b"authorization", b"Bearer " + asker.proof.encode())] if asker.proof else []
    _asked.house = house
    return _outcome(*await _call(_console_app(), "GET", path, headers, b"", query.encode()))


@cache
def _console_app() -> Any:
    return make_console(_asked, lambda: _HERE)  # type: ignore[arg-type]


def registry_paths() -> Iterator[tuple[str, Ask]]:
    """Yield every route of the schema registry, by the subject's short name and by its full one."""
    for route in endpoints.ROUTES:
        named = "{subject" in route.path
        for way in ("short", "full") if named else ("",):
            subject = "red/default/ruby-value" if way == "full" else "ruby-value"
            values = {"id": "1", "version": "1", "subject": subject}
            body = b""
            if route.method in ("PUT", "POST"):
                level = {"compatibility": "NONE", "mode": "READWRITE"}
                body = json.dumps({"schema": json.dumps(_SCHEMA)} | level).encode()
            path = _plain(route.path)
            ask = partial(_registry, route.method, _filled(route.path, values), body)
            yield f"{route.method} {path}" + (f", {way}" if way else ""), ask


async def _registry(method: str, path: str, body: bytes, house: House, asker: Asker) -> tuple[Outcome, bytes]:
    headers = []
    if asker.proof and not house.tenants:
        headers = [(b"authorization", b"Bearer " + asker.proof.encode())]
    elif asker.proof:
        said = base64.b64encode(f"{asker.home}:token:{asker.proof}".encode())
        headers = [(b"authorization", b"Basic " + said)]
    app = App(house.broker, house.registries, house.workshop)
    return _outcome(*await _call(app, method, path, headers, body))


async def furnish(house: House) -> None:
    """Have a schema of each tenant's topic of the same name."""
    for tenant in ("red", "blue", "public"):
        field = {"name": "garnet" if tenant == "red" else "pearl", "type": "string"}
        body = json.dumps({"schema": json.dumps(_SCHEMA | {"fields": [field]})}).encode()
        path = f"/subjects/{tenant}%2Fdefault%2Fruby-value/versions"
        if house.tenants or tenant == "public":
            path = "/subjects/ruby-value/versions"
        outcome, answer = await _registry("POST", path, body, house, Asker("", "root", tenant))
        assert outcome is Outcome.answered
        assert b'"id"' in answer, answer


def _plain(path: str) -> str:
    return _VALUE.sub(r"{\1}", path)


def _filled(path: str, values: dict[str, str]) -> str:
    return _VALUE.sub(lambda match: quote(values[match[1]], safe=""), path)


def _outcome(status: int, answer: bytes) -> tuple[Outcome, bytes]:
    assert status < 500, answer
    if status == 401:
        return Outcome.not_let_in, answer
    return Outcome.refused if status == 403 else Outcome.answered, answer


async def _call(
    app: Any, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes, query: bytes = b""
) -> tuple[int, bytes]:
    from urllib.parse import unquote

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": headers,
        "scheme": "http",
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 40_000),
        "state": {},
    }
    said: list[Any] = []

    parts = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        """Return the request, and then wait: its client stays."""
        part = next(parts, None)
        return part if part is not None else await asyncio.Future()

    async def send(message: Any) -> None:
        said.append(message)

    await app(scope, receive, send)
    return said[0]["status"], b"".join(each.get("body", b"") for each in said[1:])
