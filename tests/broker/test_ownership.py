"""What clients are told when a broker has not got what they ask for, had it, or has it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.cluster.ownership import HASHES, Bundle, NotOwned, Owned, SoleOwner
from magnetar.coordination.caller import Caller
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.facts import Committer, OffsetCommit
from magnetar.ledger.port import LedgerPolicy, ManagedLedger
from magnetar.logs.leader_epochs import UNDEFINED, EpochStart, LeaderEpochs
from magnetar.pulsar.rest.app import make_app
from magnetar.pulsar.rest.request import Address
from magnetar.records.batch import batches
from magnetar.topics.names import TopicName
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from magnetar.wire.kafka.messages.describe_cluster_request import DescribeClusterRequest
from magnetar.wire.kafka.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from magnetar.wire.kafka.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.list_groups_request import ListGroupsRequest
from magnetar.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from magnetar.wire.kafka.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, CommandLookupTopicResponse, ServerError
from tests.broker.both import Both, both
from tests.ledger.entries import batch
from tests.ownership.moving import OTHER, MovingOwnership
from tests.pulsar import raw

NAME = "persistent://public/default/t"
NO_MEMBER = Committer("", None, -1, -1)


async def taken(house: Both, new_owner: int | None = None) -> Bundle:
    """A topic with two records, whose bundle this broker has lost."""
    topic = await house.broker.create_topic("t", 1)
    assert (await house.kafka.produce("t", b"0", b"1")).error_code == 0
    bundle = house.broker.cluster.ownership.bundle_of(topic.name, 0)
    await moving(house).take(bundle, new_owner)
    return bundle


def moving(house: Both) -> MovingOwnership:
    assert isinstance(house.broker.cluster.ownership, MovingOwnership)
    return house.broker.cluster.ownership


async def metadata_of(house: Both) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    return (await house.kafka.ask(request, 12)).topics[0].partitions[0]


async def offset_for(house: Both, epoch: int, current: int = -1) -> tuple[int, int, int]:
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])])
    row = (await house.kafka.ask(request, 4)).topics[0].partitions[0]
    return row.error_code, row.leader_epoch, row.end_offset


async def list_offset(house: Both, timestamp: int) -> tuple[int, int, int]:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    row = (await house.kafka.ask(request, 7)).topics[0].partitions[0]
    return row.error_code, row.offset, row.leader_epoch


async def test_nobody_has_it_now() -> None:
    async with both(ownership=MovingOwnership()) as house:
        await taken(house)
        row = await metadata_of(house)
        assert (row.error_code, row.leader_id, row.leader_epoch) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, -1)
        described = await house.kafka.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0)
        row = described.topics[0].partitions[0]
        assert (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert (await house.kafka.produce("t", b"2")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await house.kafka.fetch("t", 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await list_offset(house, -1))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await offset_for(house, 0))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        for kind, code in (
            (0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
            (1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        ):
            wanted = [TopicPartitions(topic="t", partitions=[0])]
            elected = await house.kafka.ask(
                ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=1), 2
            )
            assert elected.replica_election_results[0].partition_result[0].error_code == code


async def test_another_broker_has_it_and_clients_are_told_which_and_where() -> None:
    ownership = MovingOwnership()
    async with both(ownership=ownership) as house:
        await taken(house, OTHER)
        assert (await metadata_of(house)).error_code == ErrorCode.LISTENER_NOT_FOUND
        ownership.reaches(OTHER, "PLAINTEXT", "other", 9092)
        row = await metadata_of(house)
        assert (row.error_code, row.leader_id, row.leader_epoch) == (0, OTHER, 1)
        cluster = await house.kafka.ask(DescribeClusterRequest(), 1)
        assert {(each.broker_id, each.host) for each in cluster.brokers} >= {(OTHER, "other")}
        data = [PartitionProduceData(index=0, records=batch(b"2"))]
        produced = await house.kafka.ask(
            ProduceRequest(
                acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)]
            ),
            12,
        )
        topic_id = house.broker.topic("t").topic_id
        asked = FetchTopic(
            topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)]
        )
        fetched = await house.kafka.ask(
            FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=[asked]), 17
        )
        for answer, row in (
            (produced, produced.responses[0].partition_responses[0]),
            (fetched, fetched.responses[0].partitions[0]),
        ):
            assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (OTHER, 1)
            assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [
                (OTHER, "other", 9092)
            ]


async def test_epochs_grow_and_are_true() -> None:
    async with both(ownership=MovingOwnership()) as house:
        bundle = await taken(house)
        await moving(house).give(bundle)
        epoch = 2
        assert (await house.kafka.produce("t", b"2")).base_offset == 2
        assert (await metadata_of(house)).leader_epoch == epoch
        for current, code in (
            (0, ErrorCode.FENCED_LEADER_EPOCH),
            (epoch, 0),
            (3, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            assert (await house.kafka.fetch("t", 0, epoch=current)).error_code == code
            assert (await offset_for(house, 0, current))[0] == code
        row = await house.kafka.fetch("t", 0)
        stamped = [each.partition_leader_epoch for each, _ in batches(bytes(row.records))]
        assert stamped == [0, epoch]
        assert await offset_for(house, 0) == (0, 0, 2)
        assert await offset_for(house, 1) == (0, 0, 2)  # there was one, but nothing was written in it
        assert await offset_for(house, epoch) == (0, epoch, 3)
        assert await offset_for(house, 3) == (0, -1, -1)
        assert await list_offset(house, -1) == (0, 3, epoch)
        assert await list_offset(house, -2) == (0, 0, 0)
        assert await list_offset(house, 1 << 40) == (0, 0, 0)


async def test_messages_of_pulsars_producers_have_no_epoch() -> None:
    """A consumer that was told the wrong one would take it for loss, and begin anew."""
    async with both(ownership=MovingOwnership()) as house:
        bundle = await taken(house)
        await moving(house).give(bundle)
        assert (await house.pulsar.ask(raw.producer(NAME))).type == BaseCommand.PRODUCER_SUCCESS
        assert (await house.pulsar.ask((raw.send(), raw.entry(b"x")))).type == BaseCommand.SEND_RECEIPT
        row = await house.kafka.fetch("t", 2)
        assert [each.partition_leader_epoch for each, _ in batches(b"".join(map(bytes, [row.records])))] == [
            -1
        ]


async def test_epochs_outlive_the_log_and_end_with_the_topic() -> None:
    async with both(ownership=MovingOwnership()) as house:
        bundle = await taken(house)
        for _ in range(3):
            await moving(house).give(bundle)
            await house.kafka.produce("t", b"x")
            await moving(house).take(bundle)
        await moving(house).give(bundle)
        partition = await house.kafka_services.partitions.get(house.broker.topic("t"), 0)
        assert partition.epochs.starts == [(0, 0), (2, 2), (4, 3), (6, 4), (8, 5)]
        await house.broker.delete_topic("t")
        again = await house.broker.create_topic("t", 1)
        partition = await house.kafka_services.partitions.get(again, 0)
        assert partition.epochs.starts == [(8, 0)]
        assert len(list(await house.broker.store.get_tree("/magnetar/leader-epochs"))) == 1


async def test_a_log_that_is_being_opened_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with both(ownership=MovingOwnership()) as house:
        topic = await house.broker.create_topic("t", 1)
        engine, go_on = house.broker.engine, asyncio.Event()
        opens = engine.open

        async def slowly(*asked: Any) -> Any:
            log = await opens(*asked)
            await go_on.wait()
            return log

        monkeypatch.setattr(engine, "open", slowly)
        opening = asyncio.ensure_future(house.broker.logs.open_logs.open(topic, 0))
        for _ in range(5):
            await asyncio.sleep(0)
        taking = asyncio.ensure_future(
            moving(house).take(house.broker.cluster.ownership.bundle_of(topic.name, 0))
        )
        for _ in range(5):
            await asyncio.sleep(0)
        assert not taking.done()
        go_on.set()
        await taking
        with pytest.raises(NotOwned):
            await opening
        assert not engine.opened()


async def coordinator_of(house: Both, group: str) -> tuple[int, int]:
    answer = await house.kafka.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6)
    return answer.coordinators[0].error_code, answer.coordinators[0].node_id


async def test_groups_go_and_come_with_their_partition() -> None:
    async with both(ownership=MovingOwnership(), offsets_topic_num_partitions="8") as house:
        topic = await house.broker.create_topic("t", 1)
        groups = house.kafka_services.groups

        async def commit(group: str, offset: int) -> list[ErrorCode]:
            return await groups.commit(
                group, NO_MEMBER, [OffsetCommit("t", topic.topic_id, 0, offset, -1, "")], 9
            )

        names = [f"g{number}" for number in range(20)]
        for number, name in enumerate(names):
            assert await commit(name, number) == [0]
        offsets = house.broker.naming.parse("__consumer_offsets")
        bundle = house.broker.cluster.ownership.bundle_of(offsets, groups.partition_of("g0"))
        gone = {
            name
            for name in names
            if house.broker.cluster.ownership.bundle_of(offsets, groups.partition_of(name)) == bundle
        }
        assert 0 < len(gone) < len(names)
        await moving(house).take(bundle)
        for name in names:
            is_here = name not in gone
            assert await coordinator_of(house, name) == (
                (0, 1) if is_here else (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            )
            if not is_here:
                with pytest.raises(CoordinatorRefused) as refused:
                    await commit(name, 100)
                assert refused.value.code == ErrorCode.NOT_COORDINATOR
        listed = await house.kafka.ask(ListGroupsRequest(), 5)
        assert listed.error_code == 0
        assert {each.group_id for each in listed.groups} == set(names) - gone
        await moving(house).give(bundle)
        await groups.loaded()
        for number, name in enumerate(names):
            assert groups.committed(name)["t"][0].offset == number
            assert await commit(name, number + 1) == [0]


@pytest.mark.parametrize("version", range(1, 11))
async def test_librdkafka_asks_for_offsets_again_when_their_group_has_gone(version: int) -> None:
    async with both(ownership=MovingOwnership(1, bundles=1)) as house:
        topic = await house.broker.create_topic("t", 2)
        offsets = house.broker.naming.parse("__consumer_offsets")
        assert await coordinator_of(house, "g") == (0, 1)
        await moving(house).take(house.broker.cluster.ownership.bundle_of(offsets, 0))
        if version < 8:
            row = OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
            answer = await house.kafka.ask(OffsetFetchRequest(group_id="g", topics=[row]), version)
        else:
            rows = OffsetFetchRequestTopics(name="t", topic_id=topic.topic_id, partition_indexes=[0, 1])
            group = OffsetFetchRequestGroup(group_id="g", topics=[rows])
            answer = (await house.kafka.ask(OffsetFetchRequest(groups=[group]), version)).groups[0]
        told = [
            (each.partition_index, each.committed_offset, each.error_code)
            for about in answer.topics
            for each in about.partitions
        ]
        codes = {1: ErrorCode.NOT_COORDINATOR, 7: ErrorCode.UNSTABLE_OFFSET_COMMIT}
        codes[9] = codes[7]
        assert told == ([(each, -1, codes[version]) for each in range(2)] if version in codes else [])
        assert answer.error_code == (ErrorCode.NOT_COORDINATOR if version > 1 else 0)


async def test_whoever_waits_for_a_group_that_goes_is_sent_to_its_next_coordinator() -> None:
    async with both(ownership=MovingOwnership(1, bundles=1)) as house:
        metadata = b"\0\0" + ConsumerProtocolSubscription(topics=["t"]).encode(0)
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        member = Caller("reader", "/127.0.0.1", 3)
        groups = house.kafka_services.groups
        assert (await groups.join(request, member)).error_code == 0
        waiting = asyncio.ensure_future(groups.join(request, member))  # until the first one joins again
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        offsets = house.broker.naming.parse("__consumer_offsets")
        await moving(house).take(house.broker.cluster.ownership.bundle_of(offsets, 0))
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR


async def test_pulsars_clients_look_up_until_somebody_has_it() -> None:
    async with both(ownership=MovingOwnership()) as house:
        lookup = BaseCommand(type=BaseCommand.LOOKUP)
        lookup.lookupTopic.topic, lookup.lookupTopic.request_id = NAME, 1
        bundle = await taken(house, OTHER)
        answer = (await house.pulsar.ask(lookup)).lookupTopicResponse
        assert (answer.response, answer.error) == (
            CommandLookupTopicResponse.Failed,
            ServerError.ServiceNotReady,
        )
        moving(house).reaches(OTHER, "PULSAR", "other", 6650)
        answer = (await house.pulsar.ask(lookup)).lookupTopicResponse
        assert (answer.response, answer.brokerServiceUrl) == (
            CommandLookupTopicResponse.Connect,
            "pulsar://other:6650",
        )
        for command in (raw.producer(NAME), raw.subscribe(NAME)):
            refused = await house.pulsar.ask(command)
            assert (refused.type, refused.error.error) == (BaseCommand.ERROR, ServerError.ServiceNotReady)
        await moving(house).give(bundle)
        await moving(house).take(bundle)
        answer = (await house.pulsar.ask(lookup)).lookupTopicResponse
        assert (answer.response, answer.error) == (
            CommandLookupTopicResponse.Failed,
            ServerError.ServiceNotReady,
        )
        await moving(house).give(bundle)
        answer = (await house.pulsar.ask(lookup)).lookupTopicResponse
        assert answer.brokerServiceUrl == "pulsar://127.0.0.1:6650"


async def test_what_is_sent_to_a_producer_that_was_closed_is_not_taken_and_breaks_no_rule() -> None:
    async with both(ownership=MovingOwnership()) as house:
        client = house.pulsar
        bundle = await taken(house)
        await moving(house).give(bundle)
        assert (await client.ask(raw.producer(NAME))).type == BaseCommand.PRODUCER_SUCCESS
        await moving(house).take(bundle)
        client.send((raw.send(sequence_id=0), raw.entry(b"on its way")))
        assert (await client.hears(BaseCommand.CLOSE_PRODUCER)).close_producer.producer_id == 1
        await moving(house).give(bundle)
        assert (await client.ask(raw.producer(NAME))).type == BaseCommand.PRODUCER_SUCCESS
        receipt = await client.ask((raw.send(sequence_id=0), raw.entry(b"again")))
        assert receipt.type == BaseCommand.SEND_RECEIPT
        assert house.broker.logs.open_logs.all()[0].log.log_end_offset == 3
        client.send((raw.send(producer_id=9), raw.entry(b"of nobody")))
        await asyncio.sleep(0)
        assert not client.is_open


async def test_topics_that_are_not_persistent_go_too() -> None:
    async with both(ownership=MovingOwnership()) as house:
        name = "non-persistent://public/default/f"
        assert (await house.pulsar.ask(raw.producer(name))).type == BaseCommand.PRODUCER_SUCCESS
        bundle = house.broker.cluster.ownership.bundle_of(
            TopicName("public", "default", "f", persistent=False), 0
        )
        await moving(house).take(bundle)
        assert (await house.pulsar.hears(BaseCommand.CLOSE_PRODUCER)).close_producer.producer_id == 1
        refused = await house.pulsar.ask(raw.producer(name))
        assert refused.error.error == ServerError.ServiceNotReady


async def test_the_sole_owner_lets_go_and_takes_up_again() -> None:
    async with both() as house:
        topic = await house.broker.create_topic("t", 2)
        assert (await house.kafka.produce("t", b"0")).error_code == 0
        (held,) = house.broker.logs.open_logs.all()
        ownership = house.broker.cluster.ownership
        assert isinstance(ownership, SoleOwner)
        seen = []

        async def look(bundle: Bundle) -> None:
            seen.append((ownership.owner_of(bundle), ownership.owner(topic.name, 0)))
            with pytest.raises(NotOwned):
                await house.broker.logs.open_logs.open(topic, 1)

        house.broker.events.bundle_lost.append(look)
        await ownership.release(ownership.bundle_of(topic.name, 0))
        assert seen == [(None, None)]
        assert isinstance(held.closed, NotOwned)
        assert (await house.kafka.produce("t", b"1")).base_offset == 1
        assert ownership.owner(topic.name, 0) == Owned(house.broker.identity.node_id, 0)


def test_bundles_cover_all_hashes_and_each_partition_has_one() -> None:
    ownership = MovingOwnership(bundles=7)
    bundles = ownership.bundles("public/default")
    assert [each.first for each in bundles[1:]] == [each.end for each in bundles[:-1]]
    assert (bundles[0].first, bundles[-1].end) == (0, HASHES)
    assert bundles[-1].range.endswith("_0xffffffff")
    names = [TopicName("public", "default", f"t{number}") for number in range(200)]
    assert {ownership.bundle_of(name, 3) for name in names} == set(bundles)
    # Guava's crc32 of the same text, as Pulsar hashes it.
    assert HASHES // 2 in Bundle("n", HASHES // 2)


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=30)


@given(STEPS, st.integers(-1, 120))
def test_leader_epochs_are_those_of_the_records(steps: list[tuple[int, int]], asked: int) -> None:
    """Against a log of one epoch per record: what Kafka's own cache would answer."""
    epochs, log, epoch = LeaderEpochs(), [], 0
    for records, grows in steps:
        log += [epoch] * records
        epoch += grows
        epochs.begin(epoch, len(log))
    assert [epochs.of(offset) for offset in range(len(log))] == log
    if asked < 0 or asked > epoch:
        wanted = EpochStart(UNDEFINED, UNDEFINED)
    elif asked == epoch:
        wanted = EpochStart(epoch, len(log))
    else:
        behind = next((offset for offset, each in enumerate(log) if each > asked), len(log))
        wanted = EpochStart(max((each for each in log if each <= asked), default=asked), behind)
    assert epochs.end_of(asked, len(log)) == wanted


