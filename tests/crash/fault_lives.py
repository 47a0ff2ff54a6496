"""Lives of a whole broker on a disk that fails: for each seed a random plan, a workload, an end, and a look after it.

Run with ``faults.c`` loaded: ``fault_lives.py PLAN ROOT FIRST COUNT``. Each broker is a process of its own, forked from
this one, which has loaded the program. In the first life calls on the files of its data directory fail by a random
plan, while records come over both protocols, groups commit, topics come and go, ledgers roll over and are compacted; it
ends by SIGTERM or SIGKILL, or by itself. Then nothing fails any more: the directory must open, hold all that was
acknowledged, and be whole. Prints one line a seed that broke a promise, and one at the end.
"""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from magnetar.cli import standalone
from magnetar.doctor.ledgers import verify
from magnetar.kafka import handler as _loaded_kafka  # noqa: F401  what forks need is loaded before
from magnetar.ledger.files import checkpoints, journal
from magnetar.pulsar import handler as _loaded_pulsar  # noqa: F401
from magnetar.records.batch import PlainRecord, batches, decode_records, encode_batch
from magnetar.wire.kafka.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from magnetar.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from magnetar.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestTopic
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.crash.faults import ERRORS, FOR_EVER, Operation, Plan, Rule
from tests.hostile.client import Wire
from tests.pulsar import raw

END_S = 30.0
STEPS = 60
KEPT, KEYED, PULSAR = "kept", "keyed", "persistent://public/default/mail"
OVERRIDES = (
    "num.partitions=1", "offsets.topic.num.partitions=2", "managedLedgerMaxEntriesPerLedger=7",
    "log.cleaner.backoff.ms=40", "log.retention.check.interval.ms=50", "connections.max.idle.ms=600000",
    "auto.create.topics.enable=true", "log.cleaner.min.cleanable.ratio=0.01",
)  # fmt: skip
FILES = (
    "", "", "journal", ".ledger", ".index", "metadata.sqlite", "metadata.sqlite-wal", "metadata.sqlite-shm",
    "metadata.sqlite.seal", "lock", "broker.json", ".tmp",
)  # fmt: skip
OPERATIONS = (
    Operation.OPEN, Operation.WRITE | Operation.AIO, Operation.WRITE | Operation.AIO, Operation.SYNC,
    Operation.TRUNCATE, Operation.RENAME, Operation.REMOVE, Operation.MKDIR, Operation.READ, ~Operation.READ,
)  # fmt: skip
GONE = (OSError, EOFError, ConnectionError, AssertionError, IndexError)


class Broken(Exception):
    """A promise was not kept."""


_alive: list[Life] = []


class Life:
    """One broker process."""

    def __init__(self, data: Path, log: Path, flush: str) -> None:
        self.log = log
        out, into = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            self._be_the_broker(data, log, into, flush)
        _alive.append(self)
        os.close(into)
        self.status: int | None = None
        self.served = self._ready(out)
        os.close(out)

    def _be_the_broker(self, data: Path, log: Path, into: int, flush: str) -> None:
        status = 70
        try:
            os.dup2(into, 1)
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
            # A small house, so that little data meets every boundary.
            journal.SEGMENT_BYTES, journal.ROUND_BYTES, journal.MAX_BUSY = 12 * 4096, 4 * 4096, 2
            checkpoints.CHECKPOINT_BYTES, checkpoints.CHECKPOINT_ENTRIES = 10_000, 15
            where = "127.0.0.1:0"
            status = standalone.run(data, where, where, None, None, None, [*OVERRIDES, f"flush={flush}"])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _ready(self, out: int) -> dict[str, list[str]]:
        said = b""
        while not said.endswith(b"\n"):
            if not select.select([out], [], [], END_S)[0]:
                raise Broken("it neither serves nor ends")
            part = os.read(out, 4096)
            if not part:
                self.wait()
                return {}
            said += part
        pairs = (word.partition("=") for word in said.decode().split()[1:])
        return {protocol: where.split(",") for protocol, _, where in pairs}

    def end(self, number: int) -> int:
        if self.status is None:
            os.kill(self.pid, number)
        return self.wait()

    def wait(self) -> int:
        until = time.monotonic() + END_S
        while self.status is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.status = -9
                raise Broken(f"it does not end: {self.log.read_text()[-2000:]}")
            else:
                time.sleep(0.003)
        return self.status

    def kafka(self) -> Wire:
        host, _, port = self.served["kafka"][0].rpartition(":")
        wire = Wire((host, int(port)))
        wire.socket.settimeout(END_S)
        return wire

    def pulsar(self) -> raw.Raw:
        return raw.Raw(self)  # type: ignore[arg-type]


