"""Batches of more messages than anybody means are refused when they are sent; what they would cost, readers pay."""

from __future__ import annotations

from magnetar.records.pulsar_metadata import MAX_MESSAGES, encode_metadata
from magnetar.records.pulsar_plain import framed_message
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, ServerError
from tests.formats.test_bombs import packed
from tests.process import BrokerProcess
from tests.pulsar import raw
from tests.pulsar.raw import Raw


def test_a_producer_of_such_a_batch_is_refused(pulsar_broker: BrokerProcess, topic: str) -> None:
    metadata, payload = packed(MAX_MESSAGES + 1)
    entry = bytes(framed_message(encode_metadata(metadata), payload, 1).framed)
    assert len(entry) < 3000
    with Raw(pulsar_broker) as client:
        client.ask(raw.producer(topic))
        command = raw.send()
        command.send.num_messages = MAX_MESSAGES + 1
        answer = client.ask(command, entry)
        assert answer.type == BaseCommand.SEND_ERROR
        assert answer.send_error.error == ServerError.NotAllowedError
        assert "1048576 may be" in answer.send_error.message
        answer = client.ask(raw.send(sequence_id=1), raw.entry())
        assert answer.type == BaseCommand.SEND_RECEIPT
        assert answer.send_receipt.message_id.entryId == 0
