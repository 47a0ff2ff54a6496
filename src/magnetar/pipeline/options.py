"""The source's options: those of Spark's Kafka source by name and meaning, and some of its own. Case does not matter.

path                            the broker's data directory, also as .load(path); or zk://HOST:PORT,HOST:PORT/PATH, a
                                cluster's ZooKeeper: closed ledgers are read from bookies, the rest is fetched
kafka.bootstrap.servers         where there is no path: the brokers to fetch from. With a path: whom to ask how far
                                records are visible, instead of what broker.json says
kafka.*                         other settings of Kafka's clients, for fetching and asking
subscribe | subscribePattern | assign    exactly one of them
startingOffsets, endingOffsets  earliest, latest, or {"topic": {"0": 23, "1": -2}} (-2 earliest, -1 latest)
startingTimestamp, endingTimestamp       ms, for all partitions; before ...OffsetsByTimestamp, before ...Offsets
startingOffsetsByTimestamp, endingOffsetsByTimestamp    {"topic": {"0": ms}}
startingOffsetsByTimestampStrategy       error (default) or latest, where no record is that young
minOffsetsPerTrigger, maxOffsetsPerTrigger, maxTriggerDelay (15m)    how much a micro-batch takes; batches ignore them
minPartitions, maxRecordsPerPartition    how many tasks at least, and how many offsets each has at most
includeHeaders                  true: the column headers too
failOnDataLoss                  true (default): an error where records that should be read are gone
isolation                       read_uncommitted (default) or read_committed; also as kafka.isolation.level
includePositions                true: ledger_id, entry_id, batch_index and publish_time too
columns                         the columns to read, comma-separated; fewer are faster
ledgers                         ids of the only ledgers to read, comma-separated
pushFilters                     true: filters leave out slices and records before they are read; needs Spark's
                                spark.sql.python.filterPushdown.enabled. Default false: Spark 4.2 forgets which filter
                                a DataFrame was read with, so one that is read twice gives wrong rows (decision 17)
onDamage                        fail (default), or skip: a row with the column damage in the place of what is damaged
pin                             true (default): keep retention from what a running query has still to read
progressGroup                   of streams: a consumer group that shows how far the query is, for Kafka's tools
sliceBytes                      how much of a ledger one task reads, about
chunkedMessageMaxBytes          how large a message in chunks may be to come whole (16777216; 0: none does). For rows as
                                Fetch gives them it is the broker's chunked.message.max.bytes, which has this default
metadataStoreConfigPath         of zk://: the driver's file of ZooKeeper's client properties, for TLS and logins
bookkeeperTLSClientAuthentication        of zk://: true for TLS to bookies, with files of PEM that driver and executors
                                have: bookkeeperTLSTrustCertsFilePath, bookkeeperTLSCertificateFilePath,
                                bookkeeperTLSKeyFilePath, bookkeeperTLSKeyStorePasswordPath (of the key), and
                                bookkeeper_tlsHostnameVerificationEnabled (false)

groupIdPrefix, kafkaConsumer.pollTimeoutMs, fetchOffset.numRetries and fetchOffset.retryIntervalMs are accepted and mean
nothing here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from magnetar.ledger.bookkeeper.bookie_tls import BookieTls
from magnetar.pipeline.object_store import place_of

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"
POSITIONS = ("ledger_id", "entry_id", "batch_index", "publish_time")
DAMAGE = "damage"
EVERYTHING = (*COLUMNS, HEADERS, *POSITIONS)
SLICE_BYTES = 64 << 20
CHUNKED_BYTES = 16 << 20
_ZOOKEEPER = "zk://"


class TopicPartition(NamedTuple):
    """One partition, by the name that Kafka's clients use."""

    topic: str
    partition: int


Offsets: TypeAlias = dict[TopicPartition, int]
EARLIEST, LATEST = -2, -1

