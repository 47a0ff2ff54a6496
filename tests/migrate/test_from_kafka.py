"""Topics move from a cluster that is in use: here one of our own, in `test_from_apache_kafka` the other."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import Declined
from magnetar.admin.offsets import Spot
from magnetar.admin.topics import trim
from magnetar.cli.app import run_app
from magnetar.client.copying import Copier
from magnetar.client.errors import BrokerUnreachable, ClientError
from magnetar.migrate.from_kafka import FromKafka, FromKafkaRun, WantedOfKafka
from magnetar.wire.kafka.messages.produce_response import ProduceResponse
from tests.migrate.moving import (
    PARTITIONS,
    RECORDS,
    SECONDS,
    commit,
    committed,
    create,
    produce,
    rows,
    transactions,
    watermarks,
)
from tests.process import BrokerProcess
from tests.security.signing import IN_KAFKAS_WORDS, token

Start = Callable[..., BrokerProcess]
LATE = 2 * RECORDS - 3000


@pytest.fixture
def two(start_broker: Start, tmp_path: Path) -> tuple[BrokerProcess, BrokerProcess]:
    """The cluster to move from, and the one to move to."""
    return start_broker(tmp_path / "there"), start_broker(tmp_path / "here")


def moving(there: BrokerProcess, here: BrokerProcess, *topics: str) -> Iterator[FromKafkaRun]:
    source, target = ClusterAdmin(there.address, timeout_s=60), ClusterAdmin(here.address, timeout_s=60)
    with source, target, FromKafkaRun(source, target, WantedOfKafka(topics or ("*",))) as migration:
        yield migration


def moved(there: BrokerProcess, here: BrokerProcess, *topics: str) -> FromKafka:
    """Move all there is, of a source that nobody uses any more."""
    for migration in moving(there, here, *topics):
        migration.begin()
        migration.catch_up()
        migration.wait_until_quiet(0)
        return migration.cut_over(migration.groups(), migration.acls())
    raise AssertionError


@pytest.mark.slow
def test_all_kinds_of_topics_are_the_same_on_the_other_side(
    two: tuple[BrokerProcess, BrokerProcess], start_broker: Start
) -> None:
    there, here = two
    address = there.address
    create(
        address,
        NewTopic("plain", PARTITIONS, config={"retention.ms": "-1", "max.message.bytes": "2000000"}),
        NewTopic("packed", PARTITIONS, config={"compression.type": "zstd", "retention.ms": "-1"}),
        NewTopic("transactions", PARTITIONS, config={"retention.ms": "-1"}),
        NewTopic("trimmed", PARTITIONS, config={"retention.ms": "-1"}),
        NewTopic("emptied", PARTITIONS),
    )
    produce(address, "plain", range(RECORDS), **{"enable.idempotence": True})
    produce(address, "packed", range(RECORDS))
    transactions(address, "transactions", 30)
    for topic in ("trimmed", "emptied"):
        produce(address, topic, range(3000), **{"batch.num.messages": 10})
    with ClusterAdmin(address) as admin:
        trim(admin, "trimmed", None, Spot("offset", 555))
        trim(admin, "emptied", None, Spot("latest"))
    commit(address, "readers", "plain", {0: 100, 1: 200, 2: 6000})
    done = moved(there, here)
    assert done.cut_over
    assert done.audit is not None
    assert done.audit.different == 0
    assert done.audit.records >= 2 * RECORDS
    for topic in ("plain", "packed", "transactions", "trimmed", "emptied"):
        assert rows(here.address, topic) == rows(address, topic)
        assert watermarks(here.address, topic) == watermarks(address, topic)
    assert watermarks(here.address, "trimmed") == [(555, 1000)] * PARTITIONS
    assert watermarks(here.address, "emptied") == [(1000, 1000)] * PARTITIONS
    everything = rows(here.address, "transactions", committed=False)
    assert everything == rows(address, "transactions", committed=False)
    assert len(everything) == 3000
    assert len(rows(here.address, "transactions")) == 2000
    assert committed(here.address, "readers") == committed(address, "readers")
    assert dict(done.topics[2].configs) == {"max.message.bytes": "2000000", "retention.ms": "-1"}
    # Producers go on behind what was moved; an id that was a producer's there is somebody else's here, always.
    here.kill()
    here = start_broker(here.data)
    produce(here.address, "plain", range(RECORDS, RECORDS + 3000), **{"enable.idempotence": True})
    transactions(here.address, "transactions", 3)
    assert watermarks(here.address, "plain") == [
        (0, RECORDS // PARTITIONS + 1000 + (n < 2)) for n in range(3)
    ]
    assert len(rows(here.address, "transactions")) == 2200


@pytest.mark.slow
def test_producers_and_consumers_change_sides_and_nothing_is_lost_or_comes_twice(
    two: tuple[BrokerProcess, BrokerProcess],
    start_broker: Start,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there, here = two
    create(there.address, NewTopic("orders", PARTITIONS))
    produce(there.address, "orders", range(RECORDS))
    seen = read(there.address, RECORDS // 2)
    for migration in moving(there, here):  # it ends before its time, as if it had been killed
        migration.begin()
        migration.catch_up()
    # Somebody changes sides too early: it waits.
    early = threading.Thread(target=produce, args=(here.address, "orders", range(2 * RECORDS, 3 * RECORDS)))
    early.start()
    late = threading.Thread(target=produce, args=(there.address, "orders", range(RECORDS, LATE)))
    late.start()
    # The broker here dies while it is copied to, and comes back.
    for migration in moving(there, here):
        migration.begin()
        migration.copy()
        data, kafka = here.data, here.address
        here.kill()
        here = start_broker(data, kafka=kafka)
        late.join()
        produce(there.address, "orders", range(LATE, 2 * RECORDS))
        # An answer is lost, so that nobody knows what of it is in the log.
        with losing_one_answer(monkeypatch) as lost:
            migration.copy()
        assert lost
        arguments = ["migrate", "from-kafka", "--source", there.address, "-b", here.address]
        assert run_app([*arguments, "--cut-over", "--quiet", "0.5", "--json"]) == 0
        # Whoever began before that writes no more; what it would write is behind the cut-over.
        ends = watermarks(there.address, "orders")
        produce(there.address, "orders", range(1))
        for each in migration._copier.copied.values():
            each.next = 0
        with pytest.raises(Declined, match="is not being migrated"):
            migration.copy()
        assert ends != watermarks(there.address, "orders")
    early.join()
    done = json.loads(capsys.readouterr().out)
    assert done["cut_over"]
    assert done["audit"]["records"] == 2 * RECORDS
    seen += read(here.address, 3 * RECORDS - len(seen))
    assert sorted(seen) == list(range(3 * RECORDS))
    assert [row for row in rows(here.address, "orders") if int(row.value or b"") < 2 * RECORDS] == [
        row for row in rows(there.address, "orders") if row.value != b"0" or row.offset == 0
    ]


@contextmanager
def losing_one_answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Have the first answer to a Produce be lost; what was asked is in the list then."""
    settle, lost = Copier._settle, list[str]()

    def settles(self: Copier, answer: ProduceResponse, group: list[Any]) -> ClientError | None:
        if not lost:
            lost.append(str(answer))
            raise BrokerUnreachable("an answer was lost")
        return settle(self, answer, group)

    with monkeypatch.context() as patched:
        patched.setattr(Copier, "_settle", settles)
        yield lost


