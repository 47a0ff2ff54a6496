"""Namespaces: made and deleted, their topics, their grants, and what is done to all their subscriptions at once."""

from __future__ import annotations

import json
from typing import Any

from magnetar.auth import Right
from magnetar.base.slices import sliced
from magnetar.cluster.bundle_splits import RANGE, TOPICS, bundle_cuts, hashes_of
from magnetar.cluster.ownership import Bundle, NotOwned, boundary
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.rest.everywhere import of_names, opened, part
from magnetar.pulsar.rest.request import (
    AdminRequest,
    RequiredLevel,
    RestError,
    RestRoute,
    address_of,
    check_topic,
)
from magnetar.pulsar.rest.tenants import legal
from magnetar.pulsar.topic import PulsarTopic
from magnetar.topics.grants import Grants


async def policies(ask: AdminRequest) -> dict[str, Any]:
    """Return all policies of a namespace."""
    content = ask.services.broker.namespaces.content(ask.namespace)
    content.setdefault(
        "auth_policies", {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}}
    )
    cluster = ask.services.broker.cluster.ownership.cluster
    return {"replication_clusters": [cluster], "bundles": _bundles(ask), **content}


async def create(ask: AdminRequest) -> None:
    """Make a namespace, with the policies of the body if there is one."""
    broker = ask.services.broker
    if ask.path["tenant"] not in broker.namespaces.tenants():
        raise RestError(404, f"Tenant {ask.path['tenant']} does not exist")
    legal(ask.path["namespace"], "Namespace")
    if ask.namespace in broker.namespaces:
        raise RestError(409, "Namespace already exists")
    content = ask.json({})
    wanted = content if isinstance(content, dict) else {}  # clients of Pulsar 2 send a list of clusters
    await broker.namespaces.create(ask.namespace)
    if wanted:
        await broker.set_policies(ask.namespace, json.dumps(wanted).encode())


async def delete(ask: AdminRequest) -> None:
    """Delete a namespace; with ``force`` its topics too."""
    broker = ask.services.broker
    broker.namespaces.policies(ask.namespace)
    left = [each for each in broker.topics() if each.name.namespace_name == ask.namespace]
    fleeting = list(ask.services.topics.non_persistent.topics(ask.namespace))
    if (left or fleeting) and not ask.flag("force"):
        raise RestError(409, "Cannot delete non empty namespace")
    async for each in sliced([topic.name for topic in (*left, *fleeting)]):
        check_topic(ask, Right.delete, PulsarName(each))
    for topic in left:
        await broker.delete_topic(topic.kafka_name)
    for topic in fleeting:
        await ask.services.topics.non_persistent.delete(topic)
    await broker.namespaces.delete(ask.namespace)


async def topics(ask: AdminRequest) -> list[str]:
    """List a namespace's topics, of those with partitions each one; ``mode`` is PERSISTENT, NON_PERSISTENT or ALL."""
    ask.services.broker.namespaces.policies(ask.namespace)
    found, all_topics = [], ask.services.topics
    mode = ask.query.get("mode", "PERSISTENT").upper()
    if mode not in ("PERSISTENT", "NON_PERSISTENT", "ALL"):
        raise RestError(400, f"mode must be PERSISTENT, NON_PERSISTENT or ALL, not {mode}")
    if mode != "NON_PERSISTENT":
        found += all_topics.names(ask.namespace)
    if mode != "PERSISTENT":
        found += all_topics.non_persistent.names(ask.namespace)
    return sorted(found)


async def bundles(ask: AdminRequest) -> dict[str, Any]:
    """Return the namespace's bundles: what its topics are owned by."""
    ask.services.broker.namespaces.policies(ask.namespace)
    return _bundles(ask)


def _bundles(ask: AdminRequest) -> dict[str, Any]:
    found = ask.services.broker.cluster.ownership.bundles(ask.namespace)
    return {"boundaries": ["0x00000000", *(boundary(each.end) for each in found)], "numBundles": len(found)}


