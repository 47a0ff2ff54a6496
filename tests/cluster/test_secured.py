"""A cluster with TLS everywhere and logins at ZooKeeper: all that talks to it, and who is refused, and how."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.ledger.bookkeeper.closed import BookieConnections, ClosedLedger, LedgerSegment
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.formats.info import decode_info
from magnetar.ledger.formats.protobuf import message, number
from magnetar.metadata import ANY, MetadataUnavailable, Put
from magnetar.metadata.zookeeper_security import ZooKeeperSecurity
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import Plan
from magnetar.pipeline.port import RecordQuery
from tests.cluster.brokers import BrokerProcess
from tests.cluster.secured import Secured
from tests.cluster.servers import bookie, class_path
from tests.cluster.wiretap import Wiretap

class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow]

from magnetar.metadata.kazoo_client import SecuredClient  # noqa: E402
from magnetar.metadata.zookeeper import ZooKeeperStore  # noqa: E402
from magnetar.pipeline.on_bookies import BookieSlice, ClusterUnknown  # noqa: E402

RECORDS = 4000


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("secured"))
    secured.cluster.start()
    yield secured
    secured.cluster.kill()


@pytest.fixture(scope="module")
def conf(secured: Secured) -> str:
    return f"metadataStoreConfigPath={secured.client_config}\n{secured.bookies_conf()}"


@pytest.fixture(scope="module")
def broker(secured: Secured, conf: str) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(secured.cluster, secured.directory, 1, "ledger.max.entries=50", conf=conf)
    broker.start()
    yield broker
    broker.end()


@pytest.fixture(scope="module")
def written(broker: BrokerProcess) -> list[bytes]:
    """Return what a stock producer had acknowledged in ``flights``."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.kafka}"})
    admin.create_topics([NewTopic("flights", 1)])["flights"].result(60)
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.kafka}", "batch.num.messages": 20})
    values = [b"flight %d" % number for number in range(RECORDS)]
    for value in values:
        producer.produce("flights", value, partition=0)
    assert producer.flush(60) == 0
    return values


def options(secured: Secured, **others: object) -> dict[str, str]:
    lines = secured.bookies_conf().splitlines()
    given = {"path": f"zk://{secured.cluster.hosts}/house", "subscribe": "flights"}
    given |= {"metadataStoreConfigPath": str(secured.client_config)}
    return given | dict(line.split("=", 1) for line in lines) | {k: str(v) for k, v in others.items()}


def planned(given: dict[str, str]) -> list[Any]:
    plan = Plan(parse_options(given, streaming=False))
    try:
        return plan.slices(plan.starts(), plan.ends())
    finally:
        plan.close()


def values_of(part: Any) -> list[bytes]:
    found = part.read(RecordQuery(columns=("value",)))
    return [value for batch in found for value in batch.column(0).to_pylist()]


def test_a_broker_keeps_records_and_spark_reads_them_past_it(secured: Secured, written: list[bytes]) -> None:
    slices = planned(options(secured))
    assert sum(isinstance(each, BookieSlice) for each in slices) > 1
    assert [value for each in slices for value in values_of(each)] == written


def test_who_trusts_another_authority_reads_no_bookie(secured: Secured, written: list[bytes]) -> None:
    # The driver cuts nothing here, so that it is the task that is refused.
    slices = planned(options(secured, bookkeeperTLSTrustCertsFilePath=secured.stranger.file))
    refused = next(each for each in slices if isinstance(each, BookieSlice))
    with pytest.raises(LedgerError, match=r"not to be trusted .*bookkeeperTLSTrustCertsFilePath must have"):
        values_of(refused)


