"""TLS and SASL, by the settings of Kafka's clients (the Java ones' names, and librdkafka's).

security.protocol         PLAINTEXT (default), SSL, SASL_PLAINTEXT, SASL_SSL
ssl.truststore.location   file of those to trust (ssl.ca.location): PEM, PKCS12 or JKS; default: the system's
ssl.truststore.password   of a PKCS12 or JKS file; ssl.truststore.certificates is the PEM text itself
ssl.keystore.location     file with key and certificate to show (ssl.certificate.location, ssl.key.location), likewise
ssl.keystore.password, ssl.key.password; ssl.keystore.certificate.chain and ssl.keystore.key are PEM texts
ssl.endpoint.identification.algorithm    https (default), or none to accept a certificate of any name
sasl.mechanism            PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
sasl.jaas.config          ... required username="me" password="secret";    or sasl.username and sasl.password
sasl.oauthbearer.token.endpoint.url      of OAUTHBEARER: where client credentials give a token, or file:///PATH of one
                          with clientId, clientSecret and scope in sasl.jaas.config, or as
                          sasl.oauthbearer.client.credentials.client.id, ....client.secret and sasl.oauthbearer.scope
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from magnetar.client.bearer import TokenSource
from magnetar.client.errors import ClientError
from magnetar.client.key_stores import KeyStore, StoreUnreadable, is_pem, read_store
from magnetar.client.login_modules import REFUSED, LoginModule, parse_login_module
from magnetar.wire.kafka.mechanisms import BETWEEN_BROKERS

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
BEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", *_SCRAM, BEARER)
_SCRAM_OF_ALL = {**_SCRAM, BETWEEN_BROKERS: "sha256"}
#: Takes milliseconds, and may be called in any thread.
Work: TypeAlias = Callable[[], bytes]
#: Gives what to say next, and is sent what the broker answered; or gives what is to be worked out, and is sent that.
Login: TypeAlias = Generator[bytes | Work, bytes, None]

_STORE_TYPES = ("PEM", "PKCS12", "JKS")
_MODULES_OF = {"AWS_MSK_IAM": "IAMLoginModule", "GSSAPI": "Krb5LoginModule"}
_HANDLER = "OAuthBearerLoginCallbackHandler"
_EXTENSION = "extension_"
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
    trusted_pem: str | None = None
    """Those to trust, where they came as text or in a Java store: executors need no file then."""
    certificate_pem: str | None = field(default=None, repr=False)
    """Key and certificate, likewise."""
    tokens: TokenSource | None = None

    def context(self) -> ssl.SSLContext:
        """Return what TLS needs; raises ``OSError`` and ``ssl.SSLError`` for files that are missing or no PEM."""
        context = ssl.create_default_context(cafile=self.trusted, cadata=self.trusted_pem)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Java trusts what is in a store
        context.check_hostname = not self.any_name
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key, self.key_password)
        if self.certificate_pem is not None:
            _load_text(context, self.certificate_pem, self.key_password)
        return context

    def login(self) -> Login:
        """Return a conversation that proves who we are."""
        assert self.mechanism is not None
        if self.tokens is not None:
            return _bearer(self.tokens)
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
    login = _login(given) if protocol.startswith("SASL") else {}
    identification = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if identification not in ("https", "none", ""):
        raise ValueError(
            f"kafka.ssl.endpoint.identification.algorithm must be https or none, not {identification!r}"
        )
    named: dict[str, Any] = {
        "tls": protocol.endswith("SSL"),
        "key": _file(given, "ssl.key.location"),
        "key_password": given.get("ssl.key.password"),
        "any_name": identification != "https",
    }
    made = ClientSecurity(**named | _trusted(given) | _shown(given) | login)
    if made.tokens is not None and made.tls:
        made = replace(made, tokens=replace(made.tokens, trusted=_text_of(made)))
    return made


def _trusted(given: Mapping[str, str]) -> dict[str, Any]:
    """Return whom to trust."""
    text = given.get("ssl.truststore.certificates", given.get("ssl.ca.pem"))
    path = _file(given, "ssl.ca.location", "ssl.truststore.location")
    if text is not None or path is None:
        return {"trusted_pem": None if text is None else _pem_text(text)}
    content = Path(path).read_bytes()
    if is_pem(content):
        return {"trusted": path}
    store = _store(path, content, given, "ssl.truststore")
    if not store.trusted:
        raise ValueError(f"kafka.ssl.truststore.location: {path} has no certificate to trust")
    return {"trusted_pem": store.trusted}


def _shown(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the certificate to show, with its key."""
    chain = given.get("ssl.keystore.certificate.chain", given.get("ssl.certificate.pem"))
    path = _file(given, "ssl.certificate.location", "ssl.keystore.location")
    if chain is not None:
        key = given.get("ssl.keystore.key", given.get("ssl.key.pem", ""))
        if "PRIVATE KEY" not in key + chain:
            raise ValueError("kafka.ssl.keystore.certificate.chain needs kafka.ssl.keystore.key beside it")
        return {"certificate_pem": f"{_pem_text(key)}\n{_pem_text(chain)}"}
    if path is None:
        return {}
    content = Path(path).read_bytes()
    if is_pem(content):
        return {"certificate": path}
    store = _store(path, content, given, "ssl.keystore")
    if not store.key_and_chain:
        raise ValueError(f"kafka.ssl.keystore.location: {path} has no key")
    return {"certificate_pem": store.key_and_chain, "key_password": None}