_MEANINGLESS = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_BOOKIE_TLS = (
    "bookkeeperTLSClientAuthentication",
    "bookkeeperTLSTrustCertsFilePath",
    "bookkeeperTLSCertificateFilePath",
    "bookkeeperTLSKeyFilePath",
    "bookkeeperTLSKeyStorePasswordPath",
    "bookkeeper_tlsHostnameVerificationEnabled",
)
_NAMES = {
    name.lower(): name
    for name in (
        "path", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingTimestamp",
        "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy", "minOffsetsPerTrigger", "maxOffsetsPerTrigger", "maxTriggerDelay",
        "minPartitions", "maxRecordsPerPartition", "includeHeaders", "failOnDataLoss", "isolation",
        "includePositions", "columns", "ledgers", "onDamage", "pin", "pushFilters", "progressGroup", "sliceBytes",
        "chunkedMessageMaxBytes", "metadataStoreConfigPath", *_BOOKIE_TLS,
    )
}  # fmt: skip
_NOT_HERE = {
    "auto.offset.reset": "startingOffsets says where to begin",
    "enable.auto.commit": "no offsets are committed; progressGroup shows them",
    "key.deserializer": "keys are bytes; cast them",
    "value.deserializer": "values are bytes; cast them",
    "interceptor.classes": "no interceptors run",
}
"""Settings of Kafka's clients that a source cannot follow, and what to do."""
_DELAY = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to begin or to end: one offset for all, one per partition, or by time (ms)."""

    everywhere: int = EARLIEST
    offsets: Mapping[TopicPartition, int] | None = None
    times: Mapping[TopicPartition, int] | int | None = None

    def time_of(self, which: TopicPartition) -> int | None:
        """Return the time asked for in this partition; None if it is not bound by time."""
        if self.times is None or isinstance(self.times, int):
            return self.times
        return self.times.get(which)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What one read was asked for."""

    data: Path | None
    zookeeper: str | None = None
    """Instead of a directory: HOST:PORT,HOST:PORT/PATH of a cluster."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] | None = None
    start: Bound = Bound(EARLIEST)
    end: Bound = Bound(LATEST)
    latest_if_too_young: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int = 0
    max_records_per_partition: int | None = None
    min_offsets_per_trigger: int | None = None
    max_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    kafka: Mapping[str, str] = field(default_factory=dict)
    """Settings for Kafka's clients, without their prefix."""
    columns: tuple[str, ...] = COLUMNS
    ledgers: frozenset[int] | None = None
    read_committed: bool = False
    skip_damage: bool = False
    pin: bool = True
    push_filters: bool = False
    progress_group: str | None = None
    slice_bytes: int = SLICE_BYTES
    chunked_bytes: int = CHUNKED_BYTES
    zookeeper_config: str = ""
    bookie_tls: BookieTls | None = None

    @property
    def bootstrap_servers(self) -> str | None:
        """The brokers, where they are given."""
        return self.kafka.get("bootstrap.servers")