def test_who_trusts_another_authority_reads_no_zookeeper(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.pipeline.on_bookies._CONNECT_S", 3)
    wrong = secured.config("spark-wrong", trust=secured.stranger.file)
    with pytest.raises(ClusterUnknown, match=r"not to be trusted .*trustStore\.location must have"):
        planned(options(secured, metadataStoreConfigPath=wrong))


def test_a_bookie_without_tls_is_told_so(secured: Secured, written: list[bytes]) -> None:
    plain = bookie(secured.directory / "plain", secured.cluster.zookeeper, options=secured.options)
    plain.start()
    try:
        tls = parse_options(options(secured), streaming=False).bookie_tls
        closed = ClosedLedger(0, 0, 1, 1, 3, (LedgerSegment(0, (f"127.0.0.1:{plain.port}",)),))
        told = ""
        while "has no TLS: set" not in told:  # one that has just begun to listen hangs up
            assert "reset" in told or "hung up" in told or not told
            with BookieConnections(tls) as bookies, pytest.raises(LedgerError) as refused:
                bookies.entry(closed, 0)
            told = str(refused.value)
    finally:
        plain.kill()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"password": "wrong"}, r"refuses the login of 'house': .*JAAS"),
        ({"password": None}, "SessionClosedRequireSasl"),
        ({"identity": False}, r"does it want a certificate \(zookeeper\.ssl\.keyStore\.location\)"),
        ({"trust": "stranger"}, r"not to be trusted .*trustStore\.location must have the authority"),
    ],
    ids=["wrong password", "no login", "no certificate", "wrong authority"],
)
async def test_zookeeper_refuses_and_it_is_told_why(
    secured: Secured, how: dict[str, Any], words: str
) -> None:
    if "trust" in how:
        how = {"trust": secured.stranger.file}
    security = ZooKeeperSecurity.read(str(secured.config("refused", **how)))
    with pytest.raises(MetadataUnavailable, match=words):
        await ZooKeeperStore.open(secured.cluster.hosts, "/refused", session_seconds=3, security=security)


async def test_without_tls_it_is_told_what_may_be_missing(secured: Secured) -> None:
    with pytest.raises(MetadataUnavailable, match=r"does it want TLS \(zookeeper\.client\.secure in"):
        await ZooKeeperStore.open(secured.cluster.hosts, "/refused", session_seconds=3)


async def test_large_values_come_and_go_by_tls(secured: Secured) -> None:
    security = ZooKeeperSecurity.read(str(secured.client_config))
    store = await ZooKeeperStore.open(secured.cluster.hosts, "/large", session_seconds=10, security=security)
    values = {f"/large-{number}": bytes([number]) * 200_000 for number in range(40)}
    for path, value in values.items():
        await store.commit([Put(path, value, ANY)])
    assert {path: each.value for path, each in (await store.get_tree("/")).items()} == values
    await store.close()


def know_bookies_as(secured: Secured, root: str, addresses: list[str]) -> None:
    """Have bookies be known below another root by other addresses: those of relays in front of them."""
    client = SecuredClient(secured.cluster.hosts, ZooKeeperSecurity.read(str(secured.client_config)))
    client.start(60)
    try:
        for name in ("LAYOUT", "INSTANCEID"):
            client.create(f"{root}/ledgers/{name}", client.get(f"/ledgers/{name}")[0], makepath=True)
        client.ensure_path(f"{root}/ledgers/available/readonly")
        for each in addresses:
            client.create(f"{root}/ledgers/available/{each}", b"")
    finally:
        client.stop()
        client.close()


