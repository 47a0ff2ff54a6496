"""The registries of a broker: one for all, or with ``kafka.enable.multi.tenant.metadata`` one per tenant, as in KoP."""

from __future__ import annotations

import asyncio

from magnetar.metadata.cache import MetadataCache
from magnetar.schema_registry.registry import Registry
from magnetar.schema_registry.store import RegistryContents


class Registries:
    """Registries by tenant, read when somebody first asks for one."""

    def __init__(self, cache: MetadataCache, tenant: str, *, by_tenant: bool = False) -> None:
        """``tenant`` is whose registry all share who have none of their own."""
        self._cache = cache
        self._tenant = tenant
        self._by_tenant = by_tenant
        self._open: dict[str, Registry] = {}
        self._opening = asyncio.Lock()

    async def of(self, tenant: str | None = None) -> Registry:
        """Return the registry that serves a tenant."""
        name = tenant if tenant and self._by_tenant else self._tenant
        found = self._open.get(name)
        if found is not None:
            return found
        async with self._opening:
            if name not in self._open:
                kept = RegistryContents(self._cache, name)
                await kept.load()
                self._open[name] = Registry(kept)
            return self._open[name]
