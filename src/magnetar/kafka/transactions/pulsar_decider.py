"""Pulsar's transactions of one coordinator as a value: what becomes of them. Pure decisions.

A transaction is open, then decided (committing or aborting), which is answered once it is durable and counts
everywhere; then it is over, and as with Pulsar forgotten once its client has been told. How one ended whose client has
not been, as the broker was killed, is remembered for a while, and who asks again is told so. Methods give a `Decision`,
or raise `TxnRefused` and have changed nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from magnetar.base.errors import BrokerError
from magnetar.coordination.decision import Action, Decision, Fact, Stated
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.timers import TimerKey, Timers
from magnetar.coordination.transactions import (
    Ack,
    Acks,
    InvalidTxnStatus,
    PulsarTransaction,
    TooManyTransactions,
    TransactionNotFound,
    TxnId,
    TxnPartition,
    TxnStatus,
    TxnSubscription,
)
from magnetar.kafka.transactions.pulsar_facts import AckFact, ack_fact, gone_fact, txn_fact
from magnetar.wire.kafka.errors import ErrorCode

REMEMBERED_MS = 10 * 60 * 1000
"""How long a transaction that is over is remembered."""
MAX_REMEMBERED = 10_000
"""Of those that are over, the last so many."""
MAX_PARTICIPANTS = 2_000
"""Partitions and subscriptions that one transaction may have: its record is written again with each, 7 ms then."""
FEW_PARTICIPANTS = 100
"""Up to so many that is nothing that others would notice."""
MAX_ACKED = 100_000
"""Entries that one transaction may acknowledge one by one."""
_TIMEOUT, _FORGET = "timeout", "forget"


class TxnRefused(CoordinatorRefused):
    """A request cannot be granted; ``error`` says why in the words of `magnetar.coordination.transactions`."""

    def __init__(self, error: BrokerError) -> None:
        super().__init__(ErrorCode.INVALID_TXN_STATE, str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class EndTxn(Action):
    """A decided transaction, to be ended in its partitions and subscriptions."""

    txn: TxnId
    committed: bool
    partitions: frozenset[TxnPartition]


class PulsarDecider:
    """See the module. Replay its facts in order, resume, then ask."""

    def __init__(self) -> None:
        self.transactions: dict[TxnId, PulsarTransaction] = {}
        """To look at, not to change."""
        self.timers = Timers()
        self.open_count = 0
        self._acks: dict[TxnId, dict[int, AckFact]] = {}
        self._acked: dict[TxnId, int] = {}
        self._over: dict[TxnId, None] = {}
        self._told: set[TxnId] = set()
        """Those that are being ended, and of which the client has been told that they are: nobody asks again."""

    # -- the life of a decider

    def replay(self, said: tuple[TxnId, PulsarTransaction | None] | AckFact) -> None:
        """Take in what was stated before."""
        if isinstance(said, AckFact):
            self._acks.setdefault(said.txn, {})[said.number] = said
        elif said[1] is None:
            self._forget(said[0])
        else:
            self.transactions[said[0]] = said[1]

    def resume(self) -> Decision[None]:
        """Go on with those that are decided, and count the times of the others."""
        actions: list[Action] = []
        for each in sorted(self.transactions.values(), key=lambda one: one.ended_ms):
            self._set_timer(each)
            self.open_count += each.status is TxnStatus.OPEN
            self._acked[each.txn] = sum(len(some.acks) for some in self._acks.get(each.txn, {}).values())
            if each.status.is_ending:
                actions.append(_ending(each))
            elif each.status is not TxnStatus.OPEN:
                self._over[each.txn] = None
        return Decision((), None, actions=tuple(actions))

    def done(self, action: EndTxn, result: object, now_ms: int) -> Decision[None]:
        """Hear that what was decided is durable everywhere: the transaction is over."""
        known = self.transactions.get(action.txn)
        if isinstance(result, BaseException) or known is None or not known.status.is_ending:
            return Decision((), None)
        status = TxnStatus.COMMITTED if known.status.commits else TxnStatus.ABORTED
        for kept in (self._acks, self._acked):
            kept.pop(known.txn, None)
        facts: list[Stated] = []
        if known.txn in self._told:
            self._forget(known.txn)
            return Decision((gone_fact(known.txn),), None)
        self._over[known.txn] = None
        while len(self._over) > MAX_REMEMBERED:
            oldest = next(iter(self._over))
            self._forget(oldest)
            facts.append(gone_fact(oldest))
        # What it acknowledged is gone with the first record, the second says that it was.
        over = replace(known, status=status, ended_ms=now_ms)
        self.transactions[known.txn] = over
        self._set_timer(over)
        return Decision((*facts, gone_fact(known.txn), txn_fact(over)), None)

    def expire(self, now_ms: int) -> Decision[None]:
        """Abort transactions whose time is over; forget those that ended long ago."""
        facts: list[Stated] = []
        actions: list[Action] = []
        for key in self.timers.take_due(now_ms):
            txn = TxnId.parse(key.group_id)
            known = None if txn is None else self.transactions.get(txn)
            if known is None:
                continue
            if key.kind == _TIMEOUT and known.status is TxnStatus.OPEN:
                decision = self._decide(known, committed=False)
                facts += decision.facts
                actions += decision.actions
            elif key.kind == _FORGET:
                self._forget(known.txn)
                facts.append(gone_fact(known.txn))
        return Decision(tuple(facts), None, actions=tuple(actions))

    def live_facts(self) -> int:
        """Return how many facts a snapshot has."""
        return len(self.transactions) + sum(map(len, self._acks.values()))

    def snapshot(self) -> Iterator[Sequence[Fact]]:
        """Return the facts of all, one transaction's at a time."""
        for txn in list(self.transactions):
            known = self.transactions.get(txn)
            if known is not None:
                acks = self._acks.get(txn, {}).values()
                yield [txn_fact(known), *(ack_fact(*each) for each in acks)]

    # -- what clients ask

    def begin(self, txn: TxnId, timeout_ms: int, owner: str, most_open: int, now_ms: int) -> Decision[TxnId]:
        """Begin a transaction."""
        if 0 < most_open <= self.open_count:
            raise TxnRefused(
                TooManyTransactions(f"coordinator {txn.most} has {self.open_count} transactions open")
            )
        made = PulsarTransaction(txn, TxnStatus.OPEN, timeout_ms, now_ms, owner)
        self.open_count += 1
        return self._become(made, txn)

    def add(
        self,
        txn: TxnId,
        partitions: Mapping[TxnPartition, str] = MappingProxyType({}),
        subscriptions: Mapping[TxnSubscription, str] = MappingProxyType({}),
    ) -> Decision[bool]:
        """Have partitions and subscriptions be of an open transaction."""
        known = self._open(txn)
        more = frozenset(partitions) - known.partitions, frozenset(subscriptions) - known.subscriptions
        names = {(where, name) for where, name in partitions.items()}
        names |= {(TxnPartition(*where[:2]), name) for where, name in subscriptions.items()}
        if not any(more) and names <= known.names:
            return Decision((), True)
        if len(known.partitions) + len(known.subscriptions) + sum(map(len, more)) > MAX_PARTICIPANTS:
            raise TxnRefused(
                TooManyTransactions(f"transaction {txn} may have {MAX_PARTICIPANTS} topics and subscriptions")
            )
        changed = replace(
            known,
            partitions=known.partitions | more[0],
            subscriptions=known.subscriptions | more[1],
            names=known.names | names,
        )
        return self._become(changed, True)

    def acknowledge(self, txn: TxnId, where: TxnSubscription, acks: Sequence[Ack]) -> Decision[bool]:
        """Keep what an open transaction acknowledges in one of its subscriptions."""
        known = self._open(txn)
        if where not in known.subscriptions:
            raise TxnRefused(
                InvalidTxnStatus(f"{where.subscription} of {where.topic} was not added to transaction {txn}")
            )
        acked = self._acked.get(txn, 0) + len(acks)
        if acked > MAX_ACKED:
            raise TxnRefused(TooManyTransactions(f"transaction {txn} may acknowledge {MAX_ACKED} entries"))
        self._acked[txn] = acked
        kept = self._acks.setdefault(txn, {})
        made = AckFact(txn, len(kept), where, tuple(acks))
        kept[made.number] = made
        return Decision((ack_fact(*made),), True)

    def end(self, txn: TxnId, *, committed: bool) -> Decision[bool]:
        """Decide an open transaction; for one that was decided so before, say so again."""
        known = self.find(txn)
        if known.status is TxnStatus.OPEN:
            return self._decide(known, committed=committed)
        if known.status.commits is not committed:
            raise TxnRefused(InvalidTxnStatus(f"transaction {txn} is {known.status}"))
        return Decision((), True)

    def told(self, txn: TxnId) -> Decision[None]:
        """Hear that a client has been told how its transaction ended: as with Pulsar, it is known no more."""
        known = self.transactions.get(txn)
        if known is None:
            return Decision((), None)
        if known.status.is_ending:
            self._told.add(txn)
            return Decision((), None)
        self._forget(txn)
        return Decision((gone_fact(txn),), None)

    # -- what is known

    def find(self, txn: TxnId) -> PulsarTransaction:
        """Return a transaction."""
        known = self.transactions.get(txn)
        if known is None or txn in self._told:
            raise TxnRefused(TransactionNotFound(f"The transaction with this txdID `{txn}`not found "))
        return known

    def acks_of(self, txn: TxnId) -> Acks:
        """Return what a transaction acknowledged, in its order."""
        found: defaultdict[TxnSubscription, list[Ack]] = defaultdict(list)
        for each in self._acks.get(txn, {}).values():
            found[each.where] += each.acks
        return {where: tuple(acks) for where, acks in found.items()}

    def acks_on(self, topic: str, partition: int) -> list[tuple[TxnId, TxnSubscription, Sequence[Ack]]]:
        """Return what transactions that are not over acknowledged in a topic's subscriptions."""
        return [
            (txn, each.where, each.acks)
            for txn, kept in self._acks.items()
            for each in kept.values()
            if each.where[:2] == (topic, partition)
        ]

    # -- changing

    def _open(self, txn: TxnId) -> PulsarTransaction:
        known = self.find(txn)
        if known.status is not TxnStatus.OPEN:
            raise TxnRefused(
                InvalidTxnStatus(
                    f"Expect Txn `{txn}` to be in OPEN status but it is in {known.status} status"
                )
            )
        return known

    def _decide(self, known: PulsarTransaction, *, committed: bool) -> Decision[bool]:
        self.open_count -= 1
        status = TxnStatus.COMMITTING if committed else TxnStatus.ABORTING
        return self._become(replace(known, status=status), True)

    def _become(self, changed: PulsarTransaction, answer: Any) -> Decision[Any]:
        self.transactions[changed.txn] = changed
        self._set_timer(changed)
        actions: tuple[Action, ...] = (_ending(changed),) if changed.status.is_ending else ()
        return Decision((txn_fact(changed),), answer, actions=actions)

    def _forget(self, txn: TxnId) -> None:
        self.transactions.pop(txn, None)
        self._told.discard(txn)
        for kept in (self._acks, self._acked, self._over):
            kept.pop(txn, None)
        for kind in (_TIMEOUT, _FORGET):
            self.timers.cancel(TimerKey(kind, str(txn)))

    def _set_timer(self, each: PulsarTransaction) -> None:
        timeout, forget = TimerKey(_TIMEOUT, str(each.txn)), TimerKey(_FORGET, str(each.txn))
        self.timers.cancel(timeout)
        if each.status is TxnStatus.OPEN:
            self.timers.schedule(timeout, each.due_ms)
        elif not each.status.is_ending:
            self.timers.schedule(forget, each.ended_ms + REMEMBERED_MS)


def _ending(each: PulsarTransaction) -> EndTxn:
    return EndTxn(each.txn, each.status.commits, each.partitions)
