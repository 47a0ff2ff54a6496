"""What stock clients of both protocols did is in /metrics, exactly, under the names that their users know."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.figures.told import Told, scraped, url
from tests.process import BrokerProcess
from tests.security.signing import SECURED, token

HTTP = ("--set", "http.listeners=http://127.0.0.1:0", "--set", "pulsar.listeners=pulsar://127.0.0.1:0")
RECORDS, VALUE, PARTITIONS = 20_000, b"x" * 100, 3
PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
IN = "kafka_server_brokertopicmetrics_messagesin_total"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("figures") / "data", *HTTP) as process:
        yield process


def created(broker: BrokerProcess, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})  # what it began ends with it
    for done in admin.create_topics([*topics]).values():
        done.result(30)


def produced(broker: BrokerProcess, topic: str, records: int, value: bytes = VALUE) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 5})
    for number in range(records):
        producer.produce(topic, value, key=str(number).encode())
        producer.poll(0)
    assert producer.flush(60) == 0


def consumed(broker: BrokerProcess, topic: str, group: str, partitions: int) -> Consumer:
    """Read all of a topic as the only member of a group, and commit nothing."""
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": group, "auto.offset.reset": "earliest"}
        | {"enable.auto.commit": False, "enable.partition.eof": True}
    )
    consumer.subscribe([topic])
    ends = 0
    while ends < partitions:
        ends += sum(each.error() is not None for each in consumer.consume(1000, 1.0))
    return consumer


@pytest.fixture(scope="module")
def after_kafka(broker: BrokerProcess) -> Told:
    """20,000 records in three partitions, read by a group that committed 5,000 of each partition but all of one."""
    created(broker, NewTopic("orders", PARTITIONS, 1))
    produced(broker, "orders", RECORDS)
    consumer = consumed(broker, "orders", "readers", PARTITIONS)
    consumer.commit(
        offsets=[TopicPartition("orders", 0, 5000), TopicPartition("orders", 1, 5000)], asynchronous=False
    )
    ends = [consumer.get_watermark_offsets(TopicPartition("orders", 2))[1]]
    consumer.commit(offsets=[TopicPartition("orders", 2, ends[0])], asynchronous=False)
    told = scraped(broker)
    consumer.close()
    return told


@pytest.mark.slow
def test_every_record_of_a_kafka_client_is_counted_once(after_kafka: Told) -> None:
    assert after_kafka.of(IN, topic="orders") == RECORDS
    assert after_kafka.of(IN) == sum(after_kafka.all(IN)) / 2
    sent = after_kafka.of("kafka_server_brokertopicmetrics_bytesin_total", topic="orders")
    assert RECORDS * len(VALUE) < sent < RECORDS * (len(VALUE) + 20)
    assert after_kafka.of("kafka_server_brokertopicmetrics_bytesout_total", topic="orders") == sent
    requests = after_kafka.of("kafka_server_brokertopicmetrics_totalproducerequests_total", topic="orders")
    assert PARTITIONS <= requests <= RECORDS
    assert (
        after_kafka.of("kafka_server_brokertopicmetrics_totalfetchrequests_total", topic="orders")
        >= PARTITIONS
    )
    for failed in ("failedproducerequests", "failedfetchrequests"):
        assert after_kafka.of(f"kafka_server_brokertopicmetrics_{failed}_total", topic="orders") == 0


def test_logs_are_told_of_partition_by_partition(after_kafka: Told) -> None:
    assert after_kafka.of("kafka_topic_partitions", topic="orders") == PARTITIONS
    ends = [
        after_kafka.of("kafka_log_log_logendoffset", topic="orders", partition=str(index))
        for index in range(PARTITIONS)
    ]
    assert sum(ends) == RECORDS
    assert min(ends) > 5000
    assert after_kafka.all("kafka_topic_partition_current_offset", topic="orders") == ends
    assert after_kafka.all("kafka_topic_partition_oldest_offset", topic="orders") == [0] * PARTITIONS
    assert after_kafka.all("kafka_log_log_logstartoffset", topic="orders") == [0] * PARTITIONS
    assert min(after_kafka.all("kafka_log_log_size", topic="orders")) > 5000 * len(VALUE)
    assert after_kafka.all("kafka_log_log_numlogsegments", topic="orders") == [1] * PARTITIONS
    for name, value in (
        ("kafka_topic_partition_leader", 0),
        ("kafka_topic_partition_leader_is_preferred", 1),
        ("kafka_topic_partition_replicas", 1),
        ("kafka_topic_partition_in_sync_replica", 1),
        ("kafka_topic_partition_under_replicated_partition", 0),
        ("kafka_cluster_partition_replicascount", 1),
        ("kafka_cluster_partition_insyncreplicascount", 1),
        ("kafka_cluster_partition_underminisr", 0),
        ("kafka_cluster_partition_atminisr", 1),
    ):
        assert after_kafka.all(name, topic="orders") == [value] * PARTITIONS, name


def test_a_groups_lag_is_exact(after_kafka: Told) -> None:
    group = {"consumergroup": "readers", "topic": "orders"}
    for index, committed in ((0, 5000), (1, 5000)):
        end = after_kafka.of("kafka_log_log_logendoffset", topic="orders", partition=str(index))
        assert (
            after_kafka.of("kafka_consumergroup_current_offset", **group, partition=str(index)) == committed
        )
        assert after_kafka.of("kafka_consumergroup_lag", **group, partition=str(index)) == end - committed
    assert after_kafka.of("kafka_consumergroup_lag", **group, partition="2") == 0
    assert after_kafka.of("kafka_consumergroup_lag_sum", **group) == RECORDS - after_kafka.of(
        "kafka_consumergroup_current_offset_sum", **group
    )
    assert after_kafka.of("kafka_consumergroup_members", consumergroup="readers") == 1
    manager = "kafka_coordinator_group_groupmetadatamanager_"
    assert after_kafka.of(f"{manager}numgroups") == after_kafka.of(f"{manager}numgroupsstable") == 1
    assert after_kafka.of(f"{manager}numgroupsempty") == 0
    assert after_kafka.of(f"{manager}numoffsets") == PARTITIONS


def test_requests_are_counted_and_timed_by_api(after_kafka: Told) -> None:
    for request in ("Produce", "Fetch", "FetchConsumer", "JoinGroup", "OffsetCommit", "CreateTopics"):
        count = sum(after_kafka.all("kafka_network_requestmetrics_requests_total", request=request))
        assert count > 0, request
        times = "kafka_network_requestmetrics_totaltimems"
        assert after_kafka.of(f"{times}_count", request=request) == count
        quantiles = after_kafka.all(times, request=request)
        assert len(quantiles) == 6
        assert 0 < quantiles[0] <= quantiles[-1]
        assert after_kafka.of(f"{times}_sum", request=request) >= quantiles[-1]
    appended = after_kafka.of("kafka_server_brokertopicmetrics_totalproducerequests_total", topic="orders")
    assert after_kafka.of("kafka_network_requestmetrics_totaltimems_count", request="Produce") <= appended


def test_connections_the_journal_and_the_process_are_told_of(
    after_kafka: Told, broker: BrokerProcess
) -> None:
    assert after_kafka.of("kafka_server_socket_server_metrics_connection_count", listener="PLAINTEXT") >= 2
    software = after_kafka.labelled(
        "client_software_name", ["kafka_server_socket_server_metrics_connections"]
    )
    assert software == {"confluent-kafka-python"}
    for name in ("magnetar_journal_write_seconds", "kafka_log_logflushstats_logflushrateandtimems"):
        assert after_kafka.of(f"{name}_count") > 0
        assert after_kafka.of(f"{name}_sum") > 0
    assert after_kafka.of("magnetar_journal_written_bytes_total") > RECORDS * len(VALUE)
    assert after_kafka.of("magnetar_connections") >= 3
    assert after_kafka.of("magnetar_open_logs") >= PARTITIONS
    assert after_kafka.of("magnetar_storage_failed") == after_kafka.of("magnetar_metrics_failures_total") == 0
    assert 0 < after_kafka.of("process_resident_memory_bytes") < 4 * broker.resident_bytes
    assert after_kafka.of("process_cpu_seconds_total") > 0
    assert after_kafka.of("kafka_server_kafkaserver_linux_disk_write_bytes") > 0
    assert after_kafka.of("kafka_server_kafkaserver_brokerstate") == 3
    assert after_kafka.of("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert after_kafka.of("kafka_broker_info", id="0", address=broker.address) == 1


def test_what_kafkas_clients_use_has_pulsars_names_too(after_kafka: Told) -> None:
    labels = {"cluster": "standalone", "namespace": "public/default"}
    assert sum(after_kafka.all("pulsar_in_messages_total", **labels)) >= RECORDS
    name = "persistent://public/default/orders-partition-0"
    end = after_kafka.of("kafka_log_log_logendoffset", topic="orders", partition="0")
    assert after_kafka.of("pulsar_in_messages_total", **labels, topic=name) == end
    assert after_kafka.of("pulsar_storage_size", **labels, topic=name) == after_kafka.of(
        "kafka_log_log_size", topic="orders", partition="0"
    )
    assert after_kafka.of("pulsar_topics_count", cluster="standalone") == 0
    assert after_kafka.of("pulsar_topics_count", **labels) >= PARTITIONS
    assert after_kafka.of("pulsar_broker_topics_count", cluster="standalone") >= PARTITIONS


def test_rates_are_those_between_two_looks(broker: BrokerProcess) -> None:
    created(broker, NewTopic("rates", 1, 1))
    produced(broker, "rates", 1)
    labels = {
        "cluster": "standalone",
        "namespace": "public/default",
        "topic": "persistent://public/default/rates",
    }
    scraped(broker)
    produced(broker, "rates", 1000)
    consumed(broker, "rates", "looks", 1).close()
    time.sleep(1.0)  # looks that lie closer together count as one
    told = scraped(broker)
    for way, size in (("in", 100), ("out", 100)):
        rate = told.of(f"pulsar_rate_{way}", **labels)
        assert 0 < rate <= 1001
        assert rate * size < told.of(f"pulsar_throughput_{way}", **labels) < rate * 2 * size
    assert size < told.of("pulsar_average_msg_size", **labels) < 2 * size
    assert told.of("pulsar_broker_rate_out", cluster="standalone") >= rate


def test_what_pulsars_clients_do_is_counted_under_both_names(broker: BrokerProcess) -> None:
    client = pulsar.Client(broker.pulsar_url)
    consumer = client.subscribe("mixed", "mine", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer("mixed", batching_enabled=False)
    for _ in range(500):
        producer.send_async(VALUE, lambda *_: None)
    producer.flush()
    for _ in range(300):
        consumer.acknowledge(consumer.receive(10_000))
    labels = {
        "cluster": "standalone",
        "namespace": "public/default",
        "topic": "persistent://public/default/mixed",
    }
    of_it = labels | {"subscription": "mine"}
    told = scraped(broker)
    while (
        told.of("pulsar_subscription_back_log", **of_it) > 200
    ):  # acknowledgements come when the client likes
        told = scraped(broker)
    assert told.of(IN, topic="mixed") == told.of("pulsar_in_messages_total", **labels) == 500
    assert told.of("pulsar_in_bytes_total", **labels) > 500 * len(VALUE)
    assert told.of("kafka_log_log_logendoffset", topic="mixed", partition="0") == 500
    assert told.of("pulsar_out_messages_total", **of_it) == 500
    assert told.of("pulsar_out_bytes_total", **of_it) > 500 * len(VALUE)
    assert told.of("pulsar_msg_backlog", **labels) == 200
    assert told.of("pulsar_subscription_back_log_no_delayed", **of_it) == 200
    assert told.of("pulsar_subscription_unacked_messages", **of_it) == 200
    assert told.of("pulsar_subscription_delayed", **of_it) == 0
    assert told.of("pulsar_subscription_blocked_on_unacked_messages", **of_it) == 0
    assert told.of("pulsar_subscription_consumers_count", **of_it) == 1
    for name in ("pulsar_producers_count", "pulsar_subscriptions_count", "pulsar_consumers_count"):
        assert told.of(name, **labels) == 1
    for name in ("producers", "subscriptions", "consumers"):
        assert told.of(f"pulsar_broker_{name}_count", cluster="standalone") >= 1
    assert told.of("pulsar_broker_msg_backlog", cluster="standalone") >= 200
    assert told.of("pulsar_active_connections", cluster="standalone", broker="0") == 1
    client.close()
    told = scraped(broker)
    while told.of("pulsar_active_connections", cluster="standalone", broker="0"):
        told = scraped(broker)
    assert told.of("pulsar_connection_closed_total_count", cluster="standalone", broker="0") >= 1


def test_what_fails_is_counted_if_no_client_must_expect_it(broker: BrokerProcess) -> None:
    created(
        broker, NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact", "max.message.bytes": "2000"})
    )
    refused: list[str] = []

    def told_of(error: object, message: object) -> None:
        refused.append(str(error))

    def send(value: bytes, key: bytes | None) -> None:
        producer = Producer({"bootstrap.servers": broker.address, "message.send.max.retries": 0})
        producer.produce("compacted", value, key=key, on_delivery=told_of)
        producer.flush(60)

    send(b"no key", None)
    send(b"x" * 5000, b"too large")  # a client has to expect that
    assert len([each for each in refused if each != "None"]) == 2, refused
    told = scraped(broker)
    assert told.of("kafka_server_brokertopicmetrics_failedproducerequests_total", topic="compacted") == 1
    assert told.of("kafka_server_brokertopicmetrics_totalproducerequests_total", topic="compacted") == 2
    errors = "kafka_network_requestmetrics_errors_total"
    assert told.of(errors, request="Produce", error="INVALID_RECORD") == 1
    assert told.of(errors, request="Produce", error="MESSAGE_TOO_LARGE") == 1
    assert told.of(IN, topic="compacted") == 0
    with pytest.raises(KafkaException):
        created(broker, NewTopic("compacted", 1, 1))
    assert scraped(broker).of(errors, request="CreateTopics", error="TOPIC_ALREADY_EXISTS") == 1


def test_a_deleted_topic_is_told_of_no_more_and_sums_never_shrink(broker: BrokerProcess) -> None:
    produced(broker, "gone", 100)
    before = scraped(broker)
    assert before.of(IN, topic="gone") == 100
    admin = AdminClient({"bootstrap.servers": broker.address})
    for done in admin.delete_topics(["gone"]).values():
        done.result(30)
    after = scraped(broker)
    assert "gone" not in after.labelled("topic")
    assert after.of(IN) >= before.of(IN)


def test_ports_answer_with_and_without_a_slash(broker: BrokerProcess) -> None:
    assert httpx.get(f"{url(broker)}/metrics/").text.startswith("# HELP")
    assert httpx.head(f"{url(broker)}/metrics").status_code == 200


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not here (Debian's package prometheus)"
)
def test_promtool_has_nothing_to_say(broker: BrokerProcess, after_kafka: Told) -> None:
    text = scraped(broker).text
    done = subprocess.run(("promtool", "check", "metrics"), input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_page_names_what_is_told_and_nothing_else(broker: BrokerProcess, after_kafka: Told) -> None:
    page = set(re.findall(r"`((?:kafka|pulsar|magnetar|process|python)_[a-z0-9_]+)`", PAGE.read_text()))
    assert scraped(broker).names() == page


@pytest.mark.slow
def test_a_broker_that_begins_again_counts_anew_and_knows_where_logs_and_groups_are(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *HTTP) as first:
        produced(first, "kept", 1000)
        consumer = consumed(first, "kept", "late", 1)
        consumer.commit(offsets=[TopicPartition("kept", 0, 400)], asynchronous=False)
        consumer.close()
        produced(first, "unread", 5)
    with BrokerProcess(tmp_path / "data", *HTTP) as again:
        told = scraped(again)
        # Nobody asks for the topics: the scrape has them looked at.
        while not (
            told.all("kafka_consumergroup_lag") and told.all("kafka_log_log_logendoffset", topic="unread")
        ):
            time.sleep(0.2)
            told = scraped(again)
        assert told.of("kafka_consumergroup_lag", consumergroup="late", topic="kept", partition="0") == 600
        assert told.of("kafka_consumergroup_lag_sum", consumergroup="late", topic="kept") == 600
        assert told.of("kafka_log_log_logendoffset", topic="kept", partition="0") == 1000
        assert told.of("kafka_log_log_logendoffset", topic="unread", partition="0") == 5
        assert told.of("kafka_topic_partition_current_offset", topic="kept", partition="0") == 1000
        assert told.of(IN, topic="kept") == 0
        produced(again, "kept", 10)
        assert scraped(again).of(IN, topic="kept") == 10


def test_what_there_is_too_much_of_counts_in_sums(tmp_path: Path) -> None:
    few = ("--set", "metrics.max.lines.per.figure=3")
    with BrokerProcess(tmp_path / "few", *HTTP, *few) as broker:
        for number in range(5):
            produced(broker, f"t{number}", 10)
        told = scraped(broker)
        assert len(told.all("kafka_log_log_logendoffset")) == 3
        assert told.of("magnetar_metrics_left_out", what="partitions") == 2
        assert told.of("magnetar_metrics_left_out", what="topics") == 2
        assert told.of(IN) == 50
        assert told.of("pulsar_broker_topics_count", cluster="standalone") == 5


def test_without_lines_of_topics_there_are_those_of_namespaces(tmp_path: Path) -> None:
    off = ("--set", "exposeTopicLevelMetricsInPrometheus=false")
    with BrokerProcess(tmp_path / "off", *HTTP, *off) as broker:
        for number in range(5):
            produced(broker, f"t{number}", 10)
        told = scraped(broker)
        assert told.labelled("topic") == set()
        assert told.of("pulsar_in_messages_total", cluster="standalone", namespace="public/default") == 50
        assert told.of(IN) == 50
        assert set(told.all("magnetar_metrics_left_out")) == {0}


def test_who_asks_is_told_of_what_he_may_see(tmp_path: Path) -> None:
    options = [word for each in SECURED for word in ("--set", each)]
    with BrokerProcess(tmp_path / "data", *HTTP, *options) as broker:
        known = {"authorization": f"Bearer {token('root')}"}
        with httpx.Client(base_url=f"{url(broker)}/admin/v2", headers=known, timeout=60) as http:
            assert http.put("/namespaces/public/theirs").status_code == 204
            for namespace in ("default", "theirs"):
                assert http.put(f"/persistent/public/{namespace}/t/partitions", json=2).status_code == 204
            grant = http.post("/namespaces/public/theirs/permissions/alice", json=["produce"])
            assert grant.status_code == 204
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
        login |= {"sasl.password": f"token:{token('root')}", "bootstrap.servers": broker.address}
        producer = Producer(login)
        for topic in ("t", "public/theirs/t"):
            producer.produce(topic, b"1", partition=0)
        assert producer.flush(60) == 0
        consumer = Consumer(login | {"group.id": "secret"})
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        consumer.close()
        everything = scraped(broker, authorization=f"Bearer {token('root')}")
        assert {"t", "public/theirs/t"} <= everything.labelled("topic", ["kafka_topic_partitions"])
        assert everything.labelled("consumergroup") == {"secret"}
        alices = scraped(broker, authorization=f"Bearer {token('alice')}")
        assert alices.labelled("topic", ["kafka_topic_partitions", IN]) == {"public/theirs/t"}
        assert {each.rpartition("-")[0] for each in alices.labelled("topic", ["pulsar_rate_in"])} == {
            "persistent://public/theirs/t-partition"
        }
        assert alices.labelled("consumergroup") == set()
        assert httpx.get(f"{url(broker)}/metrics").status_code == 401


EXAMPLES = Path(__file__).parents[2] / "examples" / "monitoring"
NAMES = re.compile(r"\b(?:kafka|pulsar|magnetar|process|python)_[a-z0-9_]+\b(?=\s*(?:\{|\[|\)|,|/|>|$))")
DASHBOARD = json.loads((EXAMPLES / "grafana-magnetar.json").read_text())
QUERIES = [
    *(each["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"),
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())),
]


def test_the_dashboard_asks_for_what_there_is(after_kafka: Told) -> None:
    assert len(QUERIES) > 35
    for query in QUERIES:
        asked = set(NAMES.findall(query))
        assert asked, query
        assert asked <= after_kafka.series(), query


def test_labels_that_the_dashboard_selects_are_there(after_kafka: Told) -> None:
    for query in QUERIES:
        for name, selected in re.findall(r"([a-z_]+)\{([^}]*)\}", query):
            labels = set(re.findall(r"(\w+)\s*!?=~?", selected)) - {"job"}
            there = [{key for key, _ in those} for found, those in after_kafka if found == name]
            assert not there or any(labels <= those for those in there), query


def test_alerts_ask_for_what_there_is(after_kafka: Told) -> None:
    asked = set(NAMES.findall("\n".join(re.sub(r'".*?"', "", line) for line in rules())))
    assert len(asked) > 12
    of_clusters = set(re.findall(r"`(magnetar_[a-z_]+)`", (PAGE.parent / "cluster.md").read_text()))
    assert asked <= after_kafka.series() | of_clusters


def rules() -> list[str]:
    """Return what alerts ask for, line by line."""
    text = (EXAMPLES / "alerts.yml").read_text()
    return [rule.partition("\n        for:")[0] for rule in text.split("expr: ")[1:]]


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not here (Debian's package prometheus)"
)
def test_promtool_takes_the_alerts() -> None:
    done = subprocess.run(
        ("promtool", "check", "rules", EXAMPLES / "alerts.yml"), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout
