"""What is read of Pulsar's ``__change_events`` and of KoP's own topics, message by message."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from typing import Any

import fastavro
import pytest

from magnetar.kafka.coordinators.facts import Committed, offset_fact, read_fact
from magnetar.kafka.transactions.facts import transaction_fact
from magnetar.kafka.transactions.metadata import State, TransactionMetadata
from magnetar.migrate.kop_groups import KopGroups, KopTransactions
from magnetar.migrate.pulsar_messages import KeyedMessage, message_of_raw, messages_in
from magnetar.migrate.pulsar_topic_policies import ChangeEvents, own_policies
from magnetar.records.batch import TRANSACTIONAL, PlainRecord, encode_batch
from magnetar.records.control import marker_batch
from magnetar.records.entry import broker_entry_head, kafka_message_head
from magnetar.records.errors import EntryCorrupt, RecordsError
from magnetar.records.pulsar_metadata import MessageMetadata, encode_metadata
from magnetar.records.pulsar_plain import framed_message
from magnetar.records.pulsar_transactions import ABORT_MARKER, COMMIT_MARKER
from magnetar.topics.names import TopicName

POLICIES = [("maxProducerPerTopic", "int"), ("messageTTLInSeconds", "int"), ("isGlobal", "boolean")]


def schema(*more: tuple[str, str]) -> bytes:
    def record(name: str, fields: list[Any]) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": fields}

    def optional(name: str, kind: Any) -> dict[str, Any]:
        return {"name": name, "type": ["null", kind], "default": None}

    policies = record("TopicPolicies", [optional(*each) for each in (*POLICIES, *more)])
    names = [optional(each, "string") for each in ("domain", "tenant", "namespace", "topic")]
    about = record("TopicPoliciesEvent", [*names, optional("policies", policies)])
    kinds = [optional(each, "string") for each in ("eventType", "actionType")]
    return json.dumps(record("PulsarEvent", [*kinds, optional("topicPoliciesEvent", about)])).encode()


FIRST, SECOND = schema(), schema(("schemaCompatibilityStrategy", "string"))
ONE, SCHEMAS = {0: FIRST}, {0: FIRST, 1: SECOND}
TOPIC = TopicName("public", "default", "t")


def event(
    policies: Mapping[str, Any] | None, *, version: int | None = None, scope: str = "", action: str = "UPDATE"
) -> KeyedMessage:
    about = {
        "domain": "persistent",
        "tenant": "public",
        "namespace": "default",
        "topic": "t",
        "policies": policies,
    }
    out = io.BytesIO()
    written = {"eventType": "TOPIC_POLICY", "actionType": action, "topicPoliciesEvent": about}
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(SCHEMAS[version or 0])), written)
    number = b"" if version is None else version.to_bytes(8, "big")
    return KeyedMessage(f"{scope}{TOPIC}".encode(), out.getvalue(), number)


def said(*messages: KeyedMessage, schemas: Mapping[int, bytes] = ONE) -> dict[TopicName, dict[str, Any]]:
    events = ChangeEvents(schemas)
    for each in messages:
        events.apply(each)
    return {name: own.content for name, own in events.policies().items()}


def test_the_last_message_of_a_topic_counts() -> None:
    assert said(event({"maxProducerPerTopic": 1}), event({"messageTTLInSeconds": 5})) == {
        TOPIC: {"messageTTLInSeconds": 5}
    }
    gone = KeyedMessage(str(TOPIC).encode(), None)
    assert said(event({"maxProducerPerTopic": 1}), gone) == {}
    assert said(event({"maxProducerPerTopic": 1}), event(None, action="DELETE")) == {}
    assert said(event({"maxProducerPerTopic": None})) == {}, "what says nothing is no policy"


def test_what_is_for_this_cluster_comes_before_what_is_for_all() -> None:
    everywhere = event({"maxProducerPerTopic": 1, "messageTTLInSeconds": 2, "isGlobal": True}, scope="__G__")
    here = event({"maxProducerPerTopic": 9, "isGlobal": False})
    both = {TOPIC: {"maxProducerPerTopic": 9, "messageTTLInSeconds": 2}}
    assert said(everywhere, here) == said(here, everywhere) == both
    gone = KeyedMessage(f"__G__{TOPIC}".encode(), None)
    assert said(everywhere, here, gone) == {TOPIC: {"maxProducerPerTopic": 9}}


def test_each_message_is_read_by_its_own_schema() -> None:
    older, newer = (
        event({"maxProducerPerTopic": 1}, version=0),
        event({"schemaCompatibilityStrategy": "FULL"}, version=1),
    )
    assert said(older, schemas=SCHEMAS) == {TOPIC: {"maxProducerPerTopic": 1}}
    assert said(older, newer, schemas=SCHEMAS) == {TOPIC: {"schemaCompatibilityStrategy": "FULL"}}
    with pytest.raises(EntryCorrupt, match="schema version 1"):
        said(newer)


@pytest.mark.parametrize("payload", [b"", b"\x02", b"\xff" * 20])
def test_what_is_no_event_is_refused(payload: bytes) -> None:
    with pytest.raises(EntryCorrupt):
        said(KeyedMessage(str(TOPIC).encode(), payload))


def test_policies_that_are_kept_elsewhere_here() -> None:
    own = own_policies({
        "retentionPolicies": {"retentionTimeInMinutes": 2, "retentionSizeInMB": -1},
        "compactionThreshold": 100,
        "delayedDeliveryEnabled": False,
        "backLogQuotaMap": {"message_age": {"limitTime": 5, "policy": "producer_exception"}},
        "subscriptionTypesEnabled": ["Shared"],
        "fromTheFuture": 1,
    })  # fmt: skip
    assert own.config == {"retention.ms": "120000", "retention.bytes": "-1", "compaction.threshold": "100"}
    assert own.content["delayedDelivery"] == {
        "active": False,
        "tickTime": 1000,
        "maxDeliveryDelayInMillis": 0,
    }
    assert own.content["backLogQuotaMap"]["message_age"]["limitTime"] == 5
    assert set(own.not_honoured()) == {"subscriptionTypesEnabled", "fromTheFuture"}


# -- entries


def pulsars(payload: bytes, key: bytes = b"k", **more: Any) -> bytes:
    metadata = MessageMetadata(producer_name=b"p", publish_time=7, partition_key=key, **more)
    return bytes(framed_message(encode_metadata(metadata), payload, 1).framed)


def test_entries_are_read_with_an_index_and_without() -> None:
    entry = pulsars(b"v", schema_version=b"\0" * 8)
    found = [KeyedMessage(b"k", b"v", b"\0" * 8)]
    assert list(messages_in(entry)) == found
    assert list(messages_in(broker_entry_head(1, 99) + entry)) == found
    assert list(messages_in(pulsars(b"", null_value=True))) == [KeyedMessage(b"k", None)]
    identity = b"\x08\x01\x10\x02"
    raw = struct.pack(">I", len(identity)) + identity + struct.pack(">I", len(entry)) + entry
    assert message_of_raw(raw) == entry
    for damaged in (b"", raw[:-1], raw[:3], raw + b"x"):
        with pytest.raises(EntryCorrupt):
            message_of_raw(damaged)


# -- KoP


def commit(offset: int, group: str = "g", **more: Any) -> bytes:
    fact = offset_fact(group, "persistent://public/default/t", 0, Committed(offset, expire_timestamp=1))
    return encode_batch([PlainRecord(fact.key, fact.value, (), 1)], **more)


def in_a_transaction(producer_id: int, offset: int) -> KeyedMessage:
    sent = commit(
        offset, attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0, base_sequence=0
    )
    return KeyedMessage(b"k", sent)


def followed(*messages: KeyedMessage) -> dict[tuple[str, str, int], int]:
    groups = KopGroups()
    for each in messages:
        groups.apply(each)
    found = {}
    for group_id, fact in groups.facts():
        read = read_fact(fact.key, fact.value)
        assert read is not None
        assert read.group_id == group_id
        committed = read.committed  # type: ignore[union-attr]
        assert committed is not None
        assert committed.expire_timestamp == -1
        found[group_id, read.topic, read.partition] = committed.offset  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("entry_format", ["kafka", "pulsar"])
def test_a_transactions_commit_counts_when_its_marker_follows(committed: bool, entry_format: str) -> None:
    if entry_format == "kafka":
        marker = marker_batch(7, 3, 0, committed=committed, coordinator_epoch=0)
        entry = broker_entry_head(0, 0) + kafka_message_head(0, 1) + marker
    else:
        kind = COMMIT_MARKER if committed else ABORT_MARKER
        entry = pulsars(b"", marker_type=kind, txnid_most_bits=7, txnid_least_bits=3)
    (ends,) = messages_in(entry)
    plain = KeyedMessage(b"k", commit(1))
    assert followed(plain, in_a_transaction(7, 2), ends) == {("g", "t", 0): 2 if committed else 1}
    assert followed(plain, in_a_transaction(8, 2), ends) == {("g", "t", 0): 1}, "it is another one's"
    assert followed(plain, in_a_transaction(7, 2)) == {("g", "t", 0): 1}


def test_placeholders_say_nothing_and_damage_is_refused() -> None:
    assert followed(KeyedMessage(None, commit(3)), KeyedMessage(b"k", b"")) == {}
    damaged = bytearray(commit(3))
    damaged[damaged.index(b"public")] ^= 1
    with pytest.raises(RecordsError):
        followed(KeyedMessage(b"k", bytes(damaged)))


def test_only_transactions_that_have_not_ended_stand_in_the_way() -> None:
    found = KopTransactions()
    for state in State:
        fact = transaction_fact(TransactionMetadata(state.name, 1, 0, 1000, state, frozenset(), 1, 1, 1))
        found.apply(KeyedMessage(fact.key, fact.value))
    assert found.open_ids() == ["ONGOING", "PREPARE_ABORT", "PREPARE_COMMIT", "PREPARE_EPOCH_FENCE"]
    for name in found.open_ids():
        fact = transaction_fact(TransactionMetadata(name, 1, 0, 1000, State.EMPTY, frozenset(), 1, 1, 1))
        found.apply(KeyedMessage(fact.key, None if name == "ONGOING" else fact.value))
    assert found.open_ids() == []
