"""A broker's life as its owner sees it: start, restart, end, and what it refuses."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.end_to_end.clients import Seen, consume_confluent, produce_confluent
from tests.process import BrokerDidNotStart, BrokerProcess

Start = Callable[..., BrokerProcess]
NO_DELAY = ("--set", "group.initial.rebalance.delay.ms=0")
SOME = [Seen(b"%d" % n, b"value %d" % n) for n in range(100)]
MORE = [Seen(b"%d" % n, b"value %d" % n) for n in range(100, 150)]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["SIGTERM", "SIGINT", "kill -9"])
def test_a_restart_keeps_everything(start_broker: Start, tmp_path: Path, ending: str) -> None:
    first = start_broker(tmp_path / "data", *NO_DELAY)
    admin = AdminClient({"bootstrap.servers": first.address})
    admin.create_topics([NewTopic("kept", 1, config={"retention.ms": "123456789"})])["kept"].result()
    produce_confluent(first.address, "kept", SOME)
    assert consume_confluent(first.address, "kept", 60, group="half") == SOME[:60]
    if ending == "kill -9":
        first.kill()
    else:
        assert first.end(getattr(signal, ending)) == 0

    again = start_broker(tmp_path / "data", *NO_DELAY)
    produce_confluent(again.address, "kept", MORE)
    assert consume_confluent(again.address, "kept", 150, group="new") == SOME + MORE
    assert consume_confluent(again.address, "kept", 90, group="half") == SOME[60:] + MORE
    resource = ConfigResource(ConfigResource.Type.TOPIC, "kept")
    admin = AdminClient({"bootstrap.servers": again.address})
    config = admin.describe_configs([resource])[resource].result()
    assert config["retention.ms"].value == "123456789"


def test_sigterm_ends_cleanly_while_clients_are_connected(start_broker: Start) -> None:
    broker = start_broker()
    produce_confluent(broker.address, "t", SOME)
    with socket.create_connection(broker.host_and_port) as client:
        client.sendall(b"\x00\x00")  # half a size
        assert broker.end() == 0
        assert client.recv(1) == b""
    assert not (broker.data / "broker.json").exists()


def test_kafkas_server_properties_are_understood(start_broker: Start, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "# as Kafka's users have it\n"
        "process.roles=broker,controller\n"
        "node.id=1\n"
        "controller.quorum.voters=1@localhost:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://:9093\n"
        "controller.listener.names=CONTROLLER\n"
        "num.partitions=3\n"
        "num.network.threads=8\n"
    )
    broker = start_broker(tmp_path / "data", "--config", str(config), kafka=None)
    produce_confluent(broker.address, "made-by-itself", SOME)
    topics = AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=10).topics
    assert len(topics["made-by-itself"].partitions) == 3
    assert any("ignored" in line and "num.network.threads" in line for line in broker.log_lines())


def test_a_standalone_conf_of_pulsar_and_kop_is_understood(start_broker: Start, tmp_path: Path) -> None:
    config = tmp_path / "standalone.conf"
    config.write_text(
        "messagingProtocols=kafka\n"
        "kafkaListeners=PLAINTEXT://127.0.0.1:0\n"
        "kafkaTenant=public\n"
        "kafkaNamespace=default\n"
        "allowAutoTopicCreation=true\n"
        "defaultNumPartitions=2\n"
        "zookeeperServers=\n"
        "managedLedgerDefaultEnsembleSize=1\n"
    )
    broker = start_broker(tmp_path / "data", "--config", str(config), kafka=None)
    produce_confluent(broker.address, "made-by-itself", SOME)
    topics = AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=10).topics
    assert len(topics["made-by-itself"].partitions) == 2


def test_two_brokers_on_one_directory_are_refused(start_broker: Start) -> None:
    first = start_broker()
    with pytest.raises(BrokerDidNotStart) as refusal:
        start_broker()
    assert refusal.value.status != 0
    assert str(first.pid) in refusal.value.complaint.splitlines()[-2]  # the last line is advice
    produce_confluent(first.address, "unharmed", SOME)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--set", "num.partitions=many"), "num.partitions"),
        (("--set", "num.partitions=0"), "num.partitions"),
        (("--set", "no.such.setting=1"), "no.such.setting"),
        (("--set", "flush=sometimes"), "flush"),
        (("--set", "listeners=SASL_SSL://127.0.0.1:0"), "SASL_SSL"),
        (("--config", "/nowhere/server.properties"), "/nowhere/server.properties"),
    ],
)
def test_wrong_settings_are_refused(
    start_broker: Start, tmp_path: Path, arguments: tuple[str, str], named: str
) -> None:
    with pytest.raises(BrokerDidNotStart) as refusal:
        start_broker(tmp_path / "data", *arguments, kafka=None)
    assert refusal.value.status in (1, 2)
    assert named in refusal.value.complaint
    assert "Traceback" not in refusal.value.complaint


@pytest.mark.slow
def test_a_taken_port_is_told_in_one_line(start_broker: Start, tmp_path: Path) -> None:
    first = start_broker()
    with pytest.raises(BrokerDidNotStart) as refusal:
        start_broker(tmp_path / "other", kafka=first.address)
    assert "in use" in refusal.value.complaint
    assert "Traceback" not in refusal.value.complaint


def test_a_directory_that_cannot_be_written_is_told_in_one_line(start_broker: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(BrokerDidNotStart) as refusal:
        start_broker(tmp_path / "file")
    assert str(tmp_path / "file") in refusal.value.complaint
    assert "Traceback" not in refusal.value.complaint


@pytest.mark.slow
def test_listening_to_the_network_without_authentication_warns(start_broker: Start, tmp_path: Path) -> None:
    open_to_all = start_broker(tmp_path / "open", kafka="0.0.0.0:0")
    assert sum("OPEN TO THE NETWORK" in line for line in open_to_all.log_lines()) == 1
    assert not open_to_all.address.startswith("0.0.0.0")
    quiet = start_broker(tmp_path / "quiet")
    assert not any("OPEN TO THE NETWORK" in line for line in quiet.log_lines())
