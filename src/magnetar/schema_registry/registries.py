"""The registries of a broker: one for all, or with ``kafka.enable.multi.tenant.metadata`` one per tenant, as in KoP."""

from __future__ import annotations

from magnetar.metadata import MetadataStore
from magnetar.schema_registry.registry import Registry
from magnetar.schema_registry.store import Kept


class Registries:
    """Registries by tenant, read when somebody first asks for one."""

    def __init__(self, store: MetadataStore, tenant: str, *, by_tenant: bool = False) -> None:
        """``tenant`` is whose registry all share who have none of their own."""
        self._store = store.blocking
        self._tenant = tenant
        self._by_tenant = by_tenant
        self._open: dict[str, Registry] = {}

    def of(self, tenant: str | None = None) -> Registry:
        """Give the registry that serves a tenant."""
        name = tenant if tenant and self._by_tenant else self._tenant
        found = self._open.get(name)
        if found is None:
            kept = Kept(self._store, name)
            kept.load()
            found = self._open[name] = Registry(kept)
        return found
