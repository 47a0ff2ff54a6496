"""Tenants and namespaces, at Pulsar's own paths and in its own JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from magnetar.base.errors import NamespaceNotFound
from magnetar.metadata import MUST_NOT_EXIST, Delete, MetadataCorrupt, Put, Stored
from magnetar.metadata.cache import MetadataCache
from magnetar.topics.grants import AuthPolicies, encode_auth_policies
from magnetar.topics.names import CLUSTER
from magnetar.topics.policies import NamespacePolicies, decode_policies

POLICIES = "/admin/policies"


class Namespaces:
    """All tenants and namespaces with their policies, in memory."""

    root = POLICIES

    def __init__(self, cache: MetadataCache, cluster: str = CLUSTER) -> None:
        self._cluster = cluster
        self._tenant = {"adminRoles": [], "allowedClusters": [cluster]}
        self._namespace = {"replication_clusters": [cluster]}
        self._cache = cache
        self._stored: dict[str, Stored] = {}
        """By path, all tenants and namespaces."""
        self._admin_roles: dict[str, frozenset[str]] = {}
        """By tenant; every tenant is there."""
        self._policies: dict[str, NamespacePolicies] = {}
        self.encrypted: set[str] = set()
        """Namespaces that accept encrypted messages only."""
        self.changed: list[Callable[[], None]] = []
        """Called when tenants, namespaces or their policies have changed."""
        self.policies_changed: list[Callable[[str], None]] = []
        """Each is called with the namespace whose topics' policies have changed."""

    # Following what is stored.

    def known(self) -> Iterable[str]:
        return tuple(self._stored)

    def apply(self, path: str, stored: Stored | None) -> None:
        """Apply the stored state of one tenant or namespace."""
        parts = path.removeprefix(POLICIES + "/").split("/")
        before = self._stored.get(path)
        if stored == before or len(parts) > 2:
            return
        if len(parts) == 1:
            self._apply_tenant(path, parts[0], stored)
        else:
            self._apply_namespace("/".join(parts), stored)
        if stored is None:
            del self._stored[path]
        else:
            self._stored[path] = stored
        for changed in self.changed:
            changed()

    def _apply_tenant(self, path: str, tenant: str, stored: Stored | None) -> None:
        if stored is None:
            self._admin_roles.pop(tenant, None)
        else:
            self._admin_roles[tenant] = _admin_roles(path, stored.value)

    def _apply_namespace(self, namespace: str, stored: Stored | None) -> None:
        before = self._policies.pop(namespace, NamespacePolicies())
        now = NamespacePolicies()
        if stored is not None:
            now = self._policies[namespace] = decode_policies(namespace, stored.value, self._cluster)
        if now.requires_encryption:
            self.encrypted.add(namespace)
        else:
            self.encrypted.discard(namespace)
        if replace(before, auth=now.auth) != now:
            for told in self.policies_changed:
                told(namespace)

    # Asking.

    def names(self) -> list[str]:
        """Return all namespaces as ``tenant/namespace``, sorted."""
        return sorted(self._policies)

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._policies

    def policies(self, namespace: str) -> NamespacePolicies:
        """Return a namespace's policies; raise `NamespaceNotFound`."""
        found = self._policies.get(namespace)
        if found is None:
            raise NamespaceNotFound(f"namespace {namespace} does not exist")
        return found

    def content(self, namespace: str) -> dict[str, Any]:
        """Return all of Pulsar's JSON that is stored for a namespace; raise `NamespaceNotFound`."""
        self.policies(namespace)
        value = self._stored[f"{POLICIES}/{namespace}"].value
        return dict(json.loads(value)) if value else {}

    def tenants(self) -> list[str]:
        """Return all tenants, sorted."""
        return sorted(self._admin_roles)

    def admin_roles(self, tenant: str) -> frozenset[str]:
        """Return the roles that may do everything in a tenant; none for an unknown tenant."""
        return self._admin_roles.get(tenant, frozenset())

    # Changing what is stored.

    async def create(self, namespace: str) -> None:
        """Create a namespace, and its tenant, unless they exist."""
        tenant = f"{POLICIES}/{namespace.partition('/')[0]}"
        wanted = {tenant: self._tenant, f"{POLICIES}/{namespace}": self._namespace}

        def plan() -> list[Put]:
            missing = {path: content for path, content in wanted.items() if path not in self._stored}
            return [Put(path, json.dumps(each).encode(), MUST_NOT_EXIST) for path, each in missing.items()]

        await self._cache.change(plan)

    async def delete(self, namespace: str) -> None:
        """Delete a namespace; raise `NamespaceNotFound`. The caller makes sure that it is empty."""
        self.policies(namespace)
        await self._delete(f"{POLICIES}/{namespace}")

    async def delete_tenant(self, tenant: str) -> None:
        """Delete a tenant without namespaces; an unknown one is no error."""
        await self._delete(f"{POLICIES}/{tenant}")

    async def _delete(self, path: str) -> None:
        def plan() -> list[Delete]:
            return [Delete(path, self._stored[path].version)] if path in self._stored else []

        await self._cache.change(plan)

    async def change(self, namespace: str, edit: Callable[[dict[str, Any]], object]) -> None:
        """Edit the JSON of a namespace and put it in force; raise `InvalidPolicy` or `NamespaceNotFound`.

        ``edit`` changes its argument in place; it is called again if another broker was faster.
        """

        def content() -> dict[str, Any]:
            found = self.content(namespace)
            edit(found)
            return found

        await self._set(namespace, lambda: json.dumps(content()).encode())

    async def set_policies(self, namespace: str, text: bytes) -> None:
        """Store Pulsar's JSON as the namespace's policies; raise `InvalidPolicy` or `NamespaceNotFound`."""
        await self._set(namespace, lambda: text)

    async def _set(self, namespace: str, text: Callable[[], bytes]) -> None:
        path = f"{POLICIES}/{namespace}"

        def plan() -> list[Put]:
            self.policies(namespace)
            value = text()
            decode_policies(namespace, value, self._cluster)
            return [Put(path, value, self._stored[path].version)]

        await self._cache.change(plan)

    async def change_auth_policies(
        self, namespace: str, edit: Callable[[AuthPolicies], AuthPolicies]
    ) -> None:
        """Store what ``edit`` makes of a namespace's grants, with its other policies; raise `NamespaceNotFound`."""

        def edited(content: dict[str, Any]) -> None:
            content["auth_policies"] = encode_auth_policies(edit(self.policies(namespace).auth))

        await self.change(namespace, edited)

    async def set_admin_roles(self, tenant: str, roles: Iterable[str]) -> None:
        """Store a tenant's admins; an unknown tenant is created."""
        path, wanted = f"{POLICIES}/{tenant}", sorted(set(roles))

        def plan() -> list[Put]:
            stored = self._stored.get(path)
            content: dict[str, Any] = dict(self._tenant) if stored is None else json.loads(stored.value)
            content["adminRoles"] = wanted
            version = MUST_NOT_EXIST if stored is None else stored.version
            return [Put(path, json.dumps(content).encode(), version)]

        await self._cache.change(plan)


def _admin_roles(path: str, value: bytes) -> frozenset[str]:
    try:
        return frozenset(map(str, json.loads(value).get("adminRoles") or ()))
    except (ValueError, AttributeError, TypeError) as error:
        raise MetadataCorrupt(path, f"not a tenant: {error}") from error
