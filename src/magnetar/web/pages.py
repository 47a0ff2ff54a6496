"""Requests that a web page has its reader's browser send: refused before anything else looks at them.

A browser sends what any page wants to whatever address its machine reaches, without asking there first: images, links,
forms, and POST with a body of the types that forms have. Only the answer is withheld from the page, and not even that
once the page's own name points to the address (DNS rebinding). What tells is in headers that no page can set:

    Origin, Sec-Fetch-Site   whose page it was: only one that came from this very address may ask
    Content-Type             with any other type than those of forms a browser asks first, and is not answered
    Host                     by which name the browser knows this broker; looked at where nobody has to log in

A program that is no browser sends none of the first two, and names the broker as it is known. A request with a bearer's
token is no page's: a browser adds none by itself.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from magnetar.settings.settings import Settings

FORWARDED_HOST = b"x-magnetar-forwarded-host"
"""What a client called the proxy that its request comes through. Who makes it up is believed: it only forbids more."""
ANY = "*"
_FORMS = frozenset({b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data"})
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN = frozenset({b"same-origin", b"none"})
"""``Sec-Fetch-Site`` of what a page of this address asks, and of what a person types."""
_PROBES = frozenset({"/health", "/ready", "/healthz", "/readyz", "/livez"})
_LINKED = frozenset({"/metrics", "/metrics/", "/openapi.json", "/admin/v2/openapi.json"}) | _PROBES
"""What any page may link to, those besides that answer whoever asks."""
_CONSOLE = "/console"
"""Its pages may be linked to: to read one changes nothing, no page can frame them, and who is logged in is not sent
along."""
OWN_FORMS = frozenset({"/console/login", "/console/logout"})
"""Paths that take forms, of pages of this address that say so: another page could log its reader in as another."""
_ACTIONS = "/console/act/"
"""Below it are the forms of the console that change something, which have tokens besides."""
_NOBODYS = ("localhost", "local", "localdomain", "internal", "lan", "svc", "test", "home.arpa")
"""Ends of names that no stranger can register and point here: Kubernetes' among them."""
_HOST = re.compile(r"://(\[[^\]]*\]|[^/:,\s]*)")


class PageRefusal(NamedTuple):
    """Why a request is not answered."""

    status: int
    reason: str


class WebPages:
    """Tells what web pages send from what programs and a broker's own pages do."""

    def __init__(self, settings: Settings, *, is_open: bool) -> None:
        """``is_open``: nobody has to log in."""
        self._is_open = is_open
        self._allowed = frozenset(name.lower() for name in settings.connections.http_allowed_hosts)
        self._names = self._allowed | frozenset(_own_names(settings))

    def refusal(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> PageRefusal | None:
        """Return why a request is refused; None for one that is not."""
        if path in _PROBES and method in _READS:
            return None
        host, forwarded = headers.get(b"host", b""), headers.get(FORWARDED_HOST, b"")
        if self._is_open:
            for name in (host, forwarded):
                if not self._knows(name):
                    return PageRefusal(403, _foreign_host(name))
        if headers.get(b"authorization", b"")[:7].lower() == b"bearer ":
            return None
        if not self._is_own(method, path, forwarded or host, headers):
            return PageRefusal(403, "a page of another site may not ask this")
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if method == "POST" and kind in _FORMS and not (_takes_forms(path) and _tells_its_page(headers)):
            return PageRefusal(
                415, f"HTTP 415 Unsupported Media Type: {kind.decode()}; send application/json"
            )
        return None

    def _is_own(self, method: str, path: str, host: bytes, headers: Mapping[bytes, bytes]) -> bool:
        """Whether no page of another site has sent a request."""
        site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
        if site in _OWN:
            return True
        if site is not None:
            is_linked = path in _LINKED or path == "/" or path.startswith(_CONSOLE)
            return (
                method in _READS
                and is_linked
                and headers.get(b"sec-fetch-mode") == b"navigate"
                and origin is None
            ) or self._allows(origin)
        return origin is None or origin.partition(b"://")[2].lower() == host.lower() or self._allows(origin)

    def _allows(self, origin: bytes | None) -> bool:
        """Whether pages of a site may ask although they are not this broker's own."""
        return origin is not None and _name(origin.partition(b"://")[2]) in self._allowed

    def _knows(self, host: bytes) -> bool:
        """Whether a ``Host`` is a name of this broker's, or one that no stranger can have."""
        name = _name(host)
        if ANY in self._allowed or name in self._names or "." not in name:
            return True
        if name.endswith(tuple(f".{each}" for each in _NOBODYS)):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _takes_forms(path: str) -> bool:
    return path in OWN_FORMS or path.startswith(_ACTIONS)


def _tells_its_page(headers: Mapping[bytes, bytes]) -> bool:
    """True if the browser says which page sends this; `_is_own` has checked that it is one of this address."""
    site = headers.get(b"sec-fetch-site")
    return site == b"same-origin" if site is not None else b"origin" in headers


def _name(host: bytes) -> str:
    """Return the name or address of ``HOST:PORT`` alone, as it is compared."""
    text = host.decode("ascii", "replace").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")


def _own_names(settings: Settings) -> Iterator[str]:
    """Yield the names by which this broker's settings say that clients find it, and its machine's."""
    yield socket.gethostname().lower()
    yield settings.connections.advertised_address.lower()
    for name in settings.declared.definitions:
        if name.endswith("listeners"):
            value = settings.value(name)
            for listener in value if isinstance(value, tuple) else ():
                yield from (each.strip("[]").lower() for each in _HOST.findall(str(listener)))


def _foreign_host(host: bytes) -> str:
    name = host[:200].decode("ascii", "replace")
    return f"this broker is not known as {name}; http.allowed.hosts names what it may be called beside its own names"
