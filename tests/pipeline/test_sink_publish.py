"""Publishing step by step, broken at each of them: what is decided gets into the topics once, or it is said why not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import AnalysisException
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructField, StructType

from magnetar.client import produce
from magnetar.client.errors import BrokerRefused, ClientError
from magnetar.pipeline import sink_publish
from magnetar.pipeline.sink_options import SinkOptions, parse_sink_options
from magnetar.pipeline.sink_publish import CannotTell, publish
from magnetar.pipeline.sink_rows import BadRow, check_columns
from magnetar.pipeline.sink_staging import BatchDecision, StagedDamaged, StagingDirectory, stage_rows
from tests.pipeline.topics import consumed, create
from tests.process import BrokerProcess

QUERY = "query"


class Crash(BaseException):
    """The process ends here."""


def options(broker: BrokerProcess, directory: Path, topic: str, **others: str) -> SinkOptions:
    given = {
        "kafka.bootstrap.servers": broker.address,
        "topic": topic,
        "stagingLocation": str(directory / "staging"),
        "kafka.batch.size": "500",
        "kafka.delivery.timeout.ms": "15000",
    }
    return parse_sink_options(given | others, streaming=True)


def staging(found: SinkOptions) -> StagingDirectory:
    assert found.staging is not None
    return StagingDirectory(found.staging, QUERY)


def stage(found: SinkOptions, batch_id: int, values: list[str], *, task: str = "0") -> str:
    rows = pa.RecordBatch.from_pydict({"value": values})
    return stage_rows([rows], found, staging(found), batch_id, task, first_partition=0)[1]


def numbers(first: int, count: int = 300) -> list[str]:
    return [str(i) for i in range(first, first + count)]


def values(broker: BrokerProcess, topic: str) -> list[str]:
    return [message.value().decode() for message in consumed(broker, topic)]


def crash_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Have the process end when so many batches were acknowledged."""
    honest, left = produce.send, [count]

    def send(cluster: Any, batches: Any, *, acknowledged: Callable[[Any], None], **others: Any) -> None:
        def counted(batch: Any) -> None:
            acknowledged(batch)
            left[0] -= 1
            if not left[0]:
                raise Crash

        honest(cluster, batches, acknowledged=counted, **others)

    monkeypatch.setattr(sink_publish, "send", send)


