"""Tenants and namespaces, at Pulsar's own paths and in its own JSON."""

from __future__ import annotations

import json

from magnetar.broker.errors import NamespaceNotFound
from magnetar.broker.policies import NamespacePolicies, decode_policies
from magnetar.metadata import MetadataStore

CLUSTER = "standalone"
POLICIES = "/admin/policies"
_TENANT = {"adminRoles": [], "allowedClusters": [CLUSTER]}
_NAMESPACE = {"replication_clusters": [CLUSTER]}


class Namespaces:
    """All tenants and namespaces with their policies, held in memory."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._tenants: set[str] = set()
        self._policies: dict[str, NamespacePolicies] = {}

    def load(self) -> None:
        """Read everything that is stored."""
        for path, stored in self._store.scan(POLICIES + "/"):
            parts = path.removeprefix(POLICIES + "/").split("/")
            if len(parts) == 1:
                self._tenants.add(parts[0])
            elif len(parts) == 2:
                self._policies["/".join(parts)] = decode_policies("/".join(parts), stored.value)

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
            if tenant not in self._tenants:
                self._store.put(f"{POLICIES}/{tenant}", json.dumps(_TENANT).encode())
            self._store.put(f"{POLICIES}/{namespace}", json.dumps(_NAMESPACE).encode())
        self._tenants.add(tenant)
        self._policies[namespace] = decode_policies(namespace, b"")

    def set_policies(self, namespace: str, text: bytes) -> None:
        """Keep Pulsar's JSON as the namespace's policies; raise `InvalidPolicy` or `NamespaceNotFound`."""
        self.policies(namespace)
        policies = decode_policies(namespace, text)
        self._store.put(f"{POLICIES}/{namespace}", text)
        self._policies[namespace] = policies
