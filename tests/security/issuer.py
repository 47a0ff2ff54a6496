"""An identity provider of our own: real HTTP, real keys, OpenID Connect Discovery and client credentials."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

import jwt
from jwt.algorithms import RSAAlgorithm

from tests.security.signing import rsa_key

AUDIENCE = "magnetar"


class Issuer:
    """Makes tokens, and says where its keys are. ``down`` answers nothing but errors."""

    def __init__(self) -> None:
        self.keys = {"first": rsa_key(0)}
        self.down = False
        self.asked: list[str] = []
        """Every path that was asked for."""
        self.given = 0
        """Tokens by client credentials."""
        self.life_s = 3600.0
        self.claims: dict[str, Any] = {}
        """What its tokens say beside."""
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                self._answer(issuer._answers().get(self.path))

            def do_POST(self) -> None:
                issuer.asked.append(self.path)
                body = self.rfile.read(int(self.headers["content-length"]))
                self._answer(issuer._token_for(body, self.headers.get("authorization", "")))

            def _answer(self, told: object) -> None:
                self.send_response(503 if issuer.down else 404 if told is None else 200)
                content = json.dumps(told).encode()
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def token(self, role: str = "root", key: str = "first", signed_by: Any = None, **claims: Any) -> str:
        """Return a token that is good but for what is given here; a claim None is left out."""
        now = time.time()
        said = {"iss": self.url, "aud": AUDIENCE, "sub": role, "iat": now, "exp": now + self.life_s}
        said |= {"scope": "openid kafka"} | self.claims | claims
        payload = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(payload, signed_by or self.keys[key], "RS256", headers={"kid": key})

    def _answers(self) -> dict[str, object]:
        keys = [
            {**json.loads(RSAAlgorithm.to_jwk(key.public_key())), "kid": name, "alg": "RS256", "use": "sig"}
            for name, key in self.keys.items()
        ]
        return {
            "/jwks": {"keys": keys},
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/jwks",
                "token_endpoint": f"{self.url}/token",
            },
        }

    def _token_for(self, body: bytes, authorization: str) -> object:
        given = parse_qs(body.decode())
        if given.get("grant_type") != ["client_credentials"]:
            return None
        self.given += 1
        return {
            "access_token": self.token("root", exp=time.time() + self.life_s),
            "token_type": "Bearer",
            "expires_in": int(self.life_s),
        }


@contextmanager
def issuing() -> Iterator[Issuer]:
    """Serve an issuer for a while."""
    issuer = Issuer()
    with issuer.server as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield issuer
        server.shutdown()
