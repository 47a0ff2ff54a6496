"""`TransactionCoordinator`: what handlers and operators call. It finds an id's partition; the deciders decide."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from magnetar.base.background import Background
from magnetar.base.retries import surely
from magnetar.cluster.ownership import Owned
from magnetar.coordination.decision import Action
from magnetar.coordination.following import Following
from magnetar.coordination.log import OffsetsLog
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shard import Shard
from magnetar.coordination.transaction_sides import PulsarTransactions
from magnetar.coordination.transactions import UNFORESEEN_END, PulsarTransaction, TxnId
from magnetar.kafka.coordinators.groups import partition_of, steady_clock_ms
from magnetar.kafka.settings import KafkaSettings
from magnetar.kafka.transactions.decider import (
    NO_USER,
    IdUser,
    ProducerIdAndEpoch,
    TransactionAnswer,
    TransactionsDecider,
    WriteMarkers,
)
from magnetar.kafka.transactions.markers import Markers
from magnetar.kafka.transactions.metadata import (
    NO_ID,
    PREPARED,
    TransactionMetadata,
    TransactionPartition,
    shown,
)
from magnetar.logs.producers import EndTransactionMarker
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from magnetar.kafka.transactions.pulsar_coordinator import PulsarCoordinator

_log = logging.getLogger(__name__)
_PATIENCE_S = 0.5
"""How long a request waits for the transaction of before to be ended; then its client is told to ask again."""
T = TypeVar("T")


class TransactionCoordinator:
    """All transactional ids that this broker has. ``await start()`` returns at once, and loads in the background.

    Methods raise `CoordinatorRefused`.
    """

    def __init__(
        self,
        log: OffsetsLog,
        settings: KafkaSettings,
        new_producer_id: Callable[[], Awaitable[int]],
        markers: Markers,
        background: Background,
        clock: Callable[[], int] = steady_clock_ms,
        pulsars: PulsarTransactions | None = None,
    ) -> None:
        """``pulsars`` is where Pulsar's side is to be found; None where it has no transactions here."""
        self._log = log
        self._meeting = pulsars
        self._pulsars: PulsarCoordinator | None = None
        self._settings = settings
        self._new_producer_id = new_producer_id
        self._markers = markers
        self._clock = clock
        self._completing: dict[str, asyncio.Future[None]] = {}
        self._shards = [
            Shard(
                index,
                log,
                lambda: TransactionsDecider(settings.transactional_id_expiration_ms),
                clock,
                background,
                self._act,
                about="transactions",
            )
            for index in range(log.partitions)
        ]
        self._following = Following(log, self._shards)

    def of_pulsar(self) -> PulsarCoordinator:
        """Return what Pulsar's side calls; raise `CoordinatorRefused` where it has no transactions here."""
        if self._pulsars is None:
            from magnetar.kafka.transactions.pulsar_coordinator import (
                PulsarCoordinator,
            )  # most brokers have none

            if self._meeting is None:
                raise CoordinatorRefused(ErrorCode.INVALID_REQUEST)
            self._pulsars = PulsarCoordinator(
                self._shards, self._log, self._new_producer_id, self._meeting, self._clock
            )
        return self._pulsars

    # -- life cycle

    async def start(self) -> None:
        """Begin to load in the background what is this broker's."""
        await self.follow_ownership()

    async def follow_ownership(self) -> None:
        """Let go of the partitions that another broker has by now, and begin to load those that have come here."""
        await self._following.follow()

    async def loaded(self) -> None:
        """Wait until every partition that this broker has is loaded."""
        await self._following.loaded()

    @property
    def loading(self) -> int:
        """How many partitions this broker has whose transactions nobody can be told of yet."""
        return self._following.loading

    async def close(self) -> None:
        """Keep what was decided, then send away whoever waits."""
        await self._following.close()

    def owner_of(self, transactional_id: str) -> Owned | None:
        """Return the broker that coordinates a transactional id; None if nobody does now."""
        return self._log.owner(self._partition_of(transactional_id))

    # -- what producers ask

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        user: IdUser = NO_USER,
    ) -> TransactionAnswer:
        """Return a producer its id and epoch; what the one of before has open is aborted first, and everywhere.

        For a transaction of Pulsar's, by Pulsar's name of it, nothing but that is done, as operators ask for.
        """
        if (pulsars := self._known_pulsars(transactional_id)) is not None:
            await self.of_pulsar().end_for_operator(pulsars.txn)
            return TransactionAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
        if not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            raise CoordinatorRefused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

        async def once() -> TransactionAnswer:
            new_id = await self._spare_id(transactional_id)
            return await self._shard(transactional_id).ask(
                lambda decider, token: decider.init_producer_id(
                    transactional_id, timeout_ms, expected, new_id, self._clock(), user
                )
            )

        return await self._patiently(transactional_id, once, lambda answer: answer.code)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TransactionPartition],
        version: int,
    ) -> None:
        """Have partitions be of the producer's transaction, durable on return."""

        async def once() -> ErrorCode:
            return await self._shard(transactional_id).ask(
                lambda decider, token: decider.add_partitions(
                    transactional_id, producer, partitions, version, self._clock()
                )
            )

        await self._patiently(transactional_id, once, lambda code: code)

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TransactionPartition]
    ) -> dict[TransactionPartition, ErrorCode]:
        """Tell of each partition whether it is of the producer's transaction."""
        decider = self._shard(transactional_id).check_loaded()
        return decider.verify(transactional_id, producer, frozenset(partitions))

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, committed: bool, version: int
    ) -> TransactionAnswer:
        """Commit or abort; what was decided is durable on return, and the markers are on their way."""
        new_id = await self._spare_id(transactional_id)
        return await self._shard(transactional_id).ask(
            lambda decider, token: decider.end(
                transactional_id,
                producer,
                committed=committed,
                version=version,
                new_producer_id=new_id,
                now_ms=self._clock(),
            )
        )

    async def _spare_id(self, transactional_id: str) -> int:
        """Take a producer id, should one be needed; raise `CoordinatorRefused` if this broker is not to be asked."""
        decider = self._shard(transactional_id).check_loaded()
        return await self._new_producer_id() if decider.wants_producer_id(transactional_id) else NO_ID

    async def write_marker(self, marker: EndTransactionMarker, where: TransactionPartition) -> None:
        """End a transaction in one partition, whatever its coordinator knows of it; durable on return.

        Raises also ``BrokerError``, ``LedgerError`` and ``ProducerRefused``.
        """
        await self._markers.write(marker, where)

    # -- for operators

    def list(self) -> list[TransactionMetadata]:
        """Return all transactional ids of this broker; raises `CoordinatorRefused` while some are not loaded."""
        looked = [shard.look() for shard in self._shards if shard.is_mine]
        mine = [each for each in looked if each is not None]
        found = [each for decider in mine for each in decider.transactions.values()]
        for decider in mine:
            if decider.pulsars is not None:
                found += [shown(each) for each in decider.pulsars.transactions.values() if not each.ended_ms]
        return found

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Return one transactional id."""
        if not transactional_id:
            raise CoordinatorRefused(ErrorCode.INVALID_REQUEST)
        if (pulsars := self._known_pulsars(transactional_id)) is not None:
            return shown(pulsars)
        found = self._shard(transactional_id).check_loaded().transactions.get(transactional_id)
        if found is None:
            raise CoordinatorRefused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return found

    def role_of(self, transactional_id: str) -> str:
        """Return which role's a transactional id is; empty if no role's, or if another broker is to be asked."""
        if (pulsars := self._known_pulsars(transactional_id)) is not None:
            return pulsars.owner
        decider = self._shard(transactional_id).made
        return "" if decider is None else decider.roles.get(transactional_id, "")

    def _known_pulsars(self, name: str) -> PulsarTransaction | None:
        """Return the transaction of Pulsar's of this name, if there is one."""
        txn = TxnId.parse(name)
        if txn is None or txn.most >= len(self._shards):
            return None
        decider = self._shards[txn.most].made
        return None if decider is None or decider.pulsars is None else decider.pulsars.transactions.get(txn)

    def now_ms(self) -> int:
        """Return the time that transactions are counted in, ms."""
        return self._clock()

    # -- ending transactions

    def _act(self, action: Action) -> Awaitable[object]:
        return self._write(action) if isinstance(action, WriteMarkers) else self.of_pulsar().act(action)

    async def _write(self, action: WriteMarkers) -> None:
        """Write a transaction's markers. They bear the epoch since which this broker has it, also when it loses it: by
        then another one may have ended the transaction, and begun the producer's next one.
        """
        name = action.transactional_id
        done = self._completing[name] = asyncio.get_running_loop().create_future()
        try:
            marker = action.marker._replace(coordinator_epoch=self._shard(name).epoch)
            await surely(
                lambda: self._markers.write_all(marker, action.partitions, name),
                _log,
                UNFORESEEN_END,
                name,
                "",
            )
        finally:
            # Told a turn later: by then the decider has heard of it.
            asyncio.get_running_loop().call_soon(self._completed, name, done)

    def _completed(self, name: str, done: asyncio.Future[None]) -> None:
        if self._completing.get(name) is done:
            del self._completing[name]
        if not done.done():
            done.set_result(None)

    async def _patiently(
        self, transactional_id: str, ask: Callable[[], Awaitable[T]], code_of: Callable[[T], ErrorCode]
    ) -> T:
        """Ask again once the transaction that is in the way has ended, if that is soon.

        Produce waits here, which runs in no task: `asyncio.timeout` is not for it.
        """
        until_s = asyncio.get_running_loop().time() + _PATIENCE_S
        while True:
            try:
                answer = await ask()
            except CoordinatorRefused as refused:
                busy = refused.code is ErrorCode.CONCURRENT_TRANSACTIONS
                if not busy or not await self._completed_by(transactional_id, until_s):
                    raise
            else:
                busy = code_of(answer) is ErrorCode.CONCURRENT_TRANSACTIONS
                if not busy or not await self._completed_by(transactional_id, until_s):
                    return answer

    async def _completed_by(self, transactional_id: str, until_s: float) -> bool:
        """Wait until no transaction is being ended; return whether that came to be in time."""
        loop = asyncio.get_running_loop()
        while loop.time() < until_s:
            completing = self._completing.get(transactional_id)
            if completing is not None:
                await _either(completing, until_s)
                return completing.done()
            shard = self._shard(transactional_id)
            known = shard.check_loaded().transactions.get(transactional_id)
            if known is None or known.state not in PREPARED:
                return True
            await _either(shard.begun(), until_s)  # what was decided may not be durable yet
        return False

    # -- finding the partition

    def _partition_of(self, transactional_id: str) -> int:
        return partition_of(transactional_id, len(self._shards))

    def _shard(self, transactional_id: str) -> Shard[TransactionsDecider]:
        return self._shards[self._partition_of(transactional_id)]


async def _either(done: asyncio.Future[None], until_s: float) -> None:
    """Wait until something is done, or until that time."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiting.done():
            waiting.set_result(None)

    timer = loop.call_at(until_s, wake)
    done.add_done_callback(wake)
    try:
        await waiting
    finally:
        timer.cancel()
        done.remove_done_callback(wake)
