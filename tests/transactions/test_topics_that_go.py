"""Topics deleted amid transactions: those end all the same, and what the others wrote counts."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient

from tests.cli.operator import Operator
from tests.process import BrokerProcess
from tests.transactions.clients import COMMITTED, SECONDS, in_transaction, make_topic, producer, values


@pytest.mark.slow
def test_a_topic_deleted_amid_a_transaction_does_not_hold_it_up(broker: BrokerProcess) -> None:
    stays, goes = make_topic(broker.address, "stays"), make_topic(broker.address, "goes")
    made = producer(broker.address, "gone-id")
    made.begin_transaction()
    for topic in (stays, goes):
        made.produce(topic, b"v", partition=0)
    assert made.flush(SECONDS) == 0
    admin = AdminClient({"bootstrap.servers": broker.address})
    for future in admin.delete_topics([goes]).values():
        future.result(SECONDS)
    made.commit_transaction(SECONDS)
    operator, until = Operator(broker.address), time.monotonic() + SECONDS
    while operator.run("txn", "describe", "gone-id", "--json").value["state"] != "CompleteCommit":
        assert time.monotonic() < until
        time.sleep(0.05)
    in_transaction(made, stays, [b"w"])
    assert values(broker.address, stays, COMMITTED) == [b"v", b"w"]
    # Another topic of that name knows nothing of it.
    again = make_topic(broker.address, goes)
    in_transaction(made, again, [b"new"])
    assert values(broker.address, again, COMMITTED) == [b"new"]
