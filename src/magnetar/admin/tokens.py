"""Making, showing and checking tokens and their keys, as Pulsar's ``bin/pulsar tokens`` does; no broker is asked."""

from __future__ import annotations

import base64
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magnetar.admin.errors import Declined, Invalid
from magnetar.auth.keys import CURVE_ALGORITHM, RSA_ALGORITHMS, SECRET_BITS, private_key, read_location
from magnetar.auth.tokens import TokenInvalid, TokenVerifier
from magnetar.base.errors import InvalidConfig
from magnetar.settings.settings import Settings

ALGORITHMS = (*SECRET_BITS, *RSA_ALGORITHMS, *CURVE_ALGORITHM.values())
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}


@dataclass(frozen=True, slots=True)
class Shown:
    """What is written in a token, whether it is true or not."""

    header: dict[str, Any]
    claims: dict[str, Any]


def new_secret(algorithm: str = "HS256") -> bytes:
    """Return a new secret key, as long as the algorithm asks for."""
    if algorithm not in SECRET_BITS:
        raise Invalid(f"{algorithm} has no secret key", f"One of {', '.join(SECRET_BITS)}.")
    return secrets.token_bytes(SECRET_BITS[algorithm] // 8)


def new_key_pair(algorithm: str = "RS256") -> tuple[bytes, bytes]:
    """Return a new private and public key, in DER as Pulsar writes them."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    if algorithm in RSA_ALGORITHMS:
        key = rsa.generate_private_key(65537, 2048)
    elif algorithm in CURVE_ALGORITHM.values():
        curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
        key = ec.generate_private_key(curves[algorithm])
    else:
        raise Invalid(f"{algorithm} has no key pair", f"One of {', '.join(ALGORITHMS[len(SECRET_BITS) :])}.")
    private = key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private, public


def create(
    subject: str,
    secret: str | None,
    private: str | None,
    *,
    algorithm: str | None = None,
    lives_s: float | None = None,
    claims: dict[str, Any] | None = None,
) -> str:
    """Return a signed token for a role; raise `Invalid` for keys that do not fit."""
    import jwt

    if bool(secret) == bool(private):
        raise Invalid("a token is signed with one key", "Give --secret-key or --private-key.")
    key: Any
    try:
        if secret:
            key, fitting = read_location(secret, "--secret-key"), tuple(SECRET_BITS)
            fitting = tuple(name for name in fitting if len(key) * 8 >= SECRET_BITS[name])
        else:
            from magnetar.auth.keys import algorithms_of

            key = private_key(read_location(private or "", "--private-key"))
            fitting = algorithms_of(key, "--private-key")
    except InvalidConfig as error:
        raise Invalid(str(error)) from None
    chosen = algorithm or (fitting[0] if fitting else "")
    if chosen not in fitting:
        raise Invalid(
            f"the key is not for {chosen or 'any algorithm'}", f"It is for {', '.join(fitting) or 'none'}."
        )
    content: dict[str, Any] = {"sub": subject, **(claims or {})}
    if lives_s is not None:
        content["exp"] = int(time.time() + lives_s)
    return jwt.encode(content, key, chosen)


def show(token: str) -> Shown:
    """Return what a token says, without believing it; raise `Invalid` for what is none."""
    import jwt

    try:
        parts = jwt.api_jwt.decode_complete(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError) as error:
        raise Invalid(
            f"this is no token: {error}",
            "Give one as 'magnetar token create' prints it: three parts, two dots.",
        ) from None
    return Shown(parts["header"], parts["payload"])


def validate(token: str, settings: dict[str, str]) -> dict[str, Any]:
    """Return the claims of a token that a broker with these settings would take; raise `Declined` for another."""
    try:
        told = Settings().with_values(settings)
        verifier = TokenVerifier(told.security, told.given)
        if not verifier.has_keys:
            raise Invalid("a token is checked with a key", "Give --secret-key, --public-key or --jwks.")
        return verifier.verify(token).claims
    except InvalidConfig as error:
        raise Invalid(str(error)) from None
    except TokenInvalid as error:
        raise Declined(
            f"the token is not good: {error}", "'magnetar token show' tells what stands in it; make another."
        ) from None


def read_token(given: str | None, file: Path | None, piped: str) -> str:
    """Return the token from the argument, a file, or what is piped in."""
    if given is not None:
        text = given
    elif file is not None:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"{file} cannot be read: {error}", "Look at the path and its rights.") from None
    else:
        text = piped
    text = text.strip().removeprefix("token:")
    if not text:
        raise Invalid("which token?", "Give it as an argument, with --token-file, or pipe it in.")
    return text


def duration_s(text: str) -> float:
    """Read ``30s``, ``10m``, ``2h``, ``7d``, ``4w`` or ``1y``; raise `Invalid`."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and unit in _UNITS):
        raise Invalid(f"{text!r} is no duration", "Write a number and one of s, m, h, d, w, y, as in 30d.")
    return int(number) * _UNITS[unit]


def encoded(key: bytes, *, base64_text: bool) -> bytes:
    """Return a key as it is written: raw, or in base64."""
    return base64.b64encode(key) if base64_text else key
