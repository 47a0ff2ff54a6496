"""What stands in the way of serving a cluster of Pulsar's in place, as its metadata say it; and schemas' ledgers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.doctor.cluster_doctor import Severity
from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.formats.cursor_info import CursorInfo, encode_cursor
from magnetar.ledger.formats.info import ManagedLedgerInfo, encode_info
from magnetar.ledger.formats.protobuf import message, number
from magnetar.ledger.values import Position
from magnetar.metadata import ANY, MemoryStore, Put, Stored
from magnetar.metadata.errors import MetadataUnavailable
from magnetar.migrate.from_pulsar import PulsarCluster
from magnetar.migrate.pulsar_schema_ledgers import (
    SchemaPlace,
    decode_locator,
    decode_schema,
    encode_locator,
    encode_schema,
)
from magnetar.migrate.takeover import Takeover
from magnetar.pulsar.schemas import SchemaVersion

LEDGERS = "/managed-ledgers/public/default/persistent"
CURSOR = encode_cursor(CursorInfo(Position(3, 4)))
PULSARS_LEDGER = message(1, number(1, 3) + number(2, 10) + number(3, 900) + number(4, 1_700_000_000_000))
"""Ledger 3 of ten entries, without what brokers here say of one."""


def looked(nodes: dict[str, bytes]) -> Takeover:
    async def look() -> Takeover:
        store = MemoryStore()
        await store.commit([Put("/admin/clusters/house", b"{}", ANY)])
        await store.commit([Put(path, value, ANY) for path, value in nodes.items()])
        cluster = PulsarCluster(store, None)
        await cluster.load()
        return cluster.report("zk:somewhere")

    return asyncio.run(look())


def partitioned(topic: str, partitions: int = 1, namespace: str = "public/default") -> dict[str, bytes]:
    value = json.dumps({"partitions": partitions, "properties": {}}).encode()
    return {f"/admin/partitioned-topics/{namespace}/persistent/{topic}": value}


def offloaded() -> bytes:
    driver = message(6, message(1, b"aws-s3"))
    context = number(1, 1) + number(2, 2) + number(3, 1) + number(4, 1) + driver
    return message(1, number(1, 3) + number(2, 10) + number(3, 900) + number(4, 1) + message(5, context))


KAFKA = "/managed-ledgers/public/__kafka/persistent/__consumer_offsets-partition-0"
ERRORS = {
    "kop": {KAFKA: PULSARS_LEDGER},
    "offloaded": {f"{LEDGERS}/t": offloaded()},
    "name": {f"{LEDGERS}/a%20b": PULSARS_LEDGER},
    "two": {f"{LEDGERS}/t": PULSARS_LEDGER, f"{LEDGERS}/t-partition-0": PULSARS_LEDGER, **partitioned("t")},
    "partition": {f"{LEDGERS}/t-partition-0": PULSARS_LEDGER},
    "shadow": {f"{LEDGERS}/t": encode_info(ManagedLedgerInfo(properties={"PULSAR.SHADOW_SOURCE": "s"}))},
    "metadata": {f"{LEDGERS}/t": b"\x47\x78compressed", "/schemas/public/default/t": b'{"versions": []}'},
    "schemas": {"/schemas/public/default/t": b"\x0a\x02\x08\x01"},
}
WARNINGS = {
    "geo-replication": {f"{LEDGERS}/t": PULSARS_LEDGER, f"{LEDGERS}/t/pulsar.repl.west": CURSOR},
    "compacted": {f"{LEDGERS}/t": PULSARS_LEDGER, f"{LEDGERS}/t/__compaction": CURSOR},
    "coordinators": {"/managed-ledgers/pulsar/system/persistent/__transaction_log_0": PULSARS_LEDGER},
    "policy": {"/admin/policies/public/default": b'{"entryFilters": {"entryFilterNames": "x"}}'},
    "old-names": {"/managed-ledgers/public/west/default/persistent/t": PULSARS_LEDGER},
}


@pytest.mark.parametrize("kind", ERRORS)
def test_what_stands_in_the_way_is_said(kind: str) -> None:
    found = looked(ERRORS[kind])
    assert [each.kind for each in found.findings if each.severity is Severity.error] == [
        "metadata" if kind == "schemas" else kind
    ]
    assert not found.is_possible
    assert all(each.next_step for each in found.findings)
    if kind not in ("metadata", "schemas"):
        assert "blocked" in {each.state for each in found.topics}


@pytest.mark.parametrize("kind", WARNINGS)
def test_what_is_not_honoured_is_said_and_stops_nothing(kind: str) -> None:
    found = looked(WARNINGS[kind])
    assert [each.kind for each in found.findings] == [kind]
    assert found.is_possible


def test_several_clusters_are_said() -> None:
    found = looked({"/admin/policies/public/default": b'{"replication_clusters": ["east", "west"]}'})
    assert [each.kind for each in found.findings] == ["geo-replication"]


def test_what_is_plain_is_served_as_it_is() -> None:
    nodes = {f"{LEDGERS}/{name}": PULSARS_LEDGER for name in ("one", "many-partition-0", "many-partition-1")}
    found = looked({**nodes, **partitioned("many", 2), f"{LEDGERS}/one/s": CURSOR})
    assert found.findings == ()
    assert {(each.topic, each.state, each.entries, each.subscriptions) for each in found.topics} == {
        ("public/default/one", "to be moved", 10, 1),
        ("public/default/many-partition-0", "served", 10, 0),
        ("public/default/many-partition-1", "served", 10, 0),
    }


def test_an_empty_place_is_no_cluster() -> None:
    async def look() -> Takeover:
        cluster = PulsarCluster(MemoryStore(), None)
        await cluster.load()
        return cluster.report("zk:somewhere")

    found = asyncio.run(look())
    assert [each.kind for each in found.findings] == ["no-cluster"]
    assert not found.is_possible


ids = st.integers(0, 2**63 - 1)


@given(st.lists(st.tuples(ids, ids, st.binary(min_size=32, max_size=32)), min_size=1, max_size=20))
def test_a_locator_comes_back(rows: list[tuple[int, int, bytes]]) -> None:
    places = [SchemaPlace(version, *each) for version, each in enumerate(rows)]
    assert decode_locator(encode_locator(places), "p") == places


@given(
    st.integers(0, 20),
    st.binary(max_size=200),
    st.dictionaries(st.text(max_size=9), st.text(max_size=9)),
    st.booleans(),
)
def test_a_schema_comes_back(kind: int, data: bytes, properties: dict[str, str], deleted: bool) -> None:
    place = SchemaPlace(4, 9, 0, bytes(32))
    schema = SchemaVersion(4, kind, "", data, properties, 1_700_000_000_000, "somebody", deleted)
    assert decode_schema(encode_schema("public/default/t", schema, [place]), place) == schema


@pytest.mark.parametrize(
    "data", [b"", b"\x0a", b"{}", b"\x0a\x02\x08\x01", encode_locator([SchemaPlace(1, 1, 1, b"")])]
)
def test_what_is_no_locator_is_refused(data: bytes) -> None:
    with pytest.raises(LedgerCorrupt):
        decode_locator(data, "p")


def test_a_store_that_goes_meanwhile_is_nothing_that_pulsar_wrote() -> None:
    """It was told as metadata that cannot be read, with the advice to change how Pulsar compresses them."""

    class Gone(MemoryStore):
        async def get_many(self, paths: Iterable[str]) -> list[Stored | None]:
            wanted = list(paths)
            if any(each.startswith(LEDGERS) for each in wanted):
                raise MetadataUnavailable("no connection")
            return await super().get_many(wanted)

    async def look() -> None:
        store = Gone()
        log = f"{LEDGERS}/t-partition-0"
        await store.commit([Put("/admin/clusters/standalone", b"{}", ANY)])
        await store.commit([Put(log, encode_info(ManagedLedgerInfo()), ANY), Put(f"{log}/sub", CURSOR, ANY)])
        await PulsarCluster(store, None).load()

    with pytest.raises(MetadataUnavailable):
        asyncio.run(look())
