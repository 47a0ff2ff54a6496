"""Transactions of Pulsar's clients: what they write and acknowledge counts once they commit, whoever reads it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from magnetar.pulsar.handlers.transactions import MOST_AT_ONCE
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, CommandSubscribe, ServerError
from tests.cli.operator import Operator
from tests.pipeline.test_slices import rows
from tests.process import BrokerProcess
from tests.pulsar.raw import entry, frame, send
from tests.transactions.clients import (
    COMMITTED,
    UNCOMMITTED,
    ends,
    in_transaction,
    make_topic,
    producer,
    values,
)
from tests.transactions.pulsar_client import Client, Refused

OPTIONS = "--pulsar", "127.0.0.1:0", "--set", "transactionCoordinatorEnabled=true"
NAMES = (f"of-pulsar-{number}" for number in count())
SOON_S = 0.4
KINDS = [
    CommandSubscribe.Exclusive,
    CommandSubscribe.Failover,
    CommandSubscribe.Shared,
    CommandSubscribe.Key_Shared,
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("transactions") / "data", *OPTIONS) as process:
        yield process


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker) as made:
        yield made


@pytest.fixture
def topic() -> str:
    return next(NAMES)


def written(
    client: Client, topic: str, values: list[bytes], *, commit: bool = True, coordinator: int = 0
) -> None:
    """Write values in one transaction."""
    txn = client.begin(coordinator)
    client.add_topic(txn, topic)
    client.produce(topic, values, txn)
    client.end(txn, commit=commit)


# -- messages


@pytest.mark.slow
def test_messages_come_when_they_are_committed_and_never_if_they_are_aborted(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    consumer = client.subscribe(topic)
    txn = client.begin(coordinator=3)
    client.add_topic(txn, topic)
    client.produce(topic, [b"a", b"b"], txn)
    client.produce(topic, [b"behind"])
    assert client.receive(consumer, SOON_S) is None
    assert values(broker.address, topic, COMMITTED) == []
    assert values(broker.address, topic, UNCOMMITTED) == [b"a", b"b", b"behind"]
    client.end(txn)
    assert client.values(consumer, 3) == [b"a", b"b", b"behind"]
    written(client, topic, [b"aborted"], commit=False)
    written(client, topic, [b"last"], coordinator=15)
    assert client.values(consumer, 1) == [b"last"]
    assert client.receive(consumer, SOON_S) is None
    assert values(broker.address, topic, COMMITTED) == [b"a", b"b", b"behind", b"last"]
    assert b"aborted" in values(broker.address, topic, UNCOMMITTED)


def test_a_message_whose_command_alone_names_its_transaction_can_be_read_whatever_its_size(
    broker: BrokerProcess, client: Client, tmp_path: Path, topic: str
) -> None:
    """What was sent is not what is stored; a large one was stored with the checksum of the former."""
    wanted = [bytes([number % 251]) * (1 << number) for number in range(5, 20)]
    consumer = client.subscribe(topic)
    txn = client.begin()
    client.add_topic(txn, topic)
    client.produce(topic, wanted, txn, as_go=True)
    client.end(txn)
    assert client.values(consumer, len(wanted)) == wanted
    assert values(broker.address, topic, COMMITTED) == wanted


@pytest.mark.slow
def test_batches_of_many_transactions_are_the_same_for_all_readers(
    broker: BrokerProcess, client: Client, tmp_path: Path, topic: str
) -> None:
    consumer = client.subscribe(topic)
    wanted = []
    for number in range(60):
        txn = client.begin(number % 16)
        client.add_topic(txn, topic)
        batches = [[b"%d:%d:%d" % (number, each, one) for one in range(10)] for each in range(5)]
        for batch in batches:
            client.produce_batch(topic, batch, txn)
        client.end(txn, commit=number % 3 != 1)
        wanted += [value for batch in batches for value in batch] if number % 3 != 1 else []
    assert client.values(consumer, len(wanted)) == wanted
    assert values(broker.address, topic, COMMITTED) == wanted
    assert len(values(broker.address, topic, UNCOMMITTED)) == 60 * 50
    assert [row[2] for row in rows(broker.data, subscribe=topic, isolation=COMMITTED)] == wanted


def test_transactions_of_both_protocols_wait_for_each_other(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    make_topic(broker.address, topic)
    kafka = producer(broker.address, f"{topic}-id")
    consumer = client.subscribe(topic)
    txn = client.begin()
    client.add_topic(txn, topic)
    client.produce(topic, [b"pulsar"], txn)
    in_transaction(kafka, topic, [b"kafka"])
    assert client.receive(consumer, SOON_S) is None
    kafka.begin_transaction()
    kafka.produce(topic, b"open", partition=0)
    assert kafka.flush(60) == 0
    client.end(txn)
    assert client.values(consumer, 2) == [b"pulsar", b"kafka"]
    assert client.receive(consumer, SOON_S) is None
    assert values(broker.address, topic, COMMITTED) == [b"pulsar", b"kafka"]
    kafka.commit_transaction(60)
    assert client.values(consumer, 1) == [b"open"]


def test_nothing_is_written_to_a_transaction_that_is_over_or_does_not_have_the_topic(
    client: Client, topic: str
) -> None:
    txn = client.begin()
    with pytest.raises(Refused) as refused:
        client.produce(topic, [b"not added"], txn)
    assert refused.value.error == ServerError.NotAllowedError
    client.add_topic(txn, topic)
    client.produce(topic, [b"in time"], txn)
    client.end(txn)
    with pytest.raises(Refused) as refused:
        client.produce(topic, [b"late"], txn)
    assert refused.value.error == ServerError.NotAllowedError
    assert client.values(client.subscribe(topic), 1) == [b"in time"]


def test_a_thousand_topics_or_subscriptions_are_added_at_once_and_no_more(client: Client, topic: str) -> None:
    """6,000 names held everybody up for 0.1 s."""
    txn = client.begin()
    client.add_topic(txn, *[topic] * MOST_AT_ONCE)
    client.add_subscription(txn, topic, *["s"] * MOST_AT_ONCE)
    for add in (
        lambda: client.add_topic(txn, *[topic] * (MOST_AT_ONCE + 1)),
        lambda: client.add_subscription(txn, topic, *["s"] * (MOST_AT_ONCE + 1)),
    ):
        with pytest.raises(Refused) as refused:
            add()
        assert str(MOST_AT_ONCE) in str(refused.value)
    client.end(txn)


def test_a_batch_that_is_refused_is_named_by_its_highest_sequence_id(client: Client, topic: str) -> None:
    """By the lowest one Pulsar's Java client does not know it, and sends it again and again."""
    txn = client.begin()
    client.add_topic(txn, topic)
    client.produce(topic, [b"in time"], txn)
    client.end(txn)
    command = send(client._producer(topic), 7)
    command.send.highest_sequence_id = 9
    command.send.txnid_most_bits, command.send.txnid_least_bits = txn
    client.send(frame(command, entry(b"late", sequence_id=7)))
    answer = client._hear_but_messages()
    assert (answer.type, answer.send_error.error) == (BaseCommand.SEND_ERROR, ServerError.NotAllowedError)
    assert answer.send_error.sequence_id == 9


