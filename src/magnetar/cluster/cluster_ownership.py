"""Ownership in a cluster: Pulsar's ephemeral nodes, which end with the session of the broker that created them.

    /loadbalance/brokers/HOST:PORT          a broker that lives: its number, rack, and where clients reach it
    /magnetar/broker-ids/N                  which of them has the number N; reveals two brokers with one number
    /magnetar/broker-id-questions/N         another process wants that number: a broker that lives deletes the question
    /namespace/TENANT/NAMESPACE/RANGE       the owner of a bundle, and its epoch
    /admin/local-policies/TENANT/NAMESPACE  the bounds of a namespace's bundles, as Pulsar stores them
    /magnetar/bundle-epochs/TENANT/NAMESPACE/RANGE   the epoch of the last owner (`magnetar.cluster.bundle_epochs`)
    /magnetar/bundle-placements/TENANT/NAMESPACE/RANGE   the broker that should own a bundle, other than by its hash
    /magnetar/bundle-unloads/TENANT/NAMESPACE/RANGE   another broker asks the owner to release the bundle

A bundle is taken by one commit, with its next epoch. Its intended owner follows from which brokers live and which
bundles they own (`magnetar.cluster.even_placement`), so brokers that see the same agree without a message, and the
bundles of a dead broker are spread over all others. By load, the leader places single bundles elsewhere
(`magnetar.node.load_balancing`) for as long as the target lives, and so does the intended owner of a bundle that never
had an owner (`magnetar.cluster.load_placement`). A broker whose session is lost owns nothing from that moment on,
before ZooKeeper lets others take its bundles.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice, pairwise
from typing import Any, NamedTuple
from uuid import uuid4

from magnetar import __version__
from magnetar.base.errors import BrokerError
from magnetar.base.long_waits import told_if_long
from magnetar.base.slices import batched
from magnetar.cluster.bundle_epochs import EPOCHS, highest_of_one
from magnetar.cluster.even_placement import FEW_TOPICS_IN_ALL, evenly, partitions_in
from magnetar.cluster.load_placement import BrokerScore, least_loaded
from magnetar.cluster.ownership import HASHES, BrokerInfo, Bundle, NotOwned, Owned, Ownership, boundary
from magnetar.metadata import (
    ANY,
    MUST_NOT_EXIST,
    BadVersion,
    Check,
    Delete,
    MetadataError,
    MetadataStore,
    NotFound,
    Put,
)
from magnetar.metadata.cache import MetadataCache
from magnetar.metadata.ops import Stored
from magnetar.metadata.port import Session
from magnetar.serving.listeners import Endpoint
from magnetar.settings.cluster import ClusterSettings
from magnetar.settings.settings import Settings
from magnetar.topics.topic import Topic

BROKERS, IDS, OWNERS = "/loadbalance/brokers", "/magnetar/broker-ids", "/namespace"
POLICIES = "/admin/local-policies"
QUESTIONS = "/magnetar/broker-id-questions"
PLACEMENTS, UNLOADS = "/magnetar/bundle-placements", "/magnetar/bundle-unloads"
_LOOK_S = 1.0
_SETTLED_S = 3.0
"""How long a broker must have been there before others hand over the bundles that are meant for it."""
_HANDED_OVER_AT_ONCE = 4
_TAKEN_AT_ONCE = 16
_LET_GO_AT_ONCE = 16
"""Bundles of a lost session to release in parallel. Each waits for bookies and ZooKeeper, which may be gone."""
_UNLOAD_S = 30.0
"""How long a broker waits after asking another one to release a bundle."""
_LEAVE_S = 15.0
"""How long a broker that shuts down hands over its bundles; it releases the rest."""
_PATIENCE_S = 3.0
"""How long a bundle waits for its intended owner, before another broker that needs it takes it."""
_log = logging.getLogger("magnetar.ownership")


class BrokerIdTaken(BrokerError):
    """Another living broker has this one's number."""


class _Kept:
    """A `MetadataCache` follower of what lies below one path."""

    def __init__(self, root: str, depth: int, changed: Callable[[str, Stored | None], None]) -> None:
        """Only nodes of one depth below the root have a meaning; those between are parents."""
        self.root = root
        self._depth = root.count("/") + depth
        self._changed = changed
        self._paths: set[str] = set()

    def apply(self, path: str, stored: Stored | None) -> None:
        if path.count("/") != self._depth:
            return
        (self._paths.discard if stored is None else self._paths.add)(path)
        self._changed(path, stored)

    def known(self) -> Iterable[str]:
        return tuple(self._paths)


class ClusterTopics(NamedTuple):
    """The topics that brokers divide among themselves."""

    namespaces: Callable[[], Iterable[str]] = lambda: ()
    few: Callable[[int], tuple[int, Sequence[Topic]]] = lambda most: (0, [])
    """All topics, unless there are more than so many, and a number that changes with them."""


