"""Figures under others' names: dashboards that were made for KoP, Confluent's stacks and lag exporters answer."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pulsar
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from magnetar.figures.buckets import EntryBuckets
from magnetar.figures.dialects import Alias, Dialects
from magnetar.ledger.pending import Done
from magnetar.pulsar.bucket_families import FAMILIES
from tests.figures.panels_of import Selected, counted, is_in, silent
from tests.figures.test_metrics import HTTP, consumed, created, produced
from tests.figures.told import Told, scraped, url
from tests.process import BrokerDidNotStart, BrokerProcess
from tests.waiting import until

ALL = ("--set", "metrics.dialects=confluent,kop,kafka-lag-exporter,kminion,pulsar-buckets")
PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
GROUP = {"cluster_name": "standalone", "group": "readers", "topic": "orders"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One with all dialects, two groups' worth of clients, and a transaction that is open."""
    with BrokerProcess(tmp_path_factory.mktemp("dialects") / "data", *HTTP, *ALL) as process:
        created(process, NewTopic("orders", 3, 1))
        produced(process, "orders", 2000)
        consumer = consumed(process, "orders", "readers", 3)
        consumer.commit(offsets=[TopicPartition("orders", 0, 100)], asynchronous=False)
        client = pulsar.Client(process.pulsar_url)
        subscribed = client.subscribe("orders-partition-0", "mine")
        open_one = Producer({"bootstrap.servers": process.address, "transactional.id": "left-open"})
        open_one.init_transactions(60)
        open_one.begin_transaction()
        open_one.produce("orders", b"x", partition=0)
        assert open_one.flush(60) == 0
        yield process
        consumer.close()
        subscribed.close()
        client.close()


@pytest.fixture(scope="module")
def told(broker: BrokerProcess) -> Told:
    latest: list[Told] = []

    def is_whole() -> bool:
        latest.append(scraped(broker))
        return bool(latest[-1].all("magnetar_consumergroup_lag_seconds"))

    until(is_whole)
    return latest[-1]


