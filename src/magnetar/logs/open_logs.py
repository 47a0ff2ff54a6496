"""The one registry of open logs: a partition's log is opened once, whoever asks first, and all protocols hold the same.

Whoever keeps something for a log (a partition of Kafka's, a topic of Pulsar's) *holds* it, and is told once, with
the reason, when it closes: deleted, given away, taken by another owner, or closed by the engine. It is told in the turn
of the loop in which that is decided, so it must not wait; by then nobody finds the log here any more. A log that nobody
holds is closed by `OpenLogs.close_unheld`; whoever asks for it again waits for that, and gets it opened anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from magnetar.base.errors import BrokerError, TopicNotFound
from magnetar.base.once import Once
from magnetar.base.slices import batched, sliced
from magnetar.cluster.ownership import Bundle, NotOwned, Owned, Ownership
from magnetar.figures.figures import LogFigures
from magnetar.ledger.errors import LedgerClosed, LedgerError
from magnetar.ledger.port import LedgerEngine, LedgerPolicy, ManagedLedger
from magnetar.logs import leader_epochs, producer_log
from magnetar.logs.leader_epochs import NEVER_MOVED
from magnetar.logs.producers import ProducerStates
from magnetar.metadata import MetadataError, MetadataStore
from magnetar.topics.topic import Topic

_CLOSED_AT_ONCE = 20  # with one flush, and some 5 ms of the event loop
_LOOKED_AT_ONCE = 100
_RELEASED_AT_ONCE = 64  # of all bundles: each is a checkpoint, an end of a ledger and a change of its list
_ASKED_S = 1.0
Reason = LedgerError | BrokerError
"""Why a log closed: in storage's words, or that its topic is gone, or that another broker has it."""
_log = logging.getLogger("magnetar.broker")


class Holder(Protocol):
    """Whoever keeps something for a log, and so keeps it open."""

    def log_closed(self, reason: Reason) -> None:
        """The log closes in this turn of the loop, or has closed, and is held no more."""
        ...


class _Unused(LedgerClosed):
    """Nobody held a log, and so it was closed."""


class _Maker:
    """Makes who is to hold a log."""

    def log_closed(self, reason: Reason) -> None:
        """Who is made learns of it when it is to hold the log."""