@pytest.mark.slow
def test_a_broker_that_forgot_the_producer_does_not_double(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker(tmp_path / "data", "--set", "producer.id.expiration.ms=1000")
    create(broker, "t")
    found = options(broker, tmp_path, "t")
    files = [stage(found, 0, numbers(0))]
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_after(patch, 12)
        publish(found, QUERY, 0, files)
    assert 0 < len(values(broker, "t")) < 300
    time.sleep(2.5)
    publish(found, QUERY, 0, [stage(found, 0, numbers(1000), task="0")])
    assert values(broker, "t") == numbers(0)


@pytest.mark.parametrize("step", ["decide", "send", "finish", "after"])
def test_ended_at_any_step_and_begun_again(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    topic = f"step-{step}"
    create(broker, topic)
    found = options(broker, tmp_path, topic)
    publish(found, QUERY, 0, [stage(found, 0, numbers(0))])

    def crash(*_: object, **__: object) -> Any:
        raise Crash

    files = [stage(found, 1, numbers(300))]
    with monkeypatch.context() as patch:
        if step == "decide":
            patch.setattr(StagingDirectory, "decide", crash)
        elif step == "send":
            crash_after(patch, 7)
        elif step == "finish":
            patch.setattr(StagingDirectory, "finish", crash)
        if step == "after":
            publish(found, QUERY, 1, files)
        else:
            with pytest.raises(Crash):
                publish(found, QUERY, 1, files)
    again = list(reversed(numbers(300)))  # a shuffle brings other orders
    publish(found, QUERY, 1, [stage(found, 1, again)])  # by an attempt of the same number
    assert [path.name for path in staging(found).home.iterdir()] == ["1.done"], (
        "what was staged again is gone"
    )
    publish(found, QUERY, 2, [stage(found, 2, numbers(600))])
    expected = again if step == "decide" else numbers(300)
    assert values(broker, topic) == numbers(0) + expected + numbers(600)
    assert [path.name for path in staging(found).home.iterdir()] == ["2.done"]


def test_two_drivers_at_once_write_one_batch(broker: BrokerProcess, tmp_path: Path) -> None:
    create(broker, "two")
    found = options(broker, tmp_path, "two")
    for batch_id in range(5):
        choices = [numbers(1000 * batch_id), list(reversed(numbers(1000 * batch_id)))]
        files = [stage(found, batch_id, each, task=str(i)) for i, each in enumerate(choices)]
        drivers = [
            threading.Thread(target=publish, args=(found, QUERY, batch_id, [name]), daemon=True)
            for name in files
        ]
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join()
        assert values(broker, "two")[300 * batch_id :] in choices


def test_a_topic_made_anew_in_between_is_told(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(broker, "anew")
    found = options(broker, tmp_path, "anew")
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_after(patch, 3)
        publish(found, QUERY, 0, [stage(found, 0, numbers(0))])
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_topics(["anew"])["anew"].result(20)
    create(broker, "anew")
    with pytest.raises(CannotTell, match="'anew' was deleted and made anew"):
        publish(found, QUERY, 0, [])


def test_records_deleted_in_between_are_told(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(broker, "deleted")
    found = options(broker, tmp_path, "deleted")

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(StagingDirectory, "finish", crash)
        publish(found, QUERY, 0, [stage(found, 0, numbers(0))])
    admin = AdminClient({"bootstrap.servers": broker.address})
    everything = TopicPartition("deleted", 0, -1)
    admin.delete_records([everything])[everything].result(20)
    with pytest.raises(CannotTell, match=r"deleted-0 from offset 0 to \d+ were deleted while batch 0"):
        publish(found, QUERY, 0, [])


def test_staged_files_are_checked(broker: BrokerProcess, tmp_path: Path) -> None:
    create(broker, "checked")
    found = options(broker, tmp_path, "checked")
    name = stage(found, 0, numbers(0))
    path = staging(found).home / name
    whole = path.read_bytes()
    for cut in (0, 1, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(StagedDamaged, match="cut short"):
            publish(found, QUERY, 0, [name])
    path.unlink()
    with pytest.raises(StagedDamaged, match="is gone: driver and executors must share"):
        publish(found, QUERY, 0, [name])
    assert values(broker, "checked") == []


def test_records_that_a_topic_does_not_take_are_refused_at_once(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    create(broker, "small", **{"max.message.bytes": "100"})
    found = options(broker, tmp_path, "small")
    with pytest.raises(BrokerRefused, match="Produce to small-0: MESSAGE_TOO_LARGE"):
        publish(found, QUERY, 0, [stage(found, 0, numbers(0))])


def test_a_topic_that_is_not_there_is_named(broker: BrokerProcess, tmp_path: Path) -> None:
    found = options(broker, tmp_path, "a bad name", **{"kafka.delivery.timeout.ms": "1"})
    with pytest.raises(ClientError, match="'a bad name': INVALID_TOPIC"):
        stage(found, 0, numbers(0))


def test_rows_that_no_topic_takes_are_told(broker: BrokerProcess, tmp_path: Path) -> None:
    create(broker, "rows", 2)
    found = options(broker, tmp_path, "rows")
    for number in (2, -1, -2):
        rows = pa.RecordBatch.from_pydict({"value": ["x"], "partition": pa.array([number], pa.int32())})
        with pytest.raises(
            BadRow, match=f"partition {number} is asked for, and topic 'rows' has partitions 0 to 1"
        ):
            stage_rows([rows], found, staging(found), 0, "0", first_partition=0)
    nowhere = parse_sink_options(
        {"kafka.bootstrap.servers": broker.address, "stagingLocation": str(tmp_path)}, streaming=True
    )
    rows = pa.RecordBatch.from_pydict({"value": ["x"], "topic": pa.array([None], pa.string())})
    with pytest.raises(BadRow, match="null topic present in the data"):
        stage_rows([rows], nowhere, staging(nowhere), 0, "0", first_partition=0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kafka.bootstrap.servers": ""}, "'kafka.bootstrap.servers' is missing"),
        (
            {"deliveryGuarantee": "twice"},
            "deliveryGuarantee must be one of exactly-once, at-least-once, not 'twice'",
        ),
        (
            {"kafka.compression.type": "brotli"},
            "kafka.compression.type must be one of none, gzip, snappy, lz4, zstd",
        ),
        ({"kafka.acks": "1"}, "kafka.acks must be one of all, -1 for exactly-once"),
        ({"kafka.batch.size": "0"}, "kafka.batch.size must be a number of bytes"),
        (
            {"stagingLocation": "s3a://bucket/x"},
            "stagingLocation must be a path that driver and executors share",
        ),
        ({"txnAppId": "a", "txnVersion": "1"}, "txnAppId and txnVersion are for batch writes"),
        ({"topics": "t"}, "unknown option 'topics' of the sink; there are: .*topic,"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], told: str) -> None:
    base = {"kafka.bootstrap.servers": "localhost:9092", "stagingLocation": "/x", "topic": "t"}
    with pytest.raises(ValueError, match=told):
        parse_sink_options(base | given, streaming=True)


def test_what_exactly_once_needs_is_told() -> None:
    where = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}
    with pytest.raises(ValueError, match="checkpointLocation or stagingLocation"):
        parse_sink_options(where, streaming=True)
    with pytest.raises(ValueError, match="txnAppId and txnVersion"):
        parse_sink_options(where | {"deliveryGuarantee": "exactly-once"}, streaming=False)
    with pytest.raises(ValueError, match="both txnAppId and txnVersion"):
        parse_sink_options(where | {"txnAppId": "a"}, streaming=False)
    with pytest.warns(UserWarning, match=r"no meaning here: linger\.ms"):
        parse_sink_options(where | {"kafka.linger.ms": "5"}, streaming=False)


def test_the_first_decision_of_a_batch_holds_for_every_driver(tmp_path: Path) -> None:
    """A second driver, or the same batch that comes again, gets the first decision; what it drew up itself is gone."""
    one, other = StagingDirectory(tmp_path, QUERY), StagingDirectory(tmp_path, QUERY)
    one.home.mkdir(parents=True)
    first, second = BatchDecision(0, 7, 0, ("a",), (), ()), BatchDecision(0, 8, 0, ("b",), (), ())
    assert one.decide(first) == first
    assert other.decide(second) == first
    assert one.decide(second) == first
    assert other.open_decisions() == [first]
    one.finish(first)
    assert other.decide(second) is None
    assert other.open_decisions() == []
    assert other.last_done() == first


def test_before_sequences_run_out_a_new_producer_goes_on(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publisher counts them without a wrap: the last batch of a producer ends before 2^31."""
    create(broker, "sequences")
    found = options(broker, tmp_path, "sequences")
    monkeypatch.setattr(sink_publish, "_MAX_SEQUENCE", 900)
    producers = []
    for batch_id in range(5):
        publish(found, QUERY, batch_id, [stage(found, batch_id, numbers(300 * batch_id))])
        done = staging(found).last_done()
        assert done is not None
        producers.append(done.producer_id)
        assert done.sequences == (("sequences", 0, 300 * (batch_id % 2 + 1)),)
    assert producers[0] == producers[1] != producers[2] == producers[3] != producers[4]
    assert values(broker, "sequences") == numbers(0, 1500)


HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


@pytest.mark.parametrize(
    ("headers", "fits"),
    [
        (ArrayType(HEADER), True),
        (ArrayType(StructType(HEADER.fields[:1])), False),
        (ArrayType(StringType()), False),
        (MapType(StringType(), BinaryType()), False),
        (StringType(), False),
    ],
)
def test_headers_are_pairs_of_a_text_and_bytes(headers: DataType, fits: bool) -> None:
    columns = StructType([StructField("value", BinaryType()), StructField("headers", headers)])
    options = parse_sink_options(
        {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t", "deliveryGuarantee": "at-least-once"},
        streaming=True,
    )
    if fits:
        check_columns(columns, options)
    else:
        with pytest.raises(AnalysisException, match="headers attribute type must be ARRAY"):
            check_columns(columns, options)