def of_page() -> dict[str, tuple[int, int]]:
    """Return what the page says of each dashboard: panels that answer, and all."""
    rows = re.findall(r"^\| `([^|`]+)` \| (\d+) \| \d+ \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    return {title: (int(answered), int(asked)) for title, answered, asked in rows}


def test_the_page_tells_how_many_panels_answer(told: Told) -> None:
    answered = is_in(told)
    assert counted(answered) == of_page(), "\n".join(silent(answered))


def test_the_same_figure_has_the_same_value_under_each_name(told: Told) -> None:
    lag = told.of("kafka_consumergroup_lag", consumergroup="readers", topic="orders", partition="0")
    assert lag > 0
    assert told.of("kafka_consumergroup_group_lag", **GROUP, partition="0") == lag
    assert told.of("kafka_consumergroup_group_max_lag", cluster_name="standalone", group="readers") == lag
    kminion = {"group_id": "readers", "topic_name": "orders"}
    assert (
        told.of("kminion_kafka_consumer_group_topic_partition_lag", **kminion, partition_id="0")
        == told.of("kminion_kafka_consumer_group_topic_lag", **kminion)
        == lag
    )
    messages = told.of("kafka_server_brokertopicmetrics_messagesin_total", topic="orders")
    assert told.of("kafka_server_brokertopicmetrics_messagesinpersec", topic="orders") == messages == 2001
    assert sum(told.all("kop_server_MESSAGE_IN", topic="orders")) == messages
    assert sum(told.all("kop_server_BYTES_OUT", topic="orders")) == told.of(
        "kafka_server_brokertopicmetrics_bytesout_total", topic="orders"
    )
    assert told.all("kop_server_MESSAGE_READ_count", success="true")[0] > 0
    assert (
        told.of("kop_server_REQUEST_LATENCY_count", request="Produce", success="true")
        == (told.of("kafka_network_requestmetrics_totaltimems_count", request="Produce"))
        > 0
    )
    assert told.of("kminion_kafka_topic_high_water_mark_sum", topic_name="orders") == 2001
    assert told.all("kminion_kafka_consumer_group_info", group_id="readers", state="Stable") == [1]


def test_entries_are_counted_by_size_and_by_how_long_they_took(told: Told) -> None:
    topics = "persistent://public/default/orders-partition-"
    sizes, latencies = "pulsar_entry_size_", "pulsar_storage_write_latency_"
    for index in range(3):
        of_it = {"cluster": "standalone", "namespace": "public/default", "topic": f"{topics}{index}"}
        entries = told.of(f"{sizes}count", **of_it)
        assert entries >= 1
        by_size = [told.of(each.name, **of_it) for each in FAMILIES if "_size_le_" in each.name]
        by_latency = [
            told.of(each.name, **of_it)
            for each in FAMILIES
            if each.name.startswith(latencies) and not each.name.endswith(("_count", "_sum"))
        ]
        assert (len(by_size), len(by_latency)) == (9, 10)
        assert sum(by_size) == sum(by_latency) == told.of(f"{latencies}count", **of_it) == entries


def test_the_age_of_what_is_not_read_is_that_of_its_oldest_record(broker: BrokerProcess, told: Told) -> None:
    """One of two partitions has nothing left: its lag is 0 s, and of the other that of the first record left."""
    began_ms = time.time() * 1000
    created(broker, NewTopic("aged", 2, 1))
    produced(broker, "aged", 100)
    consumer = consumed(broker, "aged", "slow", 2)
    ends = [consumer.get_watermark_offsets(TopicPartition("aged", index))[1] for index in range(2)]
    offsets = [TopicPartition("aged", 0, ends[0]), TopicPartition("aged", 1, 3)]
    consumer.commit(offsets=offsets, asynchronous=False)
    labels = {"consumergroup": "slow", "topic": "aged"}
    name = "magnetar_consumergroup_lag_seconds"
    until(lambda: len(scraped(broker).all(name, **labels)) == 2)
    before = scraped(broker)
    assert before.of(name, **labels, partition="0") == 0
    older = before.of(name, **labels, partition="1")
    assert 0 <= older <= (time.time() * 1000 - began_ms) / 1000
    time.sleep(0.3)  # nothing is waited for: the age has to have grown by as much
    after = scraped(broker)
    assert after.of(name, **labels, partition="1") >= older + 0.25
    assert after.of("magnetar_consumergroup_max_lag_seconds", consumergroup="slow") == after.of(
        name, **labels, partition="1"
    )
    produced(broker, "aged", 50)  # what comes behind makes nothing older or younger
    last = scraped(broker)
    grown = last.of(name, **labels, partition="1") - after.of(name, **labels, partition="1")
    assert 0 <= grown <= (time.time() * 1000 - began_ms) / 1000
    consumer.commit(offsets=[TopicPartition("aged", 1, ends[1])], asynchronous=False)
    youngest = "magnetar_consumergroup_lag_seconds"
    until(lambda: 0 <= (scraped(broker).all(youngest, **labels, partition="1") or [1e9])[0] < older + 0.25)
    consumer.close()


def test_a_subscriptions_lag_in_seconds_is_that_of_its_oldest_entry(broker: BrokerProcess) -> None:
    client = pulsar.Client(broker.pulsar_url)
    consumer = client.subscribe("lagging", "mine", consumer_type=pulsar.ConsumerType.Shared)
    labels = {"topic": "persistent://public/default/lagging", "subscription": "mine"}
    name = "magnetar_subscription_lag_seconds"
    assert scraped(broker).all(name, **labels) == [0]
    producer = client.create_producer("lagging", batching_enabled=False)
    sent = [producer.send(b"x") for _ in range(5)]
    began = time.monotonic()
    assert len(sent) == 5
    until(lambda: (scraped(broker).all(name, **labels) or [0])[0] > 0.2)
    assert scraped(broker).all(name, **labels)[0] <= time.monotonic() - began + 60
    for _ in range(5):
        consumer.acknowledge(consumer.receive(10_000))
    until(lambda: scraped(broker).all(name, **labels) == [0])
    client.close()


@pytest.mark.slow
def test_a_group_that_is_stuck_is_told_of_with_its_reason(broker: BrokerProcess) -> None:
    """One has a member that commits nothing, one has none; a group that has read everything has no line."""
    created(broker, NewTopic("stuck", 1, 1))
    produced(broker, "stuck", 100)
    alive = consumed(broker, "stuck", "alive", 1)
    for group, offset in (("gone", 5), ("well", 100)):
        consumer = consumed(broker, "stuck", group, 1)
        consumer.commit(offsets=[TopicPartition("stuck", 0, offset)], asynchronous=False)
        consumer.close()
    name = "magnetar_group_stuck"

    def are_told() -> bool:
        told = scraped(broker)
        return [told.all(name, consumergroup=group) for group in ("gone", "well", "alive")] == [[1], [], [1]]

    until(are_told)
    told = scraped(broker)
    assert told.of(name, consumergroup="gone", reason="no-members") == 1
    assert told.of(name, consumergroup="alive", reason="not-committing") == 1
    assert told.of("magnetar_metrics_failures_total") == 0
    alive.commit(offsets=[TopicPartition("stuck", 0, 100)], asynchronous=False)
    until(lambda: not scraped(broker).all(name, consumergroup="alive"))
    alive.close()


def test_transactions_are_told_of_by_protocol_and_state(told: Told) -> None:
    assert told.of("magnetar_transactions", protocol="kafka", state="Ongoing") == 1
    assert told.of("magnetar_transactions_oldest_open_seconds", protocol="kafka") > 0
    assert told.of("magnetar_transactions_oldest_open_seconds", protocol="pulsar") == 0


def test_without_dialects_none_of_their_names_is_there(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *HTTP) as broker:
        produced(broker, "t", 10)
        names = scraped(broker).names()
    assert not [each for each in names if re.match("kop_|kminion_|kafka_consumergroup_group_|.*persec", each)]
    assert not [each for each in names if "entry_size" in each or "write_latency" in each]


def test_an_unknown_dialect_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(BrokerDidNotStart, match="one of: confluent, kop"),
        BrokerProcess(tmp_path / "data", *HTTP, "--set", "metrics.dialects=kop,klingon"),
    ):
        pass


