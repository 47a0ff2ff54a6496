"""TLS to bookies, by the settings of Pulsar brokers.

A connection begins in plain: a question of BookKeeper's version 3 (START_TLS) is answered, and then both shake hands.
BookKeeper's own client does that, in Java; this module is for the client without a JVM.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from magnetar.ledger.errors import StorageFailed

PROVIDER = "org.apache.bookkeeper.tls.TLSContextFactory"
START_TLS = bytes.fromhex("0a06 0803 1009 1801 d20600".replace(" ", ""))
"""The question: header (version 3, operation 9, number 1), and nothing in field 106."""


@dataclass(frozen=True, slots=True)
class BookieTls:
    """Trusted authorities, and own certificate and key: a value that a driver sends to tasks. All are paths."""

    trust_file: str
    certificate_file: str = ""
    key_file: str = ""
    key_type: str = "PEM"
    trust_type: str = "PEM"
    key_password_file: str = ""
    trust_password_file: str = ""
    verify_host: bool = False
    """Whether a bookie's certificate must name its address; Pulsar brokers do not check that by default."""
    provider: str = PROVIDER
    refresh_s: int = 300

    def context(self) -> ssl.SSLContext:
        """Return TLS for Python's sockets; raise ``StorageFailed`` for a file that is not PEM or cannot be read."""
        if {self.key_type.upper(), self.trust_type.upper()} != {"PEM"}:
            raise StorageFailed(
                "bookies are read with PEM files here: set bookkeeperTLSKeyFileType and bookkeeperTLSTrustCertTypes "
                "to PEM, and convert Java's stores ('openssl pkcs12 -nodes')"
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.verify_host
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Java trusts what is in a store
        try:
            context.load_verify_locations(self.trust_file)
            if self.certificate_file:
                password = Path(self.key_password_file).read_text().strip() if self.key_password_file else ""
                context.load_cert_chain(self.certificate_file, self.key_file or None, lambda: password)
        except (OSError, ValueError) as error:
            files = ", ".join(filter(None, (self.trust_file, self.certificate_file, self.key_file)))
            raise StorageFailed(f"TLS to bookies cannot be set up from {files}: {error}") from None
        return context


def refused(bookie: str, error: ssl.SSLError) -> str:
    """Return the cause of a failed handshake, and what to do about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of bookie {bookie} is not to be trusted ({error.verify_message}): "
            "bookkeeperTLSTrustCertsFilePath must have the authority that signed it"
        )
    return f"no TLS with bookie {bookie}: {error.reason or error}"
