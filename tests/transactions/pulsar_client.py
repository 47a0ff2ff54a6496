"""A client of Pulsar's transactions, as its stock clients in Java and Go talk to a broker; there is none for Python."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import count
from typing import Any

from magnetar.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandSubscribe,
    MessageMetadata,
    ServerError,
    SingleMessageMetadata,
    TxnAction,
)
from tests.process import BrokerProcess
from tests.pulsar.raw import Raw, ack, entry, flow, frame, producer, send, subscribe

Txn = tuple[int, int]
Place = tuple[int, int]
ASSIGN = "persistent://pulsar/system/transaction_coordinator_assign"
PERMITS = 1000


class Refused(Exception):
    """What the broker answered instead; ``error`` is Pulsar's number."""

    def __init__(self, error: int, message: str) -> None:
        super().__init__(f"{ServerError.Name(error)}: {message}")
        self.error = error


class Message:
    """One message that a consumer got."""

    def __init__(self, place: Place, value: bytes, redeliveries: int, index: int = -1) -> None:
        self.place, self.value, self.redeliveries, self.index = place, value, redeliveries, index


class Client(Raw):
    """One connection that waits for the answer to each thing it asks."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker)
        self._ids = count(100)
        self._sequence = count()
        self._producers: dict[str, int] = {}
        self._messages: dict[int, deque[Message]] = {}
        self._unanswered: dict[int, int] = {}

    # -- transactions

    def coordinators(self) -> int:
        asked = BaseCommand(type=BaseCommand.PARTITIONED_METADATA)
        asked.partitionMetadata.topic = ASSIGN
        asked.partitionMetadata.request_id = next(self._ids)
        return self.answered(asked).partitionMetadataResponse.partitions

    def begin(self, coordinator: int = 0, timeout_ms: int = 600_000) -> Txn:
        asked = BaseCommand(type=BaseCommand.NEW_TXN)
        asked.newTxn.request_id = next(self._ids)
        asked.newTxn.txn_ttl_millis, asked.newTxn.tc_id = timeout_ms, coordinator
        said = self.answered(asked).newTxnResponse
        assert said.txnid_most_bits == coordinator, "Pulsar's client in Java finds by it who asked"
        _check(said)
        return said.txnid_most_bits, said.txnid_least_bits

    def add_topic(self, txn: Txn, *topics: str) -> None:
        asked = BaseCommand(type=BaseCommand.ADD_PARTITION_TO_TXN)
        asked.addPartitionToTxn.request_id = next(self._ids)
        asked.addPartitionToTxn.txnid_most_bits, asked.addPartitionToTxn.txnid_least_bits = txn
        asked.addPartitionToTxn.partitions.extend(topics)
        _check_of(txn, self.answered(asked).addPartitionToTxnResponse)

    def add_subscription(self, txn: Txn, topic: str, *subscriptions: str) -> None:
        """Add those, or one, to a transaction."""
        asked = BaseCommand(type=BaseCommand.ADD_SUBSCRIPTION_TO_TXN)
        asked.addSubscriptionToTxn.request_id = next(self._ids)
        asked.addSubscriptionToTxn.txnid_most_bits, asked.addSubscriptionToTxn.txnid_least_bits = txn
        for each in subscriptions or ("s",):
            asked.addSubscriptionToTxn.subscription.add(topic=topic, subscription=each)
        _check_of(txn, self.answered(asked).addSubscriptionToTxnResponse)

    def end(self, txn: Txn, *, commit: bool = True) -> None:
        asked = BaseCommand(type=BaseCommand.END_TXN)
        asked.endTxn.request_id = next(self._ids)
        asked.endTxn.txnid_most_bits, asked.endTxn.txnid_least_bits = txn
        asked.endTxn.txn_action = TxnAction.COMMIT if commit else TxnAction.ABORT
        _check_of(txn, self.answered(asked).endTxnResponse)

    # -- messages

    def produce(
        self, topic: str, values: Iterable[bytes], txn: Txn | None = None, *, as_go: bool = False
    ) -> list[Place]:
        """Send messages one by one, all before the first receipt; give where they lie.

        With ``as_go`` only the commands name the transaction, as Pulsar's client in Go has it.
        """
        sent = 0
        for value in values:
            self.send(self._frame(topic, entry(value, **self._metadata(None if as_go else txn)), txn))
            sent += 1
        return [self._receipt() for _ in range(sent)]

    def produce_batch(self, topic: str, values: Iterable[bytes], txn: Txn | None = None) -> Place:
        """Send one batch."""
        body, number = b"", 0
        for value in values:
            number += 1
            head = SingleMessageMetadata(payload_size=len(value)).SerializeToString()
            body += len(head).to_bytes(4, "big") + head + value
        batch = entry(body, num_messages_in_batch=number, **self._metadata(txn))
        self.send(self._frame(topic, batch, txn, number))
        return self._receipt()

    def _metadata(self, txn: Txn | None) -> dict[str, object]:
        said: dict[str, object] = {"sequence_id": next(self._sequence), "producer_name": f"p{id(self)}"}
        if txn is not None:
            said |= {"txnid_most_bits": txn[0], "txnid_least_bits": txn[1]}
        return said

    def _frame(self, topic: str, data: bytes, txn: Txn | None, messages: int = 1) -> bytes:
        command = send(self._producer(topic))
        command.send.num_messages = messages
        if txn is not None:
            command.send.txnid_most_bits, command.send.txnid_least_bits = txn
        return frame(command, data)

    def _producer(self, topic: str) -> int:
        if topic not in self._producers:
            producer_id = next(self._ids)
            said = self.answered(producer(topic, producer_id, next(self._ids)))
            if said.type == BaseCommand.ERROR:
                raise Refused(said.error.error, said.error.message)
            self._producers[topic] = producer_id
        return self._producers[topic]

    def _receipt(self) -> Place:
        said = self._hear_but_messages()
        if said.type == BaseCommand.SEND_ERROR:
            raise Refused(said.send_error.error, said.send_error.message)
        assert said.type == BaseCommand.SEND_RECEIPT, said
        return said.send_receipt.message_id.ledgerId, said.send_receipt.message_id.entryId

    # -- consuming

    def subscribe(
        self, topic: str, name: str = "s", kind: int = CommandSubscribe.Exclusive, *, earliest: bool = True
    ) -> int:
        """Return the consumer's id; it has room for `PERMITS` messages."""
        consumer_id = next(self._ids)
        start = CommandSubscribe.Earliest if earliest else CommandSubscribe.Latest
        said = self.answered(subscribe(topic, name, consumer_id, subType=kind, initialPosition=start))
        if said.type == BaseCommand.ERROR:
            raise Refused(said.error.error, said.error.message)
        self._messages[consumer_id] = deque()
        self._unanswered[consumer_id] = 0
        self.send(frame(flow(PERMITS, consumer_id)))
        return consumer_id

    def receive(self, consumer_id: int, seconds: float = 60) -> Message | None:
        """Return the next message, None if none comes in time."""
        self.patience(seconds)
        try:
            while not self._messages[consumer_id]:
                self._take_in(*self.hear())
        except TimeoutError:
            return None
        finally:
            self.patience(60)
        self._unanswered[consumer_id] += 1
        if self._unanswered[consumer_id] >= PERMITS // 2:
            self.send(frame(flow(self._unanswered[consumer_id], consumer_id)))
            self._unanswered[consumer_id] = 0
        return self._messages[consumer_id].popleft()

    def values(self, consumer_id: int, number: int) -> list[bytes]:
        """Return the values of the next messages."""
        found = [self.receive(consumer_id) for _ in range(number)]
        return [b"" if each is None else each.value for each in found]

    def acknowledge(
        self,
        consumer_id: int,
        *places: Place,
        txn: Txn | None = None,
        cumulative: bool = False,
        ack_set: Iterable[int] = (),
    ) -> None:
        kind = CommandAck.Cumulative if cumulative else CommandAck.Individual
        command = ack(*places[0], consumer_id, ack_type=kind)
        command.ack.request_id = next(self._ids)
        for place in places[1:]:
            command.ack.message_id.add(ledgerId=place[0], entryId=place[1])
        command.ack.message_id[0].ack_set.extend(ack_set)
        if txn is not None:
            command.ack.txnid_most_bits, command.ack.txnid_least_bits = txn
        said = self.answered(command).ackResponse
        _check(said)

    def close_consumer(self, consumer_id: int) -> None:
        command = BaseCommand(type=BaseCommand.CLOSE_CONSUMER)
        command.close_consumer.consumer_id, command.close_consumer.request_id = consumer_id, next(self._ids)
        self.answered(command)

    # -- the wire

    def answered(self, command: BaseCommand) -> BaseCommand:
        """Ask, and return the answer; messages that come meanwhile are kept."""
        self.send(frame(command))
        return self._hear_but_messages()

    def _hear_but_messages(self) -> BaseCommand:
        while True:
            said, data = self.hear()
            if not self._take_in(said, data):
                return said

    def _take_in(self, said: BaseCommand, data: bytes) -> bool:
        if said.type == BaseCommand.PING:
            command = BaseCommand(type=BaseCommand.PONG)
            command.pong.SetInParent()
            self.send(frame(command))
            return True
        if said.type == BaseCommand.ACTIVE_CONSUMER_CHANGE:
            return True
        if said.type != BaseCommand.MESSAGE:
            return False
        place = said.message.message_id.ledgerId, said.message.message_id.entryId
        waiting = self._messages[said.message.consumer_id]
        left = list(said.message.ack_set)
        values, batched = _values(data)
        for index, value in values:
            # As stock clients have it: of a message that comes alone nothing can be left out.
            if not left or not batched or left[index // 64] >> index % 64 & 1:
                waiting.append(Message(place, value, said.message.redelivery_count, index))
        return True


def _values(data: bytes) -> tuple[list[tuple[int, bytes]], bool]:
    """Return the messages of an entry by their indexes, and whether they are a batch."""
    at = 10 + int.from_bytes(data[6:10], "big")
    metadata = MessageMetadata.FromString(data[10:at])
    if not metadata.HasField("num_messages_in_batch"):
        return [(0, data[at:])], False
    found = []
    for number in range(metadata.num_messages_in_batch):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        single = SingleMessageMetadata.FromString(data[at + 4 : end])
        at = end + single.payload_size
        found.append((number, data[end:at]))
    return found, True


def _check_of(txn: Txn, said: Any) -> None:
    assert (said.txnid_most_bits, said.txnid_least_bits) == txn
    _check(said)


def _check(said: object) -> None:
    if said.HasField("error"):  # type: ignore[attr-defined]
        raise Refused(said.error, said.message)  # type: ignore[attr-defined]
