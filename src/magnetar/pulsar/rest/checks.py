"""What the admin REST holds the value of a policy against, a namespace's or a topic's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from magnetar.base.errors import BrokerError
from magnetar.pulsar.rest.request import AdminRequest, RestError, scalar

_KINDS = {
    int: "a whole number",
    bool: "true or false",
    str: "a string",
    list: "an array",
    dict: "an object",
}


def typed(ask: AdminRequest, path: str, kind: type) -> Any:
    """Return the body, which must be of this kind; raise ``RestError`` (400), which names the ``path``."""
    value = scalar(ask.json(), kind)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise RestError(400, f"{path} must be {_KINDS[kind]}, not {json.dumps(value)}")
    return value


def only_this_cluster(ask: AdminRequest, value: list[Any]) -> None:
    """Raise ``RestError`` (403) for clusters that are not this one."""
    cluster = ask.services.broker.cluster.ownership.cluster
    if value != [cluster]:
        raise RestError(403, f"there is one cluster, {cluster}: geo-replication is not served")


def none_but(harmless: Any) -> Callable[[Any], None]:
    """Return what refuses a policy that would do nothing here; ``harmless`` asks for nothing."""

    def check(value: Any) -> None:
        if value != harmless:
            raise RestError(405, "This policy is not served: nothing would act on it")

    return check


def one_of(*words: str) -> Callable[[Any], None]:
    """Return what refuses all but these."""

    def check(value: Any) -> None:
        if value not in words:
            raise RestError(412, f"{value} is none of {', '.join(words)}")

    return check


def readable(decode: Callable[[Any], object]) -> Callable[[Any], None]:
    """Return what refuses, in Pulsar's way, what cannot be read."""

    def check(value: Any) -> None:
        try:
            decode(value)
        except (ValueError, TypeError, BrokerError) as error:
            raise RestError(412, f"Invalid configuration: {error}") from None

    return check


def exceeds(size_quota: int, age_quota_s: int, retention_bytes: int | None, retention_ms: int | None) -> bool:
    """Return whether a backlog may become as large, or as old, as what is retained; bounds of 0 and below are none.

    What a backlog quota allows would be deleted by retention once it is acknowledged, and Pulsar refuses the pair.
    """
    too_large = retention_bytes is not None and 0 < retention_bytes <= size_quota
    too_old = retention_ms is not None and 0 < retention_ms <= age_quota_s * 1000
    return too_large or too_old
