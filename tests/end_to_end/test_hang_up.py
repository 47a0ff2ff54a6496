"""A client that sends and closes, as a producer with acks=0 may: what arrived whole is still done."""

from __future__ import annotations

import socket

from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.header import RequestHeader, encode_request_header
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.end_to_end.clients import consume_confluent
from tests.process import BrokerProcess

VERSION = 9


def produce_frame(topic: str, number: int) -> bytes:
    records = encode_batch([PlainRecord(None, b"%d" % number, timestamp=1_750_000_000_000)])
    partition = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(acks=0, topic_data=[TopicProduceData(name=topic, partition_data=[partition])])
    header = RequestHeader(ProduceRequest.API_KEY, VERSION, number, "hangs-up")
    content = encode_request_header(header) + request.encode(VERSION)
    return len(content).to_bytes(4, "big") + content


def test_requests_that_arrived_before_the_client_closed_are_carried_out(broker: BrokerProcess) -> None:
    topic = "hang-up"
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    with socket.create_connection(broker.host_and_port, 10) as connection:
        connection.sendall(b"".join(produce_frame(topic, number) for number in range(50)))
    seen = consume_confluent(broker.address, topic, 50, group="hang-up")
    assert [record.value for record in seen] == [b"%d" % number for number in range(50)]