class OpenLog:
    """The log of one partition while it is open, and who holds it."""

    __slots__ = (
        "_gone",
        "_holders",
        "_unheld",
        "asked",
        "bundle",
        "closed",
        "epochs",
        "figures",
        "index",
        "log",
        "producers",
        "topic",
    )

    def __init__(
        self,
        topic: Topic,
        index: int,
        log: ManagedLedger,
        bundle: Bundle,
        gone: Callable[[OpenLog], None],
        figures: LogFigures,
        unheld: dict[OpenLog, None],
    ) -> None:
        """``gone`` is called before holders are told that it closes; in ``unheld`` are all those that nobody holds."""
        self.topic = topic
        self.index = index
        self.log = log
        self.bundle = bundle
        """By which this broker has it."""
        self.figures = figures
        """What comes in and goes out is counted there, by whoever has it done."""
        self.epochs = NEVER_MOVED
        """The leader epochs of what is in it; the latest is the one that it was opened under."""
        self.producers: ProducerStates | None = None
        """What is known of Kafka's producers; None until somebody asked, in a log without transactions."""
        self.closed: Reason | None = None
        """Why it is closed, or about to be; None while it is open."""
        self.asked = True
        """Whether somebody asked for it since `OpenLogs.close_unheld` last found it: it may be about to hold it."""
        self._gone = gone
        self._unheld = unheld
        # One or two; a dictionary for each would be a twentieth of what an open partition takes.
        self._holders: tuple[Holder, ...] = ()

    def hold(self, holder: Holder) -> None:
        """Keep the log open, and be told when it closes all the same; raise why if it has closed already."""
        self.check()
        if holder not in self._holders:
            self._holders += (holder,)
            self._unheld.pop(self, None)
            self.asked = False  # whoever has asked beside it holds it in this turn of the loop, too

    def keep(self, producers: ProducerStates) -> None:
        """Keep what was loaded of the producers for whoever holds the log next, and beside its checkpoints."""
        self.producers = producers
        self.log.take_snapshot = producers.encode
        if self.log.transactions is not None:
            self.log.transactions = producers.transactions

    async def begin_transactions(self) -> None:
        """Have all who read the log know from now on that there are transactions in it; before the first is written.

        Durable on return. Raises ``LedgerError``.
        """
        loaded = await producer_log.load(self.log) if self.producers is None else self.producers
        if not self.log.has_transactions:
            await self.log.note_transactions()
        if self.producers is None:  # nobody was faster
            self.keep(loaded)
        producers = self.producers
        assert producers is not None
        self.log.transactions = producers.transactions

    def leave(self, holder: Holder) -> None:
        """Hold the log no more, and be told nothing."""
        self._holders = tuple(each for each in self._holders if each is not holder)
        if not self._holders and self.closed is None:
            self._unheld[self] = None

    def check(self) -> None:
        """Raise why the log is closed, if it is: ``LedgerError`` or ``BrokerError``."""
        if self.closed is not None:
            raise self.closed

    @property
    def is_held(self) -> bool:
        """Whether anybody holds it."""
        return bool(self._holders)

    @property
    def is_unused(self) -> bool:
        """Whether it was closed for nothing but that nobody held it."""
        return isinstance(self.closed, _Unused)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Hold the log for as long as it takes to make who is to hold it."""
        holder = _Maker()
        self.hold(holder)
        try:
            yield
        finally:
            self.leave(holder)

    def tell_closed(self, reason: Reason) -> None:
        """Tell whoever holds it, once, that it is closed, or will be when this turn of the loop is over."""
        if self.closed is not None:
            return
        self.closed = reason
        self._gone(self)
        holders, self._holders = self._holders, ()
        for holder in holders:
            try:
                holder.log_closed(reason)
            except Exception:  # the others have to learn of it all the same
                _log.exception("a holder of %s failed when it was closed", self.log.name)


class OpenLogs:
    """All logs of this broker that are open, by topic and partition."""

    def __init__(
        self,
        engine: LedgerEngine,
        store: MetadataStore,
        ownership: Ownership,
        policy_of: Callable[[Topic], LedgerPolicy],
    ) -> None:
        self._engine = engine
        self._store = store
        self._ownership = ownership
        self._policy_of = policy_of
        self._entering: dict[asyncio.Future[None], Bundle] = {}
        """Logs that the engine is opening, by what tells that it has ended."""
        self._open: dict[tuple[bytes, int], OpenLog] = {}
        self._unheld: dict[OpenLog, None] = {}
        """Those of them that nobody holds: no other is looked at, however many there are."""
        self._figures: dict[tuple[bytes, int], LogFigures] = {}
        self.counts_entries = False
        """Whether entries are counted by write latency and size (`magnetar.figures.buckets`)."""
        self.gone = LogFigures()
        """What was counted of topics that are deleted."""
        self._gone = self._forget  # made once, not for each of many thousand logs
        self._opening: Once[tuple[bytes, int], OpenLog] = Once()
        self._releases = asyncio.Semaphore(_RELEASED_AT_ONCE)

    def get(self, topic: Topic, index: int) -> OpenLog | None:
        """Return a log that is open already."""
        return self._open.get((topic.topic_id, index))

    def all(self) -> list[OpenLog]:
        """Return the logs that are open."""
        return list(self._open.values())

    def of(self, topic: Topic) -> list[OpenLog]:
        """Return those of a topic that are open."""
        found = (self._open.get((topic.topic_id, index)) for index in range(topic.partitions))
        return [each for each in found if each is not None]

    def figures(self, topic: Topic, index: int) -> LogFigures | None:
        """Return what was counted of a partition; None if its log was not opened since the process began."""
        return self._figures.get((topic.topic_id, index))

    async def open(self, topic: Topic, index: int) -> OpenLog:
        """Return a partition's log, opened if need be; whoever goes on to use it holds it before it waits again.

        Raises ``TopicNotFound``, `NotOwned`, or what storage raises.
        """
        key = topic.topic_id, index
        found = self._open.get(key)
        if found is not None:
            found.asked = True
            return found
        self.check(topic, index)
        while True:
            made = await self._opening.do(key, lambda: self._load(topic, index))
            if not made.is_unused:
                return made
            # Duties have closed it in the turns of the loop that it took to come here; whoever is told goes on at once.

    def check(self, topic: Topic, index: int) -> None:
        """Raise why a partition cannot be opened here, as far as that is known without waiting; see `open`."""
        if topic.deleted:
            raise TopicNotFound(f"topic {topic.kafka_name} was deleted")
        if not 0 <= index < topic.partitions:
            raise TopicNotFound(f"topic {topic.kafka_name} has no partition {index}")
        owner = self._ownership.owner(topic.name, index)
        if owner is not None and owner.node_id != self._ownership.node_id:
            raise NotOwned(f"{topic.kafka_name}-{index}", owner)

    async def _load(self, topic: Topic, index: int) -> OpenLog:
        bundle = self._ownership.bundle_of(topic.name, index)
        owned = await self._ownership.acquire(bundle)
        entering: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._entering[entering] = bundle
        try:
            return await self._opened(topic, index, bundle, owned)
        finally:
            del self._entering[entering]
            entering.set_result(None)

    async def _opened(self, topic: Topic, index: int, bundle: Bundle, owned: Owned) -> OpenLog:
        log = await self._engine.open(topic.name.ledger_name(index), self._policy_of(topic), owned.epoch)
        try:
            return await self._entered(topic, index, bundle, owned, log)
        except BaseException:
            # Nobody would find it here to close it when its bundle goes, and who opened it then, after other owners,
            # would be given what it held before them.
            await self._engine.release(log.name)
            raise

    async def _entered(
        self, topic: Topic, index: int, bundle: Bundle, owned: Owned, log: ManagedLedger
    ) -> OpenLog:
        key = topic.topic_id, index
        figures = self._figures.get(key) or LogFigures()
        if self.counts_entries and figures.buckets is None:
            from magnetar.figures.buckets import EntryBuckets

            figures.buckets = EntryBuckets(time.monotonic())
        made = OpenLog(topic, index, log, bundle, self._gone, figures, self._unheld)
        log.on_closed.append(made.tell_closed)
        made.epochs = await leader_epochs.entered(self._store, topic, index, owned.epoch, log)
        if topic.deleted:
            await self._engine.delete(log.name)  # it was made again while its topic was being deleted
            raise TopicNotFound(f"topic {topic.kafka_name} was deleted")
        if (owner := self._ownership.owner_of(bundle)) != owned:
            raise NotOwned(f"{topic.kafka_name}-{index}", owner)  # it was given away meanwhile
        if log.has_transactions:  # whoever reads has to know what is decided, whichever protocol it speaks
            made.keep(await producer_log.load(log))
        made.check()  # another owner may have taken it meanwhile
        self._open[key] = made
        self._unheld[made] = None
        self._figures[key] = figures
        figures.log = log
        return made

    def _forget(self, gone: OpenLog) -> None:
        self._unheld.pop(gone, None)
        key = gone.topic.topic_id, gone.index
        if self._open.get(key) is gone:
            del self._open[key]
            gone.figures.closed(is_kept=isinstance(gone.closed, LedgerClosed))

    # -- letting go

    async def close_unheld(self) -> None:
        """Close the logs that nobody holds, nor has asked for since the last time; many together cost one flush.

        Those that the engine is busy with stay, and all of one that opens logs slowly.
        """
        if self._engine.opens_slowly:
            return
        unheld = []
        async for each in sliced(self._unheld):
            if not each.asked:
                unheld.append(each)
            each.asked = False
        await self.close(unheld)

    async def close(self, logs: Sequence[OpenLog]) -> None:
        """Close those that nobody holds or has asked for, as `close_unheld` does, without waiting for its time."""
        if self._engine.opens_slowly:
            return
        for some in batched(logs, _CLOSED_AT_ONCE):
            await self._close_unasked(some)

    async def _close_unasked(self, some: Sequence[OpenLog]) -> None:
        # What the engine would keep stays here, too: nobody else lets go of it when its bundle goes, and who got the
        # bundle back would be given it as it was before others wrote.
        still = [
            each for each in some if each.log.is_unused and not (each.is_held or each.asked or each.closed)
        ]
        for each in still:
            # Not found from here on: whoever asks meanwhile has to wait for the engine, not be given a closed log.
            each.tell_closed(_Unused(f"managed ledger {each.log.name} was closed: nobody used it"))
        await self._engine.let_go([each.log for each in still])

    async def look_at(self, partitions: Iterable[tuple[Topic, int]]) -> None:
        """Have `figures` tell of partitions that were not opened since the process began; nothing stays open by it.

        One that cannot be opened is left alone: whoever asks for it is told why.
        """
        for some in batched(list(partitions), _LOOKED_AT_ONCE):
            opened = []
            for topic, index in some:
                if self.figures(topic, index) is None:
                    with suppress(LedgerError, BrokerError, MetadataError):
                        opened.append(await self.open(topic, index))
            for each in opened:
                each.asked = False
            await asyncio.sleep(_ASKED_S)  # whoever has asked meanwhile holds it by then
            for few in batched(opened, _CLOSED_AT_ONCE):
                await self._close_unasked(few)

    async def give_away(self, bundle: Bundle) -> None:
        """Close the logs of a bundle that this broker has no longer; return when it touches none of them any more."""
        entering = [each for each, which in self._entering.items() if which == bundle]
        if entering:
            await asyncio.wait(entering)
        reason = NotOwned(f"Namespace bundle {bundle}", self._ownership.owner_of(bundle))
        await self.release([each for each in self._open.values() if each.bundle == bundle], reason)

    async def release(self, logs: Iterable[OpenLog], reason: Reason) -> None:
        """Close logs whoever holds them, all they hold kept; holders are told ``reason`` first."""
        going = list(logs)
        for each in going:
            each.tell_closed(reason)
        await asyncio.gather(*(self._released(each.log.name) for each in going))

    async def _released(self, name: str) -> None:
        async with self._releases:
            await self._engine.release(name)

    def forget(self, topic: Topic) -> None:
        """Tell the holders of a topic's logs that it is deleted; the engine deletes them after that."""
        gone = TopicNotFound(f"topic {topic.kafka_name} was deleted")
        for each in self.of(topic):
            each.tell_closed(gone)
        for index in range(topic.partitions):
            figures = self._figures.pop((topic.topic_id, index), None)
            if figures is not None:
                self.gone.add(figures)

    # -- policies

    def apply_policy(self, topic: Topic) -> None:
        """Have what is in force for a topic now count for its open logs."""
        held = self.of(topic)
        if held:
            policy = self._policy_of(topic)
            for each in held:
                each.log.policy = policy