async def unload(ask: AdminRequest) -> None:
    """Give a namespace's topics, or a bundle of them, away: they are closed; their clients look them up again."""
    ownership = ask.services.broker.cluster.ownership
    concerned = [await _bundle(ask)] if "bundle" in ask.path else ownership.bundles(ask.namespace)
    ask.services.broker.namespaces.policies(ask.namespace)
    if wanted := ask.query.get("destinationBroker"):
        known = {
            address_of(ownership, each.node_id, ask.address).broker: each.node_id
            for each in ownership.brokers()
        }
        if wanted not in known:
            raise RestError(412, f"Broker {wanted} is not active")
        for each in concerned:
            await ownership.place(each, known[wanted])
    for each in concerned:
        await ownership.unload(each)


async def split(ask: AdminRequest) -> None:
    """Cut a bundle in two, or at the hashes of the body; its owner does it, and its topics are opened anew."""
    ask.services.broker.namespaces.policies(ask.namespace)
    ownership, bundle = ask.services.broker.cluster.ownership, await _bundle(ask)
    owner = ownership.owner_of(bundle)
    if owner is None or owner.node_id != ownership.node_id:
        raise NotOwned(f"Namespace bundle {bundle}", owner)
    algorithm = ask.query.get("splitAlgorithmName") or RANGE
    hashes = await _hashes(ask, bundle) if algorithm == TOPICS else []
    for at in bundle_cuts(bundle, algorithm, hashes, _wanted(ask)):
        rest = next(each for each in ownership.bundles(ask.namespace) if at in each)
        await ownership.split(rest, at)


def _wanted(ask: AdminRequest) -> list[int]:
    found = ask.json([])
    if not isinstance(found, list) or not all(type(each) is int for each in found):
        raise RestError(400, "the body must be a JSON array of hashes")
    return found


async def _bundle(ask: AdminRequest) -> Bundle:
    """Return the bundle that the path names: by its range, or as the one with most topics (``LARGEST``)."""
    bundles, wanted = ask.services.broker.cluster.ownership.bundles(ask.namespace), ask.path["bundle"]
    if wanted == "LARGEST":
        counts = {each: len(await _hashes(ask, each)) for each in bundles}
        return max(counts, key=lambda each: (counts[each], each))
    found = next((each for each in bundles if each.range == wanted), None)
    if found is None:
        raise RestError(412, f"Failed to find bundle {wanted} of {ask.namespace}")
    return found


async def _hashes(ask: AdminRequest, bundle: Bundle) -> list[int]:
    return await hashes_of(bundle, ask.services.broker.topics())


async def permissions(ask: AdminRequest) -> dict[str, list[str]]:
    """Return what roles may do in a namespace."""
    return as_json(ask.services.broker.security.permissions.of_namespace(ask.namespace).namespace)


async def grant(ask: AdminRequest) -> None:
    """Grant a role these actions on all topics of a namespace."""
    await ask.services.broker.security.permissions.grant(ask.namespace, ask.path["role"], ask.strings())


async def revoke(ask: AdminRequest) -> None:
    """Take a role's grants on a namespace away."""
    await ask.services.broker.security.permissions.revoke(ask.namespace, ask.path["role"])


async def subscription_permissions(ask: AdminRequest) -> dict[str, list[str]]:
    """Return the subscriptions that are for some roles alone."""
    found = ask.services.broker.security.permissions.of_namespace(ask.namespace).subscriptions
    return {name: sorted(roles) for name, roles in found.items()}


async def grant_subscription(ask: AdminRequest) -> None:
    """Open a subscription to these roles alone."""
    granting = ask.services.broker.security.permissions
    await granting.grant_subscription(ask.namespace, ask.path["subscription"], ask.strings())


async def revoke_subscription(ask: AdminRequest) -> None:
    """Close a subscription to a role."""
    granting = ask.services.broker.security.permissions
    await granting.revoke_subscription(ask.namespace, ask.path["subscription"], ask.path["role"])


async def clear_backlog(ask: AdminRequest) -> None:
    """Have one subscription, or all, of all topics, or a bundle of them, pass over everything there is."""
    names = await _concerned(ask)
    async for name in sliced(names):
        check_topic(ask, Right.consume, PulsarName.parse(name))
    await of_names(ask, check_on, names)  # before anything is moved
    await of_names(ask, clear_on, names)


@part
async def check_on(ask: AdminRequest, name: PulsarName) -> None:
    topic = await opened(ask, name)
    for subscription in _meant(ask, topic):
        await ask.services.groups.check(topic, subscription.name)


