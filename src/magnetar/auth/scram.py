"""SCRAM, the broker's side of it (RFC 5802, RFC 7677), as Kafka speaks it: without channel binding.

    client  n,,n=alice,r=<nonce>                    the user it wants to be
    broker  r=<nonce><more>,s=<salt>,i=<iterations> the parameters of the proof
    client  c=biws,r=<nonce><more>,p=<proof>        that it knows the password
    broker  v=<signature>                           that the broker knows it, too

What the broker stores of a password (`Credential`) is not enough to log in as its user. Bytes in, bytes out; the caller
looks up the credential. Names and passwords are UTF-8 as they came, as in Kafka: letters that look the same are not
normalized (SASLprep).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""Kafka's bounds: a client does this work for each login, and the user that sets its password chooses how much."""
_SALT_BYTES = 24
_NONCE_BYTES = 24
MAX_NAME_BYTES: Final = 1024
MAX_MESSAGE_BYTES: Final = 16 << 10
"""The largest message of a client: it is parsed while others wait, at 0.2 us a byte."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One of the two mechanisms. ``number`` is the one in Kafka requests, ``digest`` the hash's name in Python."""

    name: str
    number: int
    digest: str
    size: int
    """The size of the hash in bytes."""

    def mac(self, key: bytes, message: bytes) -> bytes:
        """Return the HMAC."""
        return hmac.digest(key, message, self.digest)

    def hash(self, content: bytes) -> bytes:
        """Return the hash."""
        return hashlib.new(self.digest, content).digest()


MECHANISMS: Final = {
    each.name: each
    for each in (
        Mechanism("SCRAM-SHA-256", 1, "sha256", 32),
        Mechanism("SCRAM-SHA-512", 2, "sha512", 64),
    )
}


class ScramRefused(Exception):
    """The exchange ends here. The message is for the log alone: a client learns only that it is refused."""


@dataclass(frozen=True, slots=True)
class Credential:
    """The stored form of a password: enough to check it, and to prove that it is known. It is hidden when printed."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def salted(mechanism: Mechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return ``Hi(password, salt, iterations)``. This takes milliseconds, as it is meant to."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password, salt, iterations)


def of_salted_password(
    mechanism: Mechanism, salted_password: bytes, salt: bytes, iterations: int
) -> Credential:
    """Return the credential of a password that the client has salted itself."""
    stored = mechanism.hash(mechanism.mac(salted_password, b"Client Key"))
    return Credential(iterations, salt, stored, mechanism.mac(salted_password, b"Server Key"))


def of_password(mechanism: Mechanism, password: str, iterations: int = MIN_ITERATIONS) -> Credential:
    """Return the credential of a password, with a new salt. This takes milliseconds."""
    salt = os.urandom(_SALT_BYTES)
    return of_salted_password(
        mechanism, salted(mechanism, password.encode(), salt, iterations), salt, iterations
    )


def impostor(mechanism: Mechanism, user: str, secret: bytes, like: Credential | None) -> Credential:
    """Return a credential that no password fits, for an unknown user.

    It is always the same for one name, and looks ``like`` others, so that answers do not reveal whether a user exists.
    """

    def made(what: bytes, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += hmac.digest(secret, b"%d %s %s" % (len(found), what, user.encode()), "sha512")
        return found[:size]

    iterations, size = (MIN_ITERATIONS, _SALT_BYTES) if like is None else (like.iterations, len(like.salt))
    return Credential(iterations, made(b"salt", size), os.urandom(mechanism.size), os.urandom(mechanism.size))


_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_VALUE = r"[^=,\0][^,\0]*"
_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<behalf>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]={_VALUE}|,tokenauth=true)*))"
)
_FINAL = re.compile(
    rf"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]={_VALUE})*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class ScramExchange:
    """One exchange: `first`, then `final`, each once."""

    def __init__(
        self,
        mechanism: Mechanism,
        credential_of: Callable[[str, bool], Credential] | None = None,
        nonce: str | None = None,
    ) -> None:
        """``credential_of(user, by_token)`` is for `first`: the credential of a user, or of a token."""
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._nonce = nonce or base64.b64encode(os.urandom(_NONCE_BYTES)).decode()
        self._credential: Credential
        self._header = b""
        self._bare = ""
        self._said = ""
        self.user = ""
        """The user that the client wants to be; it has proved that once `final` returned."""
        self.by_token = False
        """Whether it uses a delegation token, whose id ``user`` is then (KIP-48)."""

    def first(self, said: bytes) -> bytes:
        """Take the client's first message and return the challenge; raise `ScramRefused`."""
        assert self._credential_of is not None
        self.begin(said)
        return self.challenge(self._credential_of(self.user, self.by_token))

    def begin(self, said: bytes) -> None:
        """Take the client's first message, which names the user; raise `ScramRefused`."""
        found = _FIRST.fullmatch(_text(said))
        if found is None:
            raise ScramRefused("the client's first message is not SCRAM's without channel binding")
        if len(found["user"]) > MAX_NAME_BYTES:
            raise ScramRefused("the user's name is too long")
        self.user = _name(found["user"])
        if found["behalf"] is not None and _name(found["behalf"]) != self.user:
            raise ScramRefused("the client wants to act as another user than it is")
        self.by_token = ",tokenauth=true" in found["extensions"]
        self._header = found["header"].encode()
        self._nonce = found["nonce"] + self._nonce
        self._bare = found["bare"]

    def challenge(self, credential: Credential) -> bytes:
        """Return the challenge that a client must answer to log in as the user of a credential."""
        self._credential = credential
        salt = base64.b64encode(credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._said = f"{self._bare},{challenge}"
        return challenge.encode()

    def final(self, said: bytes) -> bytes:
        """Take the client's proof and return the broker's; raise `ScramRefused`."""
        found = _FINAL.fullmatch(_text(said))
        if found is None:
            raise ScramRefused("the client's last message is not SCRAM's")
        if not hmac.compare_digest(found["nonce"], self._nonce):
            raise ScramRefused("the client answers another challenge")
        if _bytes(found["binding"]) != self._header:
            raise ScramRefused("the client's last message belongs to another first one")
        mechanism, kept = self._mechanism, self._credential
        message = f"{self._said},{found['bare']}".encode()
        signature = mechanism.mac(kept.stored_key, message)
        proof = _bytes(found["proof"])
        if len(proof) != len(signature):
            raise ScramRefused("a proof of the wrong length")
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(mechanism.hash(key), kept.stored_key):
            raise ScramRefused("unknown user or wrong password")
        return b"v=" + base64.b64encode(mechanism.mac(kept.server_key, message))


def _text(said: bytes) -> str:
    if len(said) > MAX_MESSAGE_BYTES:
        raise ScramRefused(f"the client says {len(said)} bytes, of which there may be {MAX_MESSAGE_BYTES}")
    try:
        return said.decode()
    except UnicodeDecodeError:
        raise ScramRefused("what the client says is not UTF-8") from None


def _name(text: str) -> str:
    return text.replace("=2C", ",").replace("=3D", "=")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramRefused("what the client says is not base64") from None
