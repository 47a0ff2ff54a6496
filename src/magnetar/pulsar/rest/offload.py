"""Tiered storage in the admin REST: what namespaces and topics say of it, and offloads that are asked for.

Where ledgers go is for super users to say: it makes the broker write to a directory, or send its keys to an address.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from magnetar.base.errors import InvalidPolicy
from magnetar.ledger.errors import CannotOffload
from magnetar.ledger.port import Position
from magnetar.ledger.tiers.place import DIRECTORY_DRIVER
from magnetar.logs.offloading import AlreadyOffloading, OffloadState
from magnetar.pulsar.rest.checks import typed
from magnetar.pulsar.rest.policies import change
from magnetar.pulsar.rest.request import AdminRequest, RequiredLevel, RestError, RestRoute, scalar
from magnetar.pulsar.rest.topics import found, one
from magnetar.topics.offload_policies import (
    LAG,
    SECONDS,
    THRESHOLD,
    OffloadPolicy,
    check_offload_policy,
)

_KEY = "offload_policies"
_TOPIC_KEY = "offloadPolicies"


class _Bound(NamedTuple):
    """One number of a namespace's policies: its path, its older key, the newer one, what is shown for none, and what
    Pulsar calls it when it refuses a value."""

    path: str
    older: str
    key: str
    unset: int | None
    called: str


_BOUNDS = (
    _Bound("offloadThreshold", "offload_threshold", THRESHOLD, -1, "offloadThreshold"),
    _Bound(
        "offloadThresholdInSeconds", "offload_threshold_in_seconds", SECONDS, -1, "offloadThresholdInSecond"
    ),
    _Bound("offloadDeletionLagMs", "offload_deletion_lag_ms", LAG, None, "offloadDeletionLagMs"),
)


def _bound_routes(bound: _Bound) -> tuple[RestRoute, ...]:
    async def read(ask: AdminRequest) -> int | None:
        content = ask.services.broker.namespaces.content(ask.namespace)
        said = (content.get(_KEY) or {}).get(bound.key)
        older = content.get(bound.older) if said is None else said
        return bound.unset if older is None else int(older)

    async def write(ask: AdminRequest) -> None:
        value = typed(ask, bound.path, int)
        if value < -1:
            raise RestError(412, f"Invalid value for {bound.called}")
        await _set(ask, value)

    async def remove(ask: AdminRequest) -> None:
        await _set(ask, None)

    async def _set(ask: AdminRequest, value: int | None) -> None:
        def edit(content: dict[str, Any]) -> None:
            content[bound.older] = bound.unset if value is None else value
            if content.get(_KEY):
                content[_KEY] = {**content[_KEY], bound.key: value}

        await change(ask, edit)

    read.__doc__ = f"Give the namespace's {bound.path}."
    write.__doc__ = f"Set the namespace's {bound.path}."
    remove.__doc__ = f"Take the namespace's {bound.path} away."
    path = f"/namespaces/{{tenant}}/{{namespace}}/{bound.path}"
    table = (("GET", read), ("PUT", write), ("POST", write), ("DELETE", remove))
    return tuple(RestRoute(method, path, endpoint, RequiredLevel.tenant) for method, endpoint in table)


def _checked(ask: AdminRequest) -> dict[str, Any]:
    """Return the policies in the body, without what says nothing; raise ``RestError`` (412)."""
    said = {key: value for key, value in ask.object().items() if value is not None}
    try:
        check_offload_policy(said)
    except InvalidPolicy as error:
        raise RestError(412, str(error)) from None
    return said


async def namespace_policies(ask: AdminRequest) -> dict[str, Any] | None:
    """Return where and when a namespace's ledgers are offloaded."""
    said: dict[str, Any] | None = ask.services.broker.namespaces.content(ask.namespace).get(_KEY)
    return said


async def set_namespace_policies(ask: AdminRequest) -> None:
    """Say where and when a namespace's ledgers are offloaded."""
    said = _checked(ask)
    await change(ask, lambda content: content.update({_KEY: said}))


async def remove_namespace_policies(ask: AdminRequest) -> None:
    """Have a namespace's ledgers be offloaded as the broker says."""
    await change(ask, lambda content: content.pop(_KEY, None))


