"""A client that has connected: what it publishes is appended, what it subscribes to is sent.

Packets are dealt with one after the other, so that messages are stored in the order in which they came. Those that came
together for one topic are one batch, and their acknowledgements follow when it is durable; the next packets do not wait
for that. A session ends with its connection (its expiry is 0 seconds, which the client is told).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from zlib import crc32

import mqtt5

from magnetar.auth import Access, Right, may
from magnetar.base.errors import BrokerError
from magnetar.kafka.partitions.partition import Partition, RecordsRejected
from magnetar.kafka.services import KafkaServices
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.port import wall_clock_ms
from magnetar.node.broker import Broker
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.records.errors import RecordsError
from magnetar.topics.topic import Topic
from magnetar_mqtt.delivery import Delivery
from magnetar_mqtt.names import NoTopic, check_filter, matches, to_magnetar, to_mqtt
from magnetar_mqtt.packets import Refused, to_publish, to_record

_Publishes = Sequence[mqtt5.PublishPacket]
_Disconnect = mqtt5.DisconnectReasonCode
_SubAck, _PubAck, _UnsubAck = mqtt5.SubAckReasonCode, mqtt5.PubAckReasonCode, mqtt5.UnsubAckReasonCode
_MAX_PACKET_ID = 65535
_RECORD_BYTES = 256  # more than a record has beside payload and properties of the user's
_FAILURES = (NoTopic, PermissionError, BrokerError, LedgerError, RecordsError)


class Session:
    """One client's publications and subscriptions. ``send`` writes to it, and ``end`` lets it go with a reason."""

    def __init__(
        self,
        broker: Broker,
        connect: mqtt5.ConnectPacket,
        client_id: str,
        access: Access | None,
        send: Callable[[bytes], None],
        end: Callable[[Refused], None],
        settled: Callable[[], None],
    ) -> None:
        """``settled`` is called when some of what it published was stored, or was not."""
        self._broker = broker
        self._partitions = broker.offers.get(KafkaServices).partitions
        self._connect = connect
        self._client_id = client_id
        self._access = access
        self._send = send
        self._end = end
        self._filters: dict[str, bool] = {}
        """Whether what each asks for is sent with QoS 1; more is not served."""
        self._deliveries: dict[str, list[Delivery]] = {}
        self._unacknowledged: set[int] = set()
        self._last_id = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._takes = asyncio.Event()
        self._takes.set()
        self.pending: set[asyncio.Future[None]] = set()
        """What tells that batches of its publications are durable, while they are not."""
        self.waiting = 0
        """Messages in them."""
        self._settled_some = settled
        broker.events.topic_created.append(self._created)

    async def take(self, packets: Sequence[mqtt5.Packet]) -> None:
        """Deal with packets that came together, in their order; raise `Refused`."""
        for is_publish, run in groupby(packets, lambda each: isinstance(each, mqtt5.PublishPacket)):
            if is_publish:
                await self._publish(list(run))  # type: ignore[arg-type]
                continue
            for packet in run:
                await self._command(packet)

    async def _command(self, packet: mqtt5.Packet) -> None:
        if isinstance(packet, mqtt5.PubAckPacket):
            self._unacknowledged.discard(packet.packet_id)
            self._has_room.set()
        elif isinstance(packet, mqtt5.SubscribePacket):
            codes = [await self._subscribe(each, packet.subscription_id) for each in packet.topic_filters]
            self._send(mqtt5.SubAckPacket(packet.packet_id, codes).write())
            self._arrange()
        elif isinstance(packet, mqtt5.UnsubscribePacket):
            known = [self._filters.pop(each, None) is not None for each in packet.patterns]
            self._arrange()
            codes_ = [_UnsubAck.SUCCESS if each else _UnsubAck.NO_SUBSCRIPTION_EXISTED for each in known]
            self._send(mqtt5.UnsubAckPacket(packet.packet_id, codes_).write())
        elif isinstance(packet, mqtt5.PingReqPacket):
            self._send(mqtt5.PingRespPacket().write())
        else:
            raise Refused(_Disconnect.PROTOCOL_ERROR, f"{type(packet).__name__} is not for a server now")

    # Publishing.

    async def _publish(self, packets: _Publishes) -> None:
        for each in packets:
            if each.qos == mqtt5.QoS.EXACTLY_ONCE:
                raise Refused(_Disconnect.QOS_NOT_SUPPORTED, "messages are taken with QoS 0 and 1")
            if each.retain:
                raise Refused(_Disconnect.RETAIN_NOT_SUPPORTED, "messages are not retained: topics keep all")
            if each.topic_alias is not None:
                raise Refused(_Disconnect.TOPIC_ALIAS_INVALID, "topics have no aliases here")
        for topic, run in groupby(packets, lambda each: each.topic):
            together = list(run)
            try:
                partition = await self._partition_of(topic)
            except _FAILURES as error:
                self._not_stored(together, error)
                continue
            for few in _in_batches(together, partition.topic.config.max_message_bytes):
                try:
                    await self._append(partition, few)
                except _FAILURES as error:
                    self._not_stored(few, error)

    async def _append(self, partition: Partition, packets: _Publishes) -> None:
        """Place messages as one batch; raise why that cannot be."""
        now_ms = wall_clock_ms()
        draft = partition.check(memoryview(encode_batch([to_record(each, now_ms) for each in packets])))
        if not isinstance(draft, tuple):
            draft = await draft  # it takes a closer look
        done = partition.produce(draft).done
        if done is None:
            self._acknowledge(packets)
        else:
            self.pending.add(done)
            self.waiting += len(packets)
            done.add_done_callback(lambda done: self._settled(done, packets))

    async def _partition_of(self, name: str) -> Partition:
        local = to_magnetar(name)
        parsed = self._broker.naming.parse(local)
        if not may(self._access, Right.produce, parsed):
            raise PermissionError(f"not allowed to produce to {name}")
        topic = self._broker.get(local) or await self._broker.auto_create(local)
        if topic is None or topic.internal:
            raise BrokerError(f"topic {name} does not exist")
        # One client's messages stay in their order.
        index = crc32(self._client_id.encode()) % topic.partitions
        return await self._partitions.get(topic, index)

    def _settled(self, done: asyncio.Future[None], packets: _Publishes) -> None:
        self.pending.discard(done)
        self.waiting -= len(packets)
        self._settled_some()
        error = done.exception()
        if error is None:
            self._acknowledge(packets)
        else:
            self._not_stored(packets, error)

    def _acknowledge(self, packets: _Publishes) -> None:
        ids = [each.packet_id for each in packets if each.packet_id is not None]
        if ids:
            self._send(b"".join(mqtt5.PubAckPacket(each).write() for each in ids))

    def _not_stored(self, packets: _Publishes, error: BaseException) -> None:
        """Tell the client; where QoS 0 leaves no way to, by hanging up: nothing is lost in silence."""
        code, disconnect = _PubAck.IMPLEMENTATION_SPECIFIC_ERROR, _Disconnect.IMPLEMENTATION_SPECIFIC_ERROR
        if isinstance(error, PermissionError):
            code, disconnect = _PubAck.NOT_AUTHORIZED, _Disconnect.NOT_AUTHORIZED
        elif isinstance(error, NoTopic):
            code, disconnect = _PubAck.TOPIC_NAME_INVALID, _Disconnect.TOPIC_NAME_INVALID
        elif isinstance(error, RecordsRejected):
            code, disconnect = _PubAck.PAYLOAD_FORMAT_INVALID, _Disconnect.PAYLOAD_FORMAT_INVALID
        for each in packets:
            if each.packet_id is None:
                self._end(Refused(disconnect, str(error)))
                return
            told = str(error) if self._connect.request_problem_info else None
            self._send(mqtt5.PubAckPacket(each.packet_id, reason_code=code, reason_str=told).write())

    # Subscribing.

    async def _subscribe(
        self, wanted: mqtt5.TopicFilter, subscription_id: int | None
    ) -> mqtt5.SubAckReasonCode:
        if subscription_id is not None:
            return _SubAck.SUBSCRIPTION_IDS_NOT_SUPPORTED
        if wanted.pattern.startswith("$share/"):
            return _SubAck.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        if wanted.no_local:
            return _SubAck.IMPLEMENTATION_SPECIFIC_ERROR  # whose a message was is not kept
        try:
            check_filter(wanted.pattern)
        except NoTopic:
            return _SubAck.TOPIC_FILTER_INVALID
        if not any(each in wanted.pattern for each in "+#"):
            local = to_magnetar(wanted.pattern)
            if not may(self._access, Right.consume, self._broker.naming.parse(local)):
                return _SubAck.NOT_AUTHORIZED
        acknowledged = wanted.max_qos != mqtt5.QoS.AT_MOST_ONCE
        self._filters[wanted.pattern] = acknowledged
        for topic in self._broker.topics():
            if self._wants(topic) and topic.kafka_name not in self._deliveries:
                await self._follow(topic, from_end=True)
        return _SubAck.GRANTED_QOS_AT_LEAST_ONCE if acknowledged else _SubAck.GRANTED_QOS_AT_MOST_ONCE

    def _wants(self, topic: Topic) -> bool:
        name = topic.kafka_name
        if topic.internal or "/" in name or not may(self._access, Right.consume, topic.name):
            return False
        return any(matches(pattern, to_mqtt(name)) for pattern in self._filters)

    async def _follow(self, topic: Topic, *, from_end: bool) -> None:
        """Have a topic's messages sent: from now on, or from its first one."""
        deliveries = self._deliveries[topic.kafka_name] = []
        for index in range(topic.partitions):
            offset = (await self._partitions.get(topic, index)).log.log_end_offset if from_end else 0
            deliveries.append(Delivery(self._partitions, topic, index, offset, self))

    def _created(self, topic: Topic) -> None:
        if self._wants(topic):
            self._deliveries[topic.kafka_name] = [
                Delivery(self._partitions, topic, index, 0, self) for index in range(topic.partitions)
            ]
            self._arrange()

    def _arrange(self) -> None:
        """Begin deliveries that are new, end those that no filter asks for, and have each its QoS."""
        for name, deliveries in list(self._deliveries.items()):
            granted = [acked for pattern, acked in self._filters.items() if matches(pattern, to_mqtt(name))]
            if not granted:
                del self._deliveries[name]
            for each in deliveries:
                each.acknowledged = any(granted)
                if not granted:
                    each.end()
                elif not each.is_started:
                    each.start(lambda why: self._end(Refused(_Disconnect.UNSPECIFIED_ERROR, why)))

    # As a receiver of deliveries.

    async def room(self, *, acknowledged: bool) -> None:
        """Wait until the client takes more, and has acknowledged enough of what it must."""
        while True:
            await self._takes.wait()
            if not acknowledged or len(self._unacknowledged) < self._connect.receive_max:
                return
            self._has_room.clear()
            await self._has_room.wait()

    def deliver(self, topic: Topic, record: PlainRecord, *, acknowledged: bool) -> None:
        """Send one message, unless it is larger than the client takes: MQTT has it left out then."""
        packet_id = self._next_id() if acknowledged else None
        packet = to_publish(to_mqtt(topic.kafka_name), record, packet_id)
        most = self._connect.max_packet_size
        if most is None or len(packet) <= most:
            self._send(packet)
            if packet_id is not None:
                self._unacknowledged.add(packet_id)

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % _MAX_PACKET_ID + 1
            if self._last_id not in self._unacknowledged:
                return self._last_id

    def takes(self, yes: bool) -> None:
        """Say whether the client takes what it is sent."""
        if yes:
            self._takes.set()
        else:
            self._takes.clear()

    async def close(self, *, with_will: bool) -> None:
        """End all deliveries; publish the client's last will where it did not take its leave."""
        self._broker.events.topic_created.remove(self._created)
        self._filters.clear()
        self._arrange()
        will = self._connect.will
        if with_will and will is not None:
            packet = mqtt5.PublishPacket(
                will.topic,
                will.payload or b"",
                content_type=will.content_type,
                response_topic=will.response_topic,
                correlation_data=will.correlation_data,
                user_properties=will.user_properties,
            )
            await self._publish([packet])


def _in_batches(packets: _Publishes, most_bytes: int) -> Iterator[_Publishes]:
    """Cut messages into batches that a topic takes; one that is too large by itself is a batch, and is refused."""
    start, size = 0, 0
    for number, each in enumerate(packets):
        properties = sum(len(key) + len(text) for key, text in each.user_properties)
        takes = len(each.payload) + 4 * properties + _RECORD_BYTES
        if size and size + takes > most_bytes:
            yield packets[start:number]
            start, size = number, 0
        size += takes
    yield packets[start:]
