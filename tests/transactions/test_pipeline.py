"""What the pipeline reads of ledgers that a broker is writing transactions to, at the open tail too."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.pipeline.test_slices import rows
from tests.process import BrokerProcess
from tests.transactions.clients import COMMITTED, SECONDS, in_transaction, make_topic, producer, values

TRANSACTIONS, RECORDS = 30, 40


@pytest.mark.slow
@pytest.mark.parametrize("through_broker", [False, True], ids=["ledgers alone", "the broker says how far"])
def test_slices_hold_what_a_consumer_of_committed_records_gets(tmp_path: Path, through_broker: bool) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker:
        topic = make_topic(broker.address, "t")
        made = producer(broker.address, "id")
        for number in range(TRANSACTIONS):
            batch = [b"%d:%d" % (number, each) for each in range(RECORDS)]
            in_transaction(made, topic, batch, commit=number % 3 != 1)
        made.begin_transaction()
        made.produce(topic, b"open", partition=0)
        assert made.flush(SECONDS) == 0
        in_transaction(producer(broker.address, "other"), topic, [b"behind what is open"])
        given = {"kafka.bootstrap.servers": broker.address} if through_broker else {}
        found = [row[2] for row in rows(data, isolation=COMMITTED, **given)]
        wanted = values(broker.address, topic, COMMITTED)
        assert len(wanted) == TRANSACTIONS * 2 // 3 * RECORDS
        assert found == wanted
        assert b"open" in [row[2] for row in rows(data, **given)]
        made.commit_transaction(SECONDS)
        end = time.monotonic() + SECONDS
        while found[-2:] != [b"open", b"behind what is open"]:  # decided by now; its marker may be on its way
            assert time.monotonic() < end, found[-2:]
            found = [row[2] for row in rows(data, isolation=COMMITTED, **given)]