async def topic_policies(ask: AdminRequest) -> dict[str, Any] | None:
    """Return where and when a topic's ledgers are offloaded: what it says itself or, with ``applied``, what is so."""
    topic = found(ask)
    if ask.flag("applied"):
        return _as_json(ask.services.broker.logs.offloading.policy(topic))
    said: dict[str, Any] | None = ask.services.topics.policies.content(topic.name).get(_TOPIC_KEY)
    return said


async def set_topic_policies(ask: AdminRequest) -> None:
    """Say where and when a topic's ledgers are offloaded."""
    topic, said = found(ask), _checked(ask)
    await ask.services.topics.policies.set(topic, _TOPIC_KEY, said)


async def remove_topic_policies(ask: AdminRequest) -> None:
    """Have a topic's ledgers be offloaded as its namespace says."""
    await ask.services.topics.policies.set(found(ask), _TOPIC_KEY, None)


def _as_json(policy: OffloadPolicy) -> dict[str, Any]:
    place = policy.place
    if place is None:
        where: dict[str, Any] = {"managedLedgerOffloadDriver": None}
    elif place.driver == DIRECTORY_DRIVER:
        where = {"managedLedgerOffloadDriver": place.driver, "fileSystemURI": f"file://{place.path}"}
    else:
        where = {
            "managedLedgerOffloadDriver": place.driver,
            "managedLedgerOffloadBucket": place.bucket,
            "managedLedgerOffloadRegion": place.region,
            "managedLedgerOffloadServiceEndpoint": place.endpoint,
        }
    seconds = policy.threshold_ms
    return where | {
        THRESHOLD: policy.threshold_bytes,
        SECONDS: seconds // 1000 if seconds is not None and seconds > 0 else seconds,
        LAG: policy.deletion_lag_ms,
    }


async def begin(ask: AdminRequest) -> None:
    """Offload all full ledgers of a topic that lie before a message."""
    said = ask.object()
    ledger_id, entry_id = (scalar(said.get(name), int) for name in ("ledgerId", "entryId"))
    if not isinstance(ledger_id, int) or not isinstance(entry_id, int):
        raise RestError(400, "the body must be a message id: ledgerId and entryId, whole numbers")
    topic = await one(ask)
    broker = ask.services.broker
    held = await broker.logs.open_logs.open(topic.topic, topic.index)
    ids = [each.ledger_id for each in held.log.ledgers()]
    if ledger_id not in ids and not (ids and ledger_id > ids[-1]):
        raise RestError(412, f"{ask.topic} has no ledger {ledger_id}")
    try:
        broker.logs.offloading.begin(held, Position(ledger_id, entry_id))
    except AlreadyOffloading as error:
        raise RestError(409, str(error)) from None
    except CannotOffload as error:
        raise RestError(412, str(error)) from None


async def status(ask: AdminRequest) -> dict[str, Any]:
    """Tell how the last offload went that somebody asked for since the broker started."""
    topic = await one(ask)
    report = ask.services.broker.logs.offloading.report(topic.log)
    first = report.first_left
    left = {"ledgerId": first.ledger_id, "entryId": first.entry_id, "partitionIndex": topic.partition}
    return {
        "status": report.state.value,
        "lastError": report.error,
        "firstUnoffloadedMessage": left if report.state is OffloadState.SUCCESS else None,
    }


_NAMESPACE, _TOPIC = "/namespaces/{tenant}/{namespace}", "/persistent/{tenant}/{namespace}/{topic}"
_TENANT, _SUPER = RequiredLevel.tenant, RequiredLevel.super_user
ROUTES = (
    *(route for bound in _BOUNDS for route in _bound_routes(bound)),
    RestRoute("GET", f"{_NAMESPACE}/offloadPolicies", namespace_policies, _TENANT),
    RestRoute("POST", f"{_NAMESPACE}/offloadPolicies", set_namespace_policies, _SUPER),
    RestRoute("DELETE", f"{_NAMESPACE}/removeOffloadPolicies", remove_namespace_policies, _SUPER),
    RestRoute("GET", f"{_TOPIC}/offloadPolicies", topic_policies, _TENANT),
    RestRoute("POST", f"{_TOPIC}/offloadPolicies", set_topic_policies, _SUPER),
    RestRoute("DELETE", f"{_TOPIC}/offloadPolicies", remove_topic_policies, _SUPER),
    RestRoute("PUT", f"{_TOPIC}/offload", begin, _TENANT),
    RestRoute("GET", f"{_TOPIC}/offload", status, _TENANT),
)
