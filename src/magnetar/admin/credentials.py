"""How the command line connects to a secured broker, in Kafka client settings (`magnetar.client.security`).

Options go before the environment's variables (`magnetar.admin.client_options`), these before the file that
``MAGNETAR_COMMAND_CONFIG`` names, as Kafka tools take one, and that before the context. So secrets can stay
out of command lines, which all users of the machine can read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from magnetar.admin.client_options import environment_settings
from magnetar.admin.errors import Invalid
from magnetar.client.security import ClientSecurity, parse_security

VARIABLE = "MAGNETAR_COMMAND_CONFIG"
_PROTOCOL = "security.protocol"
_options: dict[str, str] = {}
_context: dict[str, str] = {}


def use(*, options: Mapping[str, str] | None = None, context: Mapping[str, str] | None = None) -> None:
    """Set what this process connects with: the settings of its options and its context."""
    if options is not None:
        _options.clear()
        _options.update(options)
    if context is not None:
        _context.clear()
        _context.update(context)


def command_config(given: Path | None = None) -> Mapping[str, str]:
    """Return the client settings in force, by names in lower case; none where nothing is set. Raises `Invalid`.

    ``given`` is a file that stands for all of them.
    """
    if given is not None:
        return properties_of(given)
    named = os.environ.get(VARIABLE)
    base = properties_of(Path(named), VARIABLE) if named else dict(_context)
    return layered(layered(base, environment_settings()), _options)


def properties_of(file: Path, name: str = "") -> dict[str, str]:
    """Return the settings in a file; raise `Invalid`, which calls it by a name."""
    from magnetar.base.errors import InvalidConfig
    from magnetar.node.setting_sources import read_properties

    try:
        return {key.lower(): text for key, text in read_properties(file).items()}
    except InvalidConfig as error:
        raise Invalid(f"{name or file}: {error}") from None


def layered(below: Mapping[str, str], above: Mapping[str, str]) -> dict[str, str]:
    """Return settings with those above them; login and TLS come as a whole from above if it says anything of them."""
    if not above:
        return dict(below)
    before = below.get(_PROTOCOL, "PLAINTEXT").upper()
    asked = above.get(_PROTOCOL, "").upper()
    has_login = any(name.startswith("sasl.") for name in above)
    has_tls = asked.endswith("SSL") or any(name.startswith("ssl.") for name in above)
    kept = {
        name: text
        for name, text in below.items()
        if not (has_login and name.startswith("sasl.")) and not (has_tls and name.startswith("ssl."))
    }
    login = "SASL_" if has_login or before.startswith("SASL") else ""
    tls = "SSL" if has_tls or before.endswith("SSL") else "PLAINTEXT"
    return {**kept, **above, _PROTOCOL: login + tls}


def security(given: Path | None = None) -> ClientSecurity:
    """Return what is in force, or in the file that is given, about TLS and SASL; raises `Invalid`."""
    return security_of(command_config(given), str(given or VARIABLE))


def security_of(settings: Mapping[str, str], name: str) -> ClientSecurity:
    """Return what settings say about TLS and SASL; raises `Invalid`, which calls them by a name."""
    try:
        return parse_security(settings)
    except (ValueError, OSError) as error:
        raise Invalid(f"{name}: {error}".replace("kafka.", "")) from None


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
