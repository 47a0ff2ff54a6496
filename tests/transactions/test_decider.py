"""The transaction coordinator against a model of Kafka's rules: whatever is asked in whatever order, and restarted.

Producers of both versions begin, add, end, repeat what they asked, and come again as zombies; markers are written late;
times run out. After each step the decider, and one that was made of its facts alone, know what the model knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.coordination.decision import Decision, Fact, Stated
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.transactions.decider import (
    IdUser,
    ProducerIdAndEpoch,
    TransactionAnswer,
    TransactionsDecider,
    WriteMarkers,
)
from magnetar.kafka.transactions.facts import transaction_fact
from magnetar.kafka.transactions.metadata import MAX_EPOCH, State, TransactionPartition
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.malformed import WireError

IDS = ("a", "b")
TIMEOUT_MS, EXPIRATION_MS = 1_000, 50_000
PARTITIONS = [TransactionPartition("t", each) for each in range(3)]
FENCED, CONCURRENT = ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS


@dataclass
class Known:
    """What the model knows of one transactional id."""

    producer: ProducerIdAndEpoch
    state: str = "empty"
    """empty, ongoing, ending, ended"""
    committed: bool = False
    partitions: set[TransactionPartition] = field(default_factory=set)
    began_ms: int = 0
    ended_by: ProducerIdAndEpoch | None = None
    """Whose EndTxn it was, in version 2, and which answer it got."""
    outcome: ProducerIdAndEpoch | None = None
    fenced: bool = False


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.ids = 100
        self.facts: list[Any] = []
        self.actions: list[WriteMarkers] = []
        self.known: dict[str, Known] = {}
        self.past: dict[str, list[ProducerIdAndEpoch]] = {each: [] for each in IDS}
        self.decider = TransactionsDecider(EXPIRATION_MS)

    @initialize(first_epoch=st.sampled_from([0, MAX_EPOCH - 3]))
    def begin(self, first_epoch: int) -> None:
        """Begin with an id whose epochs are nearly used up, or with none."""
        if first_epoch:
            self._init("a", None)
            known = self.known["a"]
            forced = self.decider.transactions["a"]
            changed = replace(forced, epoch=first_epoch)
            self.decider.transactions["a"] = changed
            self.facts.append(transaction_fact(changed))
            known.producer = ProducerIdAndEpoch(known.producer.producer_id, first_epoch)
            self.past["a"].append(known.producer)

    # -- what is asked

    def _take(self, decision: Decision[Any]) -> Any:
        self.facts += decision.facts
        self.actions += [each for each in decision.actions if isinstance(each, WriteMarkers)]
        return decision.answer

    def _init(self, name: str, expected: ProducerIdAndEpoch | None) -> TransactionAnswer | ErrorCode:
        self.ids += 1
        try:
            answer: TransactionAnswer = self._take(
                self.decider.init_producer_id(name, TIMEOUT_MS, expected, self.ids, self.now_ms)
            )
        except CoordinatorRefused as refused:
            return refused.code
        known = self.known.get(name)
        if answer.code is ErrorCode.NONE:
            self.known[name] = Known(answer.producer)
            self.past[name].append(answer.producer)
        else:
            assert known is not None
            assert answer.code is CONCURRENT
        return answer

    @rule(name=st.sampled_from(IDS), data=st.data(), resumes=st.booleans())
    def inits(self, name: str, data: st.DataObject, resumes: bool) -> None:
        known = self.known.get(name)
        expected = None
        if resumes and self.past[name]:
            expected = data.draw(st.sampled_from(self.past[name]))
        before = None if known is None else (known.state, known.producer)
        said = self._init(name, expected)
        if known is None or before is None:
            assert isinstance(said, TransactionAnswer)
            assert said.producer.epoch == 0
            return
        state, producer = before
        if state == "ending":
            assert said in (CONCURRENT, FENCED)
        elif state == "ongoing":
            if isinstance(said, TransactionAnswer):
                self._fenced(known)
            else:
                assert said is FENCED
                assert expected not in (None, producer)
        elif expected is None or expected == producer:
            # A new epoch, which nobody had.
            assert isinstance(said, TransactionAnswer)
            assert said.producer not in self.past[name][:-1]
            assert said.producer.producer_id != producer.producer_id or said.producer.epoch > producer.epoch
        else:
            # A zombie, or the one that did not hear the answer to its last request.
            assert said is FENCED or (
                isinstance(said, TransactionAnswer) and self.past[name][-1] == said.producer
            )

    def _fenced(self, known: Known) -> None:
        known.state, known.committed, known.fenced = "ending", False, True
        known.producer = ProducerIdAndEpoch(known.producer.producer_id, known.producer.epoch + 1)
        known.ended_by = known.outcome = None

    @rule(name=st.sampled_from(IDS), data=st.data(), version=st.sampled_from([0, 2]))
    def adds(self, name: str, data: st.DataObject, version: int) -> None:
        if not self.past[name]:
            with pytest.raises(CoordinatorRefused):
                self.decider.add_partitions(
                    name, ProducerIdAndEpoch(1, 0), frozenset(PARTITIONS), version, self.now_ms
                )
            return
        who = data.draw(st.sampled_from(self.past[name]))
        wanted = frozenset(data.draw(st.sets(st.sampled_from(PARTITIONS), min_size=1)))
        known = self.known[name]
        if who != known.producer or known.state == "ending":
            with pytest.raises(CoordinatorRefused) as refused:
                self.decider.add_partitions(name, who, wanted, version, self.now_ms)
            fenced = {FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
            assert refused.value.code in ({CONCURRENT} if who == known.producer else fenced)
            return
        self._take(self.decider.add_partitions(name, who, wanted, version, self.now_ms))
        if known.state != "ongoing":
            known.state, known.partitions, known.began_ms = "ongoing", set(), self.now_ms
            known.ended_by = known.outcome = None
        known.partitions |= wanted
        told = self.decider.verify(name, who, frozenset(PARTITIONS))
        assert {each for each, code in told.items() if code is ErrorCode.NONE} == known.partitions

    @precondition(lambda self: any(self.past.values()))
    @rule(data=st.data(), committed=st.booleans(), version=st.sampled_from([0, 2]))
    def ends(self, data: st.DataObject, committed: bool, version: int) -> None:
        name = data.draw(st.sampled_from([each for each in IDS if self.past[each]]))
        who = data.draw(st.sampled_from(self.past[name]))
        known = self.known[name]
        before = known.producer
        self.ids += 1
        try:
            answer: TransactionAnswer = self._take(
                self.decider.end(
                    name,
                    who,
                    committed=committed,
                    version=version,
                    new_producer_id=self.ids,
                    now_ms=self.now_ms,
                )
            )
        except CoordinatorRefused as refused:
            if who == before and known.state == "ongoing":
                raise AssertionError(f"its own transaction, and {refused.code.name}") from refused
            return
        if known.state == "ongoing" and who == before:
            self._ended(name, known, who, committed, version, answer)
        elif known.state in ("empty", "ended") and who == before and version == 2 and not committed:
            # An abort of nothing: it may have written all the same.
            if known.state == "ended" and known.ended_by is None and not known.committed and version == 0:
                return
            known.partitions = set()
            self._ended(name, known, who, committed, version, answer)
        elif version == 0:
            assert who == before
            assert known.state == "ended"
            assert committed == known.committed
        else:
            # A repetition: the same answer as the first time.
            assert known.state == "ended"
            assert committed == known.committed
            assert answer.producer == known.producer

    def _ended(
        self,
        name: str,
        known: Known,
        who: ProducerIdAndEpoch,
        committed: bool,
        version: int,
        answer: TransactionAnswer,
    ) -> None:
        known.state, known.committed, known.fenced = "ending", committed, False
        known.ended_by, known.outcome = (who, answer.producer) if version == 2 else (None, None)
        if version == 2:
            assert answer.producer != who
            assert answer.producer not in self.past[name]
            known.producer = ProducerIdAndEpoch(who.producer_id, who.epoch + 1)
            self.past[name].append(answer.producer)
        else:
            assert answer.producer == who

    # -- what becomes of it

    @precondition(lambda self: self.actions)
    @rule(data=st.data(), fails=st.booleans())
    def writes_markers(self, data: st.DataObject, fails: bool) -> None:
        action = data.draw(st.sampled_from(self.actions))
        self.actions.remove(action)
        self._take(self.decider.done(action, OSError() if fails else None, self.now_ms))
        if fails:
            self.actions.append(action)
            return
        known = self.known[action.transactional_id]
        if known.state == "ending":
            assert action.partitions == known.partitions
            assert action.marker.committed == known.committed
            assert (action.marker.producer_id, action.marker.epoch) == known.producer
            known.state, known.partitions = "ended", set()
            if known.outcome is not None:
                known.producer = known.outcome

    @rule(ms=st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS, EXPIRATION_MS]))
    def time_goes_on(self, ms: int) -> None:
        self.now_ms += ms
        due = [each for each in self.known.values() if each.state == "ongoing"]
        self._take(self.decider.expire(self.now_ms))
        for known in due:
            if known.began_ms + TIMEOUT_MS <= self.now_ms:
                self._fenced(known)
        for name in [each for each in self.known if each not in self.decider.transactions]:
            assert self.known[name].state in ("empty", "ended")
            del self.known[name]
            self.past[name].clear()

    @rule()
    def restarts(self) -> None:
        self.decider = self._replayed()
        self.actions = []
        self._take(self.decider.resume(self.now_ms))

    def _replayed(self) -> TransactionsDecider:
        made = TransactionsDecider(EXPIRATION_MS)
        for fact in self.facts:
            assert isinstance(fact, Fact)
            made.replay(fact)
        return made

    @invariant()
    def facts_say_all(self) -> None:
        replayed = self._replayed().transactions
        assert replayed.keys() == self.decider.transactions.keys() == self.known.keys()
        for name, known in self.known.items():
            found, again = self.decider.transactions[name], replayed[name]
            assert again.producer_id == found.producer_id
            assert (again.epoch, again.state, again.partitions) == (
                found.epoch,
                found.state,
                found.partitions,
            )
            assert (found.producer_id, found.epoch) == known.producer
            assert found.partitions == known.partitions
            states = {
                "empty": {State.EMPTY},
                "ongoing": {State.ONGOING},
                "ending": {State.PREPARE_COMMIT if known.committed else State.PREPARE_ABORT},
                "ended": {State.COMPLETE_COMMIT if known.committed else State.COMPLETE_ABORT},
            }
            assert found.state in states[known.state]

    @invariant()
    def what_is_being_ended_has_its_action(self) -> None:
        waiting = {each.transactional_id for each in self.actions}
        assert {name for name, known in self.known.items() if known.state == "ending"} <= waiting

    @invariant()
    def no_client_is_told_the_last_epoch(self) -> None:
        assert all(each.epoch < MAX_EPOCH for told in self.past.values() for each in told)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)


def test_a_snapshot_says_what_all_facts_say() -> None:
    decider = TransactionsDecider(EXPIRATION_MS)
    for number in range(1200):
        name = f"id-{number}"
        user = IdUser(f"role-{number}" if number % 2 else "")
        answer = decider.init_producer_id(name, TIMEOUT_MS, None, number, 1, user).answer
        assert answer is not None
        if number % 3:
            decider.add_partitions(name, answer.producer, frozenset(PARTITIONS), 2, 2)
    again = TransactionsDecider(EXPIRATION_MS)
    for some in decider.snapshot():
        for fact in some:
            again.replay(fact)
    assert decider.live_facts() == 1800
    assert again.roles == decider.roles == {f"id-{number}": f"role-{number}" for number in range(1, 1200, 2)}
    assert {name: (each.state, each.partitions) for name, each in again.transactions.items()} == {
        name: (each.state, each.partitions) for name, each in decider.transactions.items()
    }


def test_an_id_is_its_roles_until_both_are_forgotten() -> None:
    decider, again = TransactionsDecider(EXPIRATION_MS), TransactionsDecider(EXPIRATION_MS)
    facts: list[Stated] = []

    def roles(role: str, *, is_operator: bool = False) -> dict[str, str]:
        user = IdUser(role, is_operator)
        facts.extend(decider.init_producer_id("a", TIMEOUT_MS, None, 1, 1, user).facts)
        return decider.roles

    assert roles("") == {}
    assert roles("anna") == {"a": "anna"}
    assert roles("root", is_operator=True) == {"a": "anna"}
    assert roles("") == {"a": "anna"}
    assert roles("boris") == {"a": "boris"}
    assert roles("boris") == {"a": "boris"}
    assert len(facts) == 6 + 2, "a role is written when it is another one"
    for fact in facts:
        again.replay(fact)
    assert again.roles == {"a": "boris"}
    for fact in decider.expire(1 + EXPIRATION_MS).facts:
        again.replay(fact)
    assert again.roles == again.transactions == decider.roles == {}
    with pytest.raises(WireError):
        again.replay(Fact(b"OW\xff", b"anna"))
