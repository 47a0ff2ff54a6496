"""Kafka's ACLs: what they decide together, how they are kept, and what stock clients and Pulsar's meet under them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pulsar
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from hypothesis import given
from hypothesis import strategies as st

from magnetar.admin.client import ask
from magnetar.auth import Access
from magnetar.auth import acls as ours
from magnetar.auth.acl_store import Acls
from magnetar.auth.acls import (
    Acl,
    AclFilter,
    AclIndex,
    Operation,
    PatternType,
    Permission,
    Verdict,
    decode_acl,
    encode_acl,
)
from magnetar.kafka.authorization import guarded
from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.metadata import MemoryStore, MetadataCorrupt, Put
from magnetar.metadata.cache import MetadataCache
from magnetar.records.batch import NO_PRODUCER, TRANSACTIONAL, PlainRecord, encode_batch
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.create_acls_request import AclCreation, CreateAclsRequest
from magnetar.wire.kafka.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from magnetar.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from magnetar.wire.kafka.messages.describe_acls_request import DescribeAclsRequest
from magnetar.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from magnetar.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from magnetar.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.wire.kafka.messages.list_groups_request import ListGroupsRequest
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.hostile.client import Wire, frame, request_bytes
from tests.process import BrokerProcess
from tests.security.conftest import say
from tests.security.signing import IN_KAFKAS_WORDS, token
from tests.turns import until

T, G, K = ours.ResourceType.TOPIC, ours.ResourceType.GROUP, ours.ResourceType.CLUSTER
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def acl(
    name: str = "t",
    operation: Operation = READ,
    permission: Permission = ALLOW,
    *,
    prefixed: bool = False,
    principal: str = "User:a",
    host: str = "*",
    kind: ours.ResourceType = T,
) -> Acl:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return Acl(kind, name, pattern, principal, host, operation, permission)


def index(*entries: Acl) -> AclIndex:
    made = AclIndex()
    for each in entries:
        made.add(each)
    return made


# -- what they decide -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "verdict"),
    [
        ([], Verdict.NO_ACL),
        ([acl("other")], Verdict.NO_ACL),
        ([acl(prefixed=True, name="tt")], Verdict.NO_ACL),
        ([acl(kind=G)], Verdict.NO_ACL),
        ([acl(principal="User:b")], Verdict.NOT_NAMED),
        ([acl(operation=WRITE)], Verdict.NOT_NAMED),
        ([acl(operation=DESCRIBE)], Verdict.NOT_NAMED),
        ([acl(host="10.0.0.1")], Verdict.NOT_NAMED),
        ([acl()], Verdict.ALLOWED),
        ([acl(operation=ALL)], Verdict.ALLOWED),
        ([acl("*")], Verdict.ALLOWED),
        ([acl("", prefixed=True)], Verdict.ALLOWED),
        ([acl(prefixed=True)], Verdict.ALLOWED),
        ([acl(principal="User:*")], Verdict.ALLOWED),
        ([acl(host="10.0.0.2")], Verdict.ALLOWED),
        ([acl(), acl("*", ALL, DENY)], Verdict.DENIED),
        ([acl(), acl("t", READ, DENY, host="10.0.0.2")], Verdict.DENIED),
        ([acl(), acl("t", READ, DENY, host="10.0.0.3")], Verdict.ALLOWED),
        ([acl(), acl("t", READ, DENY, principal="User:*")], Verdict.DENIED),
        ([acl(), acl("t", READ, DENY, prefixed=True)], Verdict.DENIED),
        # What is denied is only itself: READ stays though DESCRIBE, which comes with it, is denied.
        ([acl(), acl("t", DESCRIBE, DENY)], Verdict.ALLOWED),
    ],
)
def test_deny_goes_before_allow_and_names_are_literal_prefixed_or_all(
    entries: list[Acl], verdict: Verdict
) -> None:
    assert index(*entries).verdict("User:a", "10.0.0.2", READ, T, ("t",)) is verdict


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER])
def test_who_may_do_more_may_describe(operation: Operation) -> None:
    assert index(acl(operation=operation)).verdict("User:a", "", DESCRIBE, T, ("t",)) is Verdict.ALLOWED
    configs = index(acl(operation=Operation.ALTER_CONFIGS))
    assert configs.verdict("User:a", "", Operation.DESCRIBE_CONFIGS, T, ("t",)) is Verdict.ALLOWED
    assert configs.verdict("User:a", "", DESCRIBE, T, ("t",)) is Verdict.NOT_NAMED


def test_of_whom_nobody_knows_the_address_every_denial_counts_and_no_allowance_of_one() -> None:
    denied = index(acl(), acl(permission=DENY, host="10.0.0.1"))
    assert denied.verdict("User:a", "", READ, T, ("t",)) is Verdict.DENIED
    assert index(acl(host="10.0.0.1")).verdict("User:a", "", READ, T, ("t",)) is Verdict.NOT_NAMED


NAMES = st.sampled_from(["", "a", "ab", "abc", "b", "*", "red/default/a"])
ACLS = st.builds(
    Acl,
    st.sampled_from([T, G]),
    NAMES.filter(bool),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:a", "User:b", "User:*"]),
    st.sampled_from(["*", "1", "2"]),
    st.sampled_from([READ, WRITE, DESCRIBE, ALL]),
    st.sampled_from([ALLOW, DENY]),
)


def fits(each: Acl, kind: object, name: str, principal: str, host: str) -> bool:
    """Say whether an entry is about somebody and something, read off its definition."""
    names = {
        PatternType.LITERAL: each.resource_name in (name, "*"),
        PatternType.PREFIXED: name.startswith(each.resource_name),
    }
    return (
        each.resource_type is kind
        and names[each.pattern_type]
        and each.principal in (principal, "User:*")
        and each.host in (host, "*")
    )


def decided(entries: Sequence[Acl], name: str, host: str, operation: Operation) -> Verdict:
    about = [each for each in entries if fits(each._replace(principal="User:*", host="*"), T, name, "", "")]
    mine = [each for each in about if fits(each, T, name, "User:a", host)]
    if any(each.permission is DENY and each.operation in (operation, ALL) for each in mine):
        return Verdict.DENIED
    gives = {operation, ALL} | ({READ, WRITE} if operation is DESCRIBE else set())
    if any(each.permission is ALLOW and each.operation in gives for each in mine):
        return Verdict.ALLOWED
    return Verdict.NOT_NAMED if about else Verdict.NO_ACL


@given(
    st.lists(ACLS, max_size=12, unique=True),
    st.lists(ACLS, max_size=12, unique=True),
    st.sampled_from(["a", "ab", "abcd", "b", "red/default/a"]),
    st.sampled_from(["1", "3"]),
    st.sampled_from([READ, WRITE, DESCRIBE]),
)
def test_the_index_decides_as_all_entries_would(
    kept: list[Acl], gone: list[Acl], name: str, host: str, operation: Operation
) -> None:
    """Entries that came and went leave nothing behind."""
    made = index(*dict.fromkeys([*kept, *gone]))
    for each in gone:
        if each not in kept:
            made.remove(each)
    assert made.verdict("User:a", host, operation, T, (name,)) is decided(kept, name, host, operation)
    assert bool(made) is bool(kept)


@given(st.lists(ACLS, max_size=8, unique=True), st.sampled_from([READ, WRITE]))
def test_who_is_allowed_a_name_is_allowed_any(entries: list[Acl], operation: Operation) -> None:
    """KIP-679: of some 60 names, one is allowed exactly where it is said that any is; what is denied in part counts."""
    letters = ["a", "b", "c", "red/default/a", "z"]
    names = {x + y + w for x in letters for y in ["", *letters] for w in ("", "q")}
    allowed = {name for name in names if decided(entries, name, "1", operation) is Verdict.ALLOWED}
    said = index(*entries).allows_any("User:a", "1", [operation], T)
    if allowed:
        assert said
    elif said:
        # An entry gives a name that is none of these; or what is beneath its prefix is denied piece by piece.
        assert any(each.permission is ALLOW and each.resource_type is T for each in entries)


def test_twenty_thousand_entries_cost_what_few_do() -> None:
    """The calls of one decision are counted, not its time."""

    def calls(entries: AclIndex, *names: str) -> int:
        found = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal found
            found += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            entries.verdict("User:u7", "1", READ, T, names)
        finally:
            sys.setprofile(None)
        return found

    few = [acl("t1", principal="User:u7"), acl("pre", prefixed=True, principal="User:u7"), acl("*", WRITE)]
    many = [acl(f"t{number}", principal=f"User:u{number % 100}") for number in range(10_000)]
    many += [acl(f"p{number:04d}", prefixed=True) for number in range(5_000)]
    many += [acl("t1", principal=f"User:many{number}") for number in range(5_000)]
    small, large = index(*few), index(*dict.fromkeys([*few, *many]))
    for name in ("t1", "prefixed", "p0007", "none"):
        assert calls(large, name) <= calls(small, name) + 12


def test_what_is_remembered_costs_a_small_produce_next_to_nothing() -> None:
    """The calls of the guard are counted: the second Produce of a topic goes straight to its handler."""
    route = ROUTE_BY_KEY[ProduceRequest.API_KEY]
    request = ProduceRequest(topic_data=[TopicProduceData(name="t")])

    async def handler(request: Any, context: Any) -> None: ...

    access = Access(cast(Any, None), "alice")
    assert guarded(route, handler, access, request) is not handler
    access.writes("t")
    assert guarded(route, handler, access, request) is handler
    access.forget()
    assert guarded(route, handler, access, request) is not handler
    access.writes("t")
    request.topic_data.append(TopicProduceData(name="u"))
    assert guarded(route, handler, access, request) is not handler


# -- how they are kept ----------------------------------------------------------------------------------------------


@given(ACLS)
def test_what_is_written_is_read_again(entry: Acl) -> None:
    assert decode_acl(encode_acl(entry)) == entry


@given(ACLS, ACLS)
def test_an_id_is_of_one_entry(one: Acl, other: Acl) -> None:
    assert (one.id == other.id) is (one == other)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"\xff", b'{"resourceType": "TOPICS"}'])
async def test_what_is_no_entry_is_refused(value: bytes) -> None:
    store = MemoryStore()
    await store.commit([Put("/magnetar/acls/x", value, -2)])
    with pytest.raises(MetadataCorrupt):
        await Acls(MetadataCache(store)).start()


async def test_others_changes_are_followed_and_thousands_are_kept() -> None:
    store = MemoryStore()
    one, other = Acls(MetadataCache(store)), Acls(MetadataCache(store))
    await one.start()
    await other.start()
    told: list[int] = []
    other.changed.append(lambda: told.append(1))
    entries = [acl(f"t{number}") for number in range(3000)]
    await one.create([*entries, *entries])
    await one.create(entries[:10])
    await until(lambda: len(other.all()) == 3000)
    assert other.index.verdict("User:a", "", READ, T, ("t2999",)) is Verdict.ALLOWED
    assert told
    await other.delete(entries[1:])
    await other.delete(entries[1:])
    await until(lambda: one.all() == entries[:1])
    assert one.index.verdict("User:a", "", READ, T, ("t2999",)) is Verdict.NO_ACL


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (AclFilter(), {"t", "*", "te", "g"}),
        (AclFilter(T, "test", PatternType.LITERAL), set()),
        (AclFilter(T, "t", PatternType.LITERAL), {"t"}),
        (AclFilter(T, "t"), {"t"}),
        (AclFilter(T, "te", PatternType.LITERAL), set()),
        (AclFilter(T, "test", PatternType.MATCH), {"*", "te"}),
        (AclFilter(T, None, PatternType.PREFIXED), {"te"}),
        (AclFilter(principal="User:b"), {"g"}),
        (AclFilter(host="1"), {"t"}),
        (AclFilter(operation=WRITE), {"te"}),
        (AclFilter(permission=DENY), {"*"}),
    ],
)
def test_filters(wanted: AclFilter, names: set[str]) -> None:
    entries = [
        acl(host="1"),
        acl("*", permission=DENY),
        acl("te", WRITE, prefixed=True),
        acl("g", kind=G, principal="User:b"),
    ]
    assert {each.resource_name for each in entries if wanted.fits(each)} == names


# -- stock clients --------------------------------------------------------------------------------------------------


def started(data: Path, *more: str) -> BrokerProcess:
    texts = [part for text in (*IN_KAFKAS_WORDS, *more) for part in ("--set", text)]
    return BrokerProcess(data, *texts, kafka=None)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker set up in Kafka's words."""
    with started(tmp_path_factory.mktemp("acls") / "data") as process:
        yield process
        assert not [line for line in process.log_lines() if "Traceback" in line]


