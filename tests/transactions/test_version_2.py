"""Producers of ``transaction.version`` 2 (KIP-890): to write adds partitions, and each transaction has an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from magnetar.records.batch import TRANSACTIONAL, PlainRecord, encode_batch
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.end_txn_request import EndTxnRequest
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.hostile.client import Wire
from tests.process import BrokerProcess
from tests.transactions.clients import COMMITTED, make_topic, values

TRANSACTIONS, RECORDS = 200, 10
NAMES = (f"version-2-{number}" for number in count())
PRODUCE = 12


class Producer:
    """A client of version 2, request by request."""

    def __init__(self, wire: Wire, name: str, topic: str) -> None:
        self.wire, self.name, self.topic = wire, name, topic
        self.sequence = 0
        answer = wire.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 5)
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def write(
        self,
        *texts: bytes,
        epoch: int | None = None,
        sequence: int | None = None,
        version: int = PRODUCE,
    ) -> ErrorCode:
        batch = encode_batch(
            [PlainRecord(None, text, (), 1000) for text in texts],
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=self.sequence if sequence is None else sequence,
        )
        row = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name=self.topic, partition_data=[row])
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=60_000, topic_data=[topic])
        code = self.wire.ask(request, version).responses[0].partition_responses[0].error_code
        if code == 0:
            self.sequence += len(texts)
        return ErrorCode(code)

    def end(self, committed: bool, epoch: int | None = None) -> ErrorCode:
        asked = self.epoch if epoch is None else epoch
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=asked,
            committed=committed,
        )
        answer = self.wire.ask(request, 5)
        if answer.error_code == 0:
            self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return ErrorCode(answer.error_code)


@pytest.fixture
def made(broker: BrokerProcess) -> Iterator[Producer]:
    topic = make_topic(broker.address, next(NAMES))
    with Wire(broker.host_and_port) as wire:
        yield Producer(wire, f"{topic}-id", topic)


@pytest.mark.slow
def test_hundreds_of_transactions_one_right_behind_the_other(broker: BrokerProcess, made: Producer) -> None:
    committed = []
    for number in range(TRANSACTIONS):
        texts = [b"%d:%d" % (number, each) for each in range(RECORDS)]
        epoch = made.epoch
        assert made.write(*texts) == 0  # the one of before may still be being ended: that is waited for
        assert made.end(number % 4 != 0) == 0
        assert made.epoch == epoch + 1
        committed += texts if number % 4 else []
    assert values(broker.address, made.topic, COMMITTED) == committed


def test_what_comes_late_goes_nowhere(broker: BrokerProcess, made: Producer) -> None:
    assert made.write(b"a") == 0
    epoch = made.epoch
    assert made.end(True) == 0
    assert made.write(b"late", epoch=epoch, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    code = ErrorCode.CONCURRENT_TRANSACTIONS
    while code == ErrorCode.CONCURRENT_TRANSACTIONS:  # until the markers of the one before are there
        code = made.end(True)
    assert code == ErrorCode.INVALID_TXN_STATE  # it has nothing open
    assert made.write(b"b") == 0
    assert made.end(True) == 0
    assert values(broker.address, made.topic, COMMITTED) == [b"a", b"b"]


def test_whoever_asks_again_is_answered_the_same(broker: BrokerProcess, made: Producer) -> None:
    assert made.write(b"a") == 0
    before = made.epoch
    assert made.end(True) == 0
    after = made.producer_id, made.epoch
    code = ErrorCode.CONCURRENT_TRANSACTIONS
    while code == ErrorCode.CONCURRENT_TRANSACTIONS:  # until its markers are there
        code = made.end(True, epoch=before)
    assert (code, made.producer_id, made.epoch) == (0, *after)
    assert made.end(False, epoch=before) == ErrorCode.INVALID_TXN_STATE


def test_a_batch_without_a_transactional_id_or_of_another_transaction_is_refused(made: Producer) -> None:
    name, made.name = made.name, "nobody's"
    assert made.write(b"x") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    made.name = None  # type: ignore[assignment]
    assert made.write(b"x") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    made.name = name
    assert made.write(b"x", epoch=made.epoch + 1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_older_versions_have_to_name_the_partition_first(broker: BrokerProcess, made: Producer) -> None:
    assert made.write(b"hangs", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    assert made.write(b"hangs", version=9) == ErrorCode.INVALID_TXN_STATE
    assert values(broker.address, made.topic, "read_uncommitted") == []
