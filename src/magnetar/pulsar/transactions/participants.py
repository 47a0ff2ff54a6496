"""Topics and subscriptions as the coordinator's decisions find them: where transactions end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from magnetar.broker.core import Broker
from magnetar.broker.errors import BrokerError, TopicNotFound
from magnetar.broker.transactions import Ack, Acks, Coordinator, TxnId, TxnPartition, TxnSubscription
from magnetar.ledger.errors import LedgerError, LedgerTerminated
from magnetar.metadata import MetadataError
from magnetar.pulsar.topic import PulsarTopic
from magnetar.pulsar.topics import PulsarTopics
from magnetar.records.errors import RecordsError

_RETRY_S = (0.02, 0.1, 0.5, 2.0)
_SAVED_AFTER_S = 0.2
"""How long what was acknowledged waits for others to be kept together with; until then the coordinator knows it."""
_log = logging.getLogger("magnetar.pulsar")


class TopicParticipants:
    """Those of one broker; see ``Participants``."""

    def __init__(self, broker: Broker, topics: PulsarTopics) -> None:
        self._broker = broker
        self._topics = topics
        self._saves: dict[PulsarTopic, asyncio.Task[None]] = {}

    async def begin(self, where: TxnPartition) -> None:
        """Have a log know that transactions may be written to it, before the first one. There need be no such topic.

        Raises what opening it raises.
        """
        topic = self._broker.get(where.topic)
        if topic is None or where.partition >= topic.partitions:
            return
        await self._topics.open(topic, where.partition)
        held = self._broker.open_logs.get(topic, where.partition)
        if held is not None:
            await held.begin_transactions()

    async def restore(self, topic: PulsarTopic, coordinator: Coordinator) -> None:
        """Have a topic's subscriptions know what transactions that are not over have acknowledged."""
        await coordinator.loaded()
        for txn, where, acks in coordinator.acks_on(topic.topic.kafka_name, topic.index):
            if where.subscription in topic.subscriptions:
                held = topic.pending_acks(where.subscription)
                for each in acks:
                    held.put(txn, each)

    async def end(
        self, txn: TxnId, *, committed: bool, partitions: Collection[TxnPartition], acks: Acks
    ) -> asyncio.Future[None]:
        concerned: set[PulsarTopic] = set()

        async def end_partition(where: TxnPartition) -> None:
            topic = await self._topic(where)
            done = topic.end_transaction(txn, committed=committed)
            if done is not None:
                await done

        async def end_acks(where: TxnSubscription, those: tuple[Ack, ...]) -> None:
            topic = await self._topic(TxnPartition(where.topic, where.partition))
            subscription = topic.subscriptions.get(where.subscription)
            if subscription is None:
                return
            if committed:
                subscription.settle(txn, those)
                concerned.add(topic)
            else:
                await subscription.give_back(txn, those)

        await asyncio.gather(
            *(_surely(where, partial(end_partition, where)) for where in partitions),
            *(_surely(where, partial(end_acks, where, those)) for where, those in acks.items()),
        )
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = [self._saved(topic) for topic in concerned]
        if not waiting:
            kept.set_result(None)
            return kept
        return asyncio.ensure_future(_all(waiting))

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
        tries = 0
        while True:
            try:
                topic.settle()
                await topic.cursors.save()
                return
            except (BrokerError, LedgerError, MetadataError) as error:
                if topic.topic.deleted or not self._topics.holds(topic):
                    return  # deleted, or kept when it was closed
                _log.warning("what transactions acknowledged on %s cannot be kept: %s", topic.name, error)
                await asyncio.sleep(_RETRY_S[min(tries, len(_RETRY_S) - 1)])
                tries += 1


async def _all(waiting: Collection[asyncio.Task[None]]) -> None:
    await asyncio.gather(*(asyncio.shield(each) for each in waiting))


async def _surely(where: TxnPartition | TxnSubscription, work: Callable[[], Awaitable[None]]) -> None:
    """Do something for as long as it takes, unless there is nothing any more to do it to."""
    tries = 0
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
            if tries == len(_RETRY_S):
                _log.warning(
                    "a transaction cannot be ended in %s-%d: %s; tried again",
                    where.topic,
                    where.partition,
                    error,
                )
            await asyncio.sleep(_RETRY_S[min(tries, len(_RETRY_S) - 1)])
            tries += 1
