"""Keys of tokens, from the locations in settings: ``file:``, ``data:``, a path, or base64, as Pulsar reads them.

    a secret        raw bytes; signs and verifies HS256 and, if long enough, HS384 and HS512
    a public key    PEM or DER (X.509 SubjectPublicKeyInfo); verifies RS and PS, or ES on the key's own curve

Which algorithms a key may verify follows from the key alone and never from the token, so a token cannot make a public
key pass for a secret, nor ask for no key at all.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from magnetar.base.errors import InvalidConfig

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

SECRET_BITS = {"HS256": 256, "HS384": 384, "HS512": 512}
"""The shortest secret of each algorithm (RFC 7518, 3.2)."""
RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVE_ALGORITHM = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_MIN_RSA_BITS = 2048


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key and the algorithms that it may verify; ``key_id`` None fits every token."""

    key: Any
    algorithms: tuple[str, ...]
    key_id: str | None = None


def read_location(location: str, setting: str) -> bytes:
    """Return the content of ``file:``, ``data:``, a path, or base64; `InvalidConfig` names the setting."""
    try:
        if location.startswith("file:"):
            return Path(unquote(urlsplit(location).path)).read_bytes()
        if location.startswith("data:"):
            return _data_url(location)
        if (path := file_of(location)) is not None:
            return path.read_bytes()
        return base64.b64decode(location, validate=True)
    except (OSError, ValueError, binascii.Error) as error:
        # A secret may be the text itself: it must not be in the message.
        raise InvalidConfig(
            f"configuration {setting} cannot be read: it is neither file:///path, data:;base64,..., the path of a file "
            f"that is there, nor base64 ({_without_secret(error)})"
        ) from None


def file_of(location: str) -> Path | None:
    """Return the file that a location names, if it names one that exists."""
    if location.startswith("file:"):
        return Path(unquote(urlsplit(location).path))
    try:
        path = Path(location)
        return path if location and path.is_file() else None
    except (OSError, ValueError):
        return None


def secret_key(secret: bytes, setting: str) -> VerificationKey:
    """Return the key that ``secret`` is; `InvalidConfig` if it could be guessed."""
    algorithms = tuple(name for name, bits in SECRET_BITS.items() if len(secret) * 8 >= bits)
    if not algorithms:
        raise InvalidConfig(
            f"Invalid value [hidden] for configuration {setting}: a secret key has at least 32 bytes, "
            f"and this one has {len(secret)}"
        )
    if secret.lstrip().startswith((b"-----BEGIN", b"ssh-rsa")):
        raise InvalidConfig(
            f"Invalid value [hidden] for configuration {setting}: this is a public or private key in PEM, not a secret"
        )
    return VerificationKey(secret, algorithms)


def public_key(content: bytes, setting: str) -> VerificationKey:
    """Return the public key in PEM or DER; `InvalidConfig` if it is none, or of an unsupported kind."""
    from cryptography.hazmat.primitives import serialization

    try:
        if content.lstrip().startswith(b"-----BEGIN"):
            key = serialization.load_pem_public_key(content)
        else:
            key = serialization.load_der_public_key(content)
    except Exception as error:  # cryptography raises many kinds
        raise InvalidConfig(f"configuration {setting} holds no public key in PEM or DER: {error}") from None
    return VerificationKey(key, algorithms_of(key, setting))


def private_key(content: bytes, password: bytes | None = None) -> PrivateKeyTypes:
    """Return the private key in PEM or DER (PKCS 8); raise `InvalidConfig`."""
    from cryptography.hazmat.primitives import serialization

    try:
        if content.lstrip().startswith(b"-----BEGIN"):
            return serialization.load_pem_private_key(content, password)
        return serialization.load_der_private_key(content, password)
    except Exception as error:  # as above
        raise InvalidConfig(f"no private key in PEM or DER: {error}") from None


def algorithms_of(key: Any, setting: str) -> tuple[str, ...]:
    """Return the algorithms that a public or private key (of `cryptography`) can be used for."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(key, rsa.RSAPublicKey | rsa.RSAPrivateKey):
        if key.key_size < _MIN_RSA_BITS:
            raise InvalidConfig(f"configuration {setting}: an RSA key has at least {_MIN_RSA_BITS} bits")
        return RSA_ALGORITHMS
    if isinstance(key, ec.EllipticCurvePublicKey | ec.EllipticCurvePrivateKey):
        algorithm = CURVE_ALGORITHM.get(key.curve.name)
        if algorithm is not None:
            return (algorithm,)
    raise InvalidConfig(f"configuration {setting}: the key is neither RSA nor on curve P-256, P-384 or P-521")


def _data_url(location: str) -> bytes:
    header, comma, content = location.removeprefix("data:").partition(",")
    if not comma:
        raise ValueError("a data URL has a comma")
    raw = unquote_to_bytes(content)
    return base64.b64decode(raw, validate=True) if header.endswith(";base64") else raw


def _without_secret(error: Exception) -> str:
    return f"{error.strerror}" if isinstance(error, OSError) else type(error).__name__