def parse_options(options: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """Read Spark's options; raise ``ValueError`` naming the option that is wrong, unknown ones too.

    ``streaming`` None says that nobody knows yet what it will be.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    _check_names(given)
    start = _bound(given, "starting", LATEST if streaming else EARLIEST)
    end = _bound(given, "ending", LATEST)
    if streaming and any(name.startswith("ending") for name in given):
        raise ValueError("a stream has no end: endingOffsets and endingTimestamp are for batches")
    if streaming is False and start == Bound(LATEST):
        raise ValueError(
            "startingOffsets 'latest' would read nothing; it is for streams. Allowed: earliest, JSON"
        )
    if end == Bound(EARLIEST):
        raise ValueError("endingOffsets 'earliest' would read nothing. Allowed: latest, JSON")
    least, most = _count(given, "minOffsetsPerTrigger"), _count(given, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise ValueError(f"minOffsetsPerTrigger ({least}) must not be above maxOffsetsPerTrigger ({most})")
    skip_damage = _one_of(given, "onDamage", ("fail", "skip")) == "skip"
    strategy = _one_of(given, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    path = given.get("path", "")
    zookeeper = path.removeprefix(_ZOOKEEPER) if path.startswith(_ZOOKEEPER) else None
    if zookeeper is not None and not zookeeper.partition("/")[0]:
        raise ValueError(f"path: {path!r} names no ZooKeeper; write zk://HOST:PORT/PATH")
    return SourceOptions(
        data=None if zookeeper is not None or "path" not in given else place_of(given["path"]),
        zookeeper=zookeeper,
        topics=_topics(given),
        pattern=_pattern(given),
        assigned=_assigned(given),
        start=start,
        end=end,
        latest_if_too_young=strategy == "latest",
        fail_on_data_loss=_one_of(given, "failOnDataLoss", ("true", "false")) == "true",
        min_partitions=_count(given, "minPartitions") or 0,
        max_records_per_partition=_count(given, "maxRecordsPerPartition"),
        min_offsets_per_trigger=least,
        max_offsets_per_trigger=most,
        max_trigger_delay_ms=_delay(given, "maxTriggerDelay", 900_000),
        kafka=_kafka(options),
        columns=_columns(given, skip_damage=skip_damage),
        ledgers=_ledgers(given),
        read_committed=_isolation(given) == "read_committed",
        skip_damage=skip_damage,
        pin=_one_of(given, "pin", ("true", "false")) == "true",
        push_filters=_one_of(given, "pushFilters", ("false", "true")) == "true",
        progress_group=_progress_group(given, streaming=streaming),
        slice_bytes=_count(given, "sliceBytes") or SLICE_BYTES,
        chunked_bytes=_chunked_bytes(given),
        zookeeper_config=_of_a_cluster(given, zookeeper, "metadataStoreConfigPath"),
        bookie_tls=_bookie_tls(given, zookeeper),
    )


def _of_a_cluster(given: Mapping[str, str], zookeeper: str | None, name: str) -> str:
    text = given.get(name.lower(), "").strip()
    if text and zookeeper is None:
        raise ValueError(f"{name} is for zk://HOST:PORT/PATH")
    return text


def _bookie_tls(given: Mapping[str, str], zookeeper: str | None) -> BookieTls | None:
    said = {name: _of_a_cluster(given, zookeeper, name) for name in _BOOKIE_TLS}
    is_wanted = _one_of(given, "bookkeeperTLSClientAuthentication", ("false", "true")) == "true"
    if not is_wanted:
        return None
    for name in _BOOKIE_TLS[1:4]:
        if not said[name]:
            raise ValueError(f"bookkeeperTLSClientAuthentication=true needs {name}")
    trust, certificate, key, password = (said[name] for name in _BOOKIE_TLS[1:5])
    return BookieTls(
        trust,
        certificate,
        key,
        key_password_file=password,
        verify_host=_one_of(given, _BOOKIE_TLS[5], ("false", "true")) == "true",
    )


def _chunked_bytes(given: Mapping[str, str]) -> int:
    text = given.get("chunkedmessagemaxbytes", str(CHUNKED_BYTES)).strip()
    if not text.isdigit() or int(text) > 256 << 20:
        raise ValueError(f"chunkedMessageMaxBytes must be a number from 0 to 268435456, not {text!r}")
    return int(text)


def _progress_group(given: Mapping[str, str], *, streaming: bool | None) -> str | None:
    name = given.get("progressgroup")
    if name is not None and streaming is False:
        raise ValueError("progressGroup is for streams: a batch has no progress to show")
    if name is not None and not name.strip():
        raise ValueError("progressGroup must be the name of a consumer group, not ''")
    return name


def _check_names(given: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for options that nobody knows, and for those that are missing or too many."""
    if "provider" in given and any(name.startswith("option.") for name in given):
        raise ValueError(
            "CREATE TABLE ... USING magnetar cannot be read: Spark gives a Python source none of its options then. "
            "Write CREATE TEMPORARY VIEW ... USING magnetar OPTIONS (...), or a table of Spark's connector, USING kafka"
        )
    harmless = {name.lower() for name in _MEANINGLESS}
    for name in given:
        if name not in _NAMES and name not in harmless and not name.startswith("kafka."):
            raise ValueError(
                f"unknown option {name!r}; there are: {', '.join(sorted(_NAMES.values()))}, and kafka.*"
            )
    if "path" not in given and "kafka.bootstrap.servers" not in given:
        raise ValueError(
            "option 'path' is missing: the data directory of the broker, as in .load('/data/magnetar'); "
            "or give kafka.bootstrap.servers to fetch from brokers"
        )
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(ways) != 1:
        raise ValueError(f"give exactly one of subscribe, subscribePattern and assign, not {ways or 'none'}")


def _topics(given: Mapping[str, str]) -> tuple[str, ...]:
    if "subscribe" not in given:
        return ()
    found = tuple(dict.fromkeys(t.strip() for t in given["subscribe"].split(",") if t.strip()))
    if not found:
        raise ValueError(f"subscribe must name topics, comma-separated, not {given['subscribe']!r}")
    return found


def _pattern(given: Mapping[str, str]) -> str | None:
    text = given.get("subscribepattern")
    try:
        re.compile(text or "")
    except re.error as error:
        raise ValueError(f"subscribePattern must be a regular expression, not {text!r}: {error}") from None
    return text


def _kafka(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for Kafka's clients; their names keep their case."""
    for name in options:
        if (what := _NOT_HERE.get(name.lower().removeprefix("kafka."))) and name.lower().startswith("kafka."):
            raise ValueError(f"option {name} is not supported, as in Spark's Kafka source: {what}")
    found = {
        name[len("kafka.") :]: str(value)
        for name, value in options.items()
        if name.lower().startswith("kafka.") and name.lower() != "kafka.isolation.level"
    }
    # Spark hands options over in lower case, and all names of Kafka's settings are.
    return {name.lower(): value for name, value in found.items()}


def _isolation(given: Mapping[str, str]) -> str:
    words = ("read_uncommitted", "read_committed")
    kafkas = _one_of(given, "kafka.isolation.level", words)
    return _one_of(given, "isolation", words) if "isolation" in given else kafkas


def _ledgers(given: Mapping[str, str]) -> frozenset[int] | None:
    text = given.get("ledgers")
    if text is None:
        return None
    ids = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in ids):
        raise ValueError(f"ledgers must be ids of ledgers, comma-separated, not {text!r}")
    return frozenset(map(int, ids))


def _delay(given: Mapping[str, str], name: str, default: int) -> int:
    """Return a time in ms: a number with ms, s, m, min, h or d behind it; without any it is ms."""
    text = given.get(name.lower())
    if text is None:
        return default
    found = _DELAY.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{name} must be a time as in 500ms, 30s, 15m, 1h or 1d, not {text!r}")
    return int(found[1]) * _MS[found[2] or "ms"]


def _bound(given: Mapping[str, str], side: str, default: int) -> Bound:
    if (text := given.get(f"{side}timestamp")) is not None:
        if not text.strip().isdigit():
            raise ValueError(f"{side}Timestamp must be milliseconds, not {text!r}")
        return Bound(default, times=int(text))
    if (text := given.get(f"{side}offsetsbytimestamp")) is not None:
        return Bound(default, times=_by_partition(text, f"{side}OffsetsByTimestamp", least=0))
    text = given.get(f"{side}offsets", "").strip()
    words = {"": default, "earliest": EARLIEST, "latest": LATEST}
    if text.lower() in words:
        return Bound(words[text.lower()])
    offsets = _by_partition(text, f"{side}Offsets", least=EARLIEST)
    unfit = LATEST if side == "starting" and default == EARLIEST else EARLIEST if side == "ending" else None
    if unfit in offsets.values():
        raise ValueError(f"{side}Offsets cannot be {unfit} here")
    return Bound(default, offsets=offsets)


def _by_partition(text: str, name: str, *, least: int) -> Offsets:
    try:
        content = json.loads(text)
        found = {
            TopicPartition(topic, int(partition)): int(value)
            for topic, partitions in content.items()
            for partition, value in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f'{name} must be like {{"topic": {{"0": 23, "1": 5}}}}, not {text!r}') from None
    if any(value < least for value in found.values()):
        raise ValueError(f"{name} has a number below {least}: {text!r}")
    return found


def _assigned(given: Mapping[str, str]) -> tuple[TopicPartition, ...] | None:
    text = given.get("assign")
    if text is None:
        return None
    try:
        content = json.loads(text)
        return tuple(sorted(TopicPartition(str(t), int(p)) for t, ps in content.items() for p in ps))
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f'assign must be like {{"topic": [0, 1]}}, not {text!r}') from None


def _columns(given: Mapping[str, str], *, skip_damage: bool) -> tuple[str, ...]:
    headers = _one_of(given, "includeHeaders", ("false", "true")) == "true"
    positions = _one_of(given, "includePositions", ("false", "true")) == "true"
    if "columns" not in given:
        return COLUMNS + (HEADERS,) * headers + POSITIONS * positions + (DAMAGE,) * skip_damage
    names = tuple(name.strip() for name in given["columns"].split(",") if name.strip())
    known = (*EVERYTHING, DAMAGE)
    wrong = [name for name in names if name not in known]
    if wrong or not names or len(set(names)) != len(names):
        raise ValueError(f"columns must be some of {', '.join(known)}, each once, not {given['columns']!r}")
    if skip_damage != (DAMAGE in names):
        raise ValueError(
            "onDamage=skip and the column 'damage' go together: without it nobody would see what was skipped"
        )
    return names


def _one_of(given: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """Return the option's value; the first word is the default."""
    text = given.get(name.lower(), words[0]).strip().lower()
    if text not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}, not {text!r}")
    return text


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise ValueError(f"{name} must be a number above 0, not {text!r}")
    return int(text)