def test_labels_get_their_other_names_whatever_the_values_are() -> None:
    alias = Alias("n", labels={"topic": "topic_name", "partition": "p"}, added='cluster="c",')
    odd = 'x\\",topic=\\"y,partition='
    assert alias.labelled(f'{{topic="{odd}",partition="1"}}') == (f'{{cluster="c",topic_name="{odd}",p="1"}}')
    assert alias.labelled("") == '{cluster="c"}'
    assert Alias("n", labels={"a": "b"}).labelled("") == ""
    assert Alias("n").labelled('{a="1"}') == '{a="1"}'
    assert Dialects().of("kafka_consumergroup_lag") == []


async def test_minutes_are_told_one_after_the_other() -> None:
    counts = EntryBuckets(0.0)
    at = {family.name: number for number, family in enumerate(FAMILIES)}
    for size in (100, 128, 129, 2 << 20):
        counts.placed(size, None)
    failed: Done = Done()
    counts.placed(10, failed)
    failed.settle(OSError("not kept"))
    first = counts.last_minute(1.0)
    sizes, latencies = "pulsar_entry_size_", "pulsar_storage_write_latency_"
    assert first[at[f"{sizes}le_128"]] == 3
    assert first[at[f"{sizes}le_512"]] == first[at[f"{sizes}le_overflow"]] == 1
    assert first[at[f"{sizes}count"]] == 5
    assert first[at[f"{sizes}sum"]] == 367 + (2 << 20)
    assert first[at[f"{latencies}count"]] == 4  # what was not kept was not written
    assert counts.last_minute(60.0) == first
    counts.placed(1, None)
    assert counts.last_minute(90.0) == first  # the minute under way is not over
    second = counts.last_minute(120.0)
    assert second[at[f"{sizes}count"]] == second[at[f"{sizes}le_128"]] == 1
    counts.placed(1, None)
    counts.placed(1, None)
    assert counts.last_minute(240.0)[at[f"{sizes}count"]] == 1  # of two minutes a minute's share


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not here (Debian's package)")
def test_prometheus_itself_finds_what_panels_ask_for(
    broker: BrokerProcess, told: Told, tmp_path: Path
) -> None:
    """The counts of the page again, asked for in PromQL."""
    target = url(broker).removeprefix("http://")
    jobs = [{"job_name": "broker", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}]
    (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    command = ["prometheus", *options, f"--web.listen-address={address}", "--log.level=error"]
    with subprocess.Popen(command, cwd=tmp_path) as prometheus, httpx.Client(timeout=60) as http:
        try:

            def found(query: str) -> list[object]:
                try:
                    answer = http.get(f"http://{address}/api/v1/query", params={"query": query})
                    return list(answer.json()["data"]["result"])
                except (httpx.TransportError, ValueError, KeyError):
                    return []  # it is starting

            until(lambda: found("magnetar_consumergroup_lag_seconds"))
            known: dict[str, bool] = {}

            def answered(asked: Selected) -> bool:
                return known.setdefault(asked.promql, bool(found(asked.promql)))

            assert counted(answered) == of_page(), "\n".join(silent(answered))
        finally:
            prometheus.send_signal(signal.SIGTERM)