def client(house: BrokerProcess, role: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": house.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "public/default",
        "sasl.password": f"token:{token(role)}",
        "log_level": 0,
    }


def binding(
    name: str,
    role: str,
    operation: AclOperation,
    *,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    host: str = "*",
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{role}", host, operation, permission)


def make(house: BrokerProcess, *bindings: AclBinding) -> None:
    admin = AdminClient(client(house, "root"))
    for future in admin.create_acls(list(bindings)).values():
        future.result(20)


ANY_OF = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def drop(house: BrokerProcess, role: str) -> int:
    """Delete all entries of a role; give how many there were."""
    wanted = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        f"User:{role}",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = AdminClient(client(house, "root"))
    return sum(len(future.result(20)) for future in admin.delete_acls([wanted]).values())


def topic(house: BrokerProcess, name: str) -> str:
    admin = AdminClient(client(house, "root"))
    admin.create_topics([NewTopic(name, 1)])[name].result(20)
    return name


def sent(house: BrokerProcess, role: str, name: str) -> KafkaError | None:
    """Produce one record; give the error."""
    told: list[Any] = []
    producer = Producer({**client(house, role), "message.timeout.ms": 5000})
    producer.produce(name, b"x", on_delivery=lambda error, _: told.append(error))
    producer.flush(20)
    return told[0]


def read(house: BrokerProcess, role: str, name: str, group: str | None = None) -> str:
    """Read one record, by a group if one is given; give "read" or the error's name."""
    consumer = Consumer({**client(house, role), "group.id": group or "x", "auto.offset.reset": "earliest"})
    if group is None:
        consumer.assign([TopicPartition(name, 0, 0)])
    else:
        consumer.subscribe([name])
    try:
        ends = time.monotonic() + 20
        while time.monotonic() < ends:
            message = consumer.poll(1)
            if message is None:
                continue
            said = message.error().name() if message.error() else "read"
            if group is not None or not said.startswith("GROUP_"):  # its group is asked for in any case
                return str(said)
        return "nothing"
    except KafkaException as error:
        return str(error.args[0].name())
    finally:
        consumer.close()


DENIED = "TOPIC_AUTHORIZATION_FAILED"


def test_a_client_may_do_what_an_acl_allows_and_nothing_else(house: BrokerProcess) -> None:
    name = topic(house, "allowed")
    error = sent(house, "alice", name)
    assert error is not None
    assert error.name() == DENIED
    make(house, binding(name, "alice", AclOperation.WRITE))
    assert sent(house, "alice", name) is None
    assert read(house, "alice", name) == DENIED
    make(house, binding(name, "alice", AclOperation.READ))
    assert read(house, "alice", name) == "read"
    assert read(house, "alice", name, "alices") == "GROUP_AUTHORIZATION_FAILED", "a group wants its own entry"
    make(
        house,
        binding(
            "ali", "alice", AclOperation.READ, kind=ResourceType.GROUP, pattern=ResourcePatternType.PREFIXED
        ),
    )
    assert read(house, "alice", name, "alices") == "read"
    assert read(house, "alice", name, "bobs") == "GROUP_AUTHORIZATION_FAILED"
    make(house, binding("*", "*", AclOperation.WRITE, permission=AclPermissionType.DENY))
    error = sent(house, "alice", name)
    assert error is not None
    assert error.name() == DENIED
    assert sent(house, "root", name) is None, "what is denied is not denied to super users"
    assert drop(house, "*") == 1
    assert sent(house, "alice", name) is None
    assert drop(house, "alice") == 3
    error = sent(house, "alice", name)
    assert error is not None
    assert error.name() == DENIED


def test_a_connection_that_writes_hears_of_every_change(house: BrokerProcess) -> None:
    """Of topics that were written to, it is remembered that they may be, by name and by id: until something changes."""
    name = topic(house, "written-to")
    batch = encode_batch([PlainRecord(None, b"x", [], 0, 0)])
    deny = binding(name, "olga", AclOperation.WRITE, permission=AclPermissionType.DENY)
    make(house, binding(name, "olga", AclOperation.ALL))
    with Wire(house.host_and_port) as wire:
        assert say(wire, f"token:{token('olga')}").error_code == 0  # type: ignore[attr-defined]
        topic_id = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics[0].topic_id

        def codes() -> set[int]:
            rows = [PartitionProduceData(index=0, records=batch)]
            found = set()
            for version, given_ in ((9, {"name": name}), (13, {"topic_id": topic_id})):
                data = [TopicProduceData(**given_, partition_data=rows)]
                asked = ProduceRequest(acks=1, timeout_ms=1000, topic_data=data)
                for _ in range(3):
                    told = wire.ask(asked, version).responses[0].partition_responses[0]
                    found.add(told.error_code)
            return found

        for _ in range(2):
            assert codes() == {0}
            make(house, deny)
            assert codes() == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            drop(house, "olga")
            assert codes() == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            ask(house.data, "grant", target=name, role="olga", actions=["produce"])
            assert codes() == {0}
            ask(house.data, "revoke", target=name, role="olga")
            assert codes() == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            make(house, binding(name, "olga", AclOperation.WRITE))
    drop(house, "olga")


def test_batches_of_a_transaction_need_its_transactional_id(house: BrokerProcess) -> None:
    """Also on topics that are known to be written to, and in a transaction that has the partition already."""
    name, other = topic(house, "of-transactions"), topic(house, "of-transactions-too")
    on_topics = [binding(each, "ines", AclOperation.WRITE) for each in (name, other)]
    make(house, *on_topics, binding("ines-1", "ines", AclOperation.WRITE, kind=ResourceType.TRANSACTIONAL_ID))
    with Wire(house.host_and_port) as wire:
        assert say(wire, f"token:{token('ines')}").error_code == 0  # type: ignore[attr-defined]
        begun = wire.ask(InitProducerIdRequest(transactional_id="ines-1", transaction_timeout_ms=60_000), 5)
        assert begun.error_code == 0

        def batch(sequence: int) -> bytes:
            return encode_batch(
                [PlainRecord(None, b"x", [], 0, 0)],
                attributes=TRANSACTIONAL if sequence >= 0 else 0,
                producer_id=begun.producer_id if sequence >= 0 else NO_PRODUCER,
                producer_epoch=begun.producer_epoch if sequence >= 0 else -1,
                base_sequence=sequence,
            )

        def asked(sequence: int, *names: str, acks: int = -1) -> ProduceRequest:
            rows = [PartitionProduceData(index=0, records=batch(sequence))]
            data = [TopicProduceData(name=each, partition_data=rows) for each in names]
            by = "ines-1" if sequence >= 0 else None
            return ProduceRequest(transactional_id=by, acks=acks, timeout_ms=1000, topic_data=data)

        def codes(sequence: int, *names: str) -> list[int]:
            answer = wire.ask(asked(sequence, *names), 12)
            return [row.error_code for each in answer.responses for row in each.partition_responses]

        assert codes(0, name) == [0]
        drop(house, "ines")
        make(house, *on_topics)
        assert codes(-1, name, other) == codes(-1, name, other) == [0, 0]
        denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert codes(1, name) == [denied]
        assert codes(1, name, other) == [denied] * 2
        wire.send(frame(request_bytes(asked(1, name, acks=0), 12)))
        assert wire.is_closed()
    admin, where = AdminClient(client(house, "root")), TopicPartition(name, 0)
    end = admin.list_offsets({where: OffsetSpec.latest()})[where].result(20).offset
    assert end == 3, "nothing of what was refused is stored"
    drop(house, "ines")


def test_who_may_describe_a_topic_learns_that_it_is_not_there_to_be_deleted(house: BrokerProcess) -> None:
    there = topic(house, "doras")
    with Wire(house.host_and_port) as wire:
        assert say(wire, f"token:{token('dora')}").error_code == 0  # type: ignore[attr-defined]

        def codes() -> list[int]:
            names = ["nowhere", there]
            by_names = DeleteTopicsRequest(topic_names=names, timeout_ms=1000)
            by_rows = DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name) for name in names], timeout_ms=1000
            )
            answers = [wire.ask(by_names, 5), wire.ask(by_rows, 6)]
            first, second = ({row.name: row.error_code for row in each.responses} for each in answers)
            assert first == second
            return [first[name] for name in names]

        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert codes() == [denied, denied]
        make(house, *(binding(name, "dora", AclOperation.DESCRIBE) for name in ("nowhere", there)))
        assert codes() == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, denied]
    drop(house, "dora")


