"""What a cluster of Kafka's has many of and this broker has one: feature levels, log directories, no quorum at all."""

from __future__ import annotations

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from magnetar.wire.kafka.messages.describe_log_dirs_request import DescribeLogDirsRequest
from magnetar.wire.kafka.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from magnetar.wire.kafka.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.hostile.client import Wire
from tests.process import BrokerProcess

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def update(*updates: tuple[str, int, int]) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ]
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_feature_keeps_its_level(broker: BrokerProcess, version: int) -> None:
    same = ("transaction.version", 2, UPGRADE)
    with Wire(broker.host_and_port) as wire:
        answer = wire.ask(update(same, ("group.version", 1, UPGRADE)), version)
        assert (answer.error_code, len(answer.results)) == (0, 2 if version == 1 else 0)
        assert wire.ask(update(), version).error_code == 0
        for wrong, why in (  # as Kafka 4.4.0 says it, but for the downgrade that it would do
            (("nope", 1, UPGRADE), "does not support this feature."),
            (("metadata.version", 25, UPGRADE), "does not support this feature."),
            (("transaction.version", 3, UPGRADE), "only supports versions 0-2"),
            (("transaction.version", -1, UPGRADE), "A feature version cannot be less than 0."),
            (("transaction.version", 1, UPGRADE), "Can't downgrade the version of this feature without"),
            (("transaction.version", 1, SAFE_DOWNGRADE), "The level comes with the broker, and is 2."),
            (("share.version", 3, UPGRADE), "only supports versions 0-2"),
        ):
            answer = wire.ask(update(same, wrong), version)
            assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
            assert answer.results == []
            assert why in answer.error_message


def test_the_oldest_clients_say_otherwise_that_they_may_go_down(broker: BrokerProcess) -> None:
    with Wire(broker.host_and_port) as wire:
        for may, why in ((False, "Can't downgrade"), (True, "The level comes with the broker")):
            down = FeatureUpdateKey(feature="group.version", max_version_level=0, allow_downgrade=may)
            answer = wire.ask(UpdateFeaturesRequest(feature_updates=[down]), 0)
            assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
            assert why in answer.error_message


def test_there_is_no_quorum(broker: BrokerProcess) -> None:
    partition = PartitionData(partition_index=0)
    asked = DescribeQuorumRequest(topics=[TopicData(topic_name="__cluster_metadata", partitions=[partition])])
    with Wire(broker.host_and_port) as wire:
        for version in (0, 1, 2):
            answer = wire.ask(asked, version)
            assert (answer.error_code, answer.topics) == (ErrorCode.INVALID_REQUEST, [])
    assert "no controllers" in answer.error_message


def test_kafka_pythons_admin_client(broker: BrokerProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    features = str(admin.describe_features())
    assert "transaction.version" in features
    assert "group.version" in features
    with pytest.raises(KafkaError):
        admin.describe_metadata_quorum()
    admin.close()


def test_partitions_stay_in_the_one_directory(broker: BrokerProcess) -> None:
    with Wire(broker.host_and_port) as wire:
        (row,) = wire.ask(DescribeLogDirsRequest(topics=[])).results
        topics = [AlterReplicaLogDirTopic(name=name, partitions=[0, 9]) for name in ("of-one-dir", "nope")]
        create(wire, "of-one-dir")
        for version in (1, 2):
            dirs = [AlterReplicaLogDir(path=path, topics=topics) for path in (row.log_dir, "/nowhere")]
            answer = wire.ask(AlterReplicaLogDirsRequest(dirs=dirs), version)
            unknown, gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LOG_DIR_NOT_FOUND
            told = [
                (topic.topic_name, [each.error_code for each in topic.partitions]) for topic in answer.results
            ]
            assert told == [
                ("of-one-dir", [0, unknown]),
                ("nope", [unknown, unknown]),
                ("of-one-dir", [gone, gone]),
                ("nope", [gone, gone]),
            ]


def test_an_election_that_may_take_no_time(broker: BrokerProcess) -> None:
    late = ErrorCode.REQUEST_TIMED_OUT
    with Wire(broker.host_and_port) as wire:
        for version in (1, 2):
            answer = wire.ask(ElectLeadersRequest(topic_partitions=None, timeout_ms=0), version)
            assert (answer.error_code, answer.replica_election_results) == (late, [])
        # What is named is told at once, for which no time is needed: clients that give none by default get an answer.
        named = [TopicPartitions(topic="t", partitions=[0])]
        answer = wire.ask(ElectLeadersRequest(topic_partitions=named, timeout_ms=0))
        (row,) = answer.replica_election_results[0].partition_result
        assert (answer.error_code, row.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert (
            wire.ask(ElectLeadersRequest(topic_partitions=None, timeout_ms=0), 0).replica_election_results
            == []
        )


def test_an_id_of_zeros_is_nobodys(broker: BrokerProcess) -> None:
    ask = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    fetch = FetchRequest(session_epoch=-1, topics=[FetchTopic(topic_id=bytes(16), partitions=[ask])])
    data = TopicProduceData(
        topic_id=bytes(16), partition_data=[PartitionProduceData(index=0, records=bytes(70))]
    )
    with Wire(broker.host_and_port) as wire:
        for version in (13, 17):
            row = wire.ask(fetch, version).responses[0].partitions[0]
            assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        answer = wire.ask(ProduceRequest(acks=1, timeout_ms=9, topic_data=[data]), 13)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def create(wire: Wire, name: str) -> None:
    from magnetar.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest

    wire.ask(CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)]))