def test_a_message_whose_command_alone_names_its_transaction_is_of_it_all_the_same(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    consumer = client.subscribe(topic)
    txn = client.begin()
    client.add_topic(txn, topic)
    command = send(client._producer(topic), 9)
    command.send.txnid_most_bits, command.send.txnid_least_bits = txn
    client.send(frame(command, entry(b"as from Go")))
    client._receipt()
    assert client.receive(consumer, SOON_S) is None
    assert values(broker.address, topic, COMMITTED) == []
    client.end(txn)
    assert client.values(consumer, 1) == [b"as from Go"]


@pytest.mark.parametrize("other", [None, 1])
def test_a_message_whose_metadata_name_another_transaction_than_its_command_is_refused(
    client: Client, topic: str, other: int | None
) -> None:
    txn = client.begin()
    client.add_topic(txn, topic)
    client.produce(topic, [b"before"])
    command = send(client._producer(topic), 9)
    if other is not None:
        command.send.txnid_most_bits, command.send.txnid_least_bits = txn[0], txn[1] + other
    client.send(frame(command, entry(b"torn", txnid_most_bits=txn[0], txnid_least_bits=txn[1])))
    answer = client._hear_but_messages()
    assert answer.type == BaseCommand.SEND_ERROR
    assert answer.send_error.error == ServerError.NotAllowedError


# -- acknowledgements


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_aborted_transaction_acknowledged_comes_again_and_what_a_committed_one_did_does_not(
    broker: BrokerProcess, client: Client, topic: str, kind: int
) -> None:
    sent = [b"%d" % number for number in range(20)]
    consumer = client.subscribe(topic, kind=kind)
    client.produce(topic, sent)
    got = {each.value: each.place for each in (client.receive(consumer) for _ in sent) if each is not None}
    first, second = client.begin(), client.begin(1)
    client.add_subscription(first, topic)
    client.add_subscription(second, topic)
    client.acknowledge(consumer, *(got[value] for value in sent[:10]), txn=first)
    client.acknowledge(consumer, *(got[value] for value in sent[10:]), txn=second)
    with pytest.raises(Refused) as refused:
        client.acknowledge(consumer, got[sent[0]], txn=second)
    assert refused.value.error == ServerError.TransactionConflict
    client.end(second)
    client.end(first, commit=False)
    assert sorted(client.values(consumer, 10)) == sorted(sent[:10])
    assert client.receive(consumer, SOON_S) is None
    client.close_consumer(consumer)
    consumer = client.subscribe(topic, kind=kind)
    assert sorted(client.values(consumer, 10)) == sorted(sent[:10])
    assert client.receive(consumer, SOON_S) is None


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_gets_what_an_open_transaction_has_acknowledged(client: Client, topic: str, kind: int) -> None:
    consumer = client.subscribe(topic, kind=kind)
    client.produce(topic, [b"a", b"b", b"c"])
    got = [client.receive(consumer) for _ in range(3)]
    txn = client.begin()
    client.add_subscription(txn, topic)
    assert got[0] is not None
    assert got[2] is not None
    client.acknowledge(consumer, got[0].place, got[2].place, txn=txn)
    client.close_consumer(consumer)
    consumer = client.subscribe(topic, kind=kind)
    assert client.values(consumer, 1) == [b"b"]
    assert client.receive(consumer, SOON_S) is None
    client.end(txn, commit=False)
    wanted = [b"a", b"c"] if kind in KINDS[2:] else [b"a", b"b", b"c"]
    assert sorted(client.values(consumer, len(wanted))) == wanted


def test_all_up_to_a_message_is_acknowledged_by_one_transaction_at_a_time(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic)
    places = client.produce(topic, [b"%d" % number for number in range(10)])
    txn, other = client.begin(), client.begin()
    for each in (txn, other):
        client.add_subscription(each, topic)
    client.acknowledge(consumer, places[3], txn=txn, cumulative=True)
    client.acknowledge(consumer, places[5], txn=txn, cumulative=True)
    for refused_txn, place in ((txn, places[5]), (txn, places[4]), (other, places[7])):
        with pytest.raises(Refused) as refused:
            client.acknowledge(consumer, place, txn=refused_txn, cumulative=True)
        assert refused.value.error == ServerError.TransactionConflict
    client.end(txn)
    client.close_consumer(consumer)
    consumer = client.subscribe(topic)
    assert client.values(consumer, 4) == [b"6", b"7", b"8", b"9"]
    with pytest.raises(Refused) as refused:
        client.acknowledge(consumer, places[2], txn=other, cumulative=True)
    assert refused.value.error == ServerError.TransactionConflict
    client.acknowledge(consumer, places[9], txn=other, cumulative=True)
    client.end(other, commit=False)
    assert client.values(consumer, 4) == [b"6", b"7", b"8", b"9"]


@pytest.mark.parametrize("kind", [CommandSubscribe.Exclusive, CommandSubscribe.Shared])
def test_messages_of_a_batch_are_acknowledged_one_by_one(client: Client, topic: str, kind: int) -> None:
    consumer = client.subscribe(topic, kind=kind)
    place = client.produce_batch(topic, [b"0", b"1", b"2"])
    assert client.values(consumer, 3) == [b"0", b"1", b"2"]
    txn, other = client.begin(), client.begin()
    for each in (txn, other):
        client.add_subscription(each, topic)
    client.acknowledge(consumer, place, txn=txn, ack_set=[0b110])
    with pytest.raises(Refused) as refused:
        client.acknowledge(consumer, place, txn=other, ack_set=[0b110])
    assert refused.value.error == ServerError.TransactionConflict
    client.acknowledge(consumer, place, txn=other, ack_set=[0b101])
    client.close_consumer(consumer)
    consumer = client.subscribe(topic, kind=kind)
    assert client.values(consumer, 1) == [b"2"]
    client.end(txn)
    client.end(other, commit=False)
    assert client.values(consumer, 2) == [b"1", b"2"]
    client.close_consumer(consumer)
    consumer = client.subscribe(topic, kind=kind)
    assert client.values(consumer, 2) == [b"1", b"2"]


def test_acknowledgements_in_what_is_no_open_transaction_are_refused_and_change_nothing(
    client: Client, topic: str
) -> None:
    consumer = client.subscribe(topic)
    (place,) = client.produce(topic, [b"a"])
    assert client.values(consumer, 1) == [b"a"]
    over = client.begin()
    client.add_subscription(over, topic)
    client.end(over)
    for txn, error in (
        ((0, 1 << 40), ServerError.TransactionNotFound),
        (over, ServerError.TransactionNotFound),
        (client.begin(), ServerError.InvalidTxnStatus),
        ((99, 0), ServerError.TransactionCoordinatorNotFound),
    ):
        with pytest.raises(Refused) as refused:
            client.acknowledge(consumer, place, txn=txn)
        assert refused.value.error == error
    client.close_consumer(consumer)
    assert client.values(client.subscribe(topic), 1) == [b"a"]


# -- the coordinator


def test_what_cannot_be_asked_of_a_transaction_is_refused_in_pulsars_words(
    client: Client, topic: str
) -> None:
    assert client.coordinators() == 16
    unknown, nowhere = (2, 1 << 40), (16, 0)
    for ask in (
        lambda txn: client.add_topic(txn, topic),
        lambda txn: client.add_subscription(txn, topic),
        lambda txn: client.end(txn),
    ):
        for txn, error in (
            (unknown, ServerError.TransactionNotFound),
            (nowhere, ServerError.TransactionCoordinatorNotFound),
        ):
            with pytest.raises(Refused) as refused:
                ask(txn)
            assert refused.value.error == error
    with pytest.raises(Refused) as refused:
        client.begin(coordinator=16)
    assert refused.value.error == ServerError.TransactionCoordinatorNotFound
    txn = client.begin()
    client.end(txn)
    for again in (
        lambda: client.end(txn),
        lambda: client.end(txn, commit=False),
        lambda: client.add_topic(txn, topic),
    ):
        with pytest.raises(Refused) as refused:
            again()
        assert refused.value.error == ServerError.TransactionNotFound


def test_a_transaction_whose_time_is_over_is_aborted(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    consumer = client.subscribe(topic)
    client.produce(topic, [b"first"])
    (got,) = [client.receive(consumer)]
    assert got is not None
    txn = client.begin(timeout_ms=700)
    client.add_topic(txn, topic)
    client.add_subscription(txn, topic)
    client.produce(topic, [b"late"], txn)
    client.produce(topic, [b"behind"])
    client.acknowledge(consumer, got.place, txn=txn)
    assert client.values(consumer, 2) == [b"first", b"behind"]
    with pytest.raises(Refused) as refused:
        client.end(txn)
    assert refused.value.error == ServerError.InvalidTxnStatus
    assert values(broker.address, topic, COMMITTED) == [b"first", b"behind"]


@pytest.mark.slow
def test_operators_see_them_and_abort_them(broker: BrokerProcess, client: Client, topic: str) -> None:
    operator = Operator(broker.address)
    consumer = client.subscribe(topic)
    txn = client.begin(2)
    name = f"({txn[0]},{txn[1]})"
    client.add_topic(txn, topic)
    client.produce(topic, [b"open"], txn)
    client.produce(topic, [b"behind"])
    listed = {each["transactional_id"]: each["state"] for each in operator.run("txn", "list", "--json").value}
    assert listed[name] == "Ongoing"
    detail = operator.run("txn", "describe", name, "--json").value
    assert (detail["state"], detail["partitions"], detail["timeout_ms"]) == (
        "Ongoing",
        [f"{topic}-0"],
        600_000,
    )
    time.sleep(1.1)  # shorter ones hold nobody up
    assert name in json.dumps(operator.run("why", f"{topic}-0", "--json").value)
    assert operator.run("txn", "abort", name, "--json").value["partitions"] == [f"{topic}-0"]
    assert client.values(consumer, 1) == [b"behind"]
    with pytest.raises(Refused) as refused:
        client.end(txn)
    assert refused.value.error == ServerError.InvalidTxnStatus
    assert name not in operator.ok("txn", "list")


@pytest.mark.slow
def test_a_broker_that_has_them_switched_off_says_so(tmp_path: Path, topic: str) -> None:
    with BrokerProcess(tmp_path / "data", "--pulsar", "127.0.0.1:0") as process, Client(process) as client:
        with pytest.raises(Refused) as refused:
            client.begin()
        assert refused.value.error == ServerError.NotAllowedError
        with pytest.raises(Refused) as refused:
            client.produce(topic, [b"a"], (0, 1))
        assert refused.value.error == ServerError.NotAllowedError


# -- a broker that is killed


@pytest.mark.slow
def test_what_is_open_and_what_it_has_acknowledged_outlive_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    topic = "killed"
    with BrokerProcess(data, *OPTIONS) as process:
        client = Client(process)
        consumer = client.subscribe(topic)
        shared = client.subscribe(topic, "shared", CommandSubscribe.Shared)
        client.produce(topic, [b"%d" % number for number in range(6)])
        got = [client.receive(consumer) for _ in range(6)]
        places = [each.place for each in got if each is not None]
        assert len(client.values(shared, 6)) == 6
        kept, dropped = client.begin(0), client.begin(5)
        for txn, subscription, of, those in (
            (kept, "s", consumer, places[:2]),
            (dropped, "s", consumer, places[2:4]),
            (kept, "shared", shared, places[4:]),
            (dropped, "shared", shared, places[:1]),
        ):
            client.add_subscription(txn, topic, subscription)
            client.acknowledge(of, *those, txn=txn)
        for txn in (kept, dropped):
            client.add_topic(txn, topic)
            client.produce(topic, [b"in %d" % txn[0]], txn)
        process.kill()
    with BrokerProcess(data, *OPTIONS) as process:
        client = Client(process)
        consumer = client.subscribe(topic)
        shared = client.subscribe(topic, "shared", CommandSubscribe.Shared)
        assert client.values(consumer, 2) == [b"4", b"5"]
        assert client.values(shared, 3) == [b"1", b"2", b"3"]
        assert client.receive(consumer, SOON_S) is None
        assert values(process.address, topic, COMMITTED) == [b"%d" % number for number in range(6)]
        with pytest.raises(Refused) as refused:
            client.acknowledge(consumer, places[0], txn=dropped)
        assert refused.value.error == ServerError.TransactionConflict
        client.end(kept)
        assert client.values(consumer, 1) == [b"in 0"]
        client.end(dropped, commit=False)
        assert client.values(consumer, 5) == [b"2", b"3", b"4", b"5", b"in 0"]
        assert sorted(client.values(shared, 2)) == [b"0", b"in 0"]
        assert ends(process.address, topic, COMMITTED) == ends(process.address, topic, UNCOMMITTED)
        process.kill()
    with BrokerProcess(data, *OPTIONS) as process:  # what was committed is done with, though it was just so
        client = Client(process)
        consumer = client.subscribe(topic)
        shared = client.subscribe(topic, "shared", CommandSubscribe.Shared)
        assert client.values(consumer, 5) == [b"2", b"3", b"4", b"5", b"in 0"]
        assert client.values(shared, 5) == [b"0", b"1", b"2", b"3", b"in 0"]
        assert client.receive(consumer, SOON_S) is None