def test_a_streams_application_describes_its_topics_and_creates_those_that_are_missing(
    house: BrokerProcess,
) -> None:
    source, changelog = topic(house, "of-a-stream"), "app-store-changelog"
    group = binding("app", "stella", AclOperation.READ, kind=ResourceType.GROUP)
    part = Subtopology(
        subtopology_id="0",
        source_topics=[source],
        state_changelog_topics=[TopicInfo(name=changelog, replication_factor=1)],
    )
    joins = StreamsGroupHeartbeatRequest(
        group_id="app",
        member_id="a-member",
        rebalance_timeout_ms=1000,
        topology=Topology(epoch=1, subtopologies=[part]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
    )
    with Wire(house.host_and_port) as wire:
        assert say(wire, f"token:{token('stella')}").error_code == 0  # type: ignore[attr-defined]

        def told() -> tuple[int, list[str]]:
            answer = wire.ask(joins, 0)
            return answer.error_code, [each.status_detail for each in answer.status or ()]

        def is_there() -> bool:
            return changelog in AdminClient(client(house, "root")).list_topics(timeout=20).topics

        make(house, group, binding(source, "stella", AclOperation.DESCRIBE))
        assert told()[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        make(house, binding(changelog, "stella", AclOperation.DESCRIBE))
        code, details = told()
        assert code == 0
        assert any(f"Unauthorized to CREATE on topics {changelog}." in each for each in details), details
        assert not is_there()
        make(house, binding(changelog, "stella", AclOperation.CREATE))
        assert told()[0] == 0
        assert is_there()
    drop(house, "stella")


def test_prefixes_hosts_and_everybody(house: BrokerProcess) -> None:
    name = topic(house, "team-x.orders")
    prefix = ResourcePatternType.PREFIXED
    make(house, binding("team-x.", "carl", AclOperation.WRITE, pattern=prefix, host="10.1.2.3"))
    assert sent(house, "carl", name) is not None, "from another address"
    make(house, binding("team-x.", "carl", AclOperation.WRITE, pattern=prefix, host="127.0.0.1"))
    assert sent(house, "carl", name) is None
    make(
        house,
        binding("team-x.", "carl", AclOperation.ALL, host="127.0.0.1", permission=AclPermissionType.DENY),
    )
    assert sent(house, "carl", name) is None, "a literal name is no prefix"
    make(
        house, binding(name, "carl", AclOperation.WRITE, host="127.0.0.1", permission=AclPermissionType.DENY)
    )
    assert sent(house, "carl", name) is not None
    drop(house, "carl")
    make(house, binding(name, "*", AclOperation.WRITE))
    assert sent(house, "anybody", name) is None
    drop(house, "*")


def test_who_may_alter_the_cluster_makes_entries(house: BrokerProcess) -> None:
    mine = binding("x", "eve", AclOperation.ALL)
    eve = AdminClient(client(house, "eve"))
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        eve.create_acls([mine])[mine].result(20)
    with Wire(house.host_and_port) as wire:  # librdkafka tells of no entries then
        assert say(wire, f"token:{token('eve')}").error_code == 0  # type: ignore[attr-defined]
        told = wire.ask(everything())
        assert (told.error_code, told.resources) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        eve.delete_acls([ANY_OF])[ANY_OF].result(20)
    make(house, binding("kafka-cluster", "eve", AclOperation.ALTER, kind=ResourceType.BROKER))
    eve.create_acls([mine])[mine].result(20)
    assert mine in eve.describe_acls(ANY_OF).result(20), "ALTER describes, too"
    assert drop(house, "eve") == 2


def test_topics_are_created_altered_and_deleted_by_their_own_operations(house: BrokerProcess) -> None:
    dan = AdminClient(client(house, "dan"))

    def create(name: str) -> None:
        dan.create_topics([NewTopic(name, 1)])[name].result(20)

    with pytest.raises(KafkaException, match=DENIED):
        create("dans")
    make(house, binding("dan", "dan", AclOperation.CREATE, pattern=ResourcePatternType.PREFIXED))
    create("dans")
    with pytest.raises(KafkaException, match=DENIED):
        create("other")
    with pytest.raises(KafkaException, match=DENIED):
        dan.delete_topics(["dans"])["dans"].result(20)
    make(house, binding("dans", "dan", AclOperation.DELETE))
    dan.delete_topics(["dans"])["dans"].result(20)
    drop(house, "dan")
    make(house, binding("kafka-cluster", "dan", AclOperation.CREATE, kind=ResourceType.BROKER))
    create("other")
    drop(house, "dan")


# -- the requests themselves ----------------------------------------------------------------------------------------


@pytest.fixture
def root(house: BrokerProcess) -> Iterator[Wire]:
    with Wire(house.host_and_port) as wire:
        assert say(wire, f"token:{token('root')}").error_code == 0  # type: ignore[attr-defined]
        yield wire


def everything() -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def creation(**changed: Any) -> AclCreation:
    told = {
        "resource_type": 2,
        "resource_name": "bad",
        "resource_pattern_type": 3,
        "principal": "User:x",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AclCreation(**(told | changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"resource_type": 0}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"resource_pattern_type": 77}, "Invalid patternType UNKNOWN"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 100}, "Invalid operation UNKNOWN"),
        ({"permission_type": -3}, "Invalid permissionType UNKNOWN"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"principal": "x"}, "Could not parse principal from `x`"),
        ({"host": ""}, "Invalid empty host"),
        ({"resource_name": "x" * 5000}, "more than 4096"),
    ],
)
def test_what_cannot_be_is_refused_in_kafkas_words(root: Wire, changed: dict[str, Any], message: str) -> None:
    rows = [creation(**changed), creation(resource_name="good")]
    bad, good = root.ask(CreateAclsRequest(creations=rows)).results
    assert bad.error_code == ErrorCode.INVALID_REQUEST
    assert message in bad.error_message
    assert good.error_code == 0
    told = root.ask(everything())
    assert "good" in {each.resource_name for each in told.resources}
    assert "bad" not in {each.resource_name for each in told.resources}