def read(address: str, count: int) -> list[int]:
    """Return the next records of the group ``readers``, and commit them."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    found: list[int] = []
    while len(found) < count:
        messages = consumer.consume(min(1000, count - len(found)), SECONDS)
        assert messages, f"{len(found)} of {count} only"
        found += [int(message.value() or b"") for message in messages]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


@pytest.mark.slow
def test_what_stands_against_it_is_said(
    two: tuple[BrokerProcess, BrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    there, here = two
    create(there.address, NewTopic("orders", 1))
    create(here.address, NewTopic("orders", 1))
    arguments = ["migrate", "from-kafka", "--source", there.address, "-b", here.address]
    assert run_app([*arguments, "--dry-run"]) == 1
    assert "topic orders is here already, and is not being migrated" in capsys.readouterr().err
    assert run_app([*arguments, "--topic", "other*"]) == 1
    assert "the source has no topic like other*" in capsys.readouterr().err
    admin = AdminClient({"bootstrap.servers": here.address})
    admin.delete_topics(["orders"])["orders"].result(SECONDS)
    assert run_app([*arguments, "--dry-run"]) == 0
    assert "this was a dry run" in capsys.readouterr().out
    consumer = Consumer({"bootstrap.servers": here.address, "group.id": "asks"})
    assert "orders" not in consumer.list_topics(timeout=SECONDS).topics
    consumer.close()


@pytest.mark.slow
def test_a_difference_is_found(two: tuple[BrokerProcess, BrokerProcess]) -> None:
    there, here = two
    create(there.address, NewTopic("plain", PARTITIONS))
    produce(there.address, "plain", range(3000))
    for migration in moving(there, here):
        migration.begin()
        migration.catch_up()
        # What is copied says that it lies one offset further on than it does.
        copied = migration._copier.copied["plain", 0]
        admin = AdminClient({"bootstrap.servers": there.address})
        admin.delete_topics(["plain"])["plain"].result(SECONDS)
        create(there.address, NewTopic("plain", PARTITIONS))
        produce(there.address, "plain", range(3, 3003))
        assert copied.next == 1000
        with pytest.raises(Declined, match="another one"):
            migration.audit()


@pytest.mark.slow
def test_pulsars_producers_wait_too(start_broker: Start, tmp_path: Path) -> None:
    import pulsar

    there = start_broker(tmp_path / "there")
    here = start_broker(tmp_path / "here", "--pulsar", "127.0.0.1:0")
    create(there.address, NewTopic("orders", 1))
    for migration in moving(there, here):
        migration.begin()
        client = pulsar.Client(here.pulsar_url, operation_timeout_seconds=1)
        with pytest.raises(pulsar.PulsarException):
            client.create_producer("persistent://public/default/orders")
        client.close()
        migration.wait_until_quiet(0)
        migration.cut_over((), migration.acls())
    client = pulsar.Client(here.pulsar_url)
    client.create_producer("persistent://public/default/orders").send(b"a message")
    client.close()
    assert [row.value for row in rows(here.address, "orders")] == [b"a message"]


@pytest.mark.slow
def test_acls_come_along(start_broker: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [part for text in IN_KAFKAS_WORDS for part in ("--set", text)]
    there, here = (start_broker(tmp_path / name, *settings) for name in ("there", "here"))
    root = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "public/default",
        "sasl.password": f"token:{token('root')}",
    }
    config = tmp_path / "root.properties"
    config.write_text("".join(f"{name}={text}\n" for name, text in root.items()))
    admins = [AdminClient({"bootstrap.servers": each.address} | root) for each in (there, here)]
    admins[0].create_topics([NewTopic("orders", 1)])["orders"].result(SECONDS)
    entries = [
        AclBinding(
            ResourceType.TOPIC, name, pattern, "User:alice", host, operation, permission,
        )
        for name, pattern, host, operation, permission in (
            ("orders", ResourcePatternType.LITERAL, "*", AclOperation.READ, AclPermissionType.ALLOW),
            ("ord", ResourcePatternType.PREFIXED, "192.0.2.7", AclOperation.WRITE, AclPermissionType.DENY),
        )
    ]  # fmt: skip
    for done in admins[0].create_acls(entries).values():
        done.result(SECONDS)
    monkeypatch.setenv("MAGNETAR_COMMAND_CONFIG", str(config))
    arguments = ["migrate", "from-kafka", "--source", there.address, "-b", here.address]
    arguments += ["--source-config", str(config)]
    assert run_app([*arguments, "--cut-over", "--quiet", "0"]) == 0
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert {str(each) for each in admins[1].describe_acls(every).result(SECONDS)} == set(map(str, entries))


@pytest.mark.slow
def test_an_open_transaction_is_open_here_too_though_the_broker_dies(
    two: tuple[BrokerProcess, BrokerProcess], start_broker: Start
) -> None:
    there, here = two
    create(there.address, NewTopic("transactions", PARTITIONS))
    transactions(there.address, "transactions", 5)
    producer = Producer({"bootstrap.servers": there.address, "transactional.id": "slow"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for number in range(300):
        producer.produce("transactions", value=b"open", partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0
    transactions(there.address, "transactions", 3)
    before = rows(there.address, "transactions")
    assert b"open" not in {row.value for row in before}
    for migration in moving(there, here):
        migration.begin()
        migration.catch_up()
        assert rows(here.address, "transactions") == before
        address = here.address
        here.kill()
        here = start_broker(here.data, kafka=address)
        assert rows(here.address, "transactions") == before
        producer.commit_transaction(SECONDS)
        migration.wait_until_quiet(0)
        migration.cut_over(migration.groups(), migration.acls())
    everything = rows(here.address, "transactions")
    assert everything == rows(there.address, "transactions")
    assert sum(row.value == b"open" for row in everything) == 300
    here.kill()
    here = start_broker(here.data, kafka=address)
    assert rows(here.address, "transactions") == everything
