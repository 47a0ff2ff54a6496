"""Kafka's ACLs in the metadata store, one per path: ``/magnetar/acls/<id>``, JSON in Kafka's words. An id follows from
the content of the entry, so that creating one twice creates it once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from magnetar.auth.acls import Acl, AclIndex, decode_acl, encode_acl
from magnetar.metadata import ANY, Delete, MetadataCorrupt, Op, Put, Stored
from magnetar.metadata.cache import MetadataCache

_ROOT = "/magnetar/acls"
_AT_ONCE = 500  # in one commit


class Acls:
    """All ACLs, in memory."""

    root = _ROOT

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._stored: dict[str, Acl] = {}
        """By path."""
        self.index = AclIndex()
        self.changed: list[Callable[[], None]] = []
        """Called when an entry has come or gone."""

    async def start(self) -> None:
        """Load the stored entries, and follow them."""
        await self._cache.follow(self)

    def known(self) -> Iterable[str]:
        return tuple(self._stored)

    def apply(self, path: str, stored: Stored | None) -> None:
        """Apply the stored state of one entry."""
        try:
            now = None if stored is None or path == _ROOT else decode_acl(stored.value)
        except ValueError as error:
            raise MetadataCorrupt(path, str(error)) from error
        before = self._stored.pop(path, None)
        if now is not None:
            self._stored[path] = now
        if now == before:
            return
        if before is not None:
            self.index.remove(before)
        if now is not None:
            self.index.add(now)
        for changed in self.changed:
            changed()

    def __contains__(self, acl: Acl) -> bool:
        return _path(acl) in self._stored

    def all(self) -> list[Acl]:
        """Return all entries."""
        return list(self._stored.values())

    async def create(self, acls: Iterable[Acl]) -> None:
        """Store these entries; those that exist already stay."""
        await self._do([Put(_path(each), encode_acl(each), ANY) for each in dict.fromkeys(acls)])

    async def delete(self, acls: Iterable[Acl]) -> None:
        """Delete these entries; those that are gone already are no error."""
        await self._do([Delete(_path(each), ANY) for each in dict.fromkeys(acls)])

    async def _do(self, ops: list[Put] | list[Delete]) -> None:
        for at in range(0, len(ops), _AT_ONCE):
            some = ops[at : at + _AT_ONCE]

            def plan(some: Iterable[Op] = some) -> list[Op]:
                return [each for each in some if (each.path in self._stored) is isinstance(each, Delete)]

            await self._cache.change(plan)
            await asyncio.sleep(0)


def _path(acl: Acl) -> str:
    return f"{_ROOT}/{acl.id}"
