"""Tenants and namespaces, at Pulsar's own paths and in its own JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from magnetar.broker.auth.grants import AuthPolicies, encode_auth_policies
from magnetar.broker.errors import NamespaceNotFound
from magnetar.broker.ownership import CLUSTER as CLUSTER
from magnetar.broker.policies import NamespacePolicies, decode_policies
from magnetar.metadata import MetadataCorrupt, MetadataStore

POLICIES = "/admin/policies"
_TENANT = {"adminRoles": [], "allowedClusters": [CLUSTER]}
_NAMESPACE = {"replication_clusters": [CLUSTER]}


class Namespaces:
    """All tenants and namespaces with their policies, held in memory."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store.blocking
        self._admin_roles: dict[str, frozenset[str]] = {}
        """By tenant; every tenant is there."""
        self._policies: dict[str, NamespacePolicies] = {}
        self.changed: list[Callable[[], None]] = []
        """Called when tenants, namespaces or their policies have changed."""

    def load(self) -> None:
        """Read everything that is stored."""
        for path, stored in self._store.scan(POLICIES + "/"):
            parts = path.removeprefix(POLICIES + "/").split("/")
            if len(parts) == 1:
                self._admin_roles[parts[0]] = _admin_roles(path, stored.value)
            elif len(parts) == 2:
                self._policies["/".join(parts)] = decode_policies("/".join(parts), stored.value)
        self._tell()

    def names(self) -> list[str]:
        """Give all namespaces as ``tenant/namespace``, sorted."""
        return sorted(self._policies)

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._policies

    def policies(self, namespace: str) -> NamespacePolicies:
        """Give a namespace's policies; raise `NamespaceNotFound`."""
        found = self._policies.get(namespace)
        if found is None:
            raise NamespaceNotFound(f"namespace {namespace} does not exist")
        return found

    def create(self, namespace: str) -> None:
        """Create a namespace, and its tenant, unless they exist."""
        if namespace in self._policies:
            return
        tenant = namespace.partition("/")[0]
        with self._store.transaction():
            if tenant not in self._admin_roles:
                self._store.put(f"{POLICIES}/{tenant}", json.dumps(_TENANT).encode())
            self._store.put(f"{POLICIES}/{namespace}", json.dumps(_NAMESPACE).encode())
        self._admin_roles.setdefault(tenant, frozenset())
        self._policies[namespace] = decode_policies(namespace, b"")
        self._tell()

    def content(self, namespace: str) -> dict[str, Any]:
        """Give all of Pulsar's JSON that is kept of a namespace; raise `NamespaceNotFound`."""
        self.policies(namespace)
        stored = self._store.get(f"{POLICIES}/{namespace}")
        return dict(json.loads(stored.value)) if stored is not None and stored.value else {}

    def delete(self, namespace: str) -> None:
        """Forget a namespace; raise `NamespaceNotFound`. Whoever asks has seen to it that it is empty."""
        self.policies(namespace)
        self._store.delete(f"{POLICIES}/{namespace}")
        del self._policies[namespace]
        self._tell()

    def delete_tenant(self, tenant: str) -> None:
        """Forget a tenant without namespaces; an unknown one is no error."""
        if self._admin_roles.pop(tenant, None) is not None:
            self._store.delete(f"{POLICIES}/{tenant}")
            self._tell()

    def set_policies(self, namespace: str, text: bytes) -> None:
        """Keep Pulsar's JSON as the namespace's policies; raise `InvalidPolicy` or `NamespaceNotFound`."""
        self.policies(namespace)
        policies = decode_policies(namespace, text)
        self._store.put(f"{POLICIES}/{namespace}", text)
        self._policies[namespace] = policies
        self._tell()

    def set_auth_policies(self, namespace: str, granted: AuthPolicies) -> None:
        """Keep new grants beside a namespace's other policies; raise `NamespaceNotFound`."""
        content = self.content(namespace)
        content["auth_policies"] = encode_auth_policies(granted)
        self.set_policies(namespace, json.dumps(content).encode())

    def tenants(self) -> list[str]:
        """Give all tenants, sorted."""
        return sorted(self._admin_roles)

    def admin_roles(self, tenant: str) -> frozenset[str]:
        """Give the roles that may do everything in a tenant; none where there is no such tenant."""
        return self._admin_roles.get(tenant, frozenset())

    def set_admin_roles(self, tenant: str, roles: Iterable[str]) -> None:
        """Keep a tenant's admins; a tenant that is not there is created."""
        path = f"{POLICIES}/{tenant}"
        stored = self._store.get(path)
        content: dict[str, Any] = dict(_TENANT) if stored is None else json.loads(stored.value)
        content["adminRoles"] = sorted(set(roles))
        self._store.put(path, json.dumps(content).encode())
        self._admin_roles[tenant] = frozenset(content["adminRoles"])
        self._tell()

    def _tell(self) -> None:
        for changed in self.changed:
            changed()


def _admin_roles(path: str, value: bytes) -> frozenset[str]:
    try:
        return frozenset(map(str, json.loads(value).get("adminRoles") or ()))
    except (ValueError, AttributeError, TypeError) as error:
        raise MetadataCorrupt(path, f"not a tenant: {error}") from error
