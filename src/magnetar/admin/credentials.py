"""How the command line connects to a secured broker: a file of Kafka's client settings, as Kafka's tools take one.

``MAGNETAR_COMMAND_CONFIG`` names it; the settings are those of `magnetar.client.security`. What is secret stays out of
command lines so, where everybody on the machine could read it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from magnetar.admin.errors import Invalid
from magnetar.client.security import ClientSecurity, parse_security

VARIABLE = "MAGNETAR_COMMAND_CONFIG"


def command_config(given: Path | None = None) -> Mapping[str, str]:
    """Return the client settings in that file, by names in lower case; none without one. Raises `Invalid`.

    ``given`` is another file.
    """
    named = os.environ.get(VARIABLE)
    file = given or (Path(named) if named else None)
    if file is None:
        return {}
    from magnetar.base.errors import InvalidConfig
    from magnetar.node.setting_sources import read_properties

    try:
        return {name.lower(): text for name, text in read_properties(file).items()}
    except InvalidConfig as error:
        raise Invalid(f"{given or VARIABLE}: {error}") from None


def security(given: Path | None = None) -> ClientSecurity:
    """Return what that file, or the one that is given, says about TLS and SASL; raises `Invalid`."""
    try:
        return parse_security(command_config(given))
    except ValueError as error:
        raise Invalid(f"{given or VARIABLE}: {error}".replace("kafka.", "")) from None


def librdkafka_options() -> dict[str, str]:
    """Return the same in librdkafka's names; raises `Invalid`."""
    if not command_config():
        return {}
    wanted = security()
    protocol = ("SASL_" if wanted.mechanism else "") + ("SSL" if wanted.tls else "PLAINTEXT")
    found = {
        "security.protocol": protocol,
        "sasl.mechanism": wanted.mechanism,
        "sasl.username": wanted.username or None,
        "sasl.password": wanted.password or None,
        "ssl.ca.location": wanted.trusted,
        "ssl.certificate.location": wanted.certificate,
        "ssl.key.location": wanted.key or wanted.certificate,
        "ssl.key.password": wanted.key_password,
        "ssl.endpoint.identification.algorithm": "none" if wanted.any_name else None,
    }
    return {name: text for name, text in found.items() if text is not None}
