"""Certificates and keys as PEM text, from the forms that files have: PEM itself, or PKCS 12."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.base.errors import InvalidConfig

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_JKS_MAGIC = b"\xfe\xed\xfe\xed"


def read_identity(path: Path, password: str, setting: str, form: str | None = None) -> bytes:
    """Return the private key, its certificate and the chain of one file; raise `InvalidConfig`.

    ``form`` is what the file must be: PEM, PKCS12, or JKS, a name that Java also uses for PKCS 12 stores.
    """
    content = _read(path, setting, form)
    return content if is_pem(content) else _identity(content, path, password, setting)


def read_trust(path: Path, password: str, setting: str, form: str | None = None) -> bytes:
    """Return the certificates of one file, which must have that form; raise `InvalidConfig`."""
    content = _read(path, setting, form)
    return content if is_pem(content) else _trust(content, path, password, setting)


def _read(path: Path, setting: str, form: str | None) -> bytes:
    content = read_file(path, setting)
    if form is not None and (form == "PEM") != is_pem(content):
        found = "PEM text" if is_pem(content) else "no PEM text"
        kind = setting.replace(".location", ".type")
        raise InvalidConfig(f"configuration {setting}: {path} is {found}, and {kind} says {form}")
    return content


def read_file(path: Path, setting: str) -> bytes:
    """Return a file's content; `InvalidConfig` names the setting and the file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidConfig(f"configuration {setting}: {path} cannot be read: {error.strerror}") from None


def is_pem(content: bytes) -> bool:
    """True if this is PEM text."""
    return b"-----BEGIN " in content


def _identity(content: bytes, path: Path, password: str, setting: str) -> bytes:
    from cryptography.hazmat.primitives import serialization

    store = _open(content, path, password, setting)
    if store.key is None or store.cert is None:
        raise InvalidConfig(f"configuration {setting}: {path} holds no private key with its certificate")
    key = store.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = [store.cert, *store.additional_certs]
    return key + b"".join(each.certificate.public_bytes(serialization.Encoding.PEM) for each in chain)


def _trust(content: bytes, path: Path, password: str, setting: str) -> bytes:
    from cryptography.hazmat.primitives import serialization

    store = _open(content, path, password, setting)
    trusted = [*([store.cert] if store.cert else []), *store.additional_certs]
    return b"".join(each.certificate.public_bytes(serialization.Encoding.PEM) for each in trusted)


def _open(content: bytes, path: Path, password: str, setting: str) -> PKCS12KeyAndCertificates:
    from cryptography.hazmat.primitives.serialization import pkcs12

    if content.startswith(_JKS_MAGIC):
        raise InvalidConfig(
            f"configuration {setting}: {path} is a Java key store; make a PKCS12 one of it with "
            "keytool -importkeystore -deststoretype PKCS12"
        )
    try:
        return pkcs12.load_pkcs12(content, password.encode() or None)
    except ValueError as error:
        raise InvalidConfig(
            f"configuration {setting}: {path} is neither PEM nor a PKCS12 store that the password opens ({error})"
        ) from None
