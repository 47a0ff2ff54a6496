"""Ownership: which broker serves which topics, and since which epoch.

Topics are owned by *bundles*, as in Pulsar: a bundle is a range of a namespace's hashes, and the partitions whose names
hash into it have one owner. Its *leader epoch* grows with each new owner; by it Kafka clients know which of two
answers is older, and it is in every record batch. The epoch of a bundle is that of each of its partitions.

`SoleOwner` is the broker that owns everything for good. All code that directs clients to a broker uses this port.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from magnetar.base.errors import BrokerError, ServedElsewhere
from magnetar.topics.names import CLUSTER, TopicName

if TYPE_CHECKING:
    from magnetar.serving.listeners import Endpoint

NO_EPOCH = -1
HASHES = 1 << 32
"""A partition's hash is below it."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A living broker. ``endpoints`` are the addresses for clients, by the listener's name."""

    node_id: int
    rack: str | None = None
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)


class Owned(NamedTuple):
    """The owner of a partition, and its leader epoch."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True, order=True)
class Bundle:
    """The hashes ``[first, end)`` of a namespace."""

    namespace: str
    """``tenant/namespace``"""
    first: int = 0
    end: int = HASHES

    def __contains__(self, hashed: int) -> bool:
        return self.first <= hashed < self.end

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range}"

    @property
    def range(self) -> str:
        """The range in Pulsar's words: ``0x00000000_0xffffffff`` (the end belongs only to the last bundle)."""
        return f"{boundary(self.first)}_{boundary(self.end)}"


def boundary(hashed: int) -> str:
    """Return a hash as Pulsar writes the bounds of bundles."""
    return f"0x{min(hashed, HASHES - 1):08x}"


class NotOwned(ServedElsewhere):
    """Another broker owns the partition, or it is on its way to one: then ``owner`` is None."""

    def __init__(self, what: str, owner: Owned | None) -> None:
        # Pulsar's words: by "is being unloaded" its C++ client knows that it need not drop its connection.
        super().__init__(
            f"{what} is being unloaded"
            if owner is None
            else f"{what} is not served by this instance, but by broker {owner.node_id}. Please redo the lookup."
        )
        self.owner = owner


class CannotSplit(BrokerError):
    """A bundle cannot be split there, or at all."""


def partition_name(topic: TopicName, partition: int) -> str:
    """Return the name to hash: the same for the only partition of a topic, partitioned or not, so that it stays."""
    return f"{topic}-partition-{partition}"


