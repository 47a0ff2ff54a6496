"""Tokens of an identity provider for SASL OAUTHBEARER: OAuth 2 client credentials (RFC 6749, KIP-768), or a file.

One token serves all connections of a process until four fifths of its life are over.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlencode, urlsplit

from magnetar.client.errors import ClientError

_TIMEOUT_S = 10.0
_DEFAULT_LIFE_S = 60.0
_lock = threading.Lock()
_tokens: dict[TokenSource, tuple[str, float]] = {}


class NoToken(ClientError):
    """The identity provider gave no token."""


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Where tokens come from: an endpoint with a client's id and secret, or a file (``file:`` URL). Secrets do not
    show when it is printed.
    """

    url: str
    client_id: str = ""
    secret: str = field(default="", repr=False)
    scope: str = ""
    trusted: str | None = field(default=None, repr=False)
    """PEM text of those to trust at an https endpoint, beside those that the system trusts."""
    extensions: tuple[tuple[str, str], ...] = ()

    def first_message(self) -> bytes:
        """Return what a client says (RFC 7628); it may ask the provider, and raises `NoToken`."""
        more = "".join(f"{name}={value}\1" for name, value in self.extensions)
        return f"n,,\1auth=Bearer {self.token()}\1{more}\1".encode()

    def token(self) -> str:
        """Return a token that is good for a while."""
        with _lock:
            token, until = _tokens.get(self, ("", 0.0))
            if time.monotonic() < until:
                return token
            token, life_s = self._from_file() if self.url.startswith("file:") else self._asked()
            _tokens[self] = token, time.monotonic() + life_s * 0.8
            return token

    def _from_file(self) -> tuple[str, float]:
        path = Path(unquote(urlsplit(self.url).path))
        try:
            return path.read_text().strip(), 0.0  # whoever renews it writes it anew
        except OSError as error:
            raise NoToken(f"the token cannot be read from {path}: {error.strerror}") from None

    def _asked(self) -> tuple[str, float]:
        import http.client
        import ssl
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        given = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        name = base64.b64encode(f"{quote(self.client_id)}:{quote(self.secret)}".encode()).decode()
        headers = {"Authorization": f"Basic {name}", "Accept": "application/json"}
        context = None
        if self.url.startswith("https:"):
            context = ssl.create_default_context()
            if self.trusted:
                context.load_verify_locations(cadata=self.trusted)
        try:
            request = Request(self.url, urlencode(given).encode(), headers)
            with urlopen(request, timeout=_TIMEOUT_S, context=context) as answer:
                told = json.loads(answer.read())
            life_s = float(told.get("expires_in", _DEFAULT_LIFE_S))
            return str(told["access_token"]), life_s
        except HTTPError as error:
            raise NoToken(f"{self.url} gives client {self.client_id!r} no token: {error}") from None
        except (OSError, http.client.HTTPException) as error:
            raise NoToken(f"{self.url} does not answer: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise NoToken(f"{self.url} answers with no access_token") from None
