"""Identity and trust of a client, from the command line's options and the environment, as Kafka client settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from magnetar.admin.errors import Invalid

NAMES = (
    "user", "password", "password_file", "token", "token_file", "sasl_mechanism", "tls_ca", "tls_cert", "tls_key",
    "tls_any_name",
)  # fmt: skip
"""Options; the environment's variables are ``MAGNETAR_`` and the name in capitals."""


def client_settings(given: dict[str, Any]) -> dict[str, str]:
    """Return the client settings that options say, by the names in `NAMES`; raise `Invalid`."""
    made: dict[str, str] = {}
    password = _secret(given, "password")
    token = _secret(given, "token")
    if password is not None and token is not None:
        raise Invalid("a password and a token", "Give one of them.")
    user = given.get("user")
    if token is not None:
        made |= {"sasl.username": user or "public", "sasl.password": f"token:{token}"}
    elif password is not None or user is not None:
        if password is None or user is None:
            raise Invalid("a login needs a user and a password", "Give --user and --password-file.")
        made |= {"sasl.username": user, "sasl.password": password}
    if made:
        made["sasl.mechanism"] = (given.get("sasl_mechanism") or "PLAIN").upper()
    ca = given.get("tls_ca")
    named = {
        "ssl.ca.location": None if ca == "system" else ca,
        "ssl.certificate.location": given.get("tls_cert"),
        "ssl.key.location": given.get("tls_key"),
        "ssl.endpoint.identification.algorithm": {"yes": "none", None: None}.get(
            given.get("tls_any_name"), "https"
        ),
    }
    made |= {name: str(Path(text).absolute()) if name.endswith("location") else text
             for name, text in named.items() if text is not None}  # fmt: skip
    if ca == "system":
        made["security.protocol"] = "SSL"
    return made


def environment_settings() -> dict[str, str]:
    """Return the client settings that the environment's variables say; raise `Invalid`."""
    return client_settings({name: os.environ.get(f"MAGNETAR_{name.upper()}") or None for name in NAMES})


def _secret(given: dict[str, Any], name: str) -> str | None:
    file = given.get(f"{name}_file")
    if file is None:
        found = given.get(name)
        return None if found is None else str(found)
    if given.get(name) is not None:
        raise Invalid(f"a {name} and a file with one", "Give one of them.")
    try:
        text = sys.stdin.readline() if str(file) == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"--{name}-file {file} cannot be read: {error}") from None
    return text.rstrip("\r\n")
