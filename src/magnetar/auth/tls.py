"""TLS of listeners: certificate and trusted authorities from files, read again when these change.

A changed file is noticed when the next client connects, and that client gets the new content; existing connections
stay as they are. For files that cannot be used, because they are half written or do not fit each other, a warning is
logged once, and what was in force stays.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magnetar.auth import stores
from magnetar.base.errors import InvalidConfig
from magnetar.settings.security import SecuritySettings

HANDSHAKE_TIMEOUT_S = 15.0
SHUTDOWN_TIMEOUT_S = 5.0
_LOOK_AGAIN_S = 0.5
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_log = logging.getLogger("magnetar.tls")


@dataclass(frozen=True, slots=True)
class TlsSource:
    """The source of a listener's TLS. ``identity`` and ``trust`` read PEM text; ``files`` are all they read."""

    identity: Callable[[], bytes]
    trust: Callable[[], bytes] | None
    files: tuple[Path, ...]
    client_auth: str
    """none, requested or required"""
    versions: tuple[str, ...]
    ciphers: str = ""
    key_password: str = ""


class ServerContext(ssl.SSLContext):
    """A context for ``create_server(ssl=...)``. Each connection gets a session of the newest certificate and trust."""

    _source: TlsSource
    _current: ssl.SSLContext
    _seen: tuple[object, ...]
    _looked: float

    def __new__(cls, source: TlsSource) -> ServerContext:
        """Raise `InvalidConfig` for files that cannot be used."""
        made = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        made._source = source
        made._seen = _signatures(source.files)
        made._current = _build(source)
        made._looked = time.monotonic()
        return made

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Begin a session (asyncio and uvloop call this for each connection)."""
        self._look_again()
        return self._current.wrap_bio(*arguments, **options)

    def ends_at(self) -> float | None:
        """Return when the first of its certificates expires, in Unix time; None if they cannot be read now."""
        from cryptography import x509

        try:
            chain = x509.load_pem_x509_certificates(self._source.identity())
        except (InvalidConfig, ValueError):
            return None
        return min(each.not_valid_after_utc.timestamp() for each in chain)

    def _look_again(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_AGAIN_S:
            return
        self._looked = now
        seen = _signatures(self._source.files)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._current = _build(self._source)
        except InvalidConfig as error:
            _log.error("the changed TLS files are not used, those before them stay in force: %s", error)
        else:
            _log.info("TLS files have changed and are in force: %s", ", ".join(map(str, self._source.files)))


def kafka_tls(settings: SecuritySettings, client_auth: str) -> ServerContext:
    """Return the TLS of a Kafka listener: from ``ssl.*``, otherwise from ``tls.*``; raise `InvalidConfig`."""
    return ServerContext(_source(settings, client_auth))


def kafka_client_auth(settings: SecuritySettings) -> str:
    """Return whether Kafka clients show certificates: none, requested or required."""
    if settings.ssl_client_auth == "none" and settings.tls_require_trusted_client_cert_on_connect:
        return "required"
    return settings.ssl_client_auth


def pulsar_tls(settings: SecuritySettings) -> ServerContext:
    """Return the TLS of pulsar+ssl and https: from ``tls.*``, otherwise from ``ssl.*``; raise `InvalidConfig`.

    Where authorities are trusted, a client may show a certificate, and then must show a good one.
    """
    return ServerContext(_source(settings, pulsar_client_auth(settings), pulsar_first=True))


def pulsar_client_auth(settings: SecuritySettings) -> str:
    """Return whether Pulsar clients show certificates: none, requested or required."""
    if settings.tls_require_trusted_client_cert_on_connect:
        return "required"
    return "requested" if _has_trust(settings) else "none"


def _source(settings: SecuritySettings, client_auth: str, *, pulsar_first: bool = False) -> TlsSource:
    identities = [_kafka_identity(settings), _pulsar_identity(settings)]
    trusts = [_kafka_trust(settings), _pulsar_trust(settings)]
    if pulsar_first:
        identities.reverse()
        trusts.reverse()
    identity = next((each for each in identities if each), None)
    if identity is None:
        raise InvalidConfig(
            "a TLS listener needs a certificate: set ssl.keystore.location (PEM or PKCS12), or "
            "tls.certificate.file.path and tls.key.file.path"
        )
    trust = next((each for each in trusts if each), None)
    if client_auth == "none":
        trust = None
    elif trust is None:
        raise InvalidConfig(
            "to ask clients for certificates, name the authorities that they must come from: set "
            "ssl.truststore.location or tls.trust.certs.file.path"
        )
    return TlsSource(
        identity[0],
        trust[0] if trust else None,
        identity[1] + (trust[1] if trust else ()),
        client_auth,
        settings.tls_protocols,
        settings.tls_ciphers,
        settings.ssl_key_password,
    )


_Reading = tuple[Callable[[], bytes], tuple[Path, ...]]


def _kafka_identity(settings: SecuritySettings) -> _Reading | None:
    if settings.ssl_keystore_location and settings.ssl_keystore_key:
        raise InvalidConfig(
            "a listener has a key store (ssl.keystore.location) or a key of its own (ssl.keystore.key), not both"
        )
    if settings.ssl_keystore_location:
        path = Path(settings.ssl_keystore_location)
        password, form = settings.ssl_keystore_password, settings.ssl_keystore_type
        return lambda: stores.read_identity(path, password, "ssl.keystore.location", form), (path,)
    if settings.ssl_keystore_key or settings.ssl_keystore_certificate_chain:
        text = _inline(settings.ssl_keystore_key) + b"\n" + _inline(settings.ssl_keystore_certificate_chain)
        return lambda: text, ()
    return None


def _pulsar_identity(settings: SecuritySettings) -> _Reading | None:
    if not settings.tls_certificate_file_path:
        return None
    certificate = Path(settings.tls_certificate_file_path)
    # As in Kafka's PEM files, the key may be in the same file.
    key = Path(settings.tls_key_file_path) if settings.tls_key_file_path else certificate

    def read() -> bytes:
        text = stores.read_file(key, "tls.key.file.path")
        if key != certificate:
            text += b"\n" + stores.read_file(certificate, "tls.certificate.file.path")
        return text

    return read, (certificate, key)


def _kafka_trust(settings: SecuritySettings) -> _Reading | None:
    if settings.ssl_truststore_location:
        path = Path(settings.ssl_truststore_location)
        password, form = settings.ssl_truststore_password, settings.ssl_truststore_type
        return lambda: stores.read_trust(path, password, "ssl.truststore.location", form), (path,)
    if settings.ssl_truststore_certificates:
        text = _inline(settings.ssl_truststore_certificates)
        return lambda: text, ()
    return None


def _pulsar_trust(settings: SecuritySettings) -> _Reading | None:
    if not settings.tls_trust_certs_file_path:
        return None
    path = Path(settings.tls_trust_certs_file_path)
    return lambda: stores.read_trust(path, "", "tls.trust.certs.file.path"), (path,)


def _has_trust(settings: SecuritySettings) -> bool:
    return bool(_kafka_trust(settings) or _pulsar_trust(settings))


def _inline(text: str) -> bytes:
    """Return PEM text from one line of a properties file, where line breaks are written as ``\\n``."""
    return text.replace("\\n", "\n").encode()


def _build(source: TlsSource) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[version] for version in source.versions] or list(_VERSIONS.values())
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    # A resumed session would bypass the check of a certificate that is not trusted any more.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    context.sslobject_class = _Session
    try:
        if source.ciphers:
            context.set_ciphers(source.ciphers)
        _load_identity(context, source.identity(), source.key_password)
        context.verify_mode = _VERIFY[source.client_auth]
        if source.trust is not None:
            # As in Java: a certificate in the store is trusted itself, even without its root.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(cadata=source.trust().decode("ascii", "replace"))
    except (ssl.SSLError, ValueError, OSError) as error:
        files = ", ".join(map(str, source.files)) or "the settings"
        raise InvalidConfig(f"TLS cannot be set up from {files}: {error}") from None
    return context


def _load_identity(context: ssl.SSLContext, text: bytes, password: str) -> None:
    # OpenSSL wants a file; this one is in memory only, so that no key is written anywhere else.
    number = os.memfd_create("identity", os.MFD_CLOEXEC)
    with os.fdopen(number, "wb") as file:
        file.write(text)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{number}", password=lambda: password)


class _Session(ssl.SSLObject):
    """One client's TLS; a handshake that fails is logged, which the event loop would not do."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            _log.warning("TLS handshake failed: %s", error)
            raise


def _signatures(files: tuple[Path, ...]) -> tuple[object, ...]:
    return tuple(_signature(file) for file in files)


def _signature(file: Path) -> object:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