def magnetar(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "magnetar"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_status_reads_a_brokers_file_or_is_told(secured: Secured, broker: BrokerProcess) -> None:
    place = ("--metadata", f"zk:{secured.cluster.hosts}/house")
    told = magnetar("cluster", "status", "--config", broker.config, "--json")
    assert told.returncode == 0, told.stderr
    state = json.loads(told.stdout)
    assert [each["node_id"] for each in state["brokers"]] == [1]
    assert state["zookeeper"][0]["mode"] == "standalone", "srvr is asked by TLS, too"
    assert {each["state"] for each in state["bookies"]} >= {"writable"}
    named = magnetar("cluster", "status", *place, "--metadata-config", secured.client_config, "--json")
    assert [each["node_id"] for each in json.loads(named.stdout)["brokers"]] == [1]
    wrong = secured.config("status-wrong", trust=secured.stranger.file)
    refused = magnetar("cluster", "status", *place, "--metadata-config", wrong)
    assert refused.returncode == 1
    assert "trustStore.location must have the authority" in " ".join(refused.stderr.split())


def write_as_pulsar(secured: Secured, root: str) -> None:
    """Have a sealed ledger of ``flights`` be a topic as Pulsar describes one: it does not say which offsets it has."""
    client = SecuredClient(secured.cluster.hosts, ZooKeeperSecurity.read(str(secured.client_config)))
    client.start(60)
    try:
        ledgers = "/managed-ledgers/public/default/persistent"
        info = decode_info(client.get(f"/house{ledgers}/flights-partition-0")[0])
        first = next(each for each in info.ledgers if each.sealed)
        written = number(1, first.ledger_id) + number(2, first.entries) + number(3, first.size) + number(4, 1)
        client.create(f"{root}/admin/clusters/house", b"{}", makepath=True)
        client.create(f"{root}{ledgers}/pulsars", message(1, written), makepath=True)
    finally:
        client.stop()
        client.close()


def test_a_takeover_comes_to_it_as_brokers_do(
    secured: Secured, broker: BrokerProcess, written: list[bytes]
) -> None:
    write_as_pulsar(secured, "/pulsars")
    check = (
        "migrate",
        "from-pulsar",
        "--check",
        "--json",
        "--metadata",
        f"zk:{secured.cluster.hosts}/pulsars",
    )
    bookies = ("--bookkeeper", f"zk+hierarchical://{secured.cluster.hosts}/ledgers")
    told = magnetar(*check, *bookies, "--config", broker.config)
    assert told.returncode == 0, told.stdout + told.stderr
    assert [(each["topic"], each["state"]) for each in json.loads(told.stdout)["topics"]] == [
        ("public/default/pulsars", "to be moved")
    ]
    strange = secured.directory / "strange.conf"
    trusted = broker.config.read_text().replace(str(secured.authority.file), str(secured.stranger.file))
    strange.write_text(trusted)
    told = magnetar(*check, *bookies, "--config", strange)
    assert told.returncode == 1, "bookies are not to be trusted, and not read without TLS"
    assert [each["kind"] for each in json.loads(told.stdout)["findings"]] == ["ledger"]
    refused = magnetar(*check, *bookies)
    assert refused.returncode == 1
    assert "does it want TLS" in refused.stderr


def test_a_broker_that_trusts_another_authority_says_so(secured: Secured) -> None:
    wrong = secured.config("broker-wrong", trust=secured.stranger.file)
    conf = f"metadataStoreConfigPath={wrong}\n{secured.bookies_conf()}"
    broker = BrokerProcess(secured.cluster, secured.directory, 2, conf=conf)
    broker.begin().wait()
    assert "trustStore.location must have the authority that signed it" in broker.log.read_text()


def test_what_a_broker_and_bookies_say_to_each_other_is_tls_from_the_first_record_on(
    secured: Secured,
) -> None:
    """Bytes on the wire decide: a client that leaves TLS out is told from one that is slow, and at once."""
    root = "/relayed"
    with Wiretap([each.port for each in secured.cluster.bookies]) as tap:
        know_bookies_as(secured, root, [f"127.0.0.1:{port}" for port in tap.ports])
        broker = BrokerProcess(
            secured.cluster,
            secured.directory,
            4,
            f"metadata.url=zk:{secured.cluster.hosts}{root}",
            f"bookkeeper.metadata.url=zk+hierarchical://{secured.cluster.hosts}{root}/ledgers",
            conf=f"metadataStoreConfigPath={secured.client_config}\n{secured.bookies_conf()}",
        )
        broker.start()
        try:
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.kafka}"})
            admin.create_topics([NewTopic("tapped", 1)])["tapped"].result(60)
            producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.kafka}"})
            told: list[object] = []
            for number in range(RECORDS):
                producer.produce(
                    "tapped", b"a secret %d" % number, on_delivery=lambda *row: told.append(row[0])
                )
            while len(told) < RECORDS and not tap.in_plain:
                producer.poll(0.1)
            assert tap.in_plain == [], "to a bookie in plain"
            assert told == [None] * RECORDS
        finally:
            broker.end()
        assert tap.in_plain == []
        assert tap.handshakes >= 2  # one bookie each
        assert tap.application_bytes > RECORDS * len(b"a secret")


def test_a_broker_that_trusts_no_bookie_says_what_to_look_at(secured: Secured) -> None:
    conf = f"metadataStoreConfigPath={secured.client_config}\n{secured.bookies_conf(secured.stranger.file)}"
    alone = f"metadata.url=zk:{secured.cluster.hosts}/alone"  # else another broker may have the topic
    broker = BrokerProcess(secured.cluster, secured.directory, 3, alone, conf=conf)
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.kafka}"})
        admin.create_topics([NewTopic("untrusted", 1)])["untrusted"].result(60)
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.kafka}"})
        producer.produce("untrusted", b"kept by nobody")
        while "bookkeeperTLSTrustCertsFilePath must have" not in broker.log.read_text():
            producer.poll(0.1)
    finally:
        broker.end()
