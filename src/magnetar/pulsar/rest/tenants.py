"""Tenants, and the namespaces they have."""

from __future__ import annotations

import re
from typing import Any

from magnetar.pulsar.rest.request import AdminRequest, RequiredLevel, RestError, RestRoute

_NAME = re.compile(r"[-=:.\w]+", re.ASCII)


async def tenants(ask: AdminRequest) -> list[str]:
    """List the tenants."""
    return ask.services.broker.namespaces.tenants()


async def tenant(ask: AdminRequest) -> dict[str, Any]:
    """Return a tenant's admins and clusters."""
    _known(ask)
    roles = ask.services.broker.namespaces.admin_roles(ask.path["tenant"])
    return {"adminRoles": sorted(roles), "allowedClusters": [ask.services.broker.cluster.ownership.cluster]}


async def create(ask: AdminRequest) -> None:
    """Make a tenant."""
    name = legal(ask.path["tenant"], "Tenant")
    if name in ask.services.broker.namespaces.tenants():
        raise RestError(409, "Tenant already exists")
    await _keep(ask)


async def update(ask: AdminRequest) -> None:
    """Replace a tenant's admins."""
    _known(ask)
    await _keep(ask)


async def delete(ask: AdminRequest) -> None:
    """Delete a tenant; with ``force`` its namespaces too."""
    _known(ask)
    name, broker = ask.path["tenant"], ask.services.broker
    owned = [each for each in broker.namespaces.names() if each.partition("/")[0] == name]
    if owned and not ask.flag("force"):
        raise RestError(409, "The tenant still has active namespaces")
    for namespace in owned:
        for topic in [each for each in broker.topics() if each.name.namespace_name == namespace]:
            await broker.delete_topic(topic.kafka_name)
        fleeting = ask.services.topics.non_persistent
        for topic in list(fleeting.topics(namespace)):
            await fleeting.delete(topic)
        await broker.namespaces.delete(namespace)
    await broker.namespaces.delete_tenant(name)


async def namespaces(ask: AdminRequest) -> list[str]:
    """List a tenant's namespaces."""
    _known(ask)
    prefix = ask.path["tenant"] + "/"
    return [each for each in ask.services.broker.namespaces.names() if each.startswith(prefix)]


def legal(name: str, what: str) -> str:
    """Return the name if a tenant or namespace may have it; otherwise raise ``RestError`` (412)."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise RestError(412, f"{what} name is not valid: letters, digits and -=:._ only")
    return name


async def _keep(ask: AdminRequest) -> None:
    content = ask.object()
    own = ask.services.broker.cluster.ownership.cluster
    clusters = content.get("allowedClusters") or [own]
    if not isinstance(clusters, list) or set(clusters) - {own}:
        raise RestError(412, f"Clusters do not exist: there is only {own}")
    roles = content.get("adminRoles") or []
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise RestError(412, "AdminRoles contains empty or invalid entries")
    if not all(role and role == role.strip() for role in roles):
        raise RestError(412, "AdminRoles contains whitespace in the beginning or end.")
    await ask.services.broker.namespaces.set_admin_roles(ask.path["tenant"], roles)


def _known(ask: AdminRequest) -> None:
    if ask.path["tenant"] not in ask.services.broker.namespaces.tenants():
        raise RestError(404, "Tenant does not exist")


ROUTES = (
    RestRoute("GET", "/tenants", tenants, RequiredLevel.super_user),
    RestRoute("GET", "/tenants/{tenant}", tenant, RequiredLevel.tenant),
    RestRoute("PUT", "/tenants/{tenant}", create, RequiredLevel.super_user),
    RestRoute("POST", "/tenants/{tenant}", update, RequiredLevel.super_user),
    RestRoute("DELETE", "/tenants/{tenant}", delete, RequiredLevel.super_user),
    RestRoute("GET", "/namespaces/{tenant}", namespaces, RequiredLevel.tenant),
)