class Ownership(ABC):
    """The port: which broker serves what. Lookups never wait, so they may be done for each partition of an answer."""

    cluster: str
    """The cluster's name."""
    node_id: int
    """This broker."""

    def __init__(self) -> None:
        self.on_lost: list[Callable[[Bundle], Awaitable[None]]] = []
        """Awaited, in order, when a bundle is released or lost. By then `owner` does not name this broker any more, and
        the next owner waits until all have returned, or until the lease has ended."""
        self.on_acquired: list[Callable[[Bundle], Awaitable[None]]] = []
        """Awaited, in order, when a bundle has come; by then `owner` names this broker."""

    @abstractmethod
    def brokers(self) -> Sequence[BrokerInfo]:
        """Return the living brokers, with this one."""

    @property
    def load(self) -> Mapping[str, Any]:
        """Return this broker's last load report, as Pulsar's ``LocalBrokerData``; empty if there is none."""
        return {}

    @abstractmethod
    def listens(self, listener: str, endpoint: Endpoint) -> None:
        """Publish where clients of a listener reach this broker from now on."""

    @abstractmethod
    def leader(self) -> int:
        """Return the broker that manages the cluster: Kafka's controller, Pulsar's leader."""

    @abstractmethod
    def bundles(self, namespace: str) -> Sequence[Bundle]:
        """Return the bundles of ``tenant/namespace`` in the order of their hashes; they cover all hashes."""

    @property
    def sole_owner(self) -> Owned | None:
        """Return the owner of all partitions of all topics; None where that is not one broker in one epoch."""
        return None

    @abstractmethod
    def owner_of(self, bundle: Bundle) -> Owned | None:
        """Return the owner of a bundle; None if it has none now."""

    @abstractmethod
    async def acquire(self, bundle: Bundle) -> Owned:
        """Make sure that this broker owns a bundle, and return its epoch; raise `NotOwned`, also during a release."""

    async def acquire_later(self, bundle: Bundle) -> Owned:
        """Do as `acquire`, but wait while this broker releases the bundle: for callers that have nothing open in it."""
        return await self.acquire(bundle)

    @abstractmethod
    async def release(self, bundle: Bundle) -> None:
        """Release a bundle; return when all parts of this broker have closed what they had open in it."""

    async def unload(self, bundle: Bundle) -> None:
        """Ask the owner of a bundle to release it; raise `NotOwned` if it does not."""
        await self.release(bundle)

    async def split(self, bundle: Bundle, at: int) -> None:
        """Split a bundle of this broker in two, the second of which begins with the hash ``at``; it owns both.

        Raises `NotOwned`, `CannotSplit`, or what the metadata store raises.
        """
        raise CannotSplit("one broker has everything here: there is nothing to split bundles for")

    async def place(self, bundle: Bundle, node_id: int) -> None:
        """Move a bundle to a broker, which owns it from now on as long as it lives."""
        if node_id != self.node_id:
            raise NotOwned(f"Namespace bundle {bundle}", None)

    def bundle_of(self, topic: TopicName, partition: int) -> Bundle:
        """Return the bundle that a partition belongs to, whether the topic exists or not."""
        bundles = self.bundles(topic.namespace_name)
        if len(bundles) == 1:
            return bundles[0]
        hashed = crc32(partition_name(topic, partition).encode())
        return next(bundle for bundle in bundles if hashed in bundle)

    def owner(self, topic: TopicName, partition: int) -> Owned | None:
        """Return the owner of a partition; None if it has none now."""
        return self.sole_owner or self.owner_of(self.bundle_of(topic, partition))

    def is_mine(self, topic: TopicName, partition: int) -> bool:
        """True if this broker owns a partition."""
        owned = self.owner(topic, partition)
        return owned is not None and owned.node_id == self.node_id


class SoleOwner(Ownership):
    """One broker that owns everything since its first start, so in epoch 0, unless several owned it before."""

    def __init__(
        self, node_id: int, rack: str | None = None, cluster: str = CLUSTER, *, epoch: int = 0
    ) -> None:
        super().__init__()
        self.cluster = cluster
        self.node_id = node_id
        self._rack = rack
        self._owned = Owned(node_id, epoch)
        self._away: set[Bundle] = set()
        """The bundles that are being released now."""
        self._endpoints: dict[str, Endpoint] = {}
        self._bundles: dict[str, tuple[Bundle]] = {}

    def brokers(self) -> Sequence[BrokerInfo]:
        return [BrokerInfo(self.node_id, self._rack, self._endpoints)]

    def listens(self, listener: str, endpoint: Endpoint) -> None:
        self._endpoints[listener] = endpoint

    def leader(self) -> int:
        return self.node_id

    def bundles(self, namespace: str) -> Sequence[Bundle]:
        found = self._bundles.get(namespace)
        if found is None:
            found = self._bundles[namespace] = (Bundle(namespace),)
        return found

    @property
    def sole_owner(self) -> Owned | None:
        return None if self._away else self._owned

    def owner_of(self, bundle: Bundle) -> Owned | None:
        return None if bundle in self._away else self._owned

    async def acquire(self, bundle: Bundle) -> Owned:
        if bundle in self._away:
            raise NotOwned(f"Namespace bundle {bundle}", None)
        return self._owned

    async def release(self, bundle: Bundle) -> None:
        """Make all parts of this broker close the bundle; as there is no other broker, they may open it again then."""
        if bundle in self._away:
            return
        self._away.add(bundle)
        try:
            for told in self.on_lost:
                await told(bundle)
        finally:
            self._away.remove(bundle)
        for told in self.on_acquired:
            await told(bundle)
