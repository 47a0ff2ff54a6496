"""Requests of the command line over HTTP and HTTPS: to a broker's admin REST, and to schema registries.

The client's credentials are those of `magnetar.admin.credentials`, as for Kafka's listeners.
"""

from __future__ import annotations

import base64
import http.client
import ssl
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from magnetar.admin.credentials import security
from magnetar.admin.errors import Invalid, Unreachable
from magnetar.client.security import ClientSecurity

TIMEOUT_S = 30
_FORM = "Write http://HOST:PORT or https://HOST:PORT."


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """A server that is asked by URL.

    Messages call it ``server``, and what it serves ``what``; ``hint`` says what to do where none answers.
    """

    url: str
    server: str
    what: str
    hint: str

    def request(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """Return status and body of the answer; raise `Unreachable` or `Invalid`."""
        who = security()
        wire, prefix, pair = self._connection(who)
        headers = {"content-type": content_type} if body is not None else {}
        try:
            wire.request(method, prefix + path, body, headers | _authorization(who, pair))
            answer = wire.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"no {self.server} answers at {self.shown}: {error}", self.hint) from error
        finally:
            wire.close()

    @property
    def shown(self) -> str:
        """The URL without what is secret in it."""
        scheme, slashes, rest = self.url.rpartition("://")
        return f"{scheme}{slashes}{rest.rpartition('@')[2]}"

    def _connection(self, who: ClientSecurity) -> tuple[http.client.HTTPConnection, str, str]:
        """Return a connection, the path that URLs begin with, and ``user:password`` if the URL has them."""
        parts = urlsplit(self.url if "://" in self.url else f"http://{self.url}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise Invalid(f"{self.shown!r} is no address: {error}", _FORM) from None
        if parts.scheme not in ("http", "https") or not host:
            raise Invalid(f"{self.shown!r} is no address of {self.what}", _FORM)
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
        prefix = parts.path.rstrip("/")
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S), prefix, pair
        try:
            made = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=who.context())
        except (OSError, ssl.SSLError) as error:
            raise Invalid(f"TLS to {self.shown} cannot be set up: {error}") from None
        return made, prefix, pair


def _authorization(who: ClientSecurity, pair: str) -> dict[str, str]:
    """Return the header that proves the client's identity.

    As for Kafka's listeners, ``token:`` begins a password that is a token; user and password of a URL go before.
    """
    if not pair:
        if who.mechanism != "PLAIN":
            return {}
        method, _, proof = who.password.partition(":")
        if method == "token":
            return {"authorization": f"Bearer {proof}"}
        pair = proof if method == "basic" else f"{who.username}:{who.password}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
