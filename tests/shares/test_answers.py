"""What requests of share groups are answered, and how they are refused: as Apache Kafka 4.4.0 answers the same."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer

from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import (
    alter_share_group_offsets_request as altering,
)
from magnetar.wire.kafka.messages import (
    create_topics_request as creating,
)
from magnetar.wire.kafka.messages import (
    delete_groups_request as deleting_groups,
)
from magnetar.wire.kafka.messages import (
    delete_share_group_offsets_request as deleting_offsets,
)
from magnetar.wire.kafka.messages import (
    delete_share_group_state_request as deleting_state,
)
from magnetar.wire.kafka.messages import (
    describe_share_group_offsets_request as describing,
)
from magnetar.wire.kafka.messages import (
    incremental_alter_configs_request as configuring,
)
from magnetar.wire.kafka.messages import (
    initialize_share_group_state_request as initializing,
)
from magnetar.wire.kafka.messages import (
    list_groups_request as listing,
)
from magnetar.wire.kafka.messages import (
    produce_request as producing,
)
from magnetar.wire.kafka.messages import (
    read_share_group_state_request as reading,
)
from magnetar.wire.kafka.messages import (
    read_share_group_state_summary_request as summing,
)
from magnetar.wire.kafka.messages import (
    share_acknowledge_request as acknowledging,
)
from magnetar.wire.kafka.messages import (
    share_fetch_request as fetching,
)
from magnetar.wire.kafka.messages import (
    share_group_describe_request as describing_groups,
)
from magnetar.wire.kafka.messages import (
    write_share_group_state_request as writing,
)
from magnetar.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from magnetar.wire.kafka.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.hostile.client import Wire
from tests.process import BrokerProcess

E = ErrorCode
TOPIC, GROUP, MEMBER = "asked", "askers", "m"
RECORDS = 10


@pytest.fixture(scope="module")
def share_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = ("--set", "share.auto.offset.reset=earliest")
    with BrokerProcess(tmp_path_factory.mktemp("share") / "data", *settings) as process:
        yield process


class Asking:
    """A client that has a topic of its own, and a group of the same name."""

    def __init__(self, wire: Wire, name: str) -> None:
        self.wire = wire
        self.name = name
        topic = creating.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        (made,) = wire.ask(creating.CreateTopicsRequest(topics=[topic])).topics
        self.topic_id = made.topic_id
        self.produce()

    def produce(self) -> None:
        batch = encode_batch([PlainRecord(None, b"%d" % each, (), 0, each) for each in range(RECORDS)])
        rows = [producing.PartitionProduceData(index=0, records=batch)]
        data = [producing.TopicProduceData(topic_id=self.topic_id, partition_data=rows)]
        self.wire.ask(producing.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data))

    def beat(self, epoch: int = 0, **given: Any) -> Any:
        topics = [self.name] if epoch == 0 else None
        asked = {"group_id": self.name, "member_id": MEMBER, "subscribed_topic_names": topics, **given}
        return self.wire.ask(ShareGroupHeartbeatRequest(member_epoch=epoch, **asked))

    def fetch(self, epoch: int, acks: Sequence[tuple[int, int, list[int]]] = (), **given: Any) -> Any:
        rows = [
            fetching.FetchPartition(
                partition_index=0,
                acknowledgement_batches=[
                    fetching.AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=kinds
                    )
                    for first, last, kinds in acks
                ],
            )
        ]
        asked = {"group_id": self.name, "member_id": MEMBER, "max_wait_ms": 0, "max_records": 500, **given}
        topics = [fetching.FetchTopic(topic_id=self.topic_id, partitions=rows)]
        return self.wire.ask(
            fetching.ShareFetchRequest(share_session_epoch=epoch, batch_size=500, topics=topics, **asked)
        )

    def acknowledge(
        self, epoch: int, *acks: tuple[int, int, list[int]], partition: int = 0, renews: bool = False
    ) -> Any:
        rows = [
            acknowledging.AcknowledgePartition(
                partition_index=partition,
                acknowledgement_batches=[
                    acknowledging.AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=kinds)
                    for a, b, kinds in acks
                ],
            )
        ]
        topics = [acknowledging.AcknowledgeTopic(topic_id=self.topic_id, partitions=rows)]
        return self.wire.ask(
            acknowledging.ShareAcknowledgeRequest(
                group_id=self.name,
                member_id=MEMBER,
                share_session_epoch=epoch,
                is_renew_ack=renews,
                topics=topics,
            )
        )

    def judged(self, epoch: int, *acks: tuple[int, int, list[int]], **given: Any) -> ErrorCode:
        answer = self.acknowledge(epoch, *acks, **given)
        assert answer.error_code == E.NONE
        return ErrorCode(answer.responses[0].partitions[0].error_code)

    def offsets(self, group: str, partitions: list[int] | None) -> Any:
        row = describing.DescribeShareGroupOffsetsRequestTopic(
            topic_name=self.name, partitions=partitions or []
        )
        asked = describing.DescribeShareGroupOffsetsRequestGroup(
            group_id=group, topics=None if partitions is None else [row]
        )
        return self.wire.ask(describing.DescribeShareGroupOffsetsRequest(groups=[asked])).groups[0]

    def at(self, group: str, *partitions: int) -> list[tuple[int, int]]:
        (topic,) = self.offsets(group, list(partitions)).topics
        return [(row.start_offset, row.lag) for row in topic.partitions]

    def alter(self, group: str, partition: int, offset: int) -> Any:
        row = altering.AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
        topic = altering.AlterShareGroupOffsetsRequestTopic(topic_name=self.name, partitions=[row])
        return self.wire.ask(altering.AlterShareGroupOffsetsRequest(group_id=group, topics=[topic]))

    def forget(self, group: str, topic: str) -> Any:
        row = deleting_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=topic)
        return self.wire.ask(deleting_offsets.DeleteShareGroupOffsetsRequest(group_id=group, topics=[row]))

    def describe(self, group: str) -> Any:
        return self.wire.ask(describing_groups.ShareGroupDescribeRequest(group_ids=[group])).groups[0]

    def delete(self, group: str) -> ErrorCode:
        (row,) = self.wire.ask(deleting_groups.DeleteGroupsRequest(groups_names=[group])).results
        return ErrorCode(row.error_code)

    def state(self, module: Any, request: str, topic: str, **given: Any) -> Any:
        rows = [
            getattr(module, topic)(
                topic_id=self.topic_id, partitions=[module.PartitionData(**{"partition": 0, **given})]
            )
        ]
        (result,) = self.wire.ask(getattr(module, request)(group_id="st", topics=rows)).results
        return result.partitions[0]


def given(answer: Any) -> list[tuple[int, int, int]]:
    """Return the offsets that a fetch brought, and how often they were delivered."""
    assert answer.error_code == E.NONE
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for row in topic.partitions
        for each in row.acquired_records
    ]


def test_members_that_cannot_be(share_broker: BrokerProcess) -> None:
    with Wire(share_broker.host_and_port) as wire:
        asking = Asking(wire, "members")
        assert asking.beat().error_code == E.NONE
        for wrong in ({"member_id": ""}, {"group_id": ""}, {"subscribed_topic_names": []}, {"rack_id": ""}):
            assert asking.beat(**wrong).error_code == E.INVALID_REQUEST, wrong
        assert asking.beat(-2).error_code == E.INVALID_REQUEST
        assert asking.beat(99).error_code == E.FENCED_MEMBER_EPOCH
        assert asking.beat(3, member_id="x").error_code == E.UNKNOWN_MEMBER_ID
        assert asking.beat(3, group_id="zz").error_code == E.GROUP_ID_NOT_FOUND
        keys = ["g", f"g:{'A' * 22}:0"]
        found = wire.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=keys)).coordinators
        assert [each.error_code for each in found] == [E.INVALID_REQUEST, E.NONE]


def test_who_wants_no_byte_gets_no_record(share_broker: BrokerProcess) -> None:
    with Wire(share_broker.host_and_port) as wire:
        asking = Asking(wire, "no-bytes")
        asking.beat()
        first = asking.fetch(0, max_bytes=0)
        assert given(first) == []
        assert [row.partition_index for topic in first.responses for row in topic.partitions] == [0], "as yet"
        later = asking.fetch(1, max_bytes=-1)
        assert given(later) == []
        assert later.responses == [], "only what is new"
        assert given(asking.fetch(2, max_bytes=1)) == [(0, 9, 1)], "at least one batch"


def test_sessions_and_acknowledgements(share_broker: BrokerProcess) -> None:
    with Wire(share_broker.host_and_port) as wire:
        asking = Asking(wire, "sessions")
        asking.beat()
        assert asking.fetch(5).error_code == E.SHARE_SESSION_NOT_FOUND
        assert asking.fetch(-1).error_code == E.SHARE_SESSION_NOT_FOUND
        assert asking.fetch(0, group_id=None).error_code == E.INVALID_REQUEST
        assert asking.fetch(0, member_id="").error_code == E.INVALID_REQUEST
        assert asking.fetch(0, acks=[(0, 1, [1])]).error_code == E.INVALID_REQUEST
        assert given(asking.fetch(0, max_records=4, share_acquire_mode=1)) == [(0, 3, 1)]
        assert asking.fetch(7).error_code == E.INVALID_SHARE_SESSION_EPOCH
        assert given(asking.fetch(1)) == [(4, 9, 1)]
        assert asking.acknowledge(0, (0, 0, [1])).error_code == E.INVALID_SHARE_SESSION_EPOCH
        assert asking.judged(2, (0, 0, [1])) == E.NONE
        assert asking.judged(3, (0, 0, [1])) == E.NONE, "what is done with is done with"
        assert asking.judged(4, (1, 1, [7])) == E.INVALID_REQUEST
        assert asking.judged(5, (1, 3, [1, 1])) == E.INVALID_REQUEST
        assert asking.judged(6, (3, 1, [1])) == E.INVALID_REQUEST
        assert asking.judged(7, (1, 2, [1]), (2, 3, [1])) == E.INVALID_RECORD_STATE
        assert asking.judged(8, (1, 300, [1])) == E.INVALID_REQUEST
        assert asking.judged(9, (1, 1, [])) == E.INVALID_REQUEST
        assert asking.judged(10, (0, 0, [1]), partition=1) == E.UNKNOWN_TOPIC_OR_PARTITION
        assert asking.judged(11, (0, 0, [1]), partition=9) == E.UNKNOWN_TOPIC_OR_PARTITION
        assert asking.judged(12, (1, 4, [1, 2, 3, 0])) == E.NONE
        assert given(asking.fetch(13)) == [(2, 2, 2)], "it was released"
        assert asking.judged(14, (5, 5, [4])) == E.INVALID_REQUEST, "it did not say that it renews"
        assert asking.judged(15, (5, 5, [4]), renews=True) == E.NONE
        renewing = {"is_renew_ack": True, "acks": [(5, 5, [4])]}
        assert asking.fetch(16, **renewing).error_code == E.INVALID_REQUEST
        nothing = {"min_bytes": 0, "max_bytes": 0, "max_records": 0}
        answer = asking.fetch(16, **renewing, **nothing)
        assert answer.responses[0].partitions[0].acknowledge_error_code == E.NONE
        assert asking.at("sessions", 0, 1) == [(2, 6), (-1, -1)]
        assert asking.acknowledge(-1).error_code == E.NONE
        assert asking.acknowledge(17).error_code == E.SHARE_SESSION_NOT_FOUND
        assert given(asking.fetch(0)) == [(2, 2, 3), (5, 9, 2)], "what it held is free with its session"


def check_two_connections(address: tuple[str, int], name: str) -> None:
    """A member fetches on one connection and acknowledges on another, as franz-go does."""
    with Wire(address) as second:
        with Wire(address) as first, ThreadPoolExecutor() as threads:
            asking = Asking(first, name)
            other = copy(asking)
            other.wire = second
            for _ in range(299):
                asking.produce()
            epochs, seen = count(), Counter[int]()
            while seen.total() < 300 * RECORDS:
                rows = given(asking.fetch(next(epochs), max_records=70, max_wait_ms=5000))
                for start, last, deliveries in rows:
                    assert deliveries == 1, "it was accepted, or is held"
                    seen.update(range(start, last + 1))
                assert other.judged(next(epochs), *((start, last, [1]) for start, last, _ in rows)) == E.NONE
            assert set(seen) == set(range(300 * RECORDS))
            asking.produce()
            (held,) = given(asking.fetch(next(epochs), max_wait_ms=5000))
            assert held == (3000, 3009, 1)
            waits = threads.submit(asking.fetch, next(epochs), max_wait_ms=20_000)
            time.sleep(0.3)  # it is there before the next one
            assert other.judged(next(epochs), (3000, 3009, [2])) == E.NONE
            assert given(waits.result()) == [(3000, 3009, 2)]
        while (told := other.acknowledge(next(epochs)).error_code) == E.NONE:
            time.sleep(0.05)
        assert told == E.SHARE_SESSION_NOT_FOUND, "it ends with the connection that it began on"


def test_a_member_acknowledges_on_another_connection(share_broker: BrokerProcess) -> None:
    check_two_connections(share_broker.host_and_port, "on-two")


def test_a_connection_that_ends_gives_back_what_its_member_held(share_broker: BrokerProcess) -> None:
    with Wire(share_broker.host_and_port) as wire:
        asking = Asking(wire, "hung-up")
        with Wire(share_broker.host_and_port) as other:
            asking.wire = other
            assert given(asking.fetch(0)) == [(0, 9, 1)]
        asking.wire = wire
        assert given(asking.fetch(0, member_id="n", max_wait_ms=20_000)) == [(0, 9, 2)]


def configure(wire: Wire, group: str, **texts: str) -> ErrorCode:
    """Set configurations of one group."""
    rows = [
        configuring.AlterableConfig(name=name.replace("_", "."), config_operation=0, value=text)
        for name, text in texts.items()
    ]
    resource = configuring.AlterConfigsResource(resource_type=32, resource_name=group, configs=rows)
    (answer,) = wire.ask(configuring.IncrementalAlterConfigsRequest(resources=[resource])).responses
    return ErrorCode(answer.error_code)


def test_a_group_that_reads_committed_records_is_given_no_others(share_broker: BrokerProcess) -> None:
    with Wire(share_broker.host_and_port) as wire:
        asking = Asking(wire, "committed")
        assert configure(wire, "committed", share_isolation_level="read_committed") == E.NONE
        assert configure(wire, "committed", share_isolation_level="read_some") == E.INVALID_CONFIG
        assert given(asking.fetch(0)) == [(0, 9, 1)]
        assert asking.judged(1, (0, 9, [1])) == E.NONE
        producer = Producer({"bootstrap.servers": share_broker.address, "transactional.id": "t"})
        producer.init_transactions(60)
        for commits in (False, True):
            producer.begin_transaction()
            for number in range(5):
                producer.produce("committed", b"%d" % number, partition=0)
            producer.flush()
            assert given(asking.fetch(2 if commits is False else 3)) == [], "it is open"
            (producer.commit_transaction if commits else producer.abort_transaction)(60)
        # 10 to 14 were aborted by 15, 16 to 20 are committed by 21.
        assert given(asking.fetch(4, max_wait_ms=20_000)) == [(16, 20, 1)]
        assert asking.judged(5, (16, 20, [1])) == E.NONE
        assert given(asking.fetch(6)) == []
        assert asking.at("committed", 0) == [(22, 0)], "nobody is given a marker"


def test_a_group_begins_where_its_configuration_says(share_broker: BrokerProcess) -> None:
    with Wire(share_broker.host_and_port) as wire:
        asking = Asking(wire, "begins")
        assert configure(wire, "begins", share_auto_offset_reset="nowhere") == E.INVALID_CONFIG
        assert configure(wire, "begins", share_auto_offset_reset="latest") == E.NONE
        assert given(asking.fetch(0)) == []
        assert asking.at("begins", 0) == [(10, 0)]
        for group, since, found in (("hour", "PT1H", []), ("century", "P36500D", [(0, 9, 1)])):
            assert configure(wire, group, share_auto_offset_reset=f"by_duration:{since}") == E.NONE
            assert given(asking.fetch(0, group_id=group)) == found, "the records are of 1970"


def test_operators(share_broker: BrokerProcess) -> None:
    with Wire(share_broker.host_and_port) as wire:
        asking = Asking(wire, "operated")
        asking.beat()
        assert given(asking.fetch(0)) == [(0, 9, 1)]
        assert asking.judged(1, (0, 2, [1])) == E.NONE
        told = asking.describe("operated")
        assert (told.group_state, told.assignor_name, len(told.members)) == ("Stable", "simple", 1)
        assert [row.partitions for row in told.members[0].assignment.topic_partitions] == [[0, 1]]
        assert asking.describe("nope").error_code == E.GROUP_ID_NOT_FOUND
        assert asking.alter("operated", 0, 5).error_code == E.NON_EMPTY_GROUP
        assert asking.forget("operated", "operated").error_code == E.NON_EMPTY_GROUP
        assert asking.delete("operated") == E.NON_EMPTY_GROUP
        assert asking.at("operated", 0, 1, 5) == [(3, 7), (-1, -1), (-1, -1)]
        (topic,) = asking.offsets("operated", None).topics
        assert [row.partition_index for row in topic.partitions] == [0, 1]
        assert asking.offsets("nope", None).error_code == E.GROUP_ID_NOT_FOUND
        assert asking.beat(-1).error_code == E.NONE
        assert asking.describe("operated").group_state == "Empty"
        assert asking.alter("operated", 0, 1).error_code == E.NONE
        assert asking.at("operated", 0) == [(1, 9)]
        assert given(asking.fetch(2)) == [(1, 9, 1)], "it begins anew, whatever was done with"
        (row,) = asking.alter("operated", 9, 0).responses[0].partitions
        assert row.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        assert asking.alter("made", 0, 4).error_code == E.NONE, "a group that is not there is made"
        assert asking.at("made", 0) == [(4, 6)]
        groups = {each.group_id: each for each in wire.ask(listing.ListGroupsRequest()).groups}
        assert (groups["made"].group_type, groups["made"].group_state) == ("share", "Empty")
        (row,) = asking.forget("operated", "not-there").responses
        assert row.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        assert asking.forget("operated", "operated").responses[0].error_code == E.NONE
        assert asking.at("operated", 0) == [(-1, -1)]
        assert asking.delete("made") == E.NONE
        assert asking.at("made", 0) == [(-1, -1)]
        assert asking.describe("made").error_code == E.GROUP_ID_NOT_FOUND


def test_states_are_written_by_who_has_the_newest_epochs(share_broker: BrokerProcess) -> None:
    with Wire(share_broker.host_and_port) as wire:
        asking = Asking(wire, "states")
        initialize = ("InitializeShareGroupStateRequest", "InitializeStateData")
        write = ("WriteShareGroupStateRequest", "WriteStateData")
        read = ("ReadShareGroupStateRequest", "ReadStateData")
        summary = ("ReadShareGroupStateSummaryRequest", "ReadStateSummaryData")
        delete = ("DeleteShareGroupStateRequest", "DeleteStateData")

        def batch(first: int, last: int, state: int, count: int) -> Any:
            return writing.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
            )

        def code(row: Any) -> ErrorCode:
            return ErrorCode(row.error_code)

        unknown = asking.state(reading, *read, partition=77)
        assert code(unknown) == E.UNKNOWN_TOPIC_OR_PARTITION
        assert code(asking.state(initializing, *initialize, state_epoch=3, start_offset=5)) == E.NONE
        assert code(asking.state(initializing, *initialize, state_epoch=2)) == E.FENCED_STATE_EPOCH
        current = {"state_epoch": 3, "leader_epoch": 4, "start_offset": 6}
        batches = [batch(7, 9, 2, 1), batch(12, 14, 0, 2)]
        assert code(asking.state(writing, *write, **current, state_batches=batches)) == E.NONE
        old = current | {"state_epoch": 2}
        assert code(asking.state(writing, *write, **old)) == E.FENCED_STATE_EPOCH
        assert code(asking.state(writing, *write, **(current | {"leader_epoch": 3}))) == E.FENCED_LEADER_EPOCH
        held = [batch(7, 9, 1, 1)]  # nobody holds anything in what is stored
        assert code(asking.state(writing, *write, **current, state_batches=held)) == E.INVALID_REQUEST
        later = current | {"start_offset": -1, "state_batches": [batch(8, 12, 4, 3)]}
        assert code(asking.state(writing, *write, **later)) == E.NONE
        found = asking.state(reading, *read, leader_epoch=4)
        stored = [
            (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in found.state_batches
        ]
        assert (found.state_epoch, found.start_offset) == (3, 6)
        assert stored == [(7, 7, 2, 1), (8, 12, 4, 3), (13, 14, 0, 2)]
        assert code(asking.state(reading, *read, leader_epoch=2)) == E.FENCED_LEADER_EPOCH
        assert code(asking.state(reading, *read, leader_epoch=6)) == E.NONE
        assert code(asking.state(writing, *write, **current)) == E.FENCED_LEADER_EPOCH
        told = asking.state(summing, *summary)
        assert (told.state_epoch, told.leader_epoch, told.start_offset) == (3, 6, 6)
        assert code(asking.state(deleting_state, *delete)) == E.NONE
        assert asking.state(reading, *read).start_offset == -1