@part
async def clear_on(ask: AdminRequest, name: PulsarName) -> None:
    topic = await opened(ask, name)
    for subscription in _meant(ask, topic):
        if topic.log.ledgers():
            async with ask.services.groups.moving(topic, subscription):
                subscription.skip_to(await topic.places.last())


async def unsubscribe(ask: AdminRequest) -> None:
    """End a subscription on all topics of a namespace, or of a bundle."""
    names = await _concerned(ask)
    async for name in sliced(names):
        check_topic(ask, Right.consume, PulsarName.parse(name))
    await of_names(ask, check_on, names)  # before anything is ended
    await of_names(ask, unsubscribe_on, names)


@part
async def unsubscribe_on(ask: AdminRequest, name: PulsarName) -> None:
    topic = await opened(ask, name)
    for subscription in _meant(ask, topic):
        await ask.services.groups.deleted(topic, subscription.name)
        await topic.unsubscribe(subscription.name)


def _meant(ask: AdminRequest, topic: PulsarTopic) -> list[Subscription]:
    """Return the subscription of the path, or all where it names none."""
    wanted = ask.path.get("subscription")
    return [each for name, each in topic.subscriptions.items() if wanted in (None, name)]


async def _concerned(ask: AdminRequest) -> list[str]:
    """Return the topics of a namespace, of those with partitions each; with a bundle in the path those in it."""
    ask.services.broker.namespaces.policies(ask.namespace)
    names = ask.services.topics.names(ask.namespace)
    if "bundle" not in ask.path:
        return names
    bundle, bundle_of = await _bundle(ask), ask.services.broker.cluster.ownership.bundle_of
    parsed = [(name, PulsarName.parse(name)) async for name in sliced(names)]
    return [name for name, each in parsed if bundle_of(each.topic, each.partition or 0) == bundle]


def as_json(grants: Grants) -> dict[str, list[str]]:
    """Return grants as Pulsar writes them."""
    return {role: sorted(actions) for role, actions in grants.items()}


_ROOT, _TENANT = "/namespaces/{tenant}/{namespace}", RequiredLevel.tenant
ROUTES = (
    RestRoute("GET", _ROOT, policies, _TENANT),
    RestRoute("PUT", _ROOT, create, _TENANT),
    RestRoute("DELETE", _ROOT, delete, _TENANT),
    RestRoute("GET", f"{_ROOT}/topics", topics, _TENANT),
    RestRoute("GET", f"{_ROOT}/bundles", bundles, _TENANT),
    RestRoute("PUT", f"{_ROOT}/unload", unload, _TENANT),
    RestRoute("PUT", f"{_ROOT}/{{bundle}}/unload", unload, _TENANT),
    RestRoute("PUT", f"{_ROOT}/{{bundle}}/split", split, _TENANT),
    RestRoute("GET", f"{_ROOT}/permissions", permissions, _TENANT),
    RestRoute("GET", f"{_ROOT}/permissions/subscription", subscription_permissions, _TENANT),
    RestRoute("POST", f"{_ROOT}/permissions/subscription/{{subscription}}", grant_subscription, _TENANT),
    RestRoute("DELETE", f"{_ROOT}/permissions/{{subscription}}/{{role}}", revoke_subscription, _TENANT),
    RestRoute("POST", f"{_ROOT}/permissions/{{role}}", grant, _TENANT),
    RestRoute("DELETE", f"{_ROOT}/permissions/{{role}}", revoke, _TENANT),
    RestRoute("POST", f"{_ROOT}/clearBacklog", clear_backlog, _TENANT),
    RestRoute("POST", f"{_ROOT}/clearBacklog/{{subscription}}", clear_backlog, _TENANT),
    RestRoute("POST", f"{_ROOT}/{{bundle}}/clearBacklog", clear_backlog, _TENANT),
    RestRoute("POST", f"{_ROOT}/{{bundle}}/clearBacklog/{{subscription}}", clear_backlog, _TENANT),
    RestRoute("POST", f"{_ROOT}/unsubscribe/{{subscription}}", unsubscribe, _TENANT),
    RestRoute("POST", f"{_ROOT}/{{bundle}}/unsubscribe/{{subscription}}", unsubscribe, _TENANT),
)