class House:
    """What was acknowledged, and so must be there."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.records: dict[str, dict[int, bytes]] = defaultdict(dict)
        self.keyed: dict[bytes, bytes] = {}
        self.in_doubt: dict[bytes, list[bytes]] = defaultdict(list)
        self.committed: dict[str, int] = {}
        self.maybe_committed: dict[str, list[int]] = defaultdict(list)
        self.topics: dict[str, bool | None] = {}
        self.mail: set[bytes] = set()
        self.acked = 0
        self.number = 0
        self._wire: Wire | None = None
        self._mail: raw.Raw | None = None

    def work(self, life: Life, plan: Plan, rules: list[Rule], at: int) -> None:
        steps = (
            self._produce, self._produce, self._produce, self._produce_keyed, self._commit, self._make, self._delete,
            self._send_mail,
        )  # fmt: skip
        for number in range(STEPS):
            if number == at:
                plan.arm(rules)
            try:
                self.dice.choice(steps)(life)
            except GONE:
                self._wire = self._mail = None
                pid, status = os.waitpid(life.pid, os.WNOHANG)
                if pid:
                    life.status = os.waitstatus_to_exitcode(status)
                    return
        self.hang_up()

    def hang_up(self) -> None:
        if self._wire is not None:
            self._wire.socket.close()
        if self._mail is not None:
            self._mail.__exit__()
        self._wire = self._mail = None

    def _ask(self, life: Life, message: Any, version: int) -> Any:
        if self._wire is None:
            self._wire = life.kafka()
        return self._wire.ask(message, version)

    def _send(self, life: Life, topic: str, records: list[PlainRecord]) -> int | None:
        row = PartitionProduceData(index=0, records=encode_batch(records))
        topics = [TopicProduceData(name=topic, partition_data=[row])]
        answer = self._ask(life, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9)
        told = answer.responses[0].partition_responses[0]
        return told.base_offset if told.error_code == 0 else None

    def _next(self) -> bytes:
        self.number += 1
        return b"%d:" % self.number + b"x" * self.dice.choice((10, 300, 3000))

    def _produce(self, life: Life) -> None:
        topic = self.dice.choice([KEPT, KEPT, *(name for name, there in self.topics.items() if there)])
        values = [self._next() for _ in range(self.dice.choice((1, 1, 4)))]
        base = self._send(life, topic, [PlainRecord(None, value, (), _now_ms()) for value in values])
        if base is not None:
            self.records[topic] |= {base + at: value for at, value in enumerate(values)}
            self.acked += len(values)

    def _produce_keyed(self, life: Life) -> None:
        key, value = b"%d" % self.dice.randrange(5), self._next()
        self.in_doubt[key].append(value)
        if self._send(life, KEYED, [PlainRecord(key, value, (), _now_ms())]) is not None:
            self.keyed[key], self.in_doubt[key] = value, []
            self.acked += 1

    def _commit(self, life: Life) -> None:
        group, offset = f"g{self.dice.randrange(3)}", self.dice.randrange(1000)
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [OffsetCommitRequestTopic(name=KEPT, partitions=[row])]
        self.maybe_committed[group].append(offset)
        answer = self._ask(life, OffsetCommitRequest(group_id=group, topics=topics), 6)
        if answer.topics[0].partitions[0].error_code == 0:
            self.committed[group], self.maybe_committed[group] = offset, []

    def _make(self, life: Life) -> None:
        name = f"t{len(self.topics)}"
        self.topics[name] = None
        if self._create(life, name):
            self.topics[name] = True

    def _create(self, life: Life, name: str, **configs: str) -> bool:
        rows = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ]
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=rows)
        return self._ask(life, CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code == 0

    def _delete(self, life: Life) -> None:
        names = [name for name, there in self.topics.items() if there]
        if names and self.dice.random() < 0.5:
            name = self.dice.choice(names)
            self.topics[name] = None
            answer = self._ask(life, DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 4)
            if answer.responses[0].error_code == 0:
                self.topics[name] = False

    def _send_mail(self, life: Life) -> None:
        if self._mail is None:
            self._mail = life.pulsar()
            self._mail.patience(END_S)
            if self._mail.ask(raw.producer(PULSAR)).type != BaseCommand.PRODUCER_SUCCESS:
                self.hang_up()
                return
        value = self._next()
        command = raw.send(sequence_id=self.number)
        command.send.num_messages = 1
        if (
            self._mail.ask(command, raw.entry(value, sequence_id=self.number, publish_time=_now_ms())).type
            == BaseCommand.SEND_RECEIPT
        ):
            self.mail.add(value)
            self.acked += 1
        else:
            self.hang_up()

    def prepare(self, life: Life) -> None:
        """Make what the work goes on with, while nothing fails."""
        assert self._create(life, KEPT)
        assert self._create(life, KEYED, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        for step in (self._commit, self._send_mail, self._produce, self._produce_keyed):
            step(life)

    # Afterwards.

    def look(self, life: Life) -> None:
        """Raise `Broken` unless all that was acknowledged is there."""
        names = {topic.name for topic in self._ask(life, MetadataRequest(topics=None), 5).topics}
        for name, there in self.topics.items():
            if there is not None and there is not (name in names):
                raise Broken(f"topic {name} was {'made' if there else 'deleted'}, and that did not last")
        for topic, records in self.records.items():
            if topic == KEPT or self.topics.get(topic):
                found = {offset: value for offset, _, value in self._read(life, topic)}
                lost = [offset for offset, value in records.items() if found.get(offset) != value]
                if lost:
                    raise Broken(f"{topic}: {len(lost)} of {len(records)} acknowledged are lost: {lost[:5]}")
                if sorted(found) != list(range(len(found))):
                    raise Broken(f"{topic}: offsets have gaps")
        newest = {key: value for _, key, value in self._read(life, KEYED)}
        for key, value in self.keyed.items():
            if newest.get(key) not in (value, *self.in_doubt[key]):
                raise Broken(f"key {key!r} is {newest.get(key)!r:.30}, not {value!r:.30}")
        mail = {value for _, _, value in self._read(life, "mail")}
        if not self.mail <= mail:
            raise Broken(f"{len(self.mail - mail)} of {len(self.mail)} messages are lost")
        for group, offset in self.committed.items():
            asked = [OffsetFetchRequestTopic(name=KEPT, partition_indexes=[0])]
            row = (
                self._retried(life, OffsetFetchRequest(group_id=group, topics=asked), 5)
                .topics[0]
                .partitions[0]
            )
            if row.committed_offset not in (offset, *self.maybe_committed[group]):
                raise Broken(f"group {group} committed {offset} and is at {row.committed_offset}")
        self.hang_up()

    def _retried(self, life: Life, request: OffsetFetchRequest, version: int) -> Any:
        until = time.monotonic() + END_S
        while (answer := self._ask(life, request, version)).error_code and time.monotonic() < until:
            time.sleep(0.01)  # the group is being loaded
        return answer

    def _read(self, life: Life, topic: str) -> list[tuple[int, bytes | None, bytes]]:
        offset, found = 0, []
        while True:
            asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            topics = [FetchTopic(topic=topic, partitions=[asked])]
            row = (
                self._ask(life, FetchRequest(max_bytes=1 << 20, topics=topics), 11).responses[0].partitions[0]
            )
            if row.error_code:
                raise Broken(f"{topic} cannot be read at {offset}: error {row.error_code}")
            if offset >= row.high_watermark:
                return found
            at = offset
            for header, batch in batches(row.records):
                for at_record, record in enumerate(decode_records(batch)):
                    found.append((header.base_offset + at_record, record.key, record.value or b""))
                offset = header.last_offset + 1
            if offset == at:
                raise Broken(f"{topic} cannot be read on from {offset} to {row.high_watermark}")


def _now_ms() -> int:
    return int(time.time() * 1000)


def random_rules(dice: random.Random) -> list[Rule]:
    rules = []
    for _ in range(dice.choice((1, 2, 3, 4))):
        operations = dice.choice(OPERATIONS)
        error = dice.choice(tuple(ERRORS.values()))
        if operations is Operation.OPEN:
            error = dice.choice((ERRORS["EMFILE"], ERRORS["EIO"], ERRORS["EROFS"], ERRORS["ENOSPC"]))
        skip = int(dice.expovariate(1 / 8))
        rules.append(
            Rule(operations, error, dice.choice(FILES), skip, dice.choice((1, 1, 2, 5, 30, FOR_EVER)))
        )
    return rules


def one(plan: Plan, seed: int, count: Counter[str]) -> None:
    dice = random.Random(seed)
    root, log = plan.root, plan.root.parent / "broker.log"
    shutil.rmtree(root, ignore_errors=True)
    log.write_text("")
    plan.disarm()
    house, rules = House(dice), random_rules(dice)
    flush = dice.choice(("always", "always", "os", "interval"))
    life = Life(root, log, flush)
    house.prepare(life)
    if dice.random() < 0.15:  # the disk fails while it starts
        house.hang_up()
        life.end(dice.choice((signal.SIGTERM, signal.SIGKILL)))
        plan.arm(rules)
        life = Life(root, log, flush)
    if life.served:
        house.work(life, plan, rules, dice.randrange(STEPS // 2))
    status = life.end(dice.choice((signal.SIGTERM, signal.SIGKILL)))
    count[f"ended with {status}"] += 1
    count["calls failed"] += plan.failed
    count["lives with failures"] += plan.failed > 0
    plan.disarm()
    if status not in (0, 1, -9, 74):
        raise Broken(f"exit status {status}")
    last = Life(root, log, flush)
    if not last.served:
        raise Broken(f"it does not start again: {log.read_text()[-1500:]}")
    house.look(last)
    if (status := last.end(signal.SIGTERM)) != 0:
        raise Broken(f"after all, exit status {status}: {log.read_text()[-3000:]}")
    report = verify(root)
    if not report.is_whole:
        raise Broken("; ".join(f"{each.file}: {each.what}" for each in report.findings)[:1500])
    if "Traceback" in log.read_text():
        said = log.read_text()
        raise Broken(f"a traceback: {said[max(0, said.index('Traceback') - 300) :][:3000]}")
    count["acknowledged"] += house.acked


def main() -> None:
    plan = Plan.attached(Path(sys.argv[1]), Path(sys.argv[2]))
    first, lives = int(sys.argv[3]), int(sys.argv[4])
    count: Counter[str] = Counter()
    broken = 0
    for seed in range(first, first + lives):
        try:
            one(plan, seed, count)
        except (Broken, *GONE) as error:
            broken += 1
            rules = "; ".join(map(str, random_rules(random.Random(seed))))
            words = str(error) if isinstance(error, Broken) else traceback.format_exc()
            print(f"seed {seed} ({rules}): {words}", flush=True)
        for life in _alive:
            life.end(signal.SIGKILL)
        _alive.clear()
    told = ", ".join(f"{name}: {number}" for name, number in sorted(count.items()))
    print(f"{lives} lives, {broken} broken; {told}")
    sys.exit(broken > 0)


if __name__ == "__main__":
    socket.setdefaulttimeout(END_S)
    main()
