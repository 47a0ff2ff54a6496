"""librdkafka for the commands that move records: how it is set up, and its errors in our words."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from magnetar.admin.errors import AdminError, Declined, Invalid, NotThere, Unreachable
from magnetar.admin.refusals import refusal

Client = TypeVar("Client")
_quiet = logging.getLogger("magnetar.cli.librdkafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


def client_options(bootstrap: str, own: Mapping[str, Any], given: list[str] | None) -> dict[str, Any]:
    """Return librdkafka's configuration: ours, what `credentials` says, then what the operator gave as
    ``NAME=VALUE``.
    """
    from magnetar.admin.configs import parse_configs
    from magnetar.admin.credentials import librdkafka_options

    return {
        "bootstrap.servers": bootstrap,
        "client.id": "magnetar-cli",
        "logger": _quiet,
        **librdkafka_options(),
        **own,
        **parse_configs(given or []),
    }


def made(kind: Callable[[dict[str, Any]], Client], options: dict[str, Any]) -> Client:
    """Make a client of librdkafka; raise `Invalid` for an option that it does not take."""
    from confluent_kafka import KafkaException

    try:
        return kind(options)
    except KafkaException as error:
        raise Invalid(
            f"librdkafka cannot be set up so: {error.args[0].str()}",
            "Look at --option, and at the file that MAGNETAR_COMMAND_CONFIG names; "
            "librdkafka's CONFIGURATION.md lists what it takes.",
        ) from None


def failed(error: Any, what: str) -> AdminError:
    """Return an error of librdkafka (a ``KafkaError``) in our words."""
    if error.code() > 0:
        return refusal(error.code(), None, what)
    if error.name() in ("_ALL_BROKERS_DOWN", "_TRANSPORT", "_TIMED_OUT", "_MSG_TIMED_OUT", "_RESOLVE"):
        return Unreachable(
            f"{what}: {error.str()}",
            "Is the broker up, and at --bootstrap-server or MAGNETAR_BOOTSTRAP_SERVER? If so, "
            "'magnetar why TOPIC-PARTITION' says what stands in a partition's way.",
        )
    if error.name() in ("_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"):
        return NotThere(f"{what}: {error.str()}", "'magnetar topic describe TOPIC' shows its partitions.")
    if error.name() in ("_AUTHENTICATION", "_SSL"):
        return Declined(
            f"{what}: {error.str()}",
            "MAGNETAR_COMMAND_CONFIG names a file with security.protocol, who you are, and the certificates.",
        )
    return Declined(f"{what}: {error.str()} ({error.name()})", "The broker's log may say more.")
