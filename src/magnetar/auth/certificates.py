"""The identity in a client's certificate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SHORT = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""The keywords of RFC 2253, by OpenSSL's names; others are shown as Java shows them, by their number."""
_MAIL, _MAIL_NUMBER, _IA5 = "emailAddress", "1.2.840.113549.1.9.1", 0x16
_SPECIAL = frozenset(',+"\\<>;')


def role_of(certificate: Mapping[str, Any]) -> str | None:
    """Return the common name of a verified certificate, as ``getpeercert()`` gave it; None if it has none."""
    for part in certificate.get("subject", ()):
        for name, value in part:
            if name == "commonName" and value:
                return str(value)
    return None


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """Return the whole name of a verified certificate as Kafka has it (RFC 2253): the last part first."""
    parts = reversed(certificate.get("subject", ()))
    return ",".join("+".join(_attribute(*each) for each in part) for part in parts)


def _attribute(name: str, value: str) -> str:
    if name == _MAIL and len(value) < 128:
        return f"{_MAIL_NUMBER}=#{bytes((_IA5, len(value))).hex()}{value.encode().hex()}"
    return f"{_SHORT.get(name, name)}={_escaped(value)}"


def _escaped(value: str) -> str:
    text = "".join(f"\\{each}" if each in _SPECIAL else each for each in value)
    if text.startswith(("#", " ")):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if len(text) > 1 and text.endswith(" ") else text
