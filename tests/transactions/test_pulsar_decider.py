"""What the coordinator decides of Pulsar's transactions, as values: replayed facts make the same decider."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from magnetar.coordination.decision import Fact
from magnetar.coordination.transactions import (
    Ack,
    InvalidTxnStatus,
    TooManyTransactions,
    TransactionNotFound,
    TxnId,
    TxnPartition,
    TxnStatus,
    TxnSubscription,
)
from magnetar.kafka.transactions.decider import TransactionsDecider
from magnetar.kafka.transactions.pulsar_decider import REMEMBERED_MS, EndTxn, PulsarDecider, TxnRefused
from magnetar.records.batch import read_header
from magnetar.records.compression import Codec
from magnetar.records.control import read_marker
from magnetar.records.conversion import kafka_batch, use_machine_code
from magnetar.records.crc import crc32c
from magnetar.records.entry import broker_entry_head
from magnetar.records.pulsar_entries import open_send
from magnetar.records.pulsar_markers import in_transaction, txn_marker
from magnetar.records.pulsar_plain import plain_kafka_batch
from tests.pulsar.raw import entry

TXN, OTHER = TxnId(3, 17), TxnId(3, 18)
WHERE = TxnPartition("t", 1)
READS = TxnSubscription("t", 1, "s")
ACKS = (Ack(4, 7), Ack(4, 8, 0b101, 3), Ack(5, 0, cumulative=True))


def begun(log: list[Fact], *txns: TxnId) -> TransactionsDecider:
    decider = TransactionsDecider(1000)
    for txn in txns:
        log += decider.of_pulsar().begin(txn, 500, "role", 0, 100).facts  # type: ignore[arg-type]
    return decider


def replayed(log: Iterable[Fact]) -> TransactionsDecider:
    decider = TransactionsDecider(1000)
    for each in log:
        decider.replay(each)
    return decider


def test_what_was_decided_is_known_and_goes_on_after_a_restart() -> None:
    log: list[Fact] = []
    pulsars = begun(log, TXN, OTHER).of_pulsar()
    log += pulsars.add(TXN, {WHERE: "persistent://public/default/t-partition-1"}, {READS: "t"}).facts
    log += pulsars.acknowledge(TXN, READS, ACKS[:2]).facts
    log += pulsars.acknowledge(TXN, READS, ACKS[2:]).facts
    for some in (log, [each for many in pulsars.snapshot() for each in many]):
        again = replayed(some)
        assert again.resume(200).actions == ()
        assert again.of_pulsar().transactions == pulsars.transactions
        assert again.of_pulsar().acks_of(TXN) == {READS: ACKS}
        assert again.of_pulsar().acks_on("t", 1) == pulsars.acks_on("t", 1)
        assert again.wake_ms() == 600
        assert again.foreign == 0
    decision = pulsars.end(TXN, committed=True)
    assert decision.actions == (EndTxn(TXN, True, frozenset({WHERE})),)
    again = replayed([*log, *decision.facts])
    assert again.resume(200).actions == decision.actions
    assert again.of_pulsar().acks_of(TXN) == {READS: ACKS}


def test_a_client_that_got_no_answer_is_told_how_it_ended_and_one_that_did_is_told_no_more() -> None:
    log: list[Fact] = []
    pulsars = begun(log, TXN, OTHER).of_pulsar()
    decision = pulsars.end(TXN, committed=True)
    log += decision.facts  # here the broker is killed
    again = replayed(log)
    (action,) = again.resume(200).actions
    log += again.done(action, None, 300).facts
    for decider in (again, replayed(log)):
        decider.resume(300)
        assert decider.of_pulsar().end(TXN, committed=True).answer
        assert decider.of_pulsar().acks_of(TXN) == {}
        with pytest.raises(TxnRefused) as refused:
            decider.of_pulsar().end(TXN, committed=False)
        assert isinstance(refused.value.error, InvalidTxnStatus)
    assert again.expire(299 + REMEMBERED_MS).facts != ()  # the other one's time is over
    log += again.of_pulsar().told(TXN).facts
    with pytest.raises(TxnRefused) as refused:
        replayed(log).of_pulsar().end(TXN, committed=True)
    assert isinstance(refused.value.error, TransactionNotFound)


def test_a_client_that_was_told_while_cursors_are_being_kept_is_told_no_more_either() -> None:
    log: list[Fact] = []
    decider = begun(log, TXN)
    (action,) = decider.of_pulsar().end(TXN, committed=True).actions
    assert decider.of_pulsar().told(TXN).facts == ()
    with pytest.raises(TxnRefused) as refused:
        decider.of_pulsar().end(TXN, committed=True)
    assert isinstance(refused.value.error, TransactionNotFound)
    (gone,) = decider.done(action, None, 300).facts
    assert gone.value is None  # type: ignore[union-attr]
    assert decider.of_pulsar().transactions == {}


def test_how_a_transaction_ended_is_forgotten_after_a_while() -> None:
    log: list[Fact] = []
    decider = begun(log, TXN)
    (action,) = decider.expire(600).actions
    assert action == EndTxn(TXN, False, frozenset())
    decider.done(action, None, 700)
    assert decider.of_pulsar().transactions[TXN].status is TxnStatus.ABORTED
    assert decider.expire(699 + REMEMBERED_MS).facts == ()
    (gone,) = decider.expire(700 + REMEMBERED_MS).facts
    assert gone.value is None  # type: ignore[union-attr]
    assert decider.of_pulsar().transactions == {}


def test_more_than_may_be_open_are_refused() -> None:
    pulsars = PulsarDecider()
    pulsars.begin(TXN, 500, "", 1, 0)
    with pytest.raises(TxnRefused) as refused:
        pulsars.begin(OTHER, 500, "", 1, 0)
    assert isinstance(refused.value.error, TooManyTransactions)
    pulsars.end(TXN, committed=True)
    pulsars.begin(OTHER, 500, "", 1, 0)


@pytest.mark.parametrize("machine", [False, True], ids=["plain", "machine code"])
def test_a_message_of_a_transaction_is_kafkas_of_a_producer_of_its_own(machine: bool) -> None:
    sent = in_transaction(open_send(entry(b"hello")), TXN)
    assert open_send(sent.framed).metadata.txn == TXN  # its checksum holds
    stored = bytes(broker_entry_head(5, 41) + bytes(sent.framed))
    if machine:
        assert use_machine_code()
    made = read_header((kafka_batch if machine else plain_kafka_batch)(stored))
    assert (made.base_offset, made.is_transactional, made.is_control) == (41, True, False)
    assert (made.producer_id, made.producer_epoch, made.base_sequence) == (TXN.producer_id, 0, -1)
    assert TxnId.of_producer(made.producer_id) == TXN
    assert made.codec is Codec.none


@pytest.mark.parametrize("size", [5, 100_000])
def test_what_a_message_of_a_transaction_counts_is_what_is_stored(size: int) -> None:
    sent = in_transaction(open_send(entry(b"x" * size)), TXN)
    assert b"".join(map(bytes, sent.parts)) == sent.framed
    assert sent.crc in (None, crc32c(sent.parts[-1]))


@pytest.mark.parametrize("committed", [False, True])
def test_its_marker_is_kafkas_marker(committed: bool) -> None:
    stored = bytes(broker_entry_head(5, 41) + bytes(txn_marker(TXN, 9, committed=committed)))
    batch = plain_kafka_batch(stored)
    header, said = read_header(batch), read_marker(batch)
    assert (header.base_offset, header.is_control, header.producer_id) == (41, True, TXN.producer_id)
    assert said is not None
    assert said.committed is committed


@pytest.mark.parametrize("text", ["", "(3,17", "3,17", "(03,17)", "(3,-1)", "(3,17,4)", "orders"])
def test_what_is_no_name_of_a_transaction(text: str) -> None:
    assert TxnId.parse(text) is None
    assert TxnId.parse(str(TXN)) == TXN
