"""librdkafka for the commands that move records: how it is set up, and its errors in our words."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from magnetar.admin.errors import AdminError, Declined, Unreachable
from magnetar.admin.refusals import refusal

_quiet = logging.getLogger("magnetar.cli.librdkafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


def client_options(bootstrap: str, own: Mapping[str, Any], given: list[str] | None) -> dict[str, Any]:
    """Give librdkafka's configuration: ours, what `credentials` says, then what the operator gave as ``NAME=VALUE``."""
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


def failed(error: Any, what: str) -> AdminError:
    """Give an error of librdkafka (a ``KafkaError``) in our words."""
    if error.code() > 0:
        return refusal(error.code(), None, what)
    if error.name() in ("_ALL_BROKERS_DOWN", "_TRANSPORT", "_TIMED_OUT", "_MSG_TIMED_OUT", "_RESOLVE"):
        return Unreachable(
            f"{what}: {error.str()}",
            "Is the broker up? 'magnetar why TOPIC-PARTITION' says what stands in a partition's way.",
        )
    return Declined(f"{what}: {error.str()} ({error.name()})")
