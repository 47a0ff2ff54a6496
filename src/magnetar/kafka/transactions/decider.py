"""One partition of ``__transaction_state`` as a value: what becomes of its transactional ids. Pure decisions.

The rules are Kafka's (KIP-98, KIP-360, and KIP-890 for clients of ``transaction.version`` 2, each of whose transactions
has an epoch of its own). A transaction that ends is prepared, and answered once that is durable; then its markers are
written, an action; then it is complete. Each method gives a `Decision`, or raises `CoordinatorRefused` and has changed
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from magnetar.coordination.decision import Action, Decision, Fact, Stated
from magnetar.coordination.decision import Marker as LogMarker
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.timers import TimerKey, Timers
from magnetar.kafka.transactions.facts import (
    ROLES,
    gone_fact,
    read_fact,
    read_role,
    role_fact,
    transaction_fact,
)
from magnetar.kafka.transactions.metadata import (
    IDLE,
    MAX_EPOCH,
    NO_EPOCH,
    NO_ID,
    NO_TIME,
    PREPARED,
    State,
    TransactionMetadata,
    TransactionPartition,
)
from magnetar.logs.producers import BUMPS_EPOCHS, EndTransactionMarker
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from magnetar.kafka.transactions.pulsar_decider import PulsarDecider

PULSARS = b"PT"
"""How keys of records about Pulsar's transactions begin; see ``pulsar_facts``."""
_FACTS_AT_ONCE = 500
_TIMEOUT, _EXPIRATION = "timeout", "expiration"


class ProducerIdAndEpoch(NamedTuple):
    """A producer as its client knows it."""

    producer_id: int
    epoch: int


class IdUser(NamedTuple):
    """Somebody who asks for a transactional id."""

    role: str
    """Empty where roles mean nothing."""
    is_operator: bool = False
    """Whether it may do everything: what is another's stays that, as when an operator ends a transaction."""


NO_USER = IdUser("")


class TransactionAnswer(NamedTuple):
    """What a client is told: an error, or the producer that it is from now on."""

    code: ErrorCode
    producer: ProducerIdAndEpoch = ProducerIdAndEpoch(NO_ID, NO_EPOCH)


@dataclass(frozen=True, slots=True)
class WriteMarkers(Action):
    """A prepared transaction, to be ended in the partitions that it touched."""

    transactional_id: str
    marker: EndTransactionMarker
    partitions: frozenset[TransactionPartition]


