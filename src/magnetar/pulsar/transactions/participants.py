"""Topics and subscriptions as the coordinator's decisions find them: where transactions end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from magnetar.base.errors import BrokerError, TopicNotFound
from magnetar.base.retries import Retries
from magnetar.cluster.ownership import NotOwned
from magnetar.coordination.transactions import (
    UNFORESEEN_END,
    Ack,
    Acks,
    Coordinator,
    CoordinatorNotFound,
    CoordinatorNotReady,
    TxnId,
    TxnPartition,
)
from magnetar.ledger.errors import LedgerError, LedgerTerminated
from magnetar.metadata import MetadataError
from magnetar.node.broker import Broker
from magnetar.pulsar.topic import PulsarTopic
from magnetar.pulsar.topics import PulsarTopics
from magnetar.pulsar.transactions.exchange import Matter, TransactionExchange
from magnetar.pulsar.transactions.rows import Row, ack_row, acks_of, fields_of, partition_of, txn_of
from magnetar.records.errors import RecordsError
from magnetar.topics.names import TRANSACTION_STATE

_AGAIN_S = 0.1
_PATIENCE_S = 10.0
"""How long a client waits while what it needs is on its way to another broker."""
_SAVED_AFTER_S = 0.2
"""How long what was acknowledged waits for others to be kept together with; until then the coordinator knows it."""
_NOT_KEPT = (
    "what transactions acknowledged on %s cannot be kept for a reason that nobody foresaw; after a restart it is told "
    "anew by their coordinator. It is tried again; if this line comes again, report what follows"
)
_log = logging.getLogger("magnetar.pulsar")


class OpenInPartition(NamedTuple):
    """What transactions have of a partition, as it goes from broker to broker."""

    acks: Sequence[tuple[TxnId, str, Sequence[Any]]]
    """A transaction, a subscription, and what was acknowledged in that."""
    writing: Sequence[TxnId]
    """The transactions that are open and may write there."""
    coordinators: Sequence[int]
    """Whose transactions these are."""


class _Ended(NamedTuple):
    """What is ended in a partition."""

    writes: bool
    """Whether the transaction may have written there."""
    acks: dict[str, tuple[Ack, ...]]
    """What it acknowledged, by subscription."""

    def as_json(self) -> tuple[bool, dict[str, list[Row]]]:
        return self.writes, {name: [ack_row(each) for each in those] for name, those in self.acks.items()}


class _Asked(NamedTuple):
    """What another broker wants to be ended, or kept, here."""

    txn: TxnId
    where: TxnPartition
    committed: bool
    what: _Ended


def _begun(row: object) -> tuple[TxnId, TxnPartition]:
    txn, where = fields_of(row, 2)
    return txn_of(txn), partition_of(where)


def _asked(row: object) -> _Asked:
    txn, where, committed, writes, acks = fields_of(row, 5)
    if not isinstance(committed, bool) or not isinstance(writes, bool) or not isinstance(acks, dict):
        raise ValueError("a decision of a transaction has other fields")
    ended = _Ended(writes, {name: acks_of(rows) for name, rows in acks.items()})
    return _Asked(txn_of(txn), partition_of(where), committed, ended)


class TopicParticipants:
    """Those of one broker; see ``Participants``."""

    def __init__(self, broker: Broker, topics: PulsarTopics) -> None:
        self._broker = broker
        self._topics = topics
        self._saves: dict[PulsarTopic, asyncio.Task[None]] = {}
        self.exchange = TransactionExchange(broker.cluster.between, broker.background)
        self._answer_others()

    # -- wherever a partition is

    async def begin(self, txn: TxnId, where: TxnPartition) -> None:
        """Have a partition take what a transaction writes, before it does. There need be no such topic.

        One that is just being closed, or on its way to another broker, is asked again: clients take a refusal for the
        transaction's end. Raises what opening it raises, or ``BrokerError`` if nobody can be asked for it.
        """
        topic = self._broker.get(where.topic)
        if topic is None or where.partition >= topic.partitions:
            return
        until_s = asyncio.get_running_loop().time() + _PATIENCE_S
        while True:
            try:
                node_id = self._elsewhere(where)
                if node_id is None:
                    await self._begin(txn, where)
                else:
                    await self.exchange.ask(node_id, Matter.BEGIN, [txn, where])
                return
            except TopicNotFound:
                return
            except (BrokerError, LedgerError, MetadataError):
                if asyncio.get_running_loop().time() >= until_s:
                    raise
            await asyncio.sleep(_AGAIN_S)

    async def end(
        self, txn: TxnId, *, committed: bool, partitions: Collection[TxnPartition], acks: Acks
    ) -> asyncio.Future[None]:
        ended = {where: _Ended(True, {}) for where in partitions}
        for where, those in acks.items():
            of = ended.setdefault(TxnPartition(*where[:2]), _Ended(False, {}))
            of.acks[where.subscription] = tuple(dict.fromkeys(those))  # what was kept twice counts once
        kept: list[Awaitable[None]] = []

        async def end_one(where: TxnPartition, what: _Ended) -> None:
            node_id = self._elsewhere(where)
            if node_id is None:
                topic = await self._end(txn, where, what, committed=committed)
                if what.acks and committed:
                    kept.append(self._saved(topic))
            else:
                await self.exchange.ask(node_id, Matter.END, [txn, where, committed, *what.as_json()])
                if what.acks and committed:
                    kept.append(_surely(txn, where, partial(self._keep_anywhere, txn, where, what)))

        await asyncio.gather(*(_surely(txn, where, partial(end_one, *each)) for where, each in _named(ended)))
        if not kept:
            nothing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            nothing.set_result(None)
            return nothing
        return asyncio.ensure_future(_all(kept))

    async def _keep_anywhere(self, txn: TxnId, where: TxnPartition, what: _Ended) -> None:
        """Have what was acknowledged kept by whoever has the partition by now."""
        node_id = self._elsewhere(where)
        if node_id is None:
            await self._keep(txn, where, what)
        else:
            await self.exchange.ask(node_id, Matter.KEEP, [txn, where, True, *what.as_json()])

    async def restore(self, topic: PulsarTopic, coordinator: Coordinator) -> None:
        """Have a topic know what transactions that are not over have of it: what they acknowledged, which may write.

        All coordinators are asked, wherever they are: without one of them nobody knows what may be delivered.
        """
        if self._broker.get(TRANSACTION_STATE) is None:
            return  # there has never been a transaction
        where = TxnPartition(topic.topic.kafka_name, topic.index)
        until_s = asyncio.get_running_loop().time() + _PATIENCE_S
        while True:
            try:
                found = await self._restored(where, coordinator)
                break
            except BrokerError:
                if asyncio.get_running_loop().time() >= until_s:
                    raise
            await asyncio.sleep(_AGAIN_S)
        for each in found:
            for txn, subscription, acks in each.acks:
                if subscription in topic.subscriptions:
                    held = topic.pending_acks(subscription)
                    for ack in acks:
                        held.put(txn, ack)
            topic.open_txns.update(each.writing)
        held_log = self._broker.logs.open_logs.get(topic.topic, topic.index)
        if topic.open_txns and held_log is not None:
            await held_log.begin_transactions()

    async def _restored(self, where: TxnPartition, coordinator: Coordinator) -> list[OpenInPartition]:
        numbers = range(coordinator.coordinators)
        owners = [coordinator.owner(number) for number in numbers]
        nodes = {owner.node_id for owner in owners if owner is not None} - {
            self._broker.cluster.ownership.node_id
        }
        here, *there = await asyncio.gather(
            restored_here(coordinator, where),
            *(self.exchange.ask(node_id, Matter.RESTORE, where) for node_id in nodes),
        )
        found = [here, *map(_of_others, there)]
        if {number for each in found for number in each.coordinators} != set(numbers):
            raise CoordinatorNotReady("a transaction coordinator is on its way to another broker")
        return found

    def _elsewhere(self, where: TxnPartition) -> int | None:
        """Return the broker that has a partition, None for this one; raise ``TopicNotFound``, `NotOwned`."""
        name = self._broker.topic(where.topic).name
        ownership = self._broker.cluster.ownership
        owner = ownership.owner(name, where.partition)
        if owner is None:
            raise NotOwned(f"{where.topic}-{where.partition}", None)
        return None if owner.node_id == ownership.node_id else owner.node_id

    # -- here

    async def _begin(self, txn: TxnId, where: TxnPartition) -> None:
        topic = await self._topic(where)
        held = self._broker.logs.open_logs.get(topic.topic, topic.index)
        if held is not None:
            await held.begin_transactions()
            topic.open_txns.add(txn)

    async def _end(self, txn: TxnId, where: TxnPartition, what: _Ended, *, committed: bool) -> PulsarTopic:
        topic = await self._topic(where)
        done: asyncio.Future[None] | None = None
        if what.writes:
            topic.open_txns.discard(txn)  # no message comes behind its marker
            done = topic.end_transaction(txn, committed=committed)
        for name, those in what.acks.items():
            subscription = topic.subscriptions.get(name)
            if subscription is None:
                continue
            if committed:
                subscription.settle(txn, those)
            else:
                await subscription.give_back(txn, those)
        if done is not None:
            await done
        return topic

    async def _keep(self, txn: TxnId, where: TxnPartition, what: _Ended) -> None:
        topic = await self._topic(where)
        if txn not in topic.unkept_txns:  # it has come here since: what was not kept is not done with
            topic = await self._end(txn, where, what._replace(writes=False), committed=True)
        topic.unkept_txns.discard(txn)
        await asyncio.shield(self._saved(topic))

    def _answer_others(self) -> None:
        async def begin(asked: tuple[TxnId, TxnPartition]) -> None:
            await self._begin(*asked)

        async def end(asked: _Asked) -> None:
            txn, where, committed, what = asked
            topic = await self._end(txn, where, what, committed=committed)
            if what.acks and committed:
                topic.unkept_txns.add(txn)

        async def keep(asked: _Asked) -> None:
            await self._keep(asked.txn, asked.where, asked.what)

        self.exchange.answer(Matter.BEGIN, _begun, begin)
        self.exchange.answer(Matter.END, _asked, end)
        self.exchange.answer(Matter.KEEP, _asked, keep)

    async def _topic(self, where: TxnPartition) -> PulsarTopic:
        topic = self._broker.topic(where.topic)
        return await self._topics.open(topic, where.partition)

    def _saved(self, topic: PulsarTopic) -> asyncio.Task[None]:
        """Return what tells that a topic's cursors are durable as they are now; several share it."""
        found = self._saves.get(topic)
        if found is None:
            found = self._broker.background.once(
                "keeping what transactions acknowledged on", self._save(topic)
            )
            self._saves[topic] = found
        return found

    async def _save(self, topic: PulsarTopic) -> None:
        await asyncio.sleep(_SAVED_AFTER_S)
        del self._saves[topic]  # whoever comes from here on waits for the next time
        retries = Retries(_log)
        while True:
            try:
                topic.settle()
                await topic.cursors.save()
                return
            except (BrokerError, LedgerError, MetadataError) as error:
                if topic.topic.deleted or not self._topics.holds(topic):
                    return  # deleted, or kept when it was closed
                await retries.after(error, "what transactions acknowledged on %s cannot be kept", topic.name)
            except Exception as error:
                await retries.after_unforeseen(error, _NOT_KEPT, topic.name)


