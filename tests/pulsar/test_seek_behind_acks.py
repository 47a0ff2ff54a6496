"""A SEEK that comes right behind very many acknowledgements wins: all that it asks for is delivered again."""

from __future__ import annotations

import pulsar

from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.process import BrokerProcess
from tests.pulsar import raw
from tests.pulsar.raw import Raw

_MESSAGES = 2000
_EARLIEST = (1 << 64) - 1  # -1 as Pulsar writes it


def test_what_is_still_being_acknowledged_does_not_count_behind_a_seek(
    pulsar_broker: BrokerProcess, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    ids: list[pulsar.MessageId] = []
    for _ in range(_MESSAGES):
        producer.send_async(b"x", lambda _, message_id: ids.append(message_id))
    producer.flush()
    assert len(ids) == _MESSAGES
    everything = BaseCommand(type=BaseCommand.ACK)
    everything.ack.consumer_id, everything.ack.ack_type, everything.ack.request_id = 1, 0, 9
    for _ in range(10):  # the same ones again and again: that takes a while, and the loop has its turns
        for each in ids[1:]:
            everything.ack.message_id.add(ledgerId=each.ledger_id(), entryId=each.entry_id())
    everything.ack.message_id.add(ledgerId=ids[0].ledger_id(), entryId=ids[0].entry_id())
    seek = BaseCommand(type=BaseCommand.SEEK)
    seek.seek.consumer_id, seek.seek.request_id = 1, 53
    seek.seek.message_id.ledgerId = seek.seek.message_id.entryId = _EARLIEST
    with Raw(pulsar_broker) as consumer:
        assert consumer.ask(raw.subscribe(topic, "s", initialPosition=1)).type == BaseCommand.SUCCESS
        consumer.send(raw.frame(everything) + raw.frame(seek))
        heard = {consumer.hear()[0].type for _ in range(3)}
        assert heard == {BaseCommand.CLOSE_CONSUMER, BaseCommand.SUCCESS, BaseCommand.ACK_RESPONSE}
        assert consumer.ask(raw.subscribe(topic, "s")).type == BaseCommand.SUCCESS
        consumer.send(raw.frame(raw.flow(_MESSAGES)))
        delivered = set[int]()
        while len(delivered) < _MESSAGES:  # or the patience ends
            command, _ = consumer.hear()
            if command.type == BaseCommand.MESSAGE:
                delivered.add(command.message.message_id.entryId)
    assert delivered == {each.entry_id() for each in ids}
