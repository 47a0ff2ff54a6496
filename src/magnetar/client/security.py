"""TLS and SASL, by the settings of Kafka's clients (the Java ones' names, and librdkafka's).

security.protocol         PLAINTEXT (default), SSL, SASL_PLAINTEXT, SASL_SSL
ssl.truststore.location   PEM file of those to trust (ssl.ca.location); default: the system's
ssl.keystore.location     PEM file with key and certificate to show (ssl.certificate.location, ssl.key.location)
ssl.key.password
ssl.endpoint.identification.algorithm    https (default), or none to accept a certificate of any name
sasl.mechanism            PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
sasl.jaas.config          ... required username="me" password="secret";    or sasl.username and sasl.password
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import ssl
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from magnetar.client.errors import ClientError
from magnetar.wire.kafka.mechanisms import BETWEEN_BROKERS

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *_SCRAM)
_SCRAM_OF_ALL = {**_SCRAM, BETWEEN_BROKERS: "sha256"}
#: Takes milliseconds, and may be called in any thread.
Work: TypeAlias = Callable[[], bytes]
#: Gives what to say next, and is sent what the broker answered; or gives what is to be worked out, and is sent that.
Login: TypeAlias = Generator[bytes | Work, bytes, None]

_MIN_ITERATIONS, _MAX_ITERATIONS = 4096, 1_000_000


class LoginFailed(ClientError):
    """The broker did not prove that it knows the password, or speaks SCRAM wrongly."""


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """How to open a connection. Secrets do not show when it is printed."""

    tls: bool = False
    trusted: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    any_name: bool = False
    mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    tokenauth: bool = False
    """Whether it is a delegation token: ``username`` is its id, ``password`` base64 of its HMAC (KIP-48)."""

    def context(self) -> ssl.SSLContext:
        """Return what TLS needs; raises ``OSError`` and ``ssl.SSLError`` for files that are missing or no PEM."""
        context = ssl.create_default_context(cafile=self.trusted)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Java trusts what is in a store
        context.check_hostname = not self.any_name
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key, self.key_password)
        return context

    def login(self) -> Login:
        """Return a conversation that proves who we are."""
        assert self.mechanism is not None
        if self.mechanism == "PLAIN":
            return _plain(self.username, self.password)
        more = ",tokenauth=true" if self.tokenauth else ""
        return _scram(_SCRAM_OF_ALL[self.mechanism], self.username, self.password, more)


def parse_security(given: Mapping[str, str]) -> ClientSecurity:
    """Read the settings (names in lower case); raise ``ValueError`` naming the one that is wrong."""
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ValueError(
            f"kafka.security.protocol must be one of {', '.join(PROTOCOLS)}, not {given['security.protocol']!r}"
        )
    mechanism, username, password = None, "", ""
    if protocol.startswith("SASL"):
        mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "")).upper()
        if mechanism not in MECHANISMS:
            raise ValueError(
                f"kafka.sasl.mechanism must be one of {', '.join(MECHANISMS)}, not {mechanism!r}"
            )
        username, password = _credentials(given)
    identification = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if identification not in ("https", "none", ""):
        raise ValueError(
            f"kafka.ssl.endpoint.identification.algorithm must be https or none, not {identification!r}"
        )
    certificate = _file(given, "ssl.certificate.location", "ssl.keystore.location")
    return ClientSecurity(
        tls=protocol.endswith("SSL"),
        trusted=_file(given, "ssl.ca.location", "ssl.truststore.location"),
        certificate=certificate,
        key=_file(given, "ssl.key.location"),
        key_password=given.get("ssl.key.password"),
        any_name=identification != "https",
        mechanism=mechanism,
        username=username,
        password=password,
    )


def _file(given: Mapping[str, str], *names: str) -> str | None:
    for name in names:
        if name not in given:
            continue
        kind = given.get(name.replace("location", "type"), "PEM").upper()
        if kind != "PEM":
            raise ValueError(f"kafka.{name.replace('location', 'type')} must be PEM here, not {kind}")
        if not Path(given[name]).is_file():
            raise ValueError(f"kafka.{name}: there is no file {given[name]!r}")
        return given[name]
    return None


def _credentials(given: Mapping[str, str]) -> tuple[str, str]:
    config = given.get("sasl.jaas.config", "")
    found = dict(re.findall(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"', config))
    username = given.get("sasl.username", found.get("username"))
    password = given.get("sasl.password", found.get("password"))
    if username is None or password is None:
        raise ValueError(
            "SASL needs kafka.sasl.jaas.config with username and password, each in double quotes"
        )
    return username, password


def _plain(username: str, password: str) -> Login:
    yield f"\0{username}\0{password}".encode()


def _scram(algorithm: str, username: str, password: str, extensions: str) -> Login:
    """SCRAM without channel binding (RFC 5802), as Kafka has it."""

    def mac(key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, algorithm).digest()

    nonce = secrets.token_urlsafe(24)
    bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}{extensions}"
    said = yield f"n,,{bare}".encode()
    try:
        challenge = said.decode()
        told = dict(part.split("=", 1) for part in challenge.split(",") if "=" in part)
        salt, iterations = base64.b64decode(told["s"]), int(told["i"])
    except (ValueError, KeyError):
        raise LoginFailed("the broker's SCRAM challenge cannot be read") from None
    if not told.get("r", "").startswith(nonce) or not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
        raise LoginFailed("the broker's SCRAM challenge cannot be accepted")
    salted = yield partial(hashlib.pbkdf2_hmac, algorithm, password.encode(), salt, iterations)
    without_proof = f"c=biws,r={told['r']}"
    message = f"{bare},{challenge},{without_proof}".encode()
    key = mac(salted, b"Client Key")
    signature = mac(hashlib.new(algorithm, key).digest(), message)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    verdict = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    expected = b"v=" + base64.b64encode(mac(mac(salted, b"Server Key"), message))
    if not hmac.compare_digest(verdict.split(b",")[0], expected):
        raise LoginFailed("the broker does not know the password: somebody else may be answering for it")
