"""The metadata store: a small tree of versioned values, with the paths and meanings of Pulsar's own store.

A path is ``/`` separated and names one value. The version of a value is 0 when it is created and grows by one with
every write; it begins at 0 again when the value is deleted and created anew. The port promises what ZooKeeper, an
embedded database and memory can all keep, and no more:

- All writes go through `commit`: a few operations that are all kept or none, each with the version it expects. There
  is no transaction that reads; who changes what it read commits with the version it read, and tries again.
- Other clients write at the same time. Reads of several nodes are not of one moment; `watch` tells of what changed.
- A node with nodes beneath it cannot be deleted. A node needs no parent to be stored first, but a store may make the
  parents that are missing, with empty values: what has a value of its own is stored before what lies beneath it.
- A commit, paths and values together, is at most `MAX_COMMIT_BYTES`; larger values are kept in parts
  (`magnetar.metadata.parts`).
- A commit whose caller is cancelled, or which raises `MetadataUncertain`, may have been kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import NamedTuple

from magnetar.metadata.blocking import BlockingStore
from magnetar.metadata.ops import Op, Stored, below


class Changes(NamedTuple):
    """Paths at which something was stored, changed or deleted; ``lost``: there may be more, read everything anew."""

    paths: frozenset[str]
    lost: bool = False


class Watch(ABC, AsyncIterator[Changes]):
    """What changes at a path and beneath it, whoever changes it, from the moment on at which `watch` returned.

    Changes that were not asked for yet are told together; ends when it is closed, or the store is.
    """

    @abstractmethod
    async def __anext__(self) -> Changes: ...

    @abstractmethod
    def close(self) -> None:
        """Stop to watch."""


class Session:
    """What ephemeral nodes live by. When it is lost they are gone, and the store begins another one."""

    def __init__(self, session_id: int) -> None:
        self.id = session_id
        self.on_lost: list[Callable[[], None]] = []
        """Called on the event loop when the session was lost, not when the store is closed in order."""


class MetadataStore(ABC):
    """What every store promises, on one event loop; ``tests/contracts/metadata_store.py`` holds each of them to it."""

    session: Session
    blocking: BlockingStore
    """The same store for callers that wait for it where they stand; goes when the last of them is gone."""

    trouble: str = ""
    """What the store refused last, until a commit succeeds again."""

    comes_back: bool = False
    """Whether a store that cannot be reached is expected to be there again by itself: worth another try soon."""

    @abstractmethod
    async def get(self, path: str) -> Stored | None:
        """Return what is stored at exactly this path."""

    @abstractmethod
    async def get_many(self, paths: Iterable[str]) -> list[Stored | None]:
        """Return what is stored at each path, in the order of the paths; not all of it at one moment."""

    @abstractmethod
    async def children(self, path: str) -> list[str]:
        """Return the sorted names right beneath ``path``, also of nodes that only have nodes beneath them."""

    async def get_tree(self, path: str) -> dict[str, Stored]:
        """Return all nodes beneath ``path`` by their paths, sorted; not all of them at one moment."""
        found: dict[str, Stored] = {}
        level = [path]
        while level:
            names = [below(each) + name for each in level for name in await self.children(each)]
            kept = await self.get_many(names)
            found |= {name: stored for name, stored in zip(names, kept, strict=True) if stored is not None}
            level = names
        return dict(sorted(found.items()))

    @abstractmethod
    async def commit(self, ops: Sequence[Op]) -> list[int]:
        """Do all operations, in their order, or none; return each path's version afterwards, -1 of a deleted one.

        It is durable when this returns. Raises `BadVersion`, `NotFound`, `NotEmpty`, `ParentIsEphemeral`, `TooLarge`,
        `InvalidPath`, `MetadataFull` or `MetadataUnavailable`, all after nothing was changed, or `MetadataUncertain`.
        """

    @abstractmethod
    async def watch(self, path: str) -> Watch:
        """Return a watch of the node ``path`` and of all beneath it, which tells of every later change."""

    async def is_writable(self) -> bool:
        """Return whether commits succeed, tried anew where the last one did not; ``trouble`` has the words."""
        return True

    @abstractmethod
    async def close(self) -> None:
        """End the session and leave everything in order. Closing twice is harmless."""
