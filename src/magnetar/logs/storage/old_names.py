"""Nodes of a data directory whose names in paths are Python's: they are given those of `magnetar.metadata.segments`.

Until 2026-11-26 a name was one segment as ``urllib.parse.quote`` makes it, and in the path of a managed ledger it was
quoted twice. Only names with other characters than letters, digits and ``._-`` differ. Without this such topics would
be found without what is in them, and could not be changed or deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from urllib.parse import quote

from magnetar.ledger.formats.info import ROOT
from magnetar.metadata import MUST_NOT_EXIST, Delete, MetadataStore, Put
from magnetar.metadata.segments import decoded, encoded, is_whole
from magnetar.topics.catalog import TOPICS

_MARK = "/magnetar/names-in-paths"
"""Is there once a directory was looked through."""
_SINGLE = {TOPICS: 3, "/magnetar/topic-policies": 3, "/schemas": 2}
"""Where a topic's name is a segment of its own, behind so many others."""
_log = logging.getLogger(__name__)


async def mend_names(store: MetadataStore) -> None:
    """Move what lies under old names; harmless where nothing does, or where an earlier run ended half-way.

    Nobody else may use the store meanwhile. Raises ``MetadataError``.
    """
    if await store.get(_MARK) is not None:
        return
    moves = [move for root in _SINGLE for move in _of_topics(root, await store.get_tree(root))]
    moves += _of_ledgers(await store.get_tree(TOPICS), await store.get_tree(ROOT))
    # A ledger's old path may be the new one of another topic, whose own old path is longer: that one comes after it.
    # Cursors come before what they are beneath.
    for old, new in sorted(moves, key=lambda move: (len(_log_of(move[0])), -len(move[0]))):
        found, there = await store.get_many([old, new])
        if found is not None and there is None:
            await store.commit([Put(new, found.value, MUST_NOT_EXIST), Delete(old, found.version)])
    if moves:
        _log.info("%d names in paths of the metadata are now as Pulsar writes them", len(moves))
    await store.commit([Put(_MARK, b"", MUST_NOT_EXIST)])


def _log_of(path: str) -> str:
    return "/".join(path.split("/")[:6]) if path.startswith(ROOT + "/") else path


def _of_topics(root: str, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield old paths with a topic's name, and the new ones."""
    for path in paths:
        segments = path.removeprefix(f"{root}/").split("/")
        if len(segments) > _SINGLE[root] and not is_whole(name := segments[_SINGLE[root]]):
            segments[_SINGLE[root]] = encoded(decoded(name))
            yield path, f"{root}/{'/'.join(segments)}"


def _of_ledgers(topics: Iterable[str], paths: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield old paths of the topics' managed ledgers and of any cursors, and the new ones."""
    new_of: dict[str, str] = {}
    for topic in topics:
        *place, name = topic.removeprefix(f"{TOPICS}/").split("/")
        local, folder = decoded(name), "/".join((ROOT, *place))
        new_of[f"{folder}/{quote(quote(local, safe=''), safe='')}"] = f"{folder}/{encoded(local)}"
    old_of = {new: old for old, new in new_of.items()}
    for path in paths:
        log, _, cursor = path.partition("/persistent/")[2].partition("/")
        folder = path[: len(path) - len(f"{log}/{cursor}" if cursor else log)]
        base, mark, number = (folder + log).rpartition("-partition-")
        # What is also another topic's new path is that topic's, unless its own ledger still lies under the old one.
        other = old_of.get(base, base)
        is_old = base in new_of and (other == base or f"{other}{mark}{number}" in paths)
        new = f"{new_of[base]}{mark}{number}" if is_old else folder + log
        if cursor:
            new += f"/{encoded(decoded(cursor))}"
        if new != path:
            yield path, new
