"""Java's stores of keys and of those to trust, as PEM: what TLS in Python takes.

A store is known by how it begins, whatever its type is called: Java opens one as the other, too. JKS is Sun's own
format: entries one after the other, a digest behind them, and keys under a cipher made of SHA-1
(``sun.security.provider.JavaKeyStore`` and ``KeyProtector`` in OpenJDK).
"""

from __future__ import annotations

import hmac
import struct
from hashlib import sha1
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization import Encoding

_JKS, _JCEKS = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"
_KEY, _TRUSTED = 1, 2
_WHITENER = b"Mighty Aphrodite"
_DIGEST = 20


class StoreUnreadable(ValueError):
    """A file is no store, or the password does not open it."""


class KeyStore(NamedTuple):
    """What a store holds: certificates to trust, and a key with the chain of its certificate; all of it PEM."""

    trusted: str
    key_and_chain: str


def is_pem(content: bytes) -> bool:
    """Return whether a file is text of PEM."""
    return b"-----BEGIN " in content


def read_store(content: bytes, password: str, key_password: str | None = None) -> KeyStore:
    """Return what a store of JKS or PKCS12 holds; raise `StoreUnreadable`. A key's own password may be another."""
    if content.startswith(_JKS):
        return _read_jks(content, password, password if key_password is None else key_password)
    if content.startswith(_JCEKS):
        raise StoreUnreadable("it is a store of JCEKS; keytool -importkeystore makes PKCS12 of it")
    return _read_pkcs12(content, password)


def _read_pkcs12(content: bytes, password: str) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        store = pkcs12.load_pkcs12(content, password.encode() or None)
    except ValueError as error:
        raise StoreUnreadable(
            f"it is neither PEM, JKS nor a PKCS12 that the password opens ({error})"
        ) from None
    own = [] if store.cert is None else [store.cert]
    certificates = [_pem(each.certificate.public_bytes(_der())) for each in [*own, *store.additional_certs]]
    if store.key is None:
        return KeyStore("".join(certificates), "")
    key = _pem_of_key(store.key)
    return KeyStore("".join(certificates[1:] or certificates), key + "".join(certificates))


def _read_jks(content: bytes, password: str, key_password: str) -> KeyStore:
    body, digest = content[:-_DIGEST], content[-_DIGEST:]
    expected = sha1(password.encode("utf-16-be") + _WHITENER + body).digest()
    if password and not hmac.compare_digest(digest, expected):
        raise StoreUnreadable("the password does not open it, or it is damaged")
    trusted, own = [], ""
    try:
        version, count = struct.unpack_from(">II", body, 4)
        at = 12
        for _ in range(count):
            (tag,) = struct.unpack_from(">I", body, at)
            _, at = _sized(body, at + 4, ">H")  # the alias
            at += 8  # when it was made
            if tag == _KEY:
                protected, at = _sized(body, at, ">I")
                (certificates,) = struct.unpack_from(">I", body, at)
                chain, at = _certificates(body, at + 4, certificates, version)
                key = own or _pem_of_pkcs8(_opened(protected, key_password))
                own = own or key + "".join(chain)
            elif tag == _TRUSTED:
                chain, at = _certificates(body, at, 1, version)
                trusted += chain
            else:
                raise StoreUnreadable(f"it has an entry of kind {tag}, which JKS does not know")
    except (struct.error, IndexError):
        raise StoreUnreadable("it is cut short") from None
    return KeyStore("".join(trusted), own)


def _certificates(body: bytes, at: int, count: int, version: int) -> tuple[list[str], int]:
    found = []
    for _ in range(count):
        if version == 2:
            _, at = _sized(body, at, ">H")  # X.509
        content, at = _sized(body, at, ">I")
        found.append(_pem(content))
    return found, at


def _sized(body: bytes, at: int, form: str) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(form, body, at)
    at += struct.calcsize(form)
    if at + size > len(body):
        raise StoreUnreadable("it is cut short")
    return body[at : at + size], at + size


def _opened(protected: bytes, password: str) -> bytes:
    """Return the PKCS 8 of a protected key: a salt, the key xor a chain of digests that begins with it, and a check."""
    secret = password.encode("utf-16-be")
    cipher = _last_octets(protected)
    salt, hidden, check = cipher[:_DIGEST], cipher[_DIGEST:-_DIGEST], cipher[-_DIGEST:]
    stream, link = b"", salt
    while len(stream) < len(hidden):
        link = sha1(secret + link).digest()
        stream += link
    plain = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(sha1(secret + plain).digest(), check):
        raise StoreUnreadable("the password does not open its key")
    return plain


def _last_octets(der: bytes) -> bytes:
    """Return the content of the last part of a SEQUENCE: of EncryptedPrivateKeyInfo that is the cipher text."""
    at, content = _der_head(der, 0)
    end = at + content
    while True:
        start, size = _der_head(der, at)
        if start + size >= end:
            return der[start : start + size]
        at = start + size


def _der_head(der: bytes, at: int) -> tuple[int, int]:
    """Return where the content of a part of DER begins, and how long it is."""
    size = der[at + 1]
    if size < 0x80:
        return at + 2, size
    count = size & 0x7F
    return at + 2 + count, int.from_bytes(der[at + 2 : at + 2 + count], "big")


def _der() -> Encoding:
    from cryptography.hazmat.primitives import serialization

    return serialization.Encoding.DER


def _pem(der: bytes) -> str:
    import ssl

    return ssl.DER_cert_to_PEM_cert(der)


def _pem_of_pkcs8(der: bytes) -> str:
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    try:
        return _pem_of_key(load_der_private_key(der, None))
    except ValueError as error:
        raise StoreUnreadable(f"its key cannot be read: {error}") from None


def _pem_of_key(key: object) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    made: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # type: ignore[attr-defined]
    return made.decode()