def _of_others(told: Any) -> OpenInPartition:
    acks, writing, coordinators = told
    return OpenInPartition(
        [(txn_of(txn), name, acks_of(rows)) for txn, name, rows in acks],
        list(map(txn_of, writing)),
        coordinators,
    )


async def restored_here(coordinator: Coordinator, where: TxnPartition) -> OpenInPartition:
    """Return what transactions of this broker's coordinators have of a partition; raise ``BrokerError``."""
    await coordinator.loaded()
    numbers, writing = [], []
    for number in range(coordinator.coordinators):
        with suppress(CoordinatorNotFound):  # another broker's
            writing += [each.txn for each in coordinator.all(number) if coordinator.is_open(each.txn, where)]
            numbers.append(number)
    acks = [(txn, of.subscription, acks) for txn, of, acks in coordinator.acks_on(*where)]
    return OpenInPartition(acks, writing, numbers)


def _named(
    ended: dict[TxnPartition, _Ended],
) -> list[tuple[TxnPartition, tuple[TxnPartition, _Ended]]]:
    return [(where, (where, what)) for where, what in ended.items()]


async def _all(waiting: Collection[Awaitable[None]]) -> None:
    await asyncio.gather(*(asyncio.shield(each) for each in waiting))


async def _surely(txn: TxnId, where: TxnPartition, work: Callable[[], Awaitable[None]]) -> None:
    """Do something for as long as it takes, unless there is nothing any more to do it to."""
    retries = Retries(_log)
    while True:
        try:
            await work()
            return
        except TopicNotFound:
            return  # it went with its transaction
        except LedgerTerminated:
            _log.warning("%s-%d was terminated with a transaction open", where.topic, where.partition)
            return
        except (BrokerError, LedgerError, MetadataError, RecordsError) as error:
            await retries.after(error, "a transaction cannot be ended in %s-%d", where.topic, where.partition)
        except Exception as error:
            await retries.after_unforeseen(
                error, UNFORESEEN_END, str(txn), f" in {where.topic}-{where.partition}"
            )
