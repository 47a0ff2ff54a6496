"""One broker logs in to another with the cluster's own password, and may do what brokers ask of each other."""

from __future__ import annotations

import hmac
import sqlite3
from collections.abc import Iterator

import pytest

from magnetar.client.async_connection import AsyncConnection
from magnetar.client.errors import BrokerRefused, ClientError
from magnetar.client.security import ClientSecurity
from magnetar.client.settings import ClientSettings
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.mechanisms import BETWEEN_BROKERS
from magnetar.wire.kafka.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from magnetar.wire.kafka.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from magnetar.wire.kafka.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.hostile.client import Wire
from tests.process import BrokerProcess
from tests.security.conftest import say
from tests.security.signing import IN_KAFKAS_WORDS, token


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = [part for text in IN_KAFKAS_WORDS for part in ("--set", text)]
    with BrokerProcess(tmp_path_factory.mktemp("brokers") / "data", *settings, kafka=None) as process:
        yield process


def password(house: BrokerProcess) -> str:
    """Return what brokers of its cluster know from the metadata store."""
    with sqlite3.connect(f"file:{house.data / 'metadata.sqlite'}?mode=ro", uri=True) as store:
        ((secret,),) = store.execute(
            "SELECT value FROM node WHERE path = '/magnetar/scram/secret'"
        ).fetchall()
    return hmac.new(secret, b"between brokers", "sha256").hexdigest()


def markers(topic: str) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=7, topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])]
            )
        ]
    )


async def connect(house: BrokerProcess, secret: str) -> AsyncConnection:
    security = ClientSecurity(mechanism=BETWEEN_BROKERS, username="broker", password=secret)
    return await AsyncConnection.connect(*house.host_and_port, ClientSettings((), security=security))


async def test_a_broker_may_act_for_the_cluster_and_nothing_else(house: BrokerProcess) -> None:
    admin = Wire(house.host_and_port)
    assert say(admin, f"token:{token('root')}").error_code == 0  # type: ignore[attr-defined]
    made = admin.ask(
        CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    )
    assert made.topics[0].error_code == 0
    admin.close()
    broker = await connect(house, password(house))
    answer = await broker.call(markers("t"))
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    asked = AddPartitionsToTxnTransaction(
        transactional_id="x",
        producer_id=7,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    verified = await broker.call(AddPartitionsToTxnRequest(transactions=[asked]))
    code = verified.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code
    assert code == ErrorCode.INVALID_PRODUCER_ID_MAPPING  # it was allowed to ask
    refused = await broker.call(
        CreateTopicsRequest(topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)])
    )
    assert refused.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.close()


async def test_a_broker_may_write_to_dead_letter_queues_and_to_no_other_topic(house: BrokerProcess) -> None:
    admin = Wire(house.host_and_port)
    assert say(admin, f"token:{token('root')}").error_code == 0  # type: ignore[attr-defined]
    enabled = CreatableTopicConfig(name="errors.deadletterqueue.group.enable", value="true")
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
        for name, configs in (("dlq.letters", [enabled]), ("letters", []))
    ]
    made = admin.ask(CreateTopicsRequest(topics=topics)).topics
    assert [each.error_code for each in made] == [0, 0]
    admin.close()
    broker = await connect(house, password(house))
    batch = encode_batch([PlainRecord(None, b"letter", timestamp=0)])
    for named in (made, made[::-1], made[:1], made[1:]):
        data = [
            TopicProduceData(
                topic_id=each.topic_id, partition_data=[PartitionProduceData(index=0, records=batch)]
            )
            for each in named
        ]
        answer = await broker.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data))
        codes = {each.topic_id: each.partition_responses[0].error_code for each in answer.responses}
        expected = (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        may = {each.topic_id: code for each, code in zip(made, expected, strict=True)}
        assert codes == {each.topic_id: may[each.topic_id] for each in named}
    broker.close()


@pytest.mark.parametrize("secret", ["", "guessed"])
async def test_who_does_not_know_the_password_is_no_broker(house: BrokerProcess, secret: str) -> None:
    with pytest.raises(ClientError) as refused:
        await connect(house, secret)
    assert isinstance(refused.value, BrokerRefused)
    assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_clients_are_not_told_of_it(house: BrokerProcess) -> None:
    wire = Wire(house.host_and_port)
    answer = wire.ask(SaslHandshakeRequest(mechanism="NO-SUCH"), 1)
    assert BETWEEN_BROKERS not in answer.mechanisms
    wire.close()
