"""Keys and tokens as an issuer has them, good ones and forged ones."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

SECRET = bytes(range(64))
SECRET_URL = "data:;base64," + base64.b64encode(SECRET).decode()
SECURED = (
    "authentication.enabled=true",
    "authorization.enabled=true",
    "super.user.roles=root",
    f"token.secret.key={SECRET_URL}",
    "connection.failed.authentication.delay.ms=10",
)
"""Settings of a broker that knows whoever shows a `token`, and of whom root may do all."""
IN_KAFKAS_WORDS = (
    "listeners=SASL_PLAINTEXT://127.0.0.1:0",
    "pulsar.listeners=pulsar://127.0.0.1:0",
    "authentication.enabled=true",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:root;User:admin",
    f"token.secret.key={SECRET_URL}",
    "connection.failed.authentication.delay.ms=10",
    "group.initial.rebalance.delay.ms=0",
)
"""Settings of a broker with Kafka's authorizer."""
OTHER_SECRET = bytes(range(100, 164))


def token(role: str | None = "alice", key: Any = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    """Return a signed token; with a ``key_id`` it is a provider's, which says when it was made and when it ends."""
    headers = {"kid": claims.pop("key_id")} if "key_id" in claims else None
    if headers:
        claims = {"iat": time.time(), "exp": time.time() + 600, **claims}
    payload = claims if role is None else {"sub": role, **claims}
    return jwt.encode(payload, key, algorithm, headers=headers)


def expiring(seconds: float, role: str = "alice") -> str:
    """Return a token that ends so many seconds from now."""
    return token(role, exp=time.time() + seconds)


def unsigned(role: str = "alice", algorithm: str = "none", signature: bytes = b"") -> str:
    """Return a token as an attacker writes it: any algorithm in the header, any signature."""
    head = _base64(json.dumps({"alg": algorithm, "typ": "JWT"}).encode())
    body = _base64(json.dumps({"sub": role}).encode())
    return f"{head}.{body}.{_base64(signature)}"


def confused(public: bytes, role: str = "alice") -> str:
    """Return a token whose HMAC was made with a public key's text for a secret."""
    signed = unsigned(role, "HS256").rpartition(".")[0]
    return f"{signed}.{_base64(hmac.new(public, signed.encode(), hashlib.sha256).digest())}"


@cache
def rsa_key(which: int = 0) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@cache
def curve_key(curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


def public_bytes(key: Any, encoding: serialization.Encoding = serialization.Encoding.PEM) -> bytes:
    return key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)


def data_url(content: bytes) -> str:
    return "data:;base64," + base64.b64encode(content).decode()


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
