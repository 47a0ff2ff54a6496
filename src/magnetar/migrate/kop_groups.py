"""What KoP keeps of groups and transactions, read as KoP reads it, and as the coordinators here keep it.

KoP's ``__consumer_offsets`` has Kafka's facts, but not as Kafka has them. A group's partition is the hash of its id
modulo their number, where Kafka takes the hash's absolute value: that is another one for many groups. Each commit is a
message of Pulsar's, whose payload is a record batch with the facts; the message's key says nothing, it is one for all
commits of a group. Topics are named in full. A message without key is a placeholder. Of a transaction's commits those
count that a batch with the marker of its commit follows; KoP writes markers as it writes what Kafka's producers send,
in its entry format.
``__transaction_state`` has a fact for each message: the key is Kafka's, and the payload is the value.
"""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.base.errors import InvalidTopic
from magnetar.coordination.decision import Fact
from magnetar.kafka.coordinators.facts import (
    NO_TIMESTAMP,
    Committed,
    GroupFact,
    OffsetFact,
    group_fact,
    offset_fact,
)
from magnetar.kafka.coordinators.facts import read_fact as read_group_fact
from magnetar.kafka.transactions.facts import read_fact as read_transaction_fact
from magnetar.kafka.transactions.metadata import IDLE, State
from magnetar.migrate.pulsar_messages import KeyedMessage
from magnetar.records.batch import PlainRecord, batches, check_crc, each_record
from magnetar.records.control import read_marker
from magnetar.records.errors import InvalidRecord
from magnetar.topics.names import Naming
from magnetar.wire.kafka.malformed import WireError

_NAMING = Naming()
_ENDED = IDLE | {State.DEAD}
_Place = tuple[str, str, int]


class KopGroups:
    """Follows the messages of one partition of KoP's ``__consumer_offsets``."""

    def __init__(self) -> None:
        self.offsets: dict[_Place, Committed] = {}
        """What is committed, by group, topic as it is named here, and partition."""
        self._groups: dict[str, GroupFact] = {}
        self._pending: dict[int, dict[_Place, Committed | None]] = {}
        """What transactions that have not ended would commit, by their producer's id."""

    def apply(self, message: KeyedMessage) -> None:
        """Take one message; raise ``RecordsError`` for one that cannot be read."""
        if (message.key is None and not message.is_kafka) or not message.payload:
            return
        for header, batch in batches(memoryview(message.payload)):
            check_crc(batch, header)
            if header.is_control:
                marker = read_marker(batch)
                pending = self._pending.pop(header.producer_id, {})
                if marker is not None and marker.committed:
                    for place, committed in pending.items():
                        self._commit(place, committed)
                continue
            for record in each_record(batch):
                self._take(record, header.producer_id if header.is_transactional else None)

    def _take(self, record: PlainRecord, producer_id: int | None) -> None:
        if record.key is None:
            return
        try:
            fact = read_group_fact(record.key, record.value)
        except WireError as error:
            raise InvalidRecord(f"a fact of KoP's that cannot be read: {error}") from None
        if isinstance(fact, GroupFact):
            self._groups[fact.group_id] = fact
            if fact.value is None:
                del self._groups[fact.group_id]
        elif isinstance(fact, OffsetFact) and (topic := kafka_name(fact.topic)) is not None:
            place = fact.group_id, topic, fact.partition
            if producer_id is None:
                self._commit(place, fact.committed)
            else:
                self._pending.setdefault(producer_id, {})[place] = fact.committed

    def _commit(self, place: _Place, committed: Committed | None) -> None:
        if committed is None:
            self.offsets.pop(place, None)
        else:
            self.offsets[place] = committed

    def group_ids(self) -> set[str]:
        """Return the groups that something is known of."""
        return {*self._groups, *(group for group, _, _ in self.offsets)}

    def facts(self) -> Iterator[tuple[str, Fact]]:
        """Yield, by the group's id, what coordinators here keep: groups without members, who join anew, and offsets.

        KoP gives each offset a time to expire; here it does as the broker's settings have it.
        """
        for group_id, fact in sorted(self._groups.items()):
            value = fact.value
            assert value is not None
            value.members, value.leader, value.protocol = [], None, None
            yield group_id, group_fact(group_id, value)
        for (group_id, topic, partition), committed in sorted(self.offsets.items()):
            kept = committed._replace(expire_timestamp=NO_TIMESTAMP, leader_epoch=-1)
            yield group_id, offset_fact(group_id, topic, partition, kept)


class KopTransactions:
    """Follows the messages of one partition of KoP's ``__transaction_state``."""

    def __init__(self) -> None:
        self._open: dict[str, State] = {}

    def apply(self, message: KeyedMessage) -> None:
        """Take one message; raise ``RecordsError`` for one that cannot be read."""
        if message.key is None:
            return
        try:
            fact = read_transaction_fact(message.key, message.payload or None)
        except WireError as error:
            raise InvalidRecord(f"a transaction of KoP's that cannot be read: {error}") from None
        if fact is None:
            return
        transactional_id, metadata = fact
        self._open.pop(transactional_id, None)
        if metadata is not None and metadata.state not in _ENDED:
            self._open[transactional_id] = metadata.state

    def open_ids(self) -> list[str]:
        """Return the transactional ids of transactions that have begun and not ended."""
        return sorted(self._open)


def kafka_name(topic: str) -> str | None:
    """Return what a topic that KoP names in full is called here; None for what is no topic's name."""
    try:
        return _NAMING.kafka_name(_NAMING.parse(topic))
    except InvalidTopic:
        return None
