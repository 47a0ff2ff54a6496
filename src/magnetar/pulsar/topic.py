"""One partition as Pulsar means it: a managed ledger with producers and subscriptions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from magnetar.base.slices import PacedTurns
from magnetar.coordination.transactions import TxnId
from magnetar.figures.figures import LogFigures
from magnetar.ledger.cursors.cursor import Cursor
from magnetar.ledger.cursors.store import CursorStore
from magnetar.ledger.errors import LedgerError, LedgerFenced
from magnetar.ledger.port import ManagedLedger, Pending, Position, TakenBack
from magnetar.ledger.transactions import NOT_OPENED, LogTransactions
from magnetar.logs.open_logs import Reason
from magnetar.metadata import MetadataError, MetadataStore
from magnetar.pulsar.deduplication import CURSOR as DEDUPLICATION_CURSOR
from magnetar.pulsar.deduplication import Deduplication
from magnetar.pulsar.dispatch.base import AnySubscription, SubType
from magnetar.pulsar.dispatch.deliveries import Deliveries
from magnetar.pulsar.dispatch.linked import LinkedWork
from magnetar.pulsar.dispatch.reading import Readings, UnackedLimits
from magnetar.pulsar.dispatch.shared import Shared
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.dispatch.wanted import Wanted, is_as_wanted, subscription_of
from magnetar.pulsar.epochs import TopicEpoch
from magnetar.pulsar.errors import ConsumerBusy, NotAllowed, ProducerFenced, SubscriptionNotFound
from magnetar.pulsar.open_topics import OpenTopics, Unregistered
from magnetar.pulsar.places import Places
from magnetar.pulsar.producers import Producer, Producers
from magnetar.pulsar.rate_limits import RateLimit, renewed
from magnetar.records.pulsar_entries import Sent
from magnetar.topics.limits import Limits as TopicLimits
from magnetar.topics.limits import Persistence
from magnetar.topics.topic import Topic

if TYPE_CHECKING:
    from magnetar.pulsar.dispatch.pending_acks import PendingAcks

CURSOR_SAVE_MS = 1000
_MIN_CURSOR_SAVE_MS = 100  # each time costs a transaction of the metadata store
_SWITCH_AGAIN_S = (0.2, 1.0, 5.0)
_READER_RETURNS_MS = 60_000  # after a seek it is sent away, and comes back at once unless it died
_log = logging.getLogger("magnetar.pulsar")


class PulsarTopic:
    """One partition; ``partition`` is -1 where the topic is not partitioned. Made by ``PulsarTopics``."""

    def __init__(
        self,
        topic: Topic,
        index: int,
        log: ManagedLedger,
        cursors: CursorStore,
        store: MetadataStore,
        conversions: Deliveries,
        limits: UnackedLimits,
        clock: Callable[[], int],
        *,
        policies: TopicLimits | None = None,
        deduplicates: bool,
        within_batches: bool = True,
        figures: LogFigures | None = None,
        turns: PacedTurns | None = None,
        takes_transactions: bool = False,
        registry: OpenTopics[PulsarTopic] | None = None,
    ) -> None:
        """``turns`` are shared with other topics (see `Readings`); None for some of its own."""
        self.topic = topic
        self.index = index
        self.partition = index if topic.partitioned else -1
        self.log = log
        self.figures = figures or LogFigures()
        """What comes in is counted there and, when subscriptions end, what they were sent."""
        self.places = Places(log)
        self.cursors = cursors
        cursors.save_interval_ms = CURSOR_SAVE_MS
        self.opened_with = (log.log_end_offset, sum(ledger.size for ledger in log.ledgers()))
        """Messages and bytes that it had had when it was opened; counters of what came in start here."""
        self.subscriptions: dict[str, Subscription] = {}
        self.group_cursors: set[str] = set()
        """The subscriptions that were made for Kafka's groups."""
        self._registry: OpenTopics[PulsarTopic] = registry or Unregistered()
        self.last_done: asyncio.Future[None] | None = None
        """Tells when the last append is durable; None if it was at once."""
        self.has_chunks = False
        """Whether a message came in chunks since it was opened."""
        self.dedup = Deduplication(log, cursors) if deduplicates else None
        self.noting = self.dedup
        """What is told of all that producers append: what deduplicates, or will once it knows what is stored."""
        self._is_switching = False
        self.takes_transactions = takes_transactions
        self._pending_acks: dict[str, PendingAcks] = {}
        self.open_txns: set[TxnId] = set()
        """The transactions that may write here, as far as their coordinators have said so."""
        self.unkept_txns: set[TxnId] = set()
        """Those whose acknowledgements count here, and whose coordinators, elsewhere, wait until they are kept."""
        self._store = store
        self._clock = clock
        self._readings = Readings(
            log, conversions, clock, limits, within_batches, turns=turns or PacedTurns()
        )
        self._epoch = TopicEpoch(store, log.name)
        self.producers = Producers(self.stir)
        self.limits = TopicLimits()
        """What its policies bound; see `apply`."""
        self.publish_rate: RateLimit | None = None
        self.max_delay_ms = 0
        """How long a message may ask to wait; 0 for no bound."""
        self.subscribed: dict[tuple[str, str, int], tuple[float, int]] = {}
        """By consumer: since when, and how often, it has subscribed."""
        if policies is not None:
            self.apply(policies)
        cursors.watchers.append(self.stir)
        log.watchers.append(self._grown)
        log.before_compaction.append(self._keep_sequence_ids)
        log.on_taken_back.append(self._taken_back)

    def apply(self, policies: TopicLimits) -> None:
        """Have policies take effect."""
        now = asyncio.get_running_loop().time
        self.limits = policies
        self._readings.limits = UnackedLimits(
            policies.max_unacked_per_consumer or 0, policies.max_unacked_per_subscription or 0
        )
        self.publish_rate = renewed(self.publish_rate, policies.publish_rate, now)
        delayed, persistence = policies.delayed_delivery, policies.persistence
        self._readings.delays = delayed is None or delayed.active
        self.max_delay_ms = delayed.max_delay_ms if delayed is not None else 0
        if persistence is not None:
            self.cursors.save_interval_ms = _save_interval_ms(persistence)
        self._readings.rate = renewed(self._readings.rate, policies.dispatch_rate, now, self._came)
        for subscription in self.subscriptions.values():
            subscription.rate = renewed(
                subscription.rate, policies.subscription_dispatch_rate, now, self._came
            )
            subscription.wake()
        self.stir()

    def _came(self) -> tuple[int, int]:
        """Return how many messages and bytes came in, by any protocol."""
        return self.figures.messages_in, self.figures.bytes_in

    @property
    def name(self) -> str:
        """What clients call it."""
        name = str(self.topic.name)
        return name if self.partition < 0 else f"{name}-partition-{self.partition}"

    async def load(self) -> None:
        """Make ready what must be known before anybody produces or consumes."""
        self.producers.epoch = await self._epoch.load()
        if self.dedup is not None:
            await self.dedup.load()
        for name in self.cursors.names():
            if name != DEDUPLICATION_CURSOR:
                await self._load_subscription(name)

    async def _load_subscription(self, name: str) -> None:
        try:
            cursor = await self.cursors.open(name)
        except LedgerError as error:  # the others go on; who asks for this one is told the same
            _log.error("subscription %s of %s cannot be opened: %s", name, self.name, error)
        else:
            self.subscriptions[name] = self._made(Wanted(name, SubType.Exclusive), cursor)

    async def keep_epoch(self, producer: Producer) -> None:
        """See to it that an exclusive producer's epoch outlives the broker; raise ``ProducerFenced``."""
        if producer.topic_epoch is not None:
            try:
                await self._epoch.keep(producer.topic_epoch)
            except ProducerFenced:
                self.producers.epoch = self._epoch.kept
                raise

    def is_groups(self, name: str) -> bool:
        """Return whether a subscription is a Kafka group's alone."""
        return self._registry.is_groups(self, name)

    def stir(self) -> None:
        """Have it looked at in the next sweep."""
        self._registry.stirred(self)

    @property
    def is_unsettled(self) -> bool:
        """Whether there is something to keep that could not be kept yet."""
        return (
            self.cursors.unsaved
            or any(each.abandoned_ms is not None for each in self.subscriptions.values())
            or (self.dedup is not None and self.dedup.unsaved)
            or (self.dedup is not None and self.last_done is not None and not self.last_done.done())
        )

    @property
    def is_unused(self) -> bool:
        """Whether nobody would notice if it were closed: it has no clients, no subscriptions, no policy that looks."""
        inactive = self.limits.inactive_topics
        return not (
            self.subscriptions
            or self.producers.by_name
            or self.producers.waiting
            or (inactive is not None and inactive.delete)
            or self.topic.config.compaction_threshold > 0
        )

    @property
    def is_bounded(self) -> bool:
        """Whether its subscriptions may fall behind so far that something must be done."""
        quotas = (self.limits.size_quota, self.limits.age_quota)
        has_limits = self.limits.message_ttl_ms or any(quota and quota.limit > 0 for quota in quotas)
        return bool(has_limits) and any(each.backlog for each in self.own_subscriptions() if each.is_durable)

    def _grown(self) -> None:
        self._registry.stirred(self)
        for subscription in self.subscriptions.values():
            if subscription.consumers:
                subscription.wake()

    async def switch_deduplication(self, wanted: Callable[[], bool]) -> None:
        """Begin or cease to store once what is sent twice, as is wanted by then; tried until it is so.

        While it is found out what is stored already, nobody waits, and nothing is taken for repeated; what is appended
        meanwhile counts, too.
        """
        if self._is_switching:
            return  # whoever does it looks again
        self._is_switching = True
        tries = 0
        try:
            while wanted() is not (self.dedup is not None):
                if self.dedup is not None:
                    self.dedup = self.noting = None
                    continue
                self.noting = made = Deduplication(self.log, self.cursors)
                try:
                    if self.last_done is not None:  # what was appended before can be read from then on
                        await asyncio.wait([self.last_done])
                    await made.load()
                except (LedgerError, MetadataError) as error:
                    if isinstance(error, LedgerFenced):
                        return  # it is another broker's, or gone
                    pause_s = _SWITCH_AGAIN_S[min(tries, len(_SWITCH_AGAIN_S) - 1)]
                    tries += 1
                    _log.warning(
                        "deduplication of %s does not work yet, and is tried again after %g s: %s",
                        self.name, pause_s, error,
                    )  # fmt: skip
                    await asyncio.sleep(pause_s)
                    continue
                self.dedup = made
        finally:
            self.noting = self.dedup
            self._is_switching = False

    # -- producing

    def publish(self, producer: Producer, sent: Sent) -> Pending:
        """Append what a producer sent, in its transaction if it says so; raise ``LedgerError``."""
        self.log.room.check()
        txn = sent.metadata.txn
        opens_at = NOT_OPENED
        if txn is not None:  # open before anybody can be told that it is visible
            opens_at = self._transactions.begin(txn.producer_id, self.log.log_end_offset)
        try:
            pending = self.log.append(
                sent.parts,
                messages=sent.messages,
                timestamp_ms=sent.timestamp_ms,
                earliest_ms=sent.earliest_ms,
                tail_crc=sent.crc,
            )
        except LedgerError:
            if opens_at != NOT_OPENED:
                self._transactions.take_back(opens_at)
            raise
        self.last_done = pending.done
        self.figures.messages_in += sent.messages
        self.figures.bytes_in += len(sent.framed)
        if self.figures.buckets is not None:
            self.figures.buckets.placed(len(sent.framed), pending.done)
        if sent.metadata.is_chunk:
            self.has_chunks = True
        producer.messages += sent.messages
        producer.bytes += len(sent.framed)
        return pending

    @property
    def _transactions(self) -> LogTransactions:
        """Those of the log, which has been told that there are some (``OpenLog.begin_transactions``)."""
        found = self.log.transactions
        assert found is not None
        return found

    def end_transaction(self, txn: TxnId, *, committed: bool) -> asyncio.Future[None] | None:
        """Write the marker of a transaction, if it has written here and is not ended yet; raise ``LedgerError``.

        Gives what tells that it is durable, None if that is so at once.
        """
        log, transactions = self.log, self.log.transactions
        if transactions is None or transactions.first_of(txn.producer_id) is None:
            return self.last_done if log.high_watermark < log.log_end_offset else None
        from magnetar.records.pulsar_markers import txn_marker  # most brokers have no transactions

        now_ms, offset = self._clock(), log.log_end_offset
        transactions.end(txn.producer_id, offset, committed=committed)
        try:
            marker = txn_marker(txn, now_ms, committed=committed)
            pending = log.append((marker,), messages=1, timestamp_ms=now_ms)
        except BaseException:
            transactions.take_back(offset)
            raise
        self.last_done = pending.done
        transactions.forget_before(log.log_start_offset)
        return pending.done

    def _taken_back(self, what: TakenBack) -> None:
        """What producers sent was not kept: they connect again, and send it again in its order, as Pulsar has it.

        None of what they sent behind it may be taken up before.
        """
        if self.log.transactions is not None:
            self.log.transactions.take_back(what.offset)
        if self.noting is not None:
            self.noting.take_back(what.offset)
        self.producers.send_away(wake=False)

    async def terminate(self) -> Position:
        """End the topic for good: producers are sent away and refused, consumers told when they have had everything."""
        last = await self.log.terminate()
        self.producers.send_away()
        for subscription in self.subscriptions.values():
            subscription.tell_end()
        return last

    # -- subscribing

    async def subscription(self, wanted: Wanted) -> Subscription:
        """Return the subscription that a consumer asks for, made if need be; raise ``PulsarError``."""
        found = await self._subscription(wanted)
        if wanted.properties and not found.properties:  # as in Pulsar, the first that are given count
            await self.describe(found, wanted.properties)
        return found

    async def describe(self, subscription: Subscription, properties: Mapping[str, str]) -> None:
        """Replace a subscription's properties; they are kept at once."""
        subscription.describe(properties)
        await self.cursors.save()

    async def _subscription(self, wanted: Wanted) -> Subscription:
        if not wanted.is_group and self.is_groups(wanted.subscription):
            raise ConsumerBusy(
                f"Subscription {wanted.subscription} is that of a Kafka group; linked.subscriptions lets both share it"
            )
        found = self.subscriptions.get(wanted.subscription)
        if found is not None and found.consumers:
            if found.cursor.is_durable != wanted.durable:
                kind = "Durable" if found.cursor.is_durable else "NonDurable"
                raise NotAllowed(f"{kind} subscription with the same name already exists.")
            if found.sub_type != wanted.sub_type:
                raise ConsumerBusy(
                    f"Subscription is of different type: {SubType.Name(found.sub_type)} consumers are connected"
                )
            return found
        if found is not None and found.cursor.is_durable and not wanted.durable:
            raise NotAllowed("Durable subscription with the same name already exists.")
        if found is not None:  # one that is not durable is between a seek and its reader's coming back
            found.abandoned_ms = None
            return self._as_wanted(found, wanted)
        if not wanted.create and wanted.durable:
            raise SubscriptionNotFound(f"Subscription {wanted.subscription} not found")
        place = await self._start(wanted)
        self._check_room(wanted)
        cursor = await self._cursor(wanted)
        if place is not None:
            self._seek(cursor, place)
        if (raced := self.subscriptions.get(wanted.subscription)) is not None and raced.consumers:
            return await self._subscription(wanted)
        return self._keep(wanted, cursor)

    def _check_room(self, wanted: Wanted) -> None:
        """Raise ``NotAllowed`` if the topic may not have a subscription more."""
        most = self.limits.max_subscriptions
        if not most or wanted.is_group or wanted.subscription in self.subscriptions:
            return
        if sum(not self.is_groups(name) for name in self.subscriptions) >= most:
            raise NotAllowed(f"Exceed the maximum number of subscriptions of the topic: {self.name}")

    def _as_wanted(self, found: Subscription, wanted: Wanted) -> Subscription:
        """A subscription without consumers becomes what the next one asks for."""
        if is_as_wanted(found, wanted):
            return found
        self._end(found)
        return self._keep(wanted, found.cursor)

    def _keep(self, wanted: Wanted, cursor: Cursor) -> Subscription:
        made = self._made(wanted, cursor)
        self.subscriptions[wanted.subscription] = made
        self.stir()
        return made

    def _made(self, wanted: Wanted, cursor: Cursor) -> Subscription:
        made = subscription_of(wanted, cursor, self._readings)
        now = asyncio.get_running_loop().time
        made.rate = renewed(None, self.limits.subscription_dispatch_rate, now, self._came)
        if self.takes_transactions and cursor.is_durable:
            made.acks.in_transactions = self.pending_acks(wanted.subscription)
        if isinstance(made, Shared) and made.sub_type == SubType.Shared and cursor.is_durable:
            find = self._registry.find_books(self, wanted.subscription)
            if find is not None:
                within = self._readings.within_batches
                made.link = LinkedWork(made, self.log, find, within_batches=within)
        return made

    def pending_acks(self, subscription: str) -> PendingAcks:
        """Return what open transactions acknowledged in a subscription."""
        found = self._pending_acks.get(subscription)
        if found is None:
            from magnetar.pulsar.dispatch.pending_acks import PendingAcks  # most brokers have no transactions

            found = self._pending_acks[subscription] = PendingAcks(f"{self.name}][{subscription}")
        return found

    async def _cursor(self, wanted: Wanted) -> Cursor:
        if wanted.durable:
            return await self.cursors.open(wanted.subscription, wanted.start)
        return await self.cursors.non_durable(wanted.start)

    async def _start(self, wanted: Wanted) -> Position | None:
        """Return where a new subscription begins, if it says so more exactly than first or last."""
        if wanted.rollback_ms:
            return await self.places.at(self._clock() - wanted.rollback_ms)
        return None if wanted.start_place is None else await self.places.of(wanted.start_place)

    # -- moving

    def backlog_bytes(self, subscription: Subscription) -> int:
        """Return about how many bytes a subscription has not acknowledged."""
        return (
            self.places.bytes_behind(subscription.cursor.mark_delete_position) if subscription.backlog else 0
        )

    def own_subscriptions(self) -> list[Subscription]:
        """Return those that are Pulsar's to move: not a Kafka group's, nor one whose group reads in its place."""
        return [
            each for name, each in self.subscriptions.items() if not (self.is_groups(name) or each.paused)
        ]

    @staticmethod
    def _seek(cursor: Cursor, position: Position) -> None:
        if position.ledger_id >= 0:
            cursor.seek(position)

    def seek(self, subscription: Subscription, position: Position) -> None:
        """Begin a subscription anew with the entry at ``position``; its consumers are sent away and come back."""
        subscription.reset(lambda: self._seek(subscription.cursor, position))
        if not subscription.cursor.is_durable:
            subscription.abandoned_ms = self._clock()
            self.stir()

    # -- letting go

    def left(self, subscription: AnySubscription) -> None:
        """A consumer left: a subscription that is not durable ends with its last one."""
        if not subscription.is_durable and not subscription.consumers:
            self._forget(subscription)

    async def unsubscribe(self, name: str) -> None:
        """End a subscription with all its state."""
        subscription = self.subscriptions.get(name)
        if subscription is None and name not in self.cursors.names():
            raise SubscriptionNotFound(f"Subscription {name} not found")
        if subscription is not None:
            subscription.disconnect()
            self._forget(subscription)
        self._pending_acks.pop(name, None)
        if subscription is None or subscription.cursor.is_durable:
            await self.cursors.delete(name)

    def _end(self, subscription: AnySubscription) -> None:
        """Close a subscription whose place nobody, or another one, takes."""
        subscription.close()
        self.figures.messages_out += subscription.delivered_messages
        self.figures.bytes_out += subscription.delivered_bytes

    def _forget(self, subscription: AnySubscription) -> None:
        self._end(subscription)
        self.stir()
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]

    async def expire(self, older_than_ms: int) -> None:
        """Have subscriptions pass over what is older and nobody acknowledged (message TTL).

        Kafka's groups read by Kafka's rules: nothing moves what they committed.
        """
        concerned = self.own_subscriptions()
        last = await self.places.last_before(older_than_ms) if concerned else None
        if last is not None:
            for subscription in concerned:
                if subscription.cursor.mark_delete_position < last:
                    subscription.expired += subscription.skip_to(last)

    async def save(self) -> None:
        """Keep cursors and sequence ids that were changed; raise ``LedgerError`` where that failed."""
        self.settle()
        await self.cursors.save()

    def settle(self) -> None:
        """Have all that is acknowledged, and the sequence ids, be part of what is kept next."""
        overdue_ms = self._clock() - _READER_RETURNS_MS
        for subscription in list(self.subscriptions.values()):
            subscription.flush_acks()
            if subscription.abandoned_ms is not None and subscription.abandoned_ms < overdue_ms:
                self.left(subscription)
        if self.dedup is not None:
            self.dedup.save()

    async def _keep_sequence_ids(self) -> None:
        """Compaction takes entries away that producers might send again after a crash."""
        if self.dedup is not None:
            self.dedup.save()
            await self.cursors.save()

    def send_away(self, *, wake: bool = True) -> None:
        """Close all producers and consumers; their clients come back by themselves."""
        self.producers.send_away(wake=wake)
        for subscription in list(self.subscriptions.values()):
            subscription.disconnect()
            if not subscription.is_durable:  # forgotten unless its reader comes back
                subscription.abandoned_ms = self._clock()

    def log_closed(self, reason: Reason) -> None:
        """The log closes: whoever made the topic ends it in order."""
        self._registry.closed(self)

    def close(self) -> None:
        """Send everybody away, and keep what is to be kept."""
        with contextlib.suppress(ValueError):
            self.cursors.watchers.remove(self.stir)
            self.log.watchers.remove(self._grown)
            self.log.before_compaction.remove(self._keep_sequence_ids)
            self.log.on_taken_back.remove(self._taken_back)
        self.send_away(wake=False)
        for subscription in list(self.subscriptions.values()):
            self._end(subscription)


def _save_interval_ms(persistence: Persistence) -> int:
    """Return after how long a changed cursor is kept; at the latest it is once a second."""
    rate = persistence.mark_delete_rate
    wanted = int(1000 / rate) if rate > 0 else 0  # 0 is Pulsar's "as often as it changes"
    return min(max(wanted, _MIN_CURSOR_SAVE_MS), CURSOR_SAVE_MS)
