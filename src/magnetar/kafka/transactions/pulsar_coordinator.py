"""`PulsarCoordinator`: the transaction coordinator as Pulsar's handler calls it (`magnetar.coordination.transactions`).

Coordinator *n* of Pulsar's is partition *n* of ``__transaction_state``, for the first sixteen. A transaction's number
is taken from the producer ids: each is given once, ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from magnetar.base.retries import surely
from magnetar.cluster.ownership import Owned
from magnetar.coordination.decision import Action, Decision
from magnetar.coordination.log import OffsetsLog
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shard import Shard
from magnetar.coordination.transaction_sides import PulsarTransactions
from magnetar.coordination.transactions import (
    UNFORESEEN_END,
    Ack,
    Acks,
    CoordinatorNotFound,
    CoordinatorNotReady,
    PulsarTransaction,
    TxnId,
    TxnPartition,
    TxnStatus,
    TxnSubscription,
)
from magnetar.kafka.transactions.decider import TransactionsDecider
from magnetar.kafka.transactions.pulsar_decider import (
    FEW_PARTICIPANTS,
    MAX_PARTICIPANTS,
    EndTxn,
    PulsarDecider,
    TxnRefused,
)
from magnetar.wire.kafka.errors import ErrorCode

MAX_COORDINATORS: Final = 16
"""As many as a Pulsar cluster has unless somebody says otherwise."""
MOST_TOGETHER = 200
"""So many additions to one transaction are asked for at once."""
_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Added:
    """What a client adds to a transaction."""

    partitions: Mapping[TxnPartition, str]
    subscriptions: Mapping[TxnSubscription, str]
    asked: asyncio.Task[bool] | None = None
    """What it was asked for with, once it was."""
    is_alone: bool = False

    def to(self, txn: TxnId) -> Callable[[PulsarDecider], Decision[bool]]:
        """Return the question for it."""
        return lambda decider: decider.add(txn, self.partitions, self.subscriptions)


class PulsarCoordinator:
    """See the module, and ``Coordinator``."""

    def __init__(
        self,
        shards: Sequence[Shard[TransactionsDecider]],
        log: OffsetsLog,
        new_number: Callable[[], Awaitable[int]],
        meeting: PulsarTransactions,
        clock: Callable[[], int],
    ) -> None:
        self._shards = shards[:MAX_COORDINATORS]
        self._log = log
        self._new_number = new_number
        self._meeting = meeting
        self._clock = clock
        self._large = asyncio.Lock()
        self._adding: dict[TxnId, list[_Added]] = {}
        self._ending: dict[TxnId, asyncio.Future[None]] = {}
        """Of those that are being ended: done once that counts everywhere."""

    @property
    def coordinators(self) -> int:
        return len(self._shards)

    def owner(self, coordinator: int) -> Owned | None:
        self._shard(coordinator)
        return self._log.owner(coordinator)

    def check(self, coordinator: int) -> None:
        self._decider(coordinator)

    async def loaded(self) -> None:
        await asyncio.gather(*(shard.reloaded() for shard in self._shards))

    # -- what clients ask

    async def begin(self, coordinator: int, timeout_ms: int, owner: str, most_open: int) -> TxnId:
        self._decider(coordinator)
        txn = TxnId(coordinator, await self._new_number())
        return await self._ask(
            coordinator, lambda decider: decider.begin(txn, timeout_ms, owner, most_open, self._clock())
        )

    async def add_partitions(self, txn: TxnId, partitions: Mapping[TxnPartition, str]) -> None:
        await self._add(txn, _Added(partitions, {}))

    async def add_subscriptions(self, txn: TxnId, subscriptions: Mapping[TxnSubscription, str]) -> None:
        await self._add(txn, _Added({}, subscriptions))

    async def _add(self, txn: TxnId, added: _Added) -> None:
        """Ask; where that takes milliseconds, together with all that waits by then, and with a turn for others after.

        The transaction's record is written again as a whole: once for all that clients add while the last one was.
        """
        known = self.find(txn)
        held = len(known.partitions) + len(known.subscriptions)
        if held <= FEW_PARTICIPANTS or held >= MAX_PARTICIPANTS:  # little is written, or nothing
            await self._ask(txn.most, added.to(txn))
            return
        waiting = self._adding.setdefault(txn, [])
        waiting.append(added)
        try:
            async with self._large:
                while added.asked is None:
                    self._ask_together(txn, waiting)
                    await asyncio.sleep(0)
        finally:
            if added in waiting:  # it was cancelled
                waiting.remove(added)
            if not waiting and self._adding.get(txn) is waiting:
                del self._adding[txn]
        assert added.asked is not None
        try:
            await asyncio.shield(added.asked)  # others wait for it, too
        except Exception:
            if added.is_alone:
                raise
            async with self._large:
                alone = asyncio.ensure_future(self._ask(txn.most, added.to(txn)))
                await asyncio.sleep(0)
            await alone

    def _ask_together(self, txn: TxnId, waiting: list[_Added]) -> None:
        """Have what waits longest be asked for at once; where that is refused, each by itself.

        They are looked at in one turn of the loop, so they are not more than `MOST_TOGETHER`.
        """
        some = waiting[:MOST_TOGETHER]
        del waiting[:MOST_TOGETHER]
        everything = _Added(
            {where: name for each in some for where, name in each.partitions.items()},
            {where: name for each in some for where, name in each.subscriptions.items()},
        )
        asked = asyncio.ensure_future(self._ask(txn.most, everything.to(txn)))
        asked.add_done_callback(lambda asked: asked.cancelled() or asked.exception())  # all may have gone
        for each in some:
            each.asked, each.is_alone = asked, len(some) == 1

    async def acknowledge(self, txn: TxnId, where: TxnSubscription, acks: Sequence[Ack]) -> None:
        await self._ask(txn.most, lambda decider: decider.acknowledge(txn, where, acks))

    async def end(self, txn: TxnId, *, committed: bool) -> None:
        await self._ask(txn.most, lambda decider: decider.end(txn, committed=committed))
        while self.find(txn).status.is_ending:
            ending = self._ending.get(txn)
            if ending is None:
                await asyncio.wait([self._shard(txn.most).begun()])
            elif ending.done():
                break  # what was acknowledged is still being kept where it belongs
            else:
                await asyncio.wait([ending])
        self._shard(txn.most).tell(lambda decider: decider.of_pulsar().told(txn))

    async def end_for_operator(self, txn: TxnId) -> None:
        """Abort a transaction if it is open; raise `CoordinatorRefused` if that is not to be had."""
        if self.find(txn).status is TxnStatus.OPEN:
            await self._shard(txn.most).ask(
                lambda decider, token: decider.of_pulsar().end(txn, committed=False)
            )

    # -- what is known

    def is_open(self, txn: TxnId, partition: TxnPartition) -> bool:
        if txn.most >= len(self._shards):
            return False
        decider = self._shards[txn.most].made
        if decider is None or decider.pulsars is None:
            return False
        known = decider.pulsars.transactions.get(txn)
        return known is not None and known.status is TxnStatus.OPEN and partition in known.partitions

    def find(self, txn: TxnId) -> PulsarTransaction:
        try:
            return self._decider(txn.most).find(txn)
        except TxnRefused as refused:
            raise refused.error from None

    def acks_of(self, txn: TxnId) -> Acks:
        return self._decider(txn.most).acks_of(txn)

    def all(self, coordinator: int) -> Sequence[PulsarTransaction]:
        return list(self._decider(coordinator).transactions.values())

    def acks_on(self, topic: str, partition: int) -> Sequence[tuple[TxnId, TxnSubscription, Sequence[Ack]]]:
        found: list[tuple[TxnId, TxnSubscription, Sequence[Ack]]] = []
        for shard in self._shards:
            if shard.made is not None and shard.made.pulsars is not None:
                found += shard.made.pulsars.acks_on(topic, partition)
        return found

    # -- ending

    def act(self, action: Action) -> Awaitable[object]:
        """Return what ends a decided transaction."""
        assert isinstance(action, EndTxn)
        ending = self._ending[action.txn] = asyncio.get_running_loop().create_future()
        return self._end(action, ending)

    async def _end(self, action: EndTxn, ending: asyncio.Future[None]) -> None:
        async def end() -> None:
            participants = await self._meeting.participants()
            kept = await participants.end(
                action.txn,
                committed=action.committed,
                partitions=action.partitions,
                acks=self._decider(action.txn.most).acks_of(action.txn),
            )
            if not ending.done():
                ending.set_result(None)
            await kept

        try:
            await surely(end, _log, UNFORESEEN_END, str(action.txn), "")
        finally:
            # Told a turn later: by then the decider has heard of it.
            asyncio.get_running_loop().call_soon(self._ended, action.txn, ending)

    def _ended(self, txn: TxnId, ending: asyncio.Future[None]) -> None:
        if self._ending.get(txn) is ending:
            del self._ending[txn]
        if not ending.done():
            ending.cancel()

    # -- finding the coordinator

    def _shard(self, coordinator: int) -> Shard[TransactionsDecider]:
        if not 0 <= coordinator < len(self._shards):
            raise CoordinatorNotFound(f"Transaction coordinator with id {coordinator} not found!")
        return self._shards[coordinator]

    def _decider(self, coordinator: int) -> PulsarDecider:
        try:
            return self._shard(coordinator).check_loaded().of_pulsar()
        except CoordinatorRefused as refused:
            raise _as_pulsars(coordinator, refused) from None

    async def _ask(self, coordinator: int, decide: Callable[[PulsarDecider], Decision[T]]) -> T:
        try:
            return await self._shard(coordinator).ask(lambda decider, token: decide(decider.of_pulsar()))
        except CoordinatorRefused as refused:
            raise _as_pulsars(coordinator, refused) from None


def _as_pulsars(coordinator: int, refused: CoordinatorRefused) -> Exception:
    if isinstance(refused, TxnRefused):
        return refused.error
    if refused.code is ErrorCode.NOT_COORDINATOR:
        return CoordinatorNotFound(f"Transaction coordinator with id {coordinator} not found!")
    return CoordinatorNotReady(f"Transaction coordinator with id {coordinator} is not ready: {refused}")