def test_a_partition_that_never_moved_is_of_epoch_0() -> None:
    assert LeaderEpochs().end_of(0, 7) == (0, 7)
    assert LeaderEpochs().of(5) == 0


@asynccontextmanager
async def web(house: Both) -> AsyncIterator[httpx.AsyncClient]:
    """Whoever asks the admin REST of the broker."""
    own = Address("pulsar://here:6650", "", "http://here:8080", "")
    transport = httpx.ASGITransport(make_app(house.pulsar_services, lambda: own))
    async with httpx.AsyncClient(transport=transport, base_url="http://here:8080") as client:
        yield client


async def test_the_admin_rest_tells_of_brokers_bundles_and_owners() -> None:
    async with both(ownership=MovingOwnership(bundles=2)) as house, web(house) as http:
        bundle = await taken(house, OTHER)
        moving(house).reaches(OTHER, "HTTP", "other", 8080)
        moving(house).reaches(OTHER, "PULSAR", "other", 6650)
        assert (await http.get("/admin/v2/brokers")).json() == ["here:8080", "other:8080"]
        assert (await http.get("/admin/v2/clusters")).json() == ["moving"]
        leader = (await http.get("/admin/v2/brokers/leaderBroker")).json()
        assert leader == {"brokerId": "here:8080", "serviceUrl": "http://here:8080"}
        bundles = (await http.get("/admin/v2/namespaces/public/default/bundles")).json()
        assert bundles == {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2}
        place = "/lookup/v2/topic/persistent/public/default/t"
        assert (await http.get(f"{place}/bundle")).text == bundle.range
        assert (await http.get(place)).json()["brokerUrl"] == "pulsar://other:6650"
        stats = "/admin/v2/persistent/public/default/t/stats"
        elsewhere = await http.get(f"{stats}?getPreciseBacklog=true")
        assert (elsewhere.status_code, elsewhere.headers["location"]) == (
            307,
            f"http://other:8080{stats}?getPreciseBacklog=true",
        )
        await moving(house).give(bundle)
        await moving(house).take(bundle)
        assert (await http.get(stats)).status_code == 503
        assert (await http.get(place)).status_code == 503
        await moving(house).give(bundle)
        assert (await http.get(place)).json()["brokerUrl"] == "pulsar://here:6650"
        assert (await http.get(stats)).status_code == 200