def _store(path: str, content: bytes, given: Mapping[str, str], what: str) -> KeyStore:
    password = given.get(f"{what}.password", "")
    try:
        return read_store(content, password, given.get("ssl.key.password"))
    except StoreUnreadable as error:
        raise ValueError(f"kafka.{what}.location: {path}: {error}") from None


def _pem_text(text: str) -> str:
    """Return PEM text with lines of its own, which options sometimes carry as spaces or as backslash and n."""
    text = text.replace("\\n", "\n").strip()
    if text and not is_pem(text.encode()):
        raise ValueError("kafka.ssl.truststore.certificates and kafka.ssl.keystore.* must be texts of PEM")
    return text


def _text_of(security: ClientSecurity) -> str | None:
    return security.trusted_pem if security.trusted is None else Path(security.trusted).read_text()


def _load_text(context: ssl.SSLContext, text: str, password: str | None) -> None:
    """Have a context show a certificate that is not in a file: Python takes files alone, so it is in one meanwhile."""
    import tempfile  # most have none

    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # for its owner's eyes alone
        file.write(text)
        file.flush()
        context.load_cert_chain(file.name, password=password)


def _file(given: Mapping[str, str], *names: str) -> str | None:
    for name in names:
        if name not in given:
            continue
        of_type = name.replace("location", "type")
        kind = given.get(of_type, "PEM").upper()
        if kind not in _STORE_TYPES:
            raise ValueError(f"kafka.{of_type} must be one of {', '.join(_STORE_TYPES)} here, not {kind}")
        if not Path(given[name]).is_file():
            raise ValueError(f"kafka.{name}: there is no file {given[name]!r}")
        return given[name]
    return None


def _login(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the mechanism, and as whom to log in."""
    text = given.get("sasl.jaas.config", "")
    module = parse_login_module(text) if text else LoginModule("", {})
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "")).upper()
    if why := REFUSED.get(module.name) or REFUSED.get(_MODULES_OF.get(mechanism, "")):
        raise ValueError(f"kafka.sasl.mechanism {mechanism or module.name}: {why}")
    if mechanism not in MECHANISMS:
        raise ValueError(f"kafka.sasl.mechanism must be one of {', '.join(MECHANISMS)}, not {mechanism!r}")
    for name in ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class"):
        if given.get(name, _HANDLER).rpartition(".")[2] != _HANDLER:
            raise ValueError(
                f"kafka.{name}: {given[name]} is a class of Java's, and none runs here; Kafka's own {_HANDLER} is known"
            )
    if mechanism == BEARER:
        return {"mechanism": mechanism, "tokens": _token_source(given, module.options)}
    username = given.get("sasl.username", module.options.get("username"))
    password = given.get("sasl.password", module.options.get("password"))
    if username is None or password is None:
        raise ValueError(
            "SASL needs kafka.sasl.jaas.config with username and password, each in double quotes"
        )
    is_token = module.options.get("tokenauth", "false").lower() == "true" and mechanism in _SCRAM
    return {"mechanism": mechanism, "username": username, "password": password, "tokenauth": is_token}


def _token_source(given: Mapping[str, str], options: Mapping[str, str]) -> TokenSource:
    url = given.get("sasl.oauthbearer.token.endpoint.url", "")
    if not url.startswith(("https:", "http:", "file:")):
        raise ValueError(
            "OAUTHBEARER needs kafka.sasl.oauthbearer.token.endpoint.url: the http(s) URL that gives tokens, or file:"
        )
    prefixes = ("sasl.oauthbearer.client.credentials.client.", "sasl.oauthbearer.client.")
    named = [
        next((given[p + what] for p in prefixes if p + what in given), None) for what in ("id", "secret")
    ]
    client_id = named[0] or options.get("clientId", "")
    secret = named[1] or options.get("clientSecret", "")
    if not url.startswith("file:") and not (client_id and secret):
        raise ValueError(
            "OAUTHBEARER needs clientId and clientSecret in kafka.sasl.jaas.config, or as "
            "kafka.sasl.oauthbearer.client.credentials.client.id and .client.secret"
        )
    scope = given.get("sasl.oauthbearer.scope", options.get("scope", ""))
    extensions = tuple(
        (name.removeprefix(_EXTENSION), value)
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    )
    return TokenSource(url, client_id, secret, scope, None, extensions)


def _bearer(tokens: TokenSource) -> Login:
    first = yield tokens.first_message  # asks an identity provider, perhaps
    refused = yield first
    if refused:  # RFC 7628: why, as JSON; the client is to say so much and then hears the error
        yield b"\1"


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