class TransactionsDecider:
    """A `Decider`: replay its facts in order, resume, then ask."""

    def __init__(self, expiration_ms: int) -> None:
        self.transactions: dict[str, TransactionMetadata] = {}
        """By transactional id; to look at, not to change."""
        self.roles: dict[str, str] = {}
        """Which role's a transactional id is: whose producer had it last. Of those that no role had, nothing."""
        self.timers = Timers()
        self.foreign = 0
        """Records of kinds that are not known here: a snapshot would lose them."""
        self.pulsars: PulsarDecider | None = None
        """Pulsar's transactions, if there ever were any here: decided by other rules, and kept in the same log."""
        self._expiration_ms = expiration_ms

    def of_pulsar(self) -> PulsarDecider:
        """Return what decides Pulsar's transactions."""
        if self.pulsars is None:
            from magnetar.kafka.transactions.pulsar_decider import PulsarDecider  # most brokers have none

            self.pulsars = PulsarDecider()
        return self.pulsars

    # -- the life of a decider

    def replay(self, stated: Stated) -> None:
        """Take in what was stated before; raises ``WireError`` if the record is damaged."""
        if not isinstance(stated, LogMarker) and stated.key[:2] == PULSARS:
            self._replay_pulsars(stated.key, stated.value)
            return
        if not isinstance(stated, LogMarker) and stated.key[:2] == ROLES:
            transactional_id, role = read_role(stated.key, stated.value)
            self.roles[transactional_id] = role
            if not role:
                del self.roles[transactional_id]
            return
        said = None if isinstance(stated, LogMarker) else read_fact(stated.key, stated.value)
        if said is None:
            self.foreign += 1
            return
        transactional_id, metadata = said
        if metadata is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = metadata

    def _replay_pulsars(self, key: bytes, value: bytes | None) -> None:
        from magnetar.kafka.transactions import pulsar_facts

        said = pulsar_facts.read_fact(key, value)
        assert said is not None
        self.of_pulsar().replay(said)

    def resume(self, now_ms: int) -> Decision[None]:
        """Go on with the transactions that were prepared, and count the times of the others."""
        actions: list[Action] = []
        for each in self.transactions.values():
            self._set_timer(each)
            if each.state in PREPARED:
                actions.append(_write(each))
        pulsars = () if self.pulsars is None else self.pulsars.resume().actions
        return Decision((), None, actions=(*actions, *pulsars))

    def done(self, action: Action, result: object, now_ms: int) -> Decision[None]:
        """Hear that a transaction's markers are durable in all its partitions: it is complete."""
        if not isinstance(action, WriteMarkers):
            from magnetar.kafka.transactions.pulsar_decider import EndTxn

            assert isinstance(action, EndTxn)
            return self.of_pulsar().done(action, result, now_ms)
        known = self.transactions.get(action.transactional_id)
        if isinstance(result, BaseException) or known is None or known.state not in PREPARED:
            return Decision((), None)
        if _write(known) != action:
            return Decision((), None)
        rotates = known.version >= BUMPS_EPOCHS and known.next_producer_id != NO_ID
        committed = known.state is State.PREPARE_COMMIT
        return self._become(
            known,
            None,
            state=State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT,
            producer_id=known.next_producer_id if rotates else known.producer_id,
            epoch=0 if rotates else known.epoch,
            next_producer_id=NO_ID,
            partitions=frozenset(),
            update_ms=now_ms,
        )

    def wake_ms(self) -> int | None:
        """Return when a transaction's time is over, or a transactional id's."""
        ours = self.timers.wake_ms()
        pulsars = None if self.pulsars is None else self.pulsars.timers.wake_ms()
        return ours if pulsars is None else pulsars if ours is None else min(ours, pulsars)

    def expire(self, now_ms: int) -> Decision[None]:
        """Abort transactions whose time is over; forget transactional ids that were silent for too long."""
        facts: list[Stated] = []
        actions: list[Action] = []
        for key in self.timers.take_due(now_ms):
            known = self.transactions.get(key.group_id)
            if known is None:
                continue
            if key.kind == _TIMEOUT and known.state is State.ONGOING:
                decision = self._fence(known, now_ms, ErrorCode.NONE)
                facts += decision.facts
                actions += decision.actions
            elif key.kind == _EXPIRATION and known.state in IDLE:
                del self.transactions[known.transactional_id]
                facts.append(gone_fact(known.transactional_id))
                if self.roles.pop(known.transactional_id, None) is not None:
                    facts.append(role_fact(known.transactional_id, None))
        if self.pulsars is not None:
            pulsars = self.pulsars.expire(now_ms)
            facts += pulsars.facts
            actions += pulsars.actions
        return Decision(tuple(facts), None, actions=tuple(actions))

    def live_facts(self) -> int:
        """Return how many facts a snapshot has."""
        return (
            len(self.transactions)
            + len(self.roles)
            + (0 if self.pulsars is None else self.pulsars.live_facts())
        )

    def snapshot(self) -> Iterator[Sequence[Fact]]:
        """Return the facts of all, some at a time."""
        names = iter(list(self.transactions))
        while some := list(islice(names, _FACTS_AT_ONCE)):
            found = (self.transactions.get(each) for each in some)
            yield [transaction_fact(each) for each in found if each is not None]
            yield [role_fact(each, self.roles[each]) for each in some if each in self.roles]
        if self.pulsars is not None:
            yield from self.pulsars.snapshot()

    # -- what clients ask

    def wants_producer_id(self, transactional_id: str) -> bool:
        """Whether the next decision about a transactional id may need a producer id that nobody had."""
        known = self.transactions.get(transactional_id)
        return known is None or known.is_exhausted

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        new_producer_id: int,
        now_ms: int,
        user: IdUser = NO_USER,
    ) -> Decision[TransactionAnswer]:
        """Return a producer its id and its next epoch, which fences all of before; what these have open is aborted.

        Whoever says what producer it was (``expected``) is refused if another one has come meanwhile (KIP-360). The id
        is of the ``user``'s role from then on.
        """
        known = self.transactions.get(transactional_id)
        if known is None:
            known = TransactionMetadata(transactional_id, new_producer_id)
        if expected is not None and known.epoch != NO_EPOCH and not _may_go_on(known, expected):
            raise CoordinatorRefused(ErrorCode.PRODUCER_FENCED)
        if known.state in PREPARED:
            raise CoordinatorRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is State.ONGOING:
            if expected is not None and expected.epoch not in (known.epoch, known.last_epoch):
                raise CoordinatorRefused(ErrorCode.PRODUCER_FENCED)
            return self._fence(known, now_ms, ErrorCode.CONCURRENT_TRANSACTIONS)
        producer_id, epoch, last_epoch = known.producer_id, known.epoch + 1, NO_EPOCH
        if known.is_exhausted and (expected is None or expected.epoch == known.epoch):
            producer_id, epoch = new_producer_id, 0
            last_epoch = NO_EPOCH if expected is None else known.epoch
        elif expected is not None and known.epoch != NO_EPOCH:
            if expected.epoch == known.epoch:
                last_epoch = known.epoch
            elif expected.epoch == known.last_epoch:  # it was granted before, and the answer was lost
                epoch, last_epoch = known.epoch, known.last_epoch
            else:
                raise CoordinatorRefused(ErrorCode.PRODUCER_FENCED)
        decision = self._become(
            known,
            TransactionAnswer(ErrorCode.NONE, ProducerIdAndEpoch(producer_id, epoch)),
            state=State.EMPTY,
            producer_id=producer_id,
            epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIME,
            update_ms=now_ms,
        )
        return replace(decision, facts=(*decision.facts, *self._taken_by(transactional_id, user)))

    def _taken_by(self, transactional_id: str, user: IdUser) -> tuple[Fact, ...]:
        """Note whose an id is from now on; return the fact if that is news."""
        had = self.roles.get(transactional_id, "")
        if user.role in ("", had) or (had and user.is_operator):
            return ()
        self.roles[transactional_id] = user.role
        return (role_fact(transactional_id, user.role),)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TransactionPartition],
        version: int,
        now_ms: int,
    ) -> Decision[ErrorCode]:
        """Have partitions be of the producer's transaction, which begins with the first of them."""
        known = self._checked(transactional_id, producer)
        if known.state in PREPARED:
            raise CoordinatorRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is State.ONGOING and partitions <= known.partitions:
            return Decision((), ErrorCode.NONE)
        is_open = known.state is State.ONGOING
        return self._become(
            known,
            ErrorCode.NONE,
            state=State.ONGOING,
            partitions=known.partitions | partitions if is_open else partitions,
            start_ms=known.start_ms if is_open else now_ms,
            update_ms=now_ms,
            version=version,
        )

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: frozenset[TransactionPartition]
    ) -> dict[TransactionPartition, ErrorCode]:
        """Tell of each partition whether it is of the producer's transaction; nothing changes (KIP-890)."""
        known = self._checked(transactional_id, producer)
        if known.state in PREPARED:
            raise CoordinatorRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
        held = known.partitions if known.state is State.ONGOING else frozenset()
        return {
            each: ErrorCode.NONE if each in held else ErrorCode.TRANSACTION_ABORTABLE for each in partitions
        }

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        committed: bool,
        version: int,
        new_producer_id: int,
        now_ms: int,
    ) -> Decision[TransactionAnswer]:
        """Commit or abort the producer's transaction; whoever asks again, as no answer came, is told the same."""
        if version >= BUMPS_EPOCHS:
            return self._end_and_bump(transactional_id, producer, committed, version, new_producer_id, now_ms)
        known = self._checked(transactional_id, producer)
        if known.state is State.ONGOING:
            return self._prepare(known, committed, version, NO_ID, now_ms)
        prepared = State.PREPARE_COMMIT if committed else State.PREPARE_ABORT
        completed = State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT
        if known.state is completed:
            return Decision((), TransactionAnswer(ErrorCode.NONE, producer))
        busy = known.state is prepared
        raise CoordinatorRefused(ErrorCode.CONCURRENT_TRANSACTIONS if busy else ErrorCode.INVALID_TXN_STATE)

    def _end_and_bump(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        committed: bool,
        version: int,
        new_producer_id: int,
        now_ms: int,
    ) -> Decision[TransactionAnswer]:
        known = self._find(transactional_id)
        had_bumped = known.producer_id == producer.producer_id and known.epoch == producer.epoch + 1
        had_rotated = (
            known.previous_producer_id == producer.producer_id
            and producer.epoch == MAX_EPOCH - 1
            and known.epoch == 0
        )
        repeats = had_bumped or had_rotated
        if known.producer_id != producer.producer_id and not had_rotated:
            raise CoordinatorRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_current = known.producer_id == producer.producer_id and known.epoch == producer.epoch
        if not is_current and (not repeats or known.state in (State.ONGOING, State.EMPTY)):
            raise CoordinatorRefused(ErrorCode.PRODUCER_FENCED)
        if is_current and known.state in PREPARED:  # it speaks of its next one already
            raise CoordinatorRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
        next_id = new_producer_id if known.is_exhausted else NO_ID
        if known.state is State.ONGOING:
            return self._prepare(known, committed, version, next_id, now_ms)
        if known.state in PREPARED:
            busy = (known.state is State.PREPARE_COMMIT) == committed
            raise CoordinatorRefused(
                ErrorCode.CONCURRENT_TRANSACTIONS if busy else ErrorCode.INVALID_TXN_STATE
            )
        if repeats and known.state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT):
            return Decision(
                (), TransactionAnswer(ErrorCode.NONE, ProducerIdAndEpoch(known.producer_id, known.epoch))
            )
        if committed or repeats:
            raise CoordinatorRefused(ErrorCode.INVALID_TXN_STATE)
        # Nothing was added: its batches may be on their way all the same, and the new epoch fences them.
        return self._prepare(replace(known, start_ms=now_ms), False, version, next_id, now_ms)

    # -- changing

    def _find(self, transactional_id: str) -> TransactionMetadata:
        if not transactional_id:
            raise CoordinatorRefused(ErrorCode.INVALID_REQUEST)
        known = self.transactions.get(transactional_id)
        if known is None:
            raise CoordinatorRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return known

    def _checked(self, transactional_id: str, producer: ProducerIdAndEpoch) -> TransactionMetadata:
        known = self._find(transactional_id)
        if known.producer_id != producer.producer_id:
            raise CoordinatorRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.epoch != producer.epoch:
            raise CoordinatorRefused(ErrorCode.PRODUCER_FENCED)
        return known

    def _fence(self, known: TransactionMetadata, now_ms: int, code: ErrorCode) -> Decision[TransactionAnswer]:
        """Abort what a producer has open under an epoch that nobody is told, so that it is fenced."""
        return self._become(
            known,
            TransactionAnswer(code),
            state=State.PREPARE_ABORT,
            epoch=known.epoch + 1,
            last_epoch=NO_EPOCH,
            update_ms=now_ms,
        )

    def _prepare(
        self, known: TransactionMetadata, committed: bool, version: int, next_id: int, now_ms: int
    ) -> Decision[TransactionAnswer]:
        bumps = version >= BUMPS_EPOCHS
        epoch = known.epoch + 1 if bumps else known.epoch
        producer = (
            ProducerIdAndEpoch(next_id, 0)
            if next_id != NO_ID
            else ProducerIdAndEpoch(known.producer_id, epoch)
        )
        return self._become(
            known,
            TransactionAnswer(ErrorCode.NONE, producer),
            state=State.PREPARE_COMMIT if committed else State.PREPARE_ABORT,
            epoch=epoch,
            last_epoch=known.epoch if bumps else known.last_epoch,
            start_ms=known.start_ms,
            next_producer_id=next_id,
            update_ms=now_ms,
            version=version,
        )

    def _become(self, known: TransactionMetadata, answer: Any, **changes: Any) -> Decision[Any]:
        changed = replace(known, previous_producer_id=known.producer_id, **changes)
        self.transactions[known.transactional_id] = changed
        self._set_timer(changed)
        actions: tuple[Action, ...] = (_write(changed),) if changed.state in PREPARED else ()
        return Decision((transaction_fact(changed),), answer, actions=actions)

    def _set_timer(self, metadata: TransactionMetadata) -> None:
        name = metadata.transactional_id
        if metadata.state is State.ONGOING:
            self.timers.schedule(TimerKey(_TIMEOUT, name), metadata.due_ms)
            self.timers.cancel(TimerKey(_EXPIRATION, name))
        else:
            self.timers.cancel(TimerKey(_TIMEOUT, name))
            if metadata.state in IDLE:
                self.timers.schedule(TimerKey(_EXPIRATION, name), metadata.update_ms + self._expiration_ms)


def _may_go_on(known: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether a producer may be the one that is known, or that of before whose epochs were used up."""
    return expected.producer_id == known.producer_id or (
        expected.producer_id == known.previous_producer_id and expected.epoch >= MAX_EPOCH - 1
    )


def _write(metadata: TransactionMetadata) -> WriteMarkers:
    """Return what ends a prepared transaction."""
    marker = EndTransactionMarker(
        metadata.producer_id,
        metadata.epoch,
        committed=metadata.state is State.PREPARE_COMMIT,
        version=metadata.version,
    )
    return WriteMarkers(metadata.transactional_id, marker, metadata.partitions)