@pytest.mark.parametrize(
    "field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"]
)
@pytest.mark.parametrize("number", [0, 50, -1])
def test_filters_of_unknown_types_are_refused(root: Wire, field: str, number: int) -> None:
    names = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
    told = {name: number if name == field else 1 for name in names}
    assert root.ask(DescribeAclsRequest(**told)).error_code == ErrorCode.INVALID_REQUEST
    before = root.ask(CreateAclsRequest(creations=[creation(resource_name="stays")])).results
    assert not before[0].error_code
    (answer,) = root.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**told)])).filter_results
    assert (answer.error_code, answer.matching_acls) == (ErrorCode.INVALID_REQUEST, [])


def test_thousands_at_once_and_each_but_once(root: Wire) -> None:
    rows = [creation(resource_name=f"many-{number}") for number in range(3000)]
    for _ in range(2):
        told = root.ask(CreateAclsRequest(creations=rows)).results
        assert [each.error_code for each in told] == [0] * 3000
    wanted = DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter="User:x",
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    (answer,) = root.ask(DeleteAclsRequest(filters=[wanted])).filter_results
    assert len([each for each in answer.matching_acls if each.resource_name.startswith("many-")]) == 3000


def test_authorized_operations_say_what_may_be_done(house: BrokerProcess, root: Wire) -> None:
    name = topic(house, "operations")
    make(
        house,
        binding(name, "fred", AclOperation.READ),
        binding(name, "fred", AclOperation.ALTER_CONFIGS),
        binding("freds", "fred", AclOperation.DELETE, kind=ResourceType.GROUP),
        binding("kafka-cluster", "fred", AclOperation.DESCRIBE, kind=ResourceType.BROKER),
    )

    def bits(*operations: Operation) -> int:
        return sum(1 << each for each in operations)

    with Wire(house.host_and_port) as wire:
        assert say(wire, f"token:{token('fred')}").error_code == 0  # type: ignore[attr-defined]
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)],
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        told = wire.ask(asked, 10)
        assert told.topics[0].topic_authorized_operations == bits(
            READ, DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS
        )
        assert told.cluster_authorized_operations == bits(DESCRIBE)
        groups = wire.ask(
            DescribeGroupsRequest(groups=["freds", "others"], include_authorized_operations=True), 5
        )
        assert [each.error_code for each in groups.groups] == [0, ErrorCode.GROUP_AUTHORIZATION_FAILED]
        assert not wire.ask(ListGroupsRequest()).error_code
    drop(house, "fred")


