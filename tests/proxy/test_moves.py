"""Bundles move, brokers end and come back, the proxy is killed and starts again: nothing is lost or doubled."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.ownership.load import (
    PARTITIONS,
    Committer,
    KafkaProducer,
    KafkaReader,
    make_topics,
    stored,
    under_way,
)
from tests.ownership.test_moves import until_all_is_read
from tests.proxy.processes import ClusterProcess, ProxyProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_nothing_is_lost_or_doubled_while_everything_moves(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path) as cluster, ProxyProcess(tmp_path, cluster) as proxy:
        make_topics(proxy.kafka, "idempotent", "plain")
        idempotent = KafkaProducer(proxy.kafka, "idempotent", **{"enable.idempotence": True})
        plain = KafkaProducer(proxy.kafka, "plain", **{"max.in.flight": 1, "acks": "all"})
        members = [KafkaReader(proxy.kafka, "idempotent", "members") for _ in range(2)]
        committer = Committer(proxy.kafka, "plain", "ledger")
        with under_way(*members, committer):
            with under_way(idempotent, plain):
                for number in (2, 3):
                    cluster.do("move 10")
                    cluster.do(f"end {number}")
                    time.sleep(1)
                    cluster.do(f"start {number}")
                    proxy.again()
                    time.sleep(1)
            for each in (idempotent, plain):
                each.flush()
                assert not each.failed, each.failed[:3]
                assert len(each.acknowledged) == sum(each.sent) > 1000
            until_all_is_read(members, idempotent.acknowledged)
        assert committer.committed() == committer.kept > 0
        for producer in (idempotent, plain):
            found, epochs = stored(proxy.kafka, producer.topic)
            for partition in range(PARTITIONS):
                numbers = found.by_partition[partition]
                missing = set(producer.acknowledged.by_partition[partition]) - set(numbers)
                assert not missing, f"{producer.topic}-{partition} lost {sorted(missing)[:10]}"
                if producer is idempotent:
                    assert numbers == list(range(producer.sent[partition])), (
                        f"{partition} is not each once, in order"
                    )
            for each in epochs.values():
                assert all(one <= other for one, other in pairwise(e for e in each if e is not None))
        for reader in (*members, committer):
            reader.close()
        assert "Traceback" not in proxy.log.read_text()
        assert "Traceback" not in cluster.log.read_text()