async def test_a_bundle_is_unloaded_by_its_name_and_a_topic_alone() -> None:
    async with both(ownership=MovingOwnership(bundles=2)) as house, web(house) as http:
        names = [f"t{number}" for number in range(8)]
        topics = [await house.broker.create_topic(name, 1) for name in names]
        logs = {
            name: await house.broker.logs.open_logs.open(topic, 0)
            for name, topic in zip(names, topics, strict=True)
        }
        first = house.broker.cluster.ownership.bundles("public/default")[0]
        in_first = {name for name, held in logs.items() if held.bundle == first}
        assert 0 < len(in_first) < len(names)
        root = "/admin/v2/namespaces/public/default"
        assert (await http.put(f"{root}/0x1_0x2/unload")).status_code == 412
        assert (await http.put(f"{root}/{first.range}/unload")).status_code == 204
        assert {name for name, held in logs.items() if held.closed} == in_first
        (alone, *_) = set(names) - in_first
        assert (await http.put(f"/admin/v2/persistent/public/default/{alone}/unload")).status_code == 204
        assert {name for name, held in logs.items() if held.closed} == {*in_first, alone}
        assert (await http.put(f"{root}/unload")).status_code == 204
        assert all(held.closed for held in logs.values())


async def test_logs_are_opened_under_the_epoch_of_their_ownership(monkeypatch: pytest.MonkeyPatch) -> None:
    async with both(ownership=MovingOwnership()) as house:
        opened: list[int] = []
        engine_open = house.broker.engine.open

        async def noted(name: str, policy: LedgerPolicy, epoch: int = 0) -> ManagedLedger:
            opened.append(epoch)
            return await engine_open(name, policy, epoch)

        monkeypatch.setattr(house.broker.engine, "open", noted)
        bundle = await taken(house)
        await moving(house).give(bundle)
        assert not (await house.kafka.produce("t", b"2")).error_code
        assert opened[-1] == 2
