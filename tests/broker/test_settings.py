"""Settings from files of three dialects, the environment and flags; what is wrong or meaningless is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from magnetar.base.errors import InvalidConfig
from magnetar.base.setting import plain
from magnetar.base.values import Kind
from magnetar.kafka.settings import KafkaSettings
from magnetar.node.setting_sources import load, read_properties
from magnetar.pulsar.settings import PulsarSettings
from magnetar.settings.kafka_names import KAFKA_SETTINGS
from magnetar.settings.settings import Settings

SETTINGS = Settings().declared.definitions

KAFKA_FILE = """
# as it comes with Kafka
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
log.dirs=/tmp/kraft-combined-logs,/tmp/second
num.partitions=3
log.retention.hours=2
log.flush.interval.messages=10000
socket.request.max.bytes=104857600
num.io.threads=8
"""

PULSAR_FILE = """
### --- KoP in a standalone.conf
messagingProtocols=kafka
protocolHandlerDirectory=
kafkaListeners=PLAINTEXT://127.0.0.1:19092
kafkaTenant=acme
kafkaNamespace = shop
allowAutoTopicCreation=false
defaultNumPartitions=4
offsetsTopicNumPartitions=8
maxMessageSize=5242880
managedLedgerMaxEntriesPerLedger=50000
managedLedgerMaxSizePerLedgerMbytes=2048
managedLedgerMaxLedgerRolloverTimeMinutes=240
defaultRetentionTimeInMinutes=0
defaultRetentionSizeInMB=-1
kopAllowedNamespaces=${tenant}/${namespace}
brokerServicePort=6650
zookeeperServers=
managedLedgerDefaultEnsembleSize=1
zooKeeperSessionTimeoutMillis=30000
"""


def written(directory: Path, text: str) -> Path:
    file = directory / "broker.properties"
    file.write_text(text)
    return file


def test_without_any_source_the_defaults_are_kafkas() -> None:
    loaded = load(environment={})
    assert loaded.settings == Settings()
    assert loaded.warning() is None
    assert loaded.settings.of(KafkaSettings).listeners == ("PLAINTEXT://127.0.0.1:9092",)


def test_kafkas_own_file_is_taken_as_it_is(tmp_path: Path) -> None:
    loaded = load(written(tmp_path, KAFKA_FILE), environment={})
    settings = loaded.settings
    assert settings.node.node_id == 1
    assert settings.node.data_dir == "/tmp/kraft-combined-logs"
    assert settings.topics.num_partitions == 3
    assert settings.topics.log_retention_ms == 7_200_000
    assert settings.topics.flush == "always"
    assert loaded.ignored == ("process.roles", "num.io.threads")
    assert {"num_partitions", "log_retention_ms"} <= settings.given


def test_pulsars_and_kops_file_is_taken_as_it_is(tmp_path: Path) -> None:
    loaded = load(written(tmp_path, PULSAR_FILE), environment={})
    settings = loaded.settings
    assert settings.of(KafkaSettings).listeners == ("PLAINTEXT://127.0.0.1:19092",)
    assert (settings.names.kafka_tenant, settings.names.kafka_namespace) == ("acme", "shop")
    assert not settings.topics.auto_create_topics_enable
    assert (settings.topics.num_partitions, settings.topics.offsets_topic_num_partitions) == (4, 8)
    assert settings.topics.log_roll_ms == 240 * 60_000
    assert settings.topics.log_segment_bytes == (1 << 31) - 1
    # Pulsar's 0 deletes what all subscriptions have read, which Kafka's clients do not expect.
    assert (settings.topics.log_retention_ms, settings.topics.log_retention_bytes) == (604800000, -1)
    assert settings.names.kop_allowed_namespaces == ("${tenant}/${namespace}",)
    assert settings.of(PulsarSettings).broker_service_port == "6650"
    assert loaded.ignored == ("managedLedgerDefaultEnsembleSize", "zooKeeperSessionTimeoutMillis")
    assert loaded.warning() == (
        "2 settings have no meaning here and are ignored: "
        "managedLedgerDefaultEnsembleSize, zooKeeperSessionTimeoutMillis"
    )


def test_what_is_known_and_without_effect_is_named_too() -> None:
    loaded = load(None, ["default.replication.factor=3", "min.insync.replicas=2", "num.partitions=2"], {})
    assert loaded.ignored == ("default.replication.factor", "min.insync.replicas")
    assert load(None, ["default.replication.factor=1"], {}).ignored == ()


def test_the_finer_unit_wins_as_in_kafka(tmp_path: Path) -> None:
    both = "log.retention.hours=5\nlog.retention.ms=7\nlog.retention.minutes=9\n"
    assert load(written(tmp_path, both), environment={}).settings.topics.log_retention_ms == 7
    assert (
        load(written(tmp_path, "log.retention.hours=-1"), environment={}).settings.topics.log_retention_ms
        == -1
    )


def test_flags_beat_the_environment_and_that_beats_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "num.partitions=2\nlog.retention.ms=1\nflush=os\n")
    environment = {
        "MAGNETAR_NUM_PARTITIONS": "3",
        "MAGNETAR_KAFKATENANT": "env",
        "PATH": "/bin",
        "MAGNETAR_NO": "1",
    }
    loaded = load(file, ["num.partitions=4", "log.retention.hours=1"], environment)
    settings = loaded.settings
    assert (settings.topics.num_partitions, settings.names.kafka_tenant, settings.topics.flush) == (
        4,
        "env",
        "os",
    )
    assert settings.topics.log_retention_ms == 3_600_000
    assert loaded.ignored == ("MAGNETAR_NO",)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "num.partitions=many",
            "Invalid value many for configuration num.partitions: Not a number of type INT",
        ),
        ("num.partitions=0", "Value must be at least 1"),
        ("num.partitions=99999999999", "Not a number of type INT"),
        ("num.partitions=1_0", "Not a number"),
        ("flush=sometimes", "String must be one of: always, interval, os"),
        ("auto.create.topics.enable=yes", "either true or false"),
        ("log.retention.hours=x", "Invalid value x for configuration log.retention.ms"),
        ("nun.partitions=3", "no setting is called nun.partitions; did you mean num.partitions?"),
        ("num.partitions", "expected NAME=VALUE"),
    ],
)
def test_wrong_values_name_setting_value_and_what_is_allowed(override: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(message)):
        load(None, [override], {})


def test_a_flag_may_name_a_setting_of_kafkas_that_means_nothing_here() -> None:
    assert load(None, ["num.io.threads=3"], {}).ignored == ("num.io.threads",)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"broker\.properties, line 2: expected name=value"):
        load(written(tmp_path, "a=b\nnonsense\n"), environment={})
    with pytest.raises(InvalidConfig, match="cannot read"):
        load(tmp_path / "missing", environment={})
    (tmp_path / "binary").write_bytes(b"\xff\xfe=\x80")
    with pytest.raises(InvalidConfig, match="cannot read"):
        load(tmp_path / "binary", environment={})


def test_lines_may_be_continued_and_use_a_colon(tmp_path: Path) -> None:
    text = "listeners=A://127.0.0.1:1,\\\n   B://127.0.0.1:2\n! comment\nnum.partitions: 5\n"
    settings = load(written(tmp_path, text), environment={}).settings
    assert settings.of(KafkaSettings).listeners == ("A://127.0.0.1:1", "B://127.0.0.1:2")
    assert settings.topics.num_partitions == 5


def test_every_setting_is_described_and_its_default_is_allowed() -> None:
    for each in SETTINGS.values():
        assert each.doc.endswith("."), each.name
        assert each.rule is None or each.rule.refusal(each.default, None) is None, each.name
        if each.kind in (Kind.INT, Kind.LONG) and each.name.endswith((".ms", ".bytes")):
            assert each.unit in ("ms", "bytes"), each.name


def test_no_name_stands_for_two_settings_but_one_of_pulsars() -> None:
    seen: dict[str, str] = {}
    for each in SETTINGS.values():
        for name in {plain(feed.name) for feed in each.feeds} - {plain("maxMessageSize")}:
            assert seen.setdefault(name, each.name) == each.name


def test_pulsars_message_size_bounds_both_protocols_and_each_by_its_own_name(tmp_path: Path) -> None:
    file = written(tmp_path, "maxMessageSize=20971520")
    both = load(file, environment={}).settings
    assert (both.of(PulsarSettings).pulsar_max_message_size, both.topics.message_max_bytes) == (
        20_971_520,
        20_971_520,
    )
    mixed = load(file, environment={}, overrides=["message.max.bytes=1000"]).settings
    assert (mixed.of(PulsarSettings).pulsar_max_message_size, mixed.topics.message_max_bytes) == (
        20_971_520,
        1000,
    )


def test_kafkas_names_are_kafkas() -> None:
    for each in SETTINGS.values():
        for feed in each.kafka:
            assert feed.name in KAFKA_SETTINGS


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        (r"super.users=User\:alice;User\:bob", "super.users", "User:alice;User:bob"),
        (r"a\=b\:c = d=e:f", "a=b:c", "d=e:f"),
        ("a:b=c", "a", "b=c"),
        (r"path=C\:\\data", "path", "C:\\data"),
        (r"path=C\:\\", "path", "C:\\"),
        ("tab=a\\tb\\u00e9\\n", "tab", "a\tbé\n"),
        (r"pattern=\\d+\.log", "pattern", r"\d+.log"),
        ("joined=a,\\\n  b", "joined", "a,b"),
        ("empty=", "empty", ""),
    ],
)
def test_a_file_of_properties_is_read_as_java_writes_it(
    tmp_path: Path, line: str, name: str, value: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"# by Properties.store\n{line}\n", encoding="utf-8")
    assert read_properties(file) == {name: value}


def test_the_environment_of_images(tmp_path: Path) -> None:
    file = written(tmp_path, "num.partitions=2\nlog.retention.ms=1\n")
    environment = {
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKA_CFG_LOG_RETENTION_MS": "77",
        "PULSAR_PREFIX_messagingProtocols": "kafka",
        "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:9",
        "PULSAR_MEM": "-Xmx1g",
    }
    loaded = load(file, [], environment)
    topics = loaded.settings.topics
    assert (topics.num_partitions, topics.log_retention_ms) == (3, 77)
    assert loaded.settings.node.messaging_protocols == ("kafka",)
    assert loaded.settings.value("listeners") == ("PLAINTEXT://127.0.0.1:9",)
    assert loaded.ignored == ()
    both = environment | {"MAGNETAR_NUM_PARTITIONS": "4"}
    assert load(file, [], both).settings.topics.num_partitions == 4
    assert load(file, ["num.partitions=5"], both).settings.topics.num_partitions == 5


def test_odd_names_of_images_are_ignored_with_a_line(tmp_path: Path) -> None:
    passed_over = {
        "KAFKA_OPTS": "-x", "KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_LOG4J_ROOT_LOGLEVEL": "INFO", "KAFKA_HOME": "/opt",
        "KAFKA_PORT": "tcp://10.0.0.1:9092", "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1", "KAFKA_SERVICE_HOST": "h",
    }  # fmt: skip
    assert load(None, [], passed_over).warning() is None
    odd = {
        "KAFKA_": "1",
        "KAFKA_num": "1",
        "PULSAR_PREFIX_": "1",
        "KAFKA_\x1b[31m": "1",
        "KAFKA_FOO_BAR": "1",
    }
    warning = load(None, [], odd).warning()
    assert warning is not None
    assert all(name in warning for name in ("KAFKA_,", "KAFKA_num", "PULSAR_PREFIX_", "foo.bar"))
    assert "\x1b" not in warning
    with pytest.raises(InvalidConfig, match="environment of a container image"):
        load(None, [], {"KAFKA_NUM_PARTITIONS": "many"})
