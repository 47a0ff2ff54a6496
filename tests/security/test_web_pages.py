"""Everything that a web page may send without asking, sent to every path that is served where nobody has to log in.

Nothing of it may change anything: a page that its reader has open must not rule the broker on the reader's machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from magnetar.admin import rest
from magnetar.admin.handler import AdminHandler
from magnetar.admin.listeners import parse_web_listeners
from magnetar.ledger.memory import MemoryEngine
from magnetar.metadata import MemoryStore
from magnetar.node.broker import Broker
from magnetar.pulsar.handler import PulsarProtocolHandler
from magnetar.pulsar.rest.routes import ROUTES
from magnetar.schema_registry import endpoints
from magnetar.schema_registry.handler import SchemaRegistryHandler
from magnetar.schema_registry.listeners import parse_registry_listeners
from magnetar.settings.settings import Settings
from magnetar.web.pages import FORWARDED_HOST, WebPages
from tests.broker.test_web_limits import connect
from tests.security.matrix.web import _BODIES, VALUES, _filled

OWN = "localhost:8080"
FOREIGN = "http://evil.example"
FORMS = ("text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b")


class Path_(NamedTuple):
    """One path of a port, and a method that is served there."""

    port: str
    method: str
    path: str
    body: bytes


PROBES = ("/health", "/ready", "/healthz", "/readyz", "/livez")


def served() -> Iterator[Path_]:
    values = VALUES | {"tenant": "public", "topic": "t", "question": "grants"}
    for route in (*ROUTES, *rest.ROUTES):
        body = _BODIES.get(route.full_path.rpartition("/")[2], b"{}")
        yield Path_("admin", route.method, _filled(route.full_path, values), body)
    for route in endpoints.ROUTES:
        yield Path_(
            "registry",
            route.method,
            _filled(route.path, {"id": "1", "version": "1", "subject": "s"}),
            _SCHEMA,
        )
    for port in ("admin", "registry"):
        yield Path_(port, "GET", "/metrics", b"")


_SCHEMA = b'{"schema":"\\"string\\"","compatibility":"NONE","mode":"READONLY"}'
PATHS = sorted(each for each in set(served()) if each.path not in PROBES)
Headers = dict[str, str]


def of_modern_browsers() -> Iterator[tuple[str, Headers]]:
    """Yield methods and headers of what a page of another site sends to an address of the machine itself."""
    cross = {"Sec-Fetch-Site": "cross-site", "Origin": FOREIGN}
    for method in ("GET", "HEAD"):
        yield method, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        yield method, cross | {"Sec-Fetch-Mode": "cors"}
    yield "POST", cross
    for kind in FORMS:
        yield "POST", cross | {"Content-Type": kind}
    yield "GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}
    yield "POST", {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"}


def of_old_browsers() -> Iterator[tuple[str, Headers]]:
    """Yield those of browsers that do not tell whose page it is, as none does to another machine without TLS."""
    for method in ("GET", "HEAD"):
        yield method, {"Origin": FOREIGN}
    for origin in (FOREIGN, "null", "http://localhost:3000"):
        yield "POST", {"Origin": origin}
    for kind in FORMS:
        yield "POST", {"Origin": FOREIGN, "Content-Type": kind}
        yield "POST", {"Content-Type": kind}


def of_a_rebound_name(method: str) -> Iterator[tuple[str, Headers]]:
    """Yield what a page sends whose own name has been pointed here: it may send anything, and read the answer."""
    own = {"Host": "evil.example:8080", "Content-Type": "application/json"}
    yield method, own
    yield method, own | {"Origin": "http://evil.example:8080", "Sec-Fetch-Site": "same-origin"}


class Served:
    """The HTTP ports of a broker at which nobody has to log in."""

    def __init__(self, store: MemoryStore, ports: dict[str, Any]) -> None:
        self._store = store
        self._ports = ports
        self._open: dict[str, Any] = {}

    def state(self) -> dict[str, Any]:
        """Return all that is stored."""
        return dict(self._store.blocking.scan("/"))

    async def ask(self, asked: Path_, method: str, headers: Headers, query: str = "") -> int:
        """Send a request as it stands; return the status of its answer."""
        protocol, transport = self._connection(asked.port)
        said = {"Host": OWN} | headers
        body = asked.body if method in ("POST", "PUT") else b""
        if body:
            said["Content-Length"] = str(len(body))
        lines = [
            f"{method} {asked.path}{query} HTTP/1.1",
            *(f"{name}: {value}" for name, value in said.items()),
        ]
        protocol.data_received("\r\n".join((*lines, "", "")).encode() + body)
        for turn in count():
            if protocol.cycle is not None and protocol.cycle.response_complete:
                break
            await asyncio.sleep(0 if turn < 1000 else 0.001)  # a schema is looked at elsewhere
        return int(transport.said[9:12])

    def _connection(self, port: str) -> Any:
        """Return a connection whose last answer has been taken, new where it was closed behind that."""
        if port not in self._open or self._open[port][1].closed:
            self._open[port] = connect(self._ports[port]())
        protocol, transport = self._open[port]
        transport.said.clear()
        protocol.cycle = None
        return protocol, transport


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[Served]:
    settings = Settings().with_values(
        {
            "data.dir": str(tmp_path),
            "pulsar.listeners": "pulsar://127.0.0.1:6650",
            "http.listeners": "http://127.0.0.1:8080",
            "schema.registry.listeners": "http://127.0.0.1:8081",
        }
    )
    store = MemoryStore()
    broker = Broker(settings, store, MemoryEngine(store))
    await broker.engine.start()
    await broker.start()
    await broker.create_topic("t", 1)
    admin, registry = AdminHandler(), SchemaRegistryHandler()
    handlers = (registry, PulsarProtocolHandler(), admin)
    for handler in handlers:
        handler.initialize(settings)
        await handler.start(broker)
    web, subjects = parse_web_listeners(settings)[0], parse_registry_listeners(settings)[0]
    yield Served(
        store,
        {"admin": lambda: admin.new_connection(web), "registry": lambda: registry.new_connection(subjects)},
    )
    for handler in reversed(handlers):
        await handler.drain()
        await handler.close()


async def test_nothing_that_a_page_sends_without_asking_is_answered(house: Served) -> None:
    before = house.state()
    sent = 0
    for asked in PATHS:
        wanted = [*of_modern_browsers(), *of_old_browsers(), *of_a_rebound_name(asked.method)]
        for method, headers in wanted:
            status = await house.ask(asked, method, headers)
            assert status in (403, 415), (asked, method, headers)
            sent += 1
        assert house.state() == before, asked
    assert sent > 10_000


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_what_a_browser_reads_changes_nothing(house: Served, method: str) -> None:
    """Of an image, a browser says nothing of whose page it is to another machine without TLS."""
    before = house.state()
    for asked in PATHS:
        nameless = asked._replace(path=asked.path.replace("/t", "/fresh"))
        for wanted in (asked, nameless):
            for query in (
                "",
                "?checkAllowAutoCreation=true&force=true&authoritative=true&createSubscription=true",
            ):
                await house.ask(wanted, method, {"User-Agent": "Mozilla/5.0"}, query)
                assert house.state() == before, (wanted, query)


PROGRAMS: dict[str, Headers] = {
    "Java": {
        "User-Agent": "Pulsar-Java-v4.0.8",
        "Content-Type": "application/json",
        "Accept": "application/json",
    },
    "curl": {"User-Agent": "curl/8.5.0", "Accept": "*/*", "Content-Type": "application/json"},
    "requests": {"User-Agent": "python-requests/2.32", "Content-Type": "application/json"},
    "requests, of text": {"User-Agent": "python-requests/2.32"},
    "registry's": {"Content-Type": "application/vnd.schemaregistry.v1+json"},
    "a page of its own": {
        "Origin": f"http://{OWN}",
        "Sec-Fetch-Site": "same-origin",
        "Content-Type": "application/json",
    },
    "a page of its own, old": {"Origin": f"http://{OWN}", "Content-Type": "application/json"},
    "a person's": {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
}
"""What programs and own pages send."""


@pytest.mark.parametrize("headers", PROGRAMS.values(), ids=PROGRAMS)
async def test_programs_and_own_pages_are_answered_everywhere(house: Served, headers: Headers) -> None:
    for asked in PATHS:
        assert await house.ask(asked, asked.method, headers) not in (403, 415), asked


NAMES = (
    "127.0.0.1:8080",
    "10.1.2.3",
    "[::1]:8080",
    "[fe80::1%25eth0]:8080",
    "localhost",
    "LOCALHOST:8080",
    "broker",
    "node.lan",
    "app.localhost.",
    "magnetar.default.svc:8080",
    "magnetar-0.magnetar.default.svc.cluster.local:8080",
)
FOREIGN_NAMES = (
    "evil.example",
    "evil.example:8080",
    "127.0.0.1.nip.io",
    "localhost.evil.com",
    "1.2.3.4.5",
    "magnetar.prod",
)


def refused(settings: dict[str, str], *, is_open: bool = True, **headers: str) -> int:
    said = {name.replace("_", "-").lower().encode(): value.encode() for name, value in headers.items()}
    found = WebPages(Settings().with_values(settings), is_open=is_open).refusal(
        "POST", "/admin/v2/tenants", said
    )
    return 0 if found is None else found.status


@pytest.mark.parametrize("name", NAMES)
def test_a_broker_has_names_that_no_stranger_can_point_to_it(name: str) -> None:
    assert not refused({}, Host=name)
    assert not refused({}, Host=name, Origin=f"https://{name}")
    assert refused({}, Host=name, Origin="https://localhost:3000") == 403


@pytest.mark.parametrize("name", FOREIGN_NAMES)
def test_other_names_are_told_by_settings(name: str) -> None:
    assert refused({}, Host=name) == 403
    host = name.partition(":")[0]
    for allowing in (
        {"http.allowed.hosts": host.upper()},
        {"http.allowed.hosts": "other.example,*"},
        {"http.listeners": f"http://{host}:8080"},
        {"http.advertised.listeners": f"http://a:1,https://{host}:443"},
        {"advertised.listeners": f"PLAINTEXT://{host}:9092"},
        {"pulsar.advertised.listeners": f"internal:pulsar://{host}:6650"},
        {"advertised.address": host},
    ):
        assert not refused(allowing, Host=name), allowing
    assert not refused({}, is_open=False, Host=name), "where one has to log in, a name gives nothing away"


def test_what_comes_through_the_proxy_is_judged_by_what_the_client_called_it() -> None:
    forwarded = FORWARDED_HOST.decode().replace("-", "_")
    assert refused({}, Host="10.0.0.1:8080", **{forwarded: "evil.example"}) == 403
    assert not refused({}, Host="10.0.0.1:8080", Origin="http://proxy:8080", **{forwarded: "proxy:8080"})
    assert (
        refused({}, Host="10.0.0.1:8080", Origin="http://10.0.0.1:8080", **{forwarded: "proxy:8080"}) == 403
    )


def test_pages_of_an_allowed_host_may_ask_and_those_of_any_may_not() -> None:
    console = {"Host": "10.0.0.1:8080", "Origin": "https://console.example", "Sec_Fetch_Site": "cross-site"}
    assert refused({}, **console) == 403
    assert refused({"http.allowed.hosts": "*"}, **console) == 403
    assert not refused({"http.allowed.hosts": "console.example"}, **console)
    assert not refused({}, is_open=False, **console, Authorization="Bearer token")
    assert refused({}, is_open=False, **console, Authorization="Basic browsers-send-it-by-themselves") == 403
    assert refused({}, is_open=False, **console) == 403  # a certificate, too


async def test_a_page_may_link_to_figures_and_probes_may_come_by_any_name(house: Served) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    figures, tenants = (
        Path_("registry", "GET", "/metrics", b""),
        Path_("admin", "GET", "/admin/v2/tenants", b""),
    )
    assert await house.ask(figures, "GET", link) == 200
    assert await house.ask(tenants, "GET", link) == 403
    assert await house.ask(figures, "GET", link | {"Host": "evil.example"}) == 403
    assert await house.ask(figures._replace(path="/health"), "GET", {"Host": "probe.example"}) == 200