NO_TOPICS = ClusterTopics()


class ClusterOwnership(Ownership):
    """The view of one broker. Call ``start`` before anything is served, ``begin`` once it is."""

    def __init__(
        self,
        store: MetadataStore,
        cluster: str,
        node_id: int,
        rack: str | None,
        bundles: int,
        session_s: float,
        *,
        come_back: Iterable[BrokerInfo] = (),
        quorums: Mapping[str, int] | None = None,
    ) -> None:
        """``bundles``: how many a new namespace gets; ``session_s``: how long the store retains a silent session.

        ``quorums`` are published, for the check if there are enough bookies (`magnetar cluster doctor`).

        The brokers in ``come_back`` are listed also while they are gone: they restart, at the same address.
        """
        super().__init__()
        self._come_back = {each.node_id: each for each in come_back}
        self._away = dict(self._come_back)
        """The brokers of ``come_back`` that are gone now."""
        self._session_s = session_s
        self.cluster = cluster
        self.node_id = node_id
        self._rack = rack
        self._quorums = quorums or {}
        self._started_ms = time.time_ns() // 1_000_000
        self._store = store
        self._count = bundles
        self._cache = MetadataCache(store)
        self._endpoints: dict[str, Endpoint] = {}
        self._brokers: dict[str, BrokerInfo] = {}
        """By path."""
        self._since: dict[str, float] = {}
        """By path, when this broker first saw the node."""
        self._owners: dict[str, Owned] = {}
        """By path, as the store has it; this broker's own entries count only while they are in ``_mine``."""
        self._mine: dict[Bundle, Owned] = {}
        self._taken: dict[Bundle, int] = {}
        """The version of a bundle's epoch when this broker took it last; it grows when another broker takes it."""
        self._going = Counter[Bundle]()
        """Bundles that this broker is releasing, or owned in a session that is over, until no part of it has their logs
        open any more, with the number of reasons."""
        self._bounds: dict[str, tuple[Bundle, ...]] = {}
        """By namespace, once they are stored."""
        self._policies: dict[str, Stored] = {}
        """The nodes from which the bounds were read."""
        self._placements: dict[str, int] = {}
        """By bundle."""
        self._placements_gone: dict[str, float] = {}
        """Placements of bundles that do not exist, and since when."""
        self._by_default: dict[str, tuple[Bundle, ...]] = {}
        self._locks: dict[Bundle, asyncio.Lock] = {}
        self._moved = asyncio.Event()
        """Set when something changed that ownership depends on."""
        self._claimant = uuid4().hex.encode()
        self._claimed_in: Session | None = None
        self._sessions = 0
        """How many sessions there have been."""
        self._path = ""
        self._epoch_of_one = 0
        self._serves = False
        self._is_closing = False
        self._is_leaving = False
        """Whether it takes no more bundles, and hands over its own."""
        self._leaving: set[int] = set()
        """Other brokers that do so."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._topics = NO_TOPICS
        self._plans: dict[str, tuple[tuple[int, int, int], dict[Bundle, int]]] = {}
        """By namespace, the inputs of the plan, and the intended owner of each bundle."""
        self._seen = Counter[str]()
        """How often something changed in a namespace that a plan depends on."""
        self._brokers_seen = 0
        self.taken = self.released = 0
        """How many bundles were taken and released, since the start."""
        self.sessions = 1
        self._load: Mapping[str, Any] = {}
        """This broker's last load report."""
        self.loads: dict[int, Mapping[str, Any]] = {}
        """The load reports of all brokers, by their number."""

    async def start(self) -> None:
        """Read the cluster's state, and claim this broker's number; raise `BrokerIdTaken`."""
        self._store.session.on_lost.append(self._session_lost)
        await self._claim_id()
        self._epoch_of_one = await highest_of_one(self._store)
        await self._cache.follow(_Kept(BROKERS, 1, self._broker_changed))
        await self._cache.follow(_Kept(OWNERS, 3, self._owner_changed))
        await self._cache.follow(_Kept(POLICIES, 2, self._bounds_changed))
        await self._cache.follow(_Kept(PLACEMENTS, 3, self._placement_changed))
        await self._cache.follow(_Kept(UNLOADS, 3, self._unload_wanted))
        await self._cache.follow(_Kept(QUESTIONS, 1, self._id_questioned))

    async def begin(
        self,
        namespaces: Callable[[], Iterable[str]] = NO_TOPICS.namespaces,
        few_topics: Callable[[int], tuple[int, Sequence[Topic]]] = NO_TOPICS.few,
    ) -> None:
        """Register this broker, and take the bundles that are meant for it from now on; see `ClusterTopics`."""
        self._topics = ClusterTopics(namespaces, few_topics)
        self._serves = True
        await self._register()
        self._soon(self._keep_looking())

    async def leave(self) -> None:
        """Hand each bundle over to another broker while this one still serves; return when that is done, or in time.

        Clients that look for a partition again then find it, because this broker still answers where it is.
        """
        if not self._others_stay():
            return
        self._is_leaving = True
        self._brokers_seen += 1
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._register()
                for some in batched(sorted(self._mine, key=str), _HANDED_OVER_AT_ONCE):
                    await asyncio.gather(*map(self._hand_to_another, some))
        except (MetadataError, TimeoutError) as error:
            _log.warning(
                "%d bundles were not handed over before the end: %s", len(self._mine), error or "no time"
            )

    def _others_stay(self) -> bool:
        return any(
            each.node_id != self.node_id and each.node_id not in self._leaving
            for each in self._brokers.values()
        )

    async def _hand_to_another(self, bundle: Bundle) -> None:
        await self.release(bundle)
        end = asyncio.get_running_loop().time() + _PATIENCE_S
        while self.owner_of(bundle) is None and self._others_stay():
            if asyncio.get_running_loop().time() > end:
                return
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Release all bundles, and take none any more."""
        self._is_closing = True
        try:
            await self._forget_registration()
            await asyncio.gather(*(self.release(bundle) for bundle in tuple(self._mine)))
        finally:
            for task in tuple(self._tasks):
                task.cancel()
            await self._cache.close()

    # -- brokers

    async def _claim_id(self) -> None:
        path, question = f"{IDS}/{self.node_id}", f"{QUESTIONS}/{self.node_id}"
        asked_in: Session | None = None
        # A broker that was killed stays registered until its session ends.
        for tries_left in reversed(range(int(1.5 * self._session_s / _CLAIM_S) + 2)):
            claim = self._claim()
            try:
                await self._store.commit([Put(path, claim, MUST_NOT_EXIST, ephemeral=True)])
            except BadVersion:
                found = await self._store.get(path)
                if found is not None and found.value == claim == self._claim():
                    return  # a commit of this session made it: its answer was lost, or another task sent it
                if not tries_left:
                    if found is not None and found.value.startswith(self._claimant):
                        # Earlier sessions have ended by now: a commit sent before this one began was done in this one.
                        await self._store.commit([Delete(path, found.version)])
                    raise self._id_taken() from None
                if asked_in is not self._store.session:  # the previous question ended with its session
                    asked_in = self._store.session
                    _log.info(
                        "number %d is taken; its owner is asked, and waited for if it is gone", self.node_id
                    )
                    await self._store.commit([Put(question, claim, ANY, ephemeral=True)])
                elif await self._store.get(question) is None:
                    raise self._id_taken() from None  # the node is still answered for, so that broker lives
                await asyncio.sleep(_CLAIM_S)
            else:
                if asked_in is not None:
                    await self._forget_question(question)
                return

    def _id_taken(self) -> BrokerIdTaken:
        return BrokerIdTaken(
            f"another broker of cluster {self.cluster} has the number {self.node_id}: give each its own"
            " by node.id (Kafka's broker.id)"
        )

    def _id_questioned(self, path: str, stored: Stored | None) -> None:
        """Answer a process that wants this broker's number, by deleting its question."""
        is_own = stored is None or stored.value.startswith(self._claimant)
        if path == f"{QUESTIONS}/{self.node_id}" and not is_own and not self._is_closing:
            _log.warning(
                "another process wants the number %d of this broker, and is told that it is taken",
                self.node_id,
            )
            self._soon(self._forget_question(path))

    async def _forget_question(self, path: str) -> None:
        try:
            await self._store.commit([Delete(path, ANY)])
        except NotFound:
            pass

    def _claim(self) -> bytes:
        """Return the proof that this object has the number, in the current session."""
        if self._claimed_in is not self._store.session:
            self._claimed_in = self._store.session
            self._sessions += 1
        return self._claimant + b" %d" % self._sessions

    async def _register(self) -> None:
        """Publish where clients reach this broker."""
        if not self._endpoints or not self._serves or self._is_closing:
            return
        if not self._path:
            http = self._endpoints.get("http") or next(iter(self._endpoints.values()))
            self._path = f"{BROKERS}/{http}"
        told = {
            "nodeId": self.node_id,
            "rack": self._rack,
            "endpoints": {name: [each.host, each.port] for name, each in self._endpoints.items()},
            "brokerVersionString": __version__,
            "startTimestamp": self._started_ms,
            # By this broker's clock: the node also has ZooKeeper's time.
            "lastUpdate": time.time_ns() // 1_000_000,
            "bookkeeper": self._quorums,
            "leaving": self._is_leaving,
            **self._load,
        }
        await self._cache.commit([Put(self._path, json.dumps(told).encode(), ANY, ephemeral=True)])

    @property
    def load(self) -> Mapping[str, Any]:
        return self._load

    async def report(self, load: Mapping[str, Any]) -> None:
        """Publish this broker's load to all brokers, as Pulsar's ``LocalBrokerData``."""
        self._load = load
        await self._register()

    async def _forget_registration(self) -> None:
        try:
            await self._store.commit([Delete(self._path, ANY)])
        except (MetadataError, ValueError) as error:
            _log.info("this broker stays known until its session ends: %s", error)

    def _broker_changed(self, path: str, stored: Stored | None) -> None:
        self._moved.set()
        self._brokers_seen += 1
        if stored is None:
            gone = self._brokers.pop(path, None)
            self._since.pop(path, None)
            if gone is not None:
                self.loads.pop(gone.node_id, None)
                self._leaving.discard(gone.node_id)
            if gone is not None and gone.node_id in self._come_back:
                self._away[gone.node_id] = gone
            return
        self._since.setdefault(path, time.monotonic())
        try:
            told = json.loads(stored.value)
            endpoints = {name: Endpoint(host, int(port)) for name, (host, port) in told["endpoints"].items()}
            found = self._brokers[path] = BrokerInfo(int(told["nodeId"]), told.get("rack"), endpoints)
            self._away.pop(found.node_id, None)
            self.loads[found.node_id] = told
            (self._leaving.add if told.get("leaving") is True else self._leaving.discard)(found.node_id)
        except (ValueError, KeyError, TypeError, AttributeError):
            _log.warning("%s is not a broker of Magnetar's, and gets no bundles from here", path)

    def brokers(self) -> Sequence[BrokerInfo]:
        if not self._away:
            return self._living()
        # librdkafka forgets a broker that is not listed, but not that it was a coordinator, and waits for it forever.
        return sorted([*self._living(), *self._away.values()], key=lambda each: each.node_id)

    def _living(self) -> Sequence[BrokerInfo]:
        others = [each for each in self._brokers.values() if each.node_id != self.node_id]
        mine = BrokerInfo(self.node_id, self._rack, self._endpoints)
        return sorted([mine, *others], key=lambda each: each.node_id)

    def _staying(self) -> Sequence[int]:
        """Return the brokers that may own bundles."""
        leaving = self._leaving | ({self.node_id} if self._is_leaving else set())
        living = [each.node_id for each in self._living()]
        return [each for each in living if each not in leaving] or living

    def listens(self, listener: str, endpoint: Endpoint) -> None:
        self._endpoints[listener] = endpoint
        if self._serves:
            self._soon(self._register())

    def leader(self) -> int:
        return min(each.node_id for each in self._living())

    # -- bundles

    def _bounds_changed(self, path: str, stored: Stored | None) -> None:
        namespace = path.removeprefix(POLICIES + "/")
        self._moved.set()
        self._seen[namespace] += 1
        if stored is None:
            self._bounds.pop(namespace, None)
            self._policies.pop(namespace, None)
            return
        try:
            bounds = [int(each, 16) for each in json.loads(stored.value)["bundles"]["boundaries"]]
        except (ValueError, KeyError, TypeError):
            _log.error("the bundles of %s cannot be read at %s", namespace, path)
            return
        self._bounds[namespace] = _bundles(namespace, [*bounds[:-1], HASHES])
        self._policies[namespace] = stored

    def bundles(self, namespace: str) -> Sequence[Bundle]:
        found = self._bounds.get(namespace) or self._by_default.get(namespace)
        if found is None:
            bounds = [HASHES * each // self._count for each in range(self._count + 1)]
            found = self._by_default[namespace] = _bundles(namespace, bounds)
        return found

    async def _keep_bounds(self, namespace: str) -> None:
        """Store a namespace's bundles, so that all brokers have the same before any of them is owned."""
        if namespace in self._bounds:
            return
        # As Pulsar has them: the last bound is the highest hash, not the one after it.
        bounds = [f"0x{min(HASHES * each // self._count, HASHES - 1):08x}" for each in range(self._count + 1)]
        value = json.dumps({"bundles": {"boundaries": bounds, "numBundles": self._count}}).encode()
        try:
            await self._cache.commit([Put(f"{POLICIES}/{namespace}", value, MUST_NOT_EXIST)])
        except BadVersion:  # another broker was faster, and its bounds have been read
            return

    # -- owners

    def _owner_changed(self, path: str, stored: Stored | None) -> None:
        self._moved.set()
        self._seen[path.removeprefix(OWNERS + "/").rpartition("/")[0]] += 1
        self._owners.pop(path, None)
        if stored is not None:
            try:
                told = json.loads(stored.value)["magnetar"]
                self._owners[path] = Owned(int(told["nodeId"]), int(told["epoch"]))
            except (ValueError, KeyError, TypeError):
                self._owners[path] = Owned(-1, -1)  # a Pulsar broker owns it

    def owner_of(self, bundle: Bundle) -> Owned | None:
        mine = self._mine.get(bundle)
        if mine is not None:
            return mine
        found = self._owners.get(f"{OWNERS}/{bundle}")
        return None if found is None or found.node_id == self.node_id else found

    def tally(self) -> tuple[int, int, int]:
        """Return how many bundles this broker owns, how many have no owner, and the latest epoch of its own."""
        ownerless = sum(
            self.owner_of(bundle) is None for bundles in self._bounds.values() for bundle in bundles
        )
        return len(self._mine), ownerless, max((each.epoch for each in self._mine.values()), default=0)

    def mine(self) -> list[Bundle]:
        """Return the bundles that this broker owns."""
        return list(self._mine)

    def bundles_of(self, node_id: int) -> list[Bundle]:
        """Return the bundles that a broker owns, as far as this one knows."""
        if node_id == self.node_id:
            return self.mine()
        return [
            bundle
            for namespace in self._bounds
            for bundle in self._bounds[namespace]
            if (owner := self.owner_of(bundle)) is not None and owner.node_id == node_id
        ]

    def _meant_for(self, bundle: Bundle) -> int:
        """Return the intended owner of a bundle."""
        namespace = bundle.namespace
        version, topics = self._topics.few(FEW_TOPICS_IN_ALL)
        seen = self._brokers_seen, self._seen[namespace], version
        known = self._plans.get(namespace)
        if known is None or known[0] != seen:
            bundles = self.bundles(namespace)
            owners = {each: self.owner_of(each) for each in bundles}
            plan = evenly(
                bundles,
                self._staying(),
                {each: owner.node_id for each, owner in owners.items() if owner is not None},
                {each: self._placements[name] for each in bundles if (name := str(each)) in self._placements},
                partitions_in(topics, namespace, self.bundle_of),
            )
            known = self._plans[namespace] = seen, plan
        return known[1].get(bundle, self.node_id)  # a bundle that was split a moment ago has no owner

    def _placement_changed(self, path: str, stored: Stored | None) -> None:
        self._moved.set()
        bundle = path.removeprefix(PLACEMENTS + "/")
        self._seen[bundle.rpartition("/")[0]] += 1
        self._placements.pop(bundle, None)
        if stored is not None:
            try:
                self._placements[bundle] = int(json.loads(stored.value)["nodeId"])
            except (ValueError, KeyError, TypeError):
                _log.error("where bundle %s is to be cannot be read at %s", bundle, path)

    async def place(self, bundle: Bundle, node_id: int) -> None:
        """Move a bundle to a broker, which owns it from now on as long as it lives."""
        path = f"{PLACEMENTS}/{bundle}"
        await self._cache.commit([Put(path, json.dumps({"nodeId": node_id}).encode(), ANY)])

    def _unload_wanted(self, path: str, stored: Stored | None) -> None:
        if stored is not None:
            self._soon(self._unload(path))

    async def _unload(self, path: str) -> None:
        for bundle in tuple(self._mine):
            if f"{UNLOADS}/{bundle}" == path:
                await self.release(bundle)
                await self._forget_unload(path)

    async def unload(self, bundle: Bundle) -> None:
        """Ask the owner of a bundle to release it; raise `NotOwned` if it does not."""
        owner = self.owner_of(bundle)
        if owner is None or owner.node_id == self.node_id:
            await self.release(bundle)
            return
        path = f"{UNLOADS}/{bundle}"
        await self._cache.commit([Put(path, b"", ANY)])
        end = asyncio.get_running_loop().time() + _UNLOAD_S
        try:
            while self.owner_of(bundle) == owner:
                if asyncio.get_running_loop().time() > end:
                    raise NotOwned(f"Namespace bundle {bundle}", owner)
                await asyncio.sleep(0.02)
        finally:
            await self._forget_unload(path)

    async def _forget_unload(self, path: str) -> None:
        try:
            await self._cache.commit([Delete(path, ANY)])
        except NotFound:
            pass

    async def acquire(self, bundle: Bundle) -> Owned:
        end = asyncio.get_running_loop().time() + _PATIENCE_S
        while True:
            owner = self.owner_of(bundle)
            if owner is not None:
                if owner.node_id == self.node_id:
                    return owner
                raise NotOwned(f"Namespace bundle {bundle}", owner)
            if self._is_closing or self._is_leaving or not self._serves or bundle in self._going:
                # No caller may wait for a bundle that is being released: the release may wait for that very caller.
                raise NotOwned(f"Namespace bundle {bundle}", None)
            is_late = asyncio.get_running_loop().time() > end
            if self._meant_for(bundle) == self.node_id or is_late:
                await self._take(bundle, whoever=is_late)
            else:
                await asyncio.sleep(0.05)

    async def acquire_later(self, bundle: Bundle) -> Owned:
        end = asyncio.get_running_loop().time() + _PATIENCE_S
        while bundle in self._going and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110 - as `acquire` does
            await asyncio.sleep(0.02)
        return await self.acquire(bundle)

    async def _take(self, bundle: Bundle, *, whoever: bool = False) -> None:
        """Take a bundle unless another broker is faster, or the bundle is new and another broker has less load.

        ``whoever``: take it whichever broker it was meant for, since that one did not.
        """
        async with self._locks.setdefault(bundle, asyncio.Lock()):
            try:
                is_taken = await self._taken_now(bundle, whoever=whoever)
            except MetadataError as error:
                _log.warning("bundle %s cannot be taken now: %s", bundle, error)
                raise NotOwned(f"Namespace bundle {bundle}", None) from error
        if is_taken:
            for each in self.on_acquired:
                await each(bundle)
        elif self.owner_of(bundle) is None:
            await asyncio.sleep(0.05)

    async def _taken_now(self, bundle: Bundle, *, whoever: bool) -> bool:
        """Try once; the caller has the bundle's lock, for which many may have waited."""
        if self.owner_of(bundle) is not None or self._is_closing or self._is_leaving:
            return False
        if bundle in self._going:  # other brokers may have written since to logs that are still open here
            return False
        session = self._store.session
        try:
            await self._keep_bounds(bundle.namespace)
            known = self._policies.get(bundle.namespace)
            if known is None or bundle not in self.bundles(bundle.namespace):
                raise NotOwned(f"Namespace bundle {bundle}", None)
            stored = await self._store.get(f"{EPOCHS}/{bundle}")
            if stored is None and not whoever and (other := self._less_loaded(bundle)) != self.node_id:
                _log.info("new bundle %s is for broker %d, which has less to do", bundle, other)
                await self.place(bundle, other)
                return False
            epoch = max(0 if stored is None else int(stored.value), self._epoch_of_one) + 1
            version = MUST_NOT_EXIST if stored is None else stored.version
            policies = f"{POLICIES}/{bundle.namespace}"
            _, taken, _ = await self._store.commit([
                # A broker that does not know of a split yet must not take the whole next to its parts.
                Check(policies, known.version),
                Put(f"{EPOCHS}/{bundle}", str(epoch).encode(), version),
                Put(f"{OWNERS}/{bundle}", self._told_of_owner(epoch), MUST_NOT_EXIST, ephemeral=True),
            ])  # fmt: skip
        except BadVersion:
            await self._cache.refresh([f"{OWNERS}/{bundle}", policies])
            await self._forget_what_is_not_had(bundle)
            return False
        if session is not self._store.session or session.id == 0:
            return False
        self._mine[bundle], self._taken[bundle] = Owned(self.node_id, epoch), taken
        self.taken += 1
        self._seen[bundle.namespace] += 1
        return True

    def _less_loaded(self, bundle: Bundle) -> int:
        """Return the intended owner of a new bundle that this broker would take."""
        if str(bundle) in self._placements:
            return self.node_id  # that has been decided
        has = Counter(each.node_id for each in self._owners.values())
        has[self.node_id] = len(self._mine)
        placed = Counter(
            self._placements[each] for each in self._placements if f"{OWNERS}/{each}" not in self._owners
        )
        scores = [
            BrokerScore.of(
                each.node_id, self.loads.get(each.node_id, {}), has[each.node_id] + placed[each.node_id]
            )
            for each in self._living()
        ]
        return least_loaded(self.node_id, [each for each in scores if each is not None])

    def _told_of_owner(self, epoch: int) -> bytes:
        """Return the owner node for this broker, with the fields that Pulsar brokers write, for Pulsar tools."""
        pulsar, http = self._endpoints.get("pulsar"), self._endpoints.get("http")
        told = {
            "magnetar": {"nodeId": self.node_id, "epoch": epoch},
            "disabled": False,
            "nativeUrl": None if pulsar is None else f"pulsar://{pulsar}",
            "httpUrl": None if http is None else f"http://{http}",
        }
        return json.dumps(told).encode()

    @asynccontextmanager
    async def _letting_go(self, bundle: Bundle) -> AsyncIterator[None]:
        """Hold a bundle's lock; already before it is acquired, no caller begins to wait for the bundle."""
        self._going[bundle] += 1
        try:
            with told_if_long(_log, f"bundle {bundle} is being let go of"):
                async with self._locks.setdefault(bundle, asyncio.Lock()):
                    yield
        finally:
            self._is_let_go_of(bundle)

    def _is_let_go_of(self, bundle: Bundle) -> None:
        self._going[bundle] -= 1
        if not self._going[bundle]:
            del self._going[bundle]

    async def release(self, bundle: Bundle) -> None:
        async with self._letting_go(bundle):
            if self._mine.pop(bundle, None) is None:
                return
            self.released += 1
            self._seen[bundle.namespace] += 1
            try:
                for told in self.on_lost:
                    await told(bundle)
            finally:
                await self._forget_owner(bundle)

    async def _forget_owner(self, bundle: Bundle) -> None:
        """Delete a bundle's owner, unless another broker has taken it since: a release can outlast a session."""
        try:
            await self._store.commit([
                Check(f"{EPOCHS}/{bundle}", self._taken[bundle]),
                Delete(f"{OWNERS}/{bundle}", ANY),
            ])  # fmt: skip
        except BadVersion:  # another broker owns it, or none does
            pass
        except MetadataError as error:
            _log.warning("bundle %s stays this broker's until its session ends: %s", bundle, error)

    async def _forget_all_that_is_not_had(self) -> None:
        """Check all bundles that are registered as this broker's, except those that it is busy with."""
        for path, owned in tuple(self._owners.items()):
            bundle = self._bundle_at(path) if owned.node_id == self.node_id else None
            if bundle is None or bundle in self._mine:
                continue
            lock = self._locks.setdefault(bundle, asyncio.Lock())
            if lock.locked():  # it is being taken, which checks the same, or released
                continue
            async with lock:
                await self._forget_what_is_not_had(bundle)

    async def _forget_what_is_not_had(self, bundle: Bundle) -> None:
        """Delete the owner of a bundle that is registered as this broker's by mistake: no other could take it.

        A commit that took a bundle, or released it, may have been done or not without an answer to this broker. The
        caller has the bundle's lock.
        """
        owned = self._owners.get(f"{OWNERS}/{bundle}")
        if owned is None or owned.node_id != self.node_id or bundle in self._mine:
            return
        epoch = await self._store.get(f"{EPOCHS}/{bundle}")
        if bundle not in self._mine and epoch is not None and int(epoch.value) == owned.epoch:
            self._taken[bundle] = epoch.version
            await self._forget_owner(bundle)

    def _bundle_at(self, path: str) -> Bundle | None:
        namespace = path.removeprefix(f"{OWNERS}/").rpartition("/")[0]
        return next((each for each in self.bundles(namespace) if path == f"{OWNERS}/{each}"), None)

    async def split(self, bundle: Bundle, at: int) -> None:
        async with self._letting_go(bundle):
            owned, policies = self.owner_of(bundle), self._policies.get(bundle.namespace)
            if owned is None or owned.node_id != self.node_id or policies is None:
                raise NotOwned(f"Namespace bundle {bundle}", owned)
            parts = [Bundle(bundle.namespace, bundle.first, at), Bundle(bundle.namespace, at, bundle.end)]
            bounds = sorted({each.first for each in self.bundles(bundle.namespace)} | {at})
            content = json.loads(policies.value)
            named = [*map(boundary, bounds), boundary(HASHES)]
            content["bundles"] = {"boundaries": named, "numBundles": len(bounds)}
            del self._mine[bundle]
            self._seen[bundle.namespace] += 1
            session, kept = self._store.session, False
            try:
                for told in self.on_lost:
                    await told(bundle)
                before = await self._store.get_many(f"{EPOCHS}/{each}" for each in parts)
                # Clients know the epoch of the whole; its parts continue from there.
                epoch = max([owned.epoch, *(int(each.value) for each in before if each is not None)]) + 1
                whole = Put(f"{POLICIES}/{bundle.namespace}", json.dumps(content).encode(), policies.version)
                owner = self._told_of_owner(epoch)
                versions = await self._cache.commit([
                    whole,
                    Check(f"{EPOCHS}/{bundle}", self._taken[bundle]),
                    Delete(f"{OWNERS}/{bundle}", ANY),
                    *(Put(f"{EPOCHS}/{each}", str(epoch).encode(), ANY) for each in parts),
                    *(Put(f"{OWNERS}/{each}", owner, MUST_NOT_EXIST, ephemeral=True) for each in parts),
                ])  # fmt: skip
                kept = True
            finally:
                if not kept:
                    await self._forget_owner(bundle)
            if session is not self._store.session or session.id == 0:
                return
            for each, version in zip(parts, versions[3:5], strict=True):
                self._mine[each], self._taken[each] = Owned(self.node_id, epoch), version
                self._seen[each.namespace] += 1
        for each in parts:
            for got in self.on_acquired:
                await got(each)

    # -- what changes

    def _session_lost(self) -> None:
        """Own nothing from now on; register again under the next session."""
        gone, self._mine = tuple(self._mine), {}
        self.released += len(gone)
        self.sessions += 1
        self._brokers_seen += 1
        self._going.update(gone)
        self._store.session.on_lost.append(self._session_lost)
        _log.warning("the session is lost, and with it %d bundles", len(gone))
        self._soon(self._let_go_and_come_back(gone))

    async def _let_go_and_come_back(self, gone: Sequence[Bundle]) -> None:
        places = asyncio.Semaphore(_LET_GO_AT_ONCE)
        await asyncio.gather(*(self._let_go_of_lost(bundle, places) for bundle in gone))
        while not self._is_closing:
            try:
                await self._claim_id()
                await self._register()
                break
            except (MetadataError, BrokerIdTaken) as error:
                _log.warning("this broker cannot come back yet: %s", error)
                await asyncio.sleep(_LOOK_S)
        self._moved.set()

    async def _let_go_of_lost(self, bundle: Bundle, places: asyncio.Semaphore) -> None:
        async with places:
            with told_if_long(_log, f"bundle {bundle}, lost with the session, is being let go of"):
                for told in self.on_lost:
                    try:
                        await told(bundle)
                    except Exception:
                        _log.exception("bundle %s could not be let go of", bundle)
            self._is_let_go_of(bundle)

    async def _keep_looking(self) -> None:
        """Take bundles that are meant for this broker and have no owner, as soon as there are any."""
        while not self._is_closing:
            self._moved.clear()
            try:
                await self._forget_all_that_is_not_had()
                due = [
                    bundle
                    for namespace in list(self._topics.namespaces())
                    for bundle in self.bundles(namespace)
                    if self.owner_of(bundle) is None and self._meant_for(bundle) == self.node_id
                ]
                for some in batched(due, _TAKEN_AT_ONCE):
                    await asyncio.gather(*map(self._take, some))
                await self._hand_over()
                await self._forget_placements()
            except (MetadataError, BrokerError) as error:
                _log.info("what nobody owns is looked at again: %s", error)
            except Exception:
                _log.exception("looking after bundles failed, and is tried again")
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._moved.wait()
            except TimeoutError:
                pass

    async def _forget_placements(self) -> None:
        """Delete placements of bundles that have gone, with their namespace or by a split. The leader does this.

        A placement may be seen before its bundle is, so it is deleted only after it was without a bundle for a while.
        """
        now, namespaces = time.monotonic(), set(self._topics.namespaces())
        gone = {
            name
            for name in self._placements
            if (namespace := name.rpartition("/")[0]) not in namespaces
            or all(str(each) != name for each in self.bundles(namespace))
        }
        self._placements_gone = {name: self._placements_gone.get(name, now) for name in gone}
        if self.leader() != self.node_id:
            return
        for name, since in tuple(self._placements_gone.items()):
            if now - since >= _SETTLED_S:
                with suppress(NotFound):
                    await self._cache.commit([Delete(f"{PLACEMENTS}/{name}", ANY)])

    async def _hand_over(self) -> None:
        """Release some bundles that are meant for others, once those brokers have been there for a while."""
        settled = {
            broker.node_id
            for path, broker in self._brokers.items()
            if time.monotonic() - self._since[path] > _SETTLED_S
        }
        going = (
            bundle for bundle in tuple(self._mine) if self._meant_for(bundle) in settled - {self.node_id}
        )
        await asyncio.gather(*(self.release(bundle) for bundle in islice(going, _HANDED_OVER_AT_ONCE)))

    def _soon(self, what: Any) -> None:
        task = asyncio.ensure_future(what)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("looking after this broker's place in the cluster failed: %s", task.exception())


_CLAIM_S = 0.5


def _bundles(namespace: str, bounds: Sequence[int]) -> tuple[Bundle, ...]:
    return tuple(Bundle(namespace, *pair) for pair in pairwise(bounds))


def of_cluster(settings: Settings, store: MetadataStore) -> ClusterOwnership:
    """Return the ownership that a broker's settings ask for."""
    cluster, node = settings.of(ClusterSettings), settings.node
    return ClusterOwnership(
        store,
        cluster.cluster_name,
        node.node_id,
        node.broker_rack,
        cluster.namespace_bundles,
        cluster.metadata_session_ms / 1000,
        quorums={
            "ensemble": cluster.bookkeeper_ensemble_size,
            "writeQuorum": cluster.bookkeeper_write_quorum,
            "ackQuorum": cluster.bookkeeper_ack_quorum,
        },
    )
