"""Where bookies are: Pulsar's node ``/bookies``, written by ``pulsar-admin bookies set-bookie-rack``.

    {"default": {"bookie-1:3181": {"rack": "/rack-a", "hostname": "bookie-1"}}}

By group, then by bookie. A rack of two segments is a region and a rack in it. A broker that is isolated to groups
creates its ledgers only on their bookies (Pulsar's ``bookkeeperClientIsolationGroups``).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magnetar.metadata import MUST_NOT_EXIST, BadVersion, MetadataError, MetadataStore, Put, Watch

BOOKIES = "/bookies"
_TRIES = 100
_AGAIN_S = 1.0
_log = logging.getLogger("magnetar.ledger")


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """Where one bookie is."""

    rack: str
    hostname: str = ""

    @property
    def location(self) -> str:
        """The rack as BookKeeper wants it: ``/RACK``, or ``/REGION/RACK``."""
        return "/" + self.rack.strip("/")

    def told(self) -> dict[str, str]:
        """Return it in Pulsar's JSON form."""
        return {"rack": self.rack, "hostname": self.hostname}


Groups = Mapping[str, Mapping[str, BookieInfo]]
"""By group, then by bookie."""


class RacksInvalid(ValueError):
    """The node of racks is malformed."""


def decode_racks(data: bytes) -> Groups:
    """Decode the node; raise `RacksInvalid`."""
    try:
        told = json.loads(data or b"{}")
        return {
            str(group): {str(bookie): _info(info) for bookie, info in bookies.items()}
            for group, bookies in told.items()
        }
    except (ValueError, AttributeError, RecursionError) as error:
        raise RacksInvalid(f"{BOOKIES} is not Pulsar's JSON of groups, bookies and racks: {error}") from None


def _info(told: Any) -> BookieInfo:
    rack, hostname = told.get("rack"), told.get("hostname") or ""
    if not isinstance(rack, str) or not rack.strip("/") or not isinstance(hostname, str):
        raise RacksInvalid("a bookie has no rack, or a hostname that is none")
    return BookieInfo(rack, hostname)


def encode_racks(groups: Groups) -> bytes:
    """Encode the node."""
    told = {
        group: {bookie: info.told() for bookie, info in sorted(bookies.items())}
        for group, bookies in sorted(groups.items())
    }
    return json.dumps(told).encode()


def with_bookie(groups: Groups, group: str, bookie: str, info: BookieInfo) -> Groups:
    """Return groups in which a bookie belongs to this group, and to no other."""
    left = dict(without_bookie(groups, bookie))
    left[group] = {**left.get(group, {}), bookie: info}
    return left


def without_bookie(groups: Groups, bookie: str) -> Groups:
    """Return groups without a bookie; a group that has none any more is gone."""
    left = {
        group: {name: info for name, info in bookies.items() if name != bookie}
        for group, bookies in groups.items()
    }
    return {group: bookies for group, bookies in left.items() if bookies}


async def read_racks(store: MetadataStore) -> Groups:
    """Return where bookies are; raise `RacksInvalid`, ``MetadataError``."""
    stored = await store.get(BOOKIES)
    return {} if stored is None else decode_racks(stored.value)


async def change_racks(store: MetadataStore, change: Callable[[Groups], Groups]) -> None:
    """Replace the groups by the result of ``change``; retry where another writer was faster."""
    for _ in range(_TRIES):
        stored = await store.get(BOOKIES)
        groups = {} if stored is None else decode_racks(stored.value)
        version = MUST_NOT_EXIST if stored is None else stored.version
        try:
            await store.commit([Put(BOOKIES, encode_racks(change(groups)), version)])
        except BadVersion as error:
            lost = error
        else:
            return
    raise lost


@dataclass(frozen=True, slots=True)
class BookiePlacement:
    """The rules for the choice of a ledger's bookies: Pulsar's ``bookkeeperClient*``."""

    rack_aware: bool = True
    region_aware: bool = False
    min_racks: int = 2
    """The least racks of a write quorum, if there are as many."""
    enforce_min_racks: bool = False
    """Whether no ledger is created if there are fewer."""
    isolation_groups: Sequence[str] = ()
    secondary_groups: Sequence[str] = ()
    """Groups to use if the first have too few bookies."""

    def excluded(self, groups: Groups, known: Collection[str], ensemble: int) -> set[str]:
        """Return the ``known`` bookies that a ledger with an ensemble of that size may not use.

        Without groups of its own the broker uses any. If the first groups have too few available bookies, those of the
        second are used as well; if both have too few, no ledger can be created.
        """
        if not self.isolation_groups:
            return set()
        allowed = _in(groups, self.isolation_groups) & set(known)
        if len(allowed) < ensemble:
            allowed |= _in(groups, self.secondary_groups)
        return set(known) - allowed


def _in(groups: Groups, names: Iterable[str]) -> set[str]:
    return {bookie for name in names for bookie in groups.get(name, ())}


class RacksFollower:
    """Reports where bookies are, at its start and whenever that changes."""

    def __init__(self, store: MetadataStore, place: Callable[[Groups], Awaitable[None]]) -> None:
        self._store = store
        self._place = place
        self._watch: Watch | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return after the first report; raise ``MetadataError``."""
        self._watch = await self._store.watch(BOOKIES)
        await self._read()
        self._task = asyncio.ensure_future(self._keep_up(self._watch))

    async def _keep_up(self, watch: Watch) -> None:
        async for _ in watch:
            while True:
                try:
                    await self._read()
                except MetadataError as error:
                    _log.warning("where bookies are cannot be read, and is tried again: %s", error)
                    await asyncio.sleep(_AGAIN_S)
                else:
                    break

    async def _read(self) -> None:
        try:
            await self._place(await read_racks(self._store))
        except RacksInvalid as error:
            _log.error("%s; bookies are placed as before", error)

    async def close(self) -> None:
        """Stop following."""
        if self._watch is not None:
            self._watch.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
