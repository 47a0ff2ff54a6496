"""What a broker keeps in memory of the metadata store, so that to read it is a plain call.

Each reader has a root and one `apply`, by which it learns of everything: what is there when it begins, what this
broker commits through `MetadataCache.commit` (applied before that returns), and what other clients change, which the
store's watch tells. So a reader is as new as this broker's own writes at once, and as others' writes soon after.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from magnetar.metadata.errors import BadVersion, MetadataError, MetadataFailed, MetadataUncertain
from magnetar.metadata.ops import ANY, MUST_NOT_EXIST, Check, Delete, Op, Put, Stored
from magnetar.metadata.port import Changes, MetadataStore, Watch

_AT_ONCE = 200  # paths applied before others have their turn
_AGAIN_SECONDS = 1.0
_MAX_TRIES = 100
_log = logging.getLogger("magnetar.metadata")


class CacheFollower(Protocol):
    """Who keeps what lies at ``root`` and beneath it in a form of its own."""

    root: str

    def apply(self, path: str, stored: Stored | None) -> None:
        """Take over what is stored at a path now, None where nothing is; it may be what is known already."""

    def known(self) -> Iterable[str]:
        """Return the paths that it holds something of; others of them that are gone are applied as None."""


class _Following:
    def __init__(self, reader: CacheFollower, watch: Watch) -> None:
        self.reader = reader
        self.watch = watch
        self.start = reader.root + "/"
        self.task: asyncio.Task[None] | None = None

    def has(self, path: str) -> bool:
        return path.startswith(self.start) or path == self.reader.root


class MetadataCache:
    """The readers of one broker, and the way by which it writes what they keep."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self._following: list[_Following] = []
        self._reading: dict[int, set[str]] = {}
        """By read that is under way, the paths that were committed meanwhile: what it brings of them may be old."""

    async def follow(self, reader: CacheFollower, *, load: bool = True) -> None:
        """Have a reader hold what is stored, and from then on all that changes.

        Without ``load`` it begins with nothing, and is told of changes alone. Raises what its ``apply`` raises.
        """
        following = _Following(reader, await self.store.watch(reader.root))
        self._following.append(following)
        if load:
            await self._load(following)
        following.task = asyncio.get_running_loop().create_task(self._keep_up(following))

    async def commit(self, ops: Sequence[Op]) -> list[int]:
        """Do as `MetadataStore.commit`, and have the readers know before this returns.

        After `BadVersion` they know what is there instead.
        """
        try:
            versions = await self.store.commit(ops)
        except BadVersion:
            await self.refresh(op.path for op in ops)
            raise
        except MetadataUncertain as error:
            versions = await self._kept(ops, error)
        after: dict[str, Stored | None] = {}
        for op, version in zip(ops, versions, strict=True):
            if isinstance(op, Put):
                after[op.path] = Stored(op.value, version)
            elif isinstance(op, Delete):
                after[op.path] = None
        for overtaken in self._reading.values():
            overtaken.update(after)
        for path, stored in after.items():
            for following in self._of(path):
                following.reader.apply(path, stored)
        return versions

    async def _kept(self, ops: Sequence[Op], uncertain: MetadataUncertain) -> list[int]:
        """Return the versions of a commit whose answer was lost, if all of it is there; raise ``uncertain`` otherwise.

        What is not there now may still come: the request may be on its way to a server that answers late.
        """
        changes = {op.path: op for op in ops if not isinstance(op, Check)}
        is_plain = len(changes) == len(ops) and not any(isinstance(op, Put) and op.ephemeral for op in ops)
        if not (is_plain and self.store.comes_back):  # a disk that failed may show what it will not have
            raise uncertain
        try:
            found = dict(zip(changes, await self.store.get_many(changes), strict=True))
        except MetadataError:
            raise uncertain from None
        versions = []
        for op in changes.values():
            stored = found[op.path]
            if isinstance(op, Delete):
                is_kept = stored is None
            else:
                is_kept = stored is not None and stored.value == op.value
                is_kept = is_kept and op.expected in (ANY, stored.version - 1)  # type: ignore[union-attr]
            if not is_kept:
                raise uncertain
            versions.append(MUST_NOT_EXIST if stored is None else stored.version)
        return versions

    async def change(self, plan: Callable[[], Sequence[Op]]) -> None:
        """Compare and set: commit what ``plan`` makes of what is known, anew as long as somebody else was faster.

        ``plan`` may raise, and may return no operations if nothing is left to do.
        """
        for _ in range(_MAX_TRIES):
            try:
                if ops := plan():
                    await self.commit(ops)
            except BadVersion as error:
                lost = error
            else:
                return
        raise lost

    async def refresh(self, paths: Iterable[str]) -> None:
        """Have the readers know what is stored at these paths now."""
        wanted = [path for path in dict.fromkeys(paths) if any(self._of(path))]
        with self._read() as overtaken:
            found = await self.store.get_many(wanted)
            for path, stored in zip(wanted, found, strict=True):
                if path not in overtaken:
                    for following in self._of(path):
                        following.reader.apply(path, stored)

    async def close(self) -> None:
        """Follow no more."""
        tasks = [each.task for each in self._following if each.task is not None]
        for each in self._following:
            each.watch.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._following.clear()

    def _of(self, path: str) -> Iterator[_Following]:
        return (each for each in self._following if each.has(path))

    @contextmanager
    def _read(self) -> Iterator[set[str]]:
        overtaken: set[str] = set()
        self._reading[id(overtaken)] = overtaken
        try:
            yield overtaken
        finally:
            del self._reading[id(overtaken)]

    async def _load(self, following: _Following) -> None:
        reader = following.reader
        with self._read() as overtaken:
            gone = set(reader.known())
            tree = await self.store.get_tree(reader.root)
            for count, (path, stored) in enumerate(tree.items(), 1):
                if path not in overtaken:
                    reader.apply(path, stored)
                if not count % _AT_ONCE:
                    await asyncio.sleep(0)
            for path in gone - tree.keys() - overtaken:
                reader.apply(path, None)

    async def _keep_up(self, following: _Following) -> None:
        async for changes in following.watch:
            while True:
                try:
                    await self._take_over(following, changes)
                except MetadataFailed as error:
                    _log.warning("what changed beneath %s cannot be read: %s", following.reader.root, error)
                    await asyncio.sleep(_AGAIN_SECONDS)
                else:
                    break

    async def _take_over(self, following: _Following, changes: Changes) -> None:
        if changes.lost:
            await self._load(following)
            return
        paths = list(changes.paths)
        for at in range(0, len(paths), _AT_ONCE):
            some = paths[at : at + _AT_ONCE]
            with self._read() as overtaken:
                found = await self.store.get_many(some)
                for path, stored in zip(some, found, strict=True):
                    if path not in overtaken:
                        _applied(following.reader, path, stored)


def _applied(reader: CacheFollower, path: str, stored: Stored | None) -> None:
    try:
        reader.apply(path, stored)
    except (
        MetadataError
    ) as error:  # what another client wrote cannot be read; the broker goes on with what it knows
        _log.error("%s", error)
    except Exception:
        _log.exception("%s changed, but its reader failed", path)
