"""How to come to a ZooKeeper that wants TLS or a login, by the file that Java's own client reads.

Pulsar's ``metadataStoreConfigPath`` names a file of ZooKeeper's client properties, so what stands there serves both of
a broker's clients: BookKeeper's, in Java, which is given them as they are, and kazoo.

    zookeeper.client.secure=true                          TLS
    zookeeper.ssl.trustStore.location, .type              whom to trust; for kazoo a file of PEM
    zookeeper.ssl.keyStore.location, .password, .type     a certificate of one's own with its key, in one file of PEM
    zookeeper.ssl.hostnameVerification                    true by default
    java.security.auth.login.config                       a JAAS file with a DigestLoginModule: SASL with DIGEST-MD5
    zookeeper.sasl.client, zookeeper.sasl.clientconfig    false for no login; the section of that file (Client)
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
_SOCKET = "zookeeper.clientCnxnSocket"
_FIPS = "zookeeper.fips-mode"
_JAAS = "java.security.auth.login.config"
_SECTION = re.compile(r"([\w.-]+)\s*\{(.*?)\}\s*;", re.DOTALL)
_OPTION = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_COMMENT = re.compile(r"/\*.*?\*/|^\s*//[^\n]*", re.DOTALL | re.MULTILINE)


class InvalidZooKeeperConfig(ValueError):
    """What the file says cannot be; the message names the file and what to do."""


@dataclass(frozen=True)
class ZooKeeperSecurity:
    """What a client of ZooKeeper's proves itself with, and whom it trusts. Paths are those of PEM files."""

    tls: bool = False
    trust: str = ""
    """Empty for whom the system trusts."""
    identity: str = ""
    """A certificate and its key; empty for none."""
    identity_password: str = field(default="", repr=False)
    verify_host: bool = True
    user: str = ""
    """Empty for no login."""
    password: str = field(default="", repr=False)
    for_java: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Java's system properties that say the same."""

    @classmethod
    def read(cls, file: str) -> ZooKeeperSecurity:
        """Return what a file says, nothing for ''; raise `InvalidZooKeeperConfig`."""
        if not file:
            return cls()
        given = _properties(file)
        for_java = {name: value for name, value in given.items() if name.startswith("zookeeper.")}
        tls = _is_true(given, "zookeeper.client.secure", "false")
        trust, identity, password = "", "", ""
        if tls:
            for_java.setdefault(_SOCKET, _NETTY)  # Java's other kind of socket has no TLS
            trust, _ = _store(file, given, "trustStore")
            identity, password = _store(file, given, "keyStore")
        user, secret = "", ""
        if given.get(_JAAS):
            for_java[_JAAS] = given[_JAAS]  # where there is a login at bookies alone, too
        if given.get(_JAAS) and _is_true(given, "zookeeper.sasl.client", "true"):
            user, secret = _login(given[_JAAS], given.get("zookeeper.sasl.clientconfig", "Client"))
            # Its default, true, leaves DIGEST-MD5 out and says so in a log only.
            for_java.setdefault(_FIPS, "false")
        verify = _is_true(given, "zookeeper.ssl.hostnameVerification", "true")
        found = cls(tls, trust, identity, password, verify, user, secret, for_java)
        found.context()  # what is wrong is said now
        return found

    def context(self) -> ssl.SSLContext | None:
        """Return TLS as it is wanted, None for none; raise `InvalidZooKeeperConfig`."""
        if not self.tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.verify_host
        try:
            if self.trust:
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Java trusts what is in a store
                context.load_verify_locations(self.trust)
            else:
                context.load_default_certs()
            if self.identity:
                context.load_cert_chain(self.identity, password=lambda: self.identity_password)
        except (OSError, ValueError) as error:
            files = " and ".join(filter(None, (self.trust, self.identity)))
            raise InvalidZooKeeperConfig(f"TLS to ZooKeeper cannot be set up from {files}: {error}") from None
        return context

    def hint(self) -> str:
        """Return what to look at where no server is reached."""
        if not self.tls:
            return "does it want TLS (zookeeper.client.secure in metadataStoreConfigPath)?"
        if not self.identity:
            return "does it want a certificate (zookeeper.ssl.keyStore.location)?"
        return "is it the port for TLS (secureClientPort), and does it trust zookeeper.ssl.keyStore.location?"


def untrusted(server: str, error: ssl.SSLError) -> str:
    """Return what a handshake that failed means, and what to do about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message
        if "mismatch" in reason or "not valid for" in reason:
            advice = "name it as its certificate does, or set zookeeper.ssl.hostnameVerification=false"
        else:
            advice = "zookeeper.ssl.trustStore.location must have the authority that signed it"
        return f"the certificate of {server} is not to be trusted ({reason}): {advice}"
    return f"no TLS with {server} ({error.reason or error}): is that its secureClientPort?"


def _properties(file: str) -> dict[str, str]:
    try:
        text = Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidZooKeeperConfig(f"metadataStoreConfigPath={file} cannot be read: {error}") from None
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _is_true(given: Mapping[str, str], name: str, default: str) -> bool:
    return given.get(name, default).lower() == "true"


def _store(file: str, given: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return the path of a store of PEM, and its password."""
    prefix = f"zookeeper.ssl.{name}"
    place, kind = given.get(f"{prefix}.location", ""), given.get(f"{prefix}.type", "").upper()
    if not place:
        return "", ""
    if kind not in ("", "PEM") or (not kind and not place.lower().endswith(".pem")):
        raise InvalidZooKeeperConfig(
            f"{file}: {prefix}.location={place} must be PEM, with {prefix}.type=PEM: "
            "'keytool -importkeystore -deststoretype PKCS12' and 'openssl pkcs12 -nodes' make it of a Java key store"
        )
    password, secret = given.get(f"{prefix}.password", ""), given.get(f"{prefix}.passwordPath", "")
    if secret:
        try:
            password = Path(secret).read_text().strip()
        except OSError as error:
            raise InvalidZooKeeperConfig(f"{file}: {prefix}.passwordPath: {error}") from None
    return place, password


def _login(jaas: str, section: str) -> tuple[str, str]:
    try:
        text = _COMMENT.sub("", Path(jaas).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidZooKeeperConfig(f"{_JAAS}={jaas} cannot be read: {error}") from None
    body = dict(_SECTION.findall(text)).get(section)
    if body is None:
        raise InvalidZooKeeperConfig(f"{jaas} has no section {section}: zookeeper.sasl.clientconfig names it")
    options = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _OPTION.findall(body)}
    if "DigestLoginModule" not in body or not {"username", "password"} <= options.keys():
        raise InvalidZooKeeperConfig(
            f"{jaas}: {section} must have a DigestLoginModule with username and password; no other login is known"
        )
    return options["username"], options["password"]
