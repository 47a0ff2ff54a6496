"""What one stock client writes, every other reads, byte for byte and in order."""

from __future__ import annotations

import pytest

from tests.end_to_end.clients import CONSUMERS, PRODUCERS, Seen, consume_confluent, produce_confluent
from tests.process import BrokerProcess

RECORDS = [
    Seen(b"key", b"value", (("h", b"1"), ("h", b"2"), ("binary", b"\x00\xff"))),
    Seen(None, b"no key"),
    Seen(b"no value", None),
    Seen(b"", b""),
    *[Seen(b"%d" % n, b"x" * n) for n in range(500)],
]


@pytest.mark.parametrize("writer", PRODUCERS)
def test_every_client_reads_what_any_client_wrote(broker: BrokerProcess, writer: str) -> None:
    topic = f"by-{writer}"
    PRODUCERS[writer](broker.address, topic, RECORDS)
    for reader, consume in CONSUMERS.items():
        assert consume(broker.address, topic, len(RECORDS)) == RECORDS, reader


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_back(broker: BrokerProcess, codec: str) -> None:
    topic = f"codec-{codec}"
    settings = {"compression.type": codec, "linger.ms": 50, "enable.idempotence": True}
    produce_confluent(broker.address, topic, RECORDS, **settings)
    for reader in ("confluent-kafka", "aiokafka"):  # kafka-python would need more packages for this
        assert CONSUMERS[reader](broker.address, topic, len(RECORDS)) == RECORDS, reader


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(broker: BrokerProcess, acks: str) -> None:
    produce_confluent(broker.address, f"acks-{acks}", RECORDS, acks=acks)
    assert consume_confluent(broker.address, f"acks-{acks}", len(RECORDS)) == RECORDS


def test_a_group_goes_on_where_it_committed(broker: BrokerProcess) -> None:
    produce_confluent(broker.address, "go-on", RECORDS[:10])
    assert consume_confluent(broker.address, "go-on", 10, group="patient") == RECORDS[:10]
    produce_confluent(broker.address, "go-on", RECORDS[10:20])
    assert consume_confluent(broker.address, "go-on", 10, group="patient") == RECORDS[10:20]