def test_a_topic_is_not_made_for_who_may_only_describe_it(house: BrokerProcess) -> None:
    make(house, binding("unborn", "gina", AclOperation.DESCRIBE))
    with Wire(house.host_and_port) as wire:
        assert say(wire, f"token:{token('gina')}").error_code == 0  # type: ignore[attr-defined]
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="unborn")], allow_auto_topic_creation=True)
        assert wire.ask(asked, 9).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        asked.allow_auto_topic_creation = False
        assert wire.ask(asked, 9).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        make(house, binding("unborn", "gina", AclOperation.CREATE))
        asked.allow_auto_topic_creation = True
        assert wire.ask(asked, 9).topics[0].error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
    drop(house, "gina")


def test_transactional_ids_and_idempotence_want_entries(house: BrokerProcess) -> None:
    name = topic(house, "idempotent")
    with Wire(house.host_and_port) as wire:
        assert say(wire, f"token:{token('hans')}").error_code == 0  # type: ignore[attr-defined]
        plain = InitProducerIdRequest(transactional_id=None)
        named = InitProducerIdRequest(transactional_id="hans-1", transaction_timeout_ms=1000)
        assert wire.ask(plain, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        make(house, binding(name, "hans", AclOperation.WRITE))
        assert wire.ask(plain, 4).error_code == 0, "who may write any topic may do so idempotently"
        assert wire.ask(named, 4).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        make(house, binding("hans-1", "hans", AclOperation.WRITE, kind=ResourceType.TRANSACTIONAL_ID))
        assert wire.ask(named, 4).error_code != ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    drop(house, "hans")


@pytest.mark.parametrize("by", ["acl", "grant"])
def test_who_may_write_as_a_transactional_id_finds_it_unless_that_is_forbidden(
    house: BrokerProcess, by: str
) -> None:
    role, name = f"harald-{by}", topic(house, f"found-by-{by}")
    id_of = ResourceType.TRANSACTIONAL_ID
    one = FindCoordinatorRequest(key_type=1, key="theirs")
    many = FindCoordinatorRequest(key_type=1, coordinator_keys=["theirs"])
    describe = DescribeTransactionsRequest(transactional_ids=["theirs"])
    with Wire(house.host_and_port) as wire:
        assert say(wire, f"token:{token(role)}").error_code == 0  # type: ignore[attr-defined]

        def codes() -> list[int]:
            old, new = wire.ask(one, 1), wire.ask(many, 6).coordinators[0]
            told = wire.ask(describe, 0).transaction_states[0]
            return [old.error_code, new.error_code, told.error_code]

        denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        unknown = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert codes() == [denied] * 3
        if by == "acl":
            make(house, binding("theirs", role, AclOperation.WRITE, kind=id_of))
        else:
            ask(house.data, "grant", target=name, role=role, actions=["produce"])
        assert codes() == [0, 0, unknown]
        make(
            house,
            binding("theirs", role, AclOperation.DESCRIBE, permission=AclPermissionType.DENY, kind=id_of),
        )
        assert codes() == [denied] * 3
    drop(house, role)


def test_share_coordinators_are_for_who_may_act_for_the_cluster(house: BrokerProcess) -> None:
    key = f"group:{'A' * 22}:0"
    ask_for = FindCoordinatorRequest(key_type=2, coordinator_keys=[key, "nonsense"])
    with Wire(house.host_and_port) as wire:
        assert say(wire, f"token:{token('sina')}").error_code == 0  # type: ignore[attr-defined]

        def codes(version: int = 6) -> dict[str, int]:
            return {each.key: each.error_code for each in wire.ask(ask_for, version).coordinators}

        assert set(codes().values()) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        make(
            house,
            binding("kafka-cluster", "sina", AclOperation.CLUSTER_ACTION, kind=ResourceType.BROKER),
        )
        assert codes() == {key: 0, "nonsense": ErrorCode.INVALID_REQUEST}
        assert set(codes(5).values()) == {ErrorCode.INVALID_REQUEST}, "its version knows no such kind"
    drop(house, "sina")


# -- two views ------------------------------------------------------------------------------------------------------


def shown(house: BrokerProcess, role: str) -> set[tuple[str, str, str]]:
    admin = AdminClient(client(house, "root"))
    return {
        (each.name, each.resource_pattern_type.name, each.operation.name)
        for each in admin.describe_acls(ANY_OF).result(20)
        if each.principal == f"User:{role}"
    }


def test_grants_are_shown_as_acls_and_go_with_them(house: BrokerProcess) -> None:
    name = topic(house, "granted")
    ask(house.data, "grant", target=name, role="ina", actions=["produce", "consume"])
    ask(house.data, "grant", target="public/default", role="ina", actions=["consume"])
    ask(house.data, "set-admins", tenant="public", roles=["ira"])
    assert shown(house, "ina") == {
        (name, "LITERAL", "READ"),
        (name, "LITERAL", "WRITE"),
        ("public/default/", "PREFIXED", "READ"),
    }
    assert shown(house, "ira") == {("public/", "PREFIXED", "ALL")}
    assert sent(house, "ina", name) is None
    make(house, binding(name, "ina", AclOperation.WRITE))
    wanted = AclBindingFilter(
        ResourceType.TOPIC,
        name,
        ResourcePatternType.LITERAL,
        "User:ina",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient(client(house, "root"))
    assert len(admin.delete_acls([wanted])[wanted].result(20)) == 1
    assert sent(house, "ina", name) is not None, "an entry that a grant says already was not made again"
    told: Any = ask(house.data, "permissions", target="public/default")
    assert told.topics[f"persistent://public/default/{name}"] == {"ina": ("consume",)}
    assert drop(house, "ina") == 2
    assert drop(house, "ira") == 1
    assert shown(house, "ina") == set()
    told = ask(house.data, "permissions", target="public/default")
    assert "ina" not in told.roles
    assert told.admins == ()


def test_acls_are_shown_as_grants_and_go_with_them(house: BrokerProcess) -> None:
    name = topic(house, "acls-as-grants")
    make(
        house,
        binding(name, "jo", AclOperation.ALL),
        binding("public/default/", "jo", AclOperation.WRITE, pattern=ResourcePatternType.PREFIXED),
        binding(name, "jo", AclOperation.READ, permission=AclPermissionType.DENY, host="10.0.0.1"),
    )
    told: Any = ask(house.data, "permissions", target="public/default")
    assert told.roles["jo"] == ("produce",)
    assert told.topics[f"persistent://public/default/{name}"] == {"jo": ("consume", "produce")}
    assert any("DENY" in line and "User:jo" in line for line in told.others)
    assert sent(house, "jo", name) is None
    ask(house.data, "revoke", target=name, role="jo")
    assert sent(house, "jo", name) is None, "the namespace's is still there"
    ask(house.data, "revoke", target="public/default", role="jo")
    assert sent(house, "jo", name) is not None
    assert drop(house, "jo") == 1


def test_pulsars_clients_obey_them(house: BrokerProcess) -> None:
    name = topic(house, "for-pulsar")

    def subscribes(role: str) -> bool:
        connected = pulsar.Client(
            house.pulsar_url,
            authentication=pulsar.AuthenticationToken(token(role)),
            operation_timeout_seconds=10,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        try:
            connected.subscribe(name, "kims")
        except (pulsar.exceptions.AuthorizationError, pulsar.exceptions.PulsarException):
            return False
        finally:
            connected.close()
        return True

    assert not subscribes("kim")
    make(house, binding(name, "kim", AclOperation.READ))
    assert not subscribes("kim"), "a subscription is what Kafka calls a group"
    make(house, binding("kims", "kim", AclOperation.READ, kind=ResourceType.GROUP))
    assert subscribes("kim")
    ask(house.data, "grant", target=name, role="lea", actions=["consume"])
    assert subscribes("lea"), "who was granted a topic needs no entry for its subscriptions"
    make(
        house,
        binding("kims", "lea", AclOperation.READ, kind=ResourceType.GROUP, permission=AclPermissionType.DENY),
    )
    assert not subscribes("lea")
    drop(house, "kim")
    drop(house, "lea")


# -- settings -------------------------------------------------------------------------------------------------------


def test_without_an_authorizer_kafkas_own_answer(tmp_path: Path) -> None:
    with started(tmp_path / "data", "authorizer.class.name=", "authorization.enabled=false") as process:
        with Wire(process.host_and_port) as wire:
            assert say(wire, f"token:{token('root')}").error_code == 0  # type: ignore[attr-defined]
            asked = DescribeAclsRequest(
                resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
            )
            told = wire.ask(asked)
            assert told.error_code == ErrorCode.SECURITY_DISABLED
            assert "No Authorizer is configured" in told.error_message
            (row,) = wire.ask(CreateAclsRequest(creations=[creation()])).results
            assert row.error_code == ErrorCode.SECURITY_DISABLED
        assert sent(process, "anybody", "open") is None


def test_everyone_may_where_nothing_is_said_if_that_is_set(tmp_path: Path) -> None:
    with started(tmp_path / "data", "allow.everyone.if.no.acl.found=true") as process:
        for name in ("free", "said", "granted"):
            topic(process, name)
        make(process, binding("said", "root", AclOperation.READ))
        ask(process.data, "grant", target="granted", role="nick", actions=["produce"])
        assert sent(process, "mia", "free") is None
        assert read(process, "mia", "free", "mias") == "read"
        assert sent(process, "mia", "said") is not None
        assert sent(process, "mia", "granted") is not None
        assert sent(process, "nick", "granted") is None
        process.kill()
    with started(tmp_path / "data", "allow.everyone.if.no.acl.found=true") as process:
        assert sent(process, "mia", "said") is not None, "entries are there after a crash"
        assert sent(process, "mia", "free") is None
