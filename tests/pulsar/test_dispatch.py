"""Subscriptions by themselves: consumers come, go, acknowledge and refuse at random, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import random
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.base import slices
from magnetar.coordination.shares.linked import Claimed
from magnetar.coordination.shares.share_partition import Standing
from magnetar.ledger.cursors.cursor import Cursor, Start
from magnetar.ledger.errors import StorageFailed
from magnetar.ledger.memory import MemoryEngine
from magnetar.ledger.port import Flush, LedgerPolicy, ManagedLedger, Pending, Position, StoredEntry
from magnetar.metadata import MemoryStore
from magnetar.pulsar import backlog
from magnetar.pulsar.backlog import EVICTION
from magnetar.pulsar.dispatch import deliveries
from magnetar.pulsar.dispatch.acknowledgements import Acknowledgements
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import Deliveries, Delivery, Place, sticky_hash
from magnetar.pulsar.dispatch.key_shared import KeyShared
from magnetar.pulsar.dispatch.keys import Division, Halves, HashRanges
from magnetar.pulsar.dispatch.linked import LinkedWork, Span
from magnetar.pulsar.dispatch.reading import Readings, UnackedLimits
from magnetar.pulsar.dispatch.shared import Shared
from magnetar.pulsar.dispatch.single_active import SingleActive
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.dispatch.wanted import Wanted
from magnetar.pulsar.errors import ConsumerAssignError, NotAllowed
from magnetar.pulsar.places import Places
from magnetar.pulsar.rate_limits import RateLimit
from magnetar.pulsar.topic import PulsarTopic
from magnetar.records.compression import Buffer
from magnetar.records.sticky_keys import HASH_RANGE
from magnetar.topics.limits import Limits as TopicLimits
from magnetar.topics.limits import Persistence, Quota, Rate
from magnetar.topics.names import TopicName
from magnetar.topics.topic import Topic
from magnetar.wire.pulsar.frames import read_frame
from magnetar.wire.pulsar.pulsar_pb2 import MessageMetadata
from tests.ledger.cursors import mark_of
from tests.ledger.entries import prepared
from tests.pulsar.raw import entry
from tests.turns import of_others

KEY_SHARED = {"key_shared": Division.RING, "key_halved": Division.HALVES}
STICKY = {"key_ranges": Division.RANGES}
KINDS = ("exclusive", "shared", *KEY_SHARED)


class Ear:
    """A connection that keeps what it is sent."""

    address = "here"
    client_version = "ear 1"
    is_writable = True

    def __init__(self) -> None:
        self.heard: list[tuple[Place, str, int]] = []
        """Place, payload, redelivery count."""

    def deliver(self, parts: Sequence[Buffer]) -> None:
        for head, body in zip(parts[::2], parts[1::2], strict=True):
            message = read_frame(memoryview(bytes(head)[4:])).command.message
            place = (message.message_id.ledgerId, message.message_id.entryId)
            data = bytes(body)
            (size,) = struct.unpack_from(">I", data, 6)
            self.heard.append((place, data[10 + size :].decode(), message.redelivery_count))

    def consumer_closed(self, consumer_id: int) -> None: ...

    def active_changed(self, consumer_id: int, is_active: bool) -> None: ...

    def reached_end(self, consumer_id: int) -> None: ...


class House:
    """A log, a subscription of some kind on it, and consumers."""

    def __init__(self, log: ManagedLedger, cursor: Cursor, kind: str, limits: UnackedLimits) -> None:
        self.log = log
        self.now_ms = 1000
        readings = Readings(log, Deliveries(1 << 20), lambda: self.now_ms, limits)
        self.subscription: Subscription
        if kind == "shared":
            self.subscription = Shared("s", cursor, readings)
        elif kind in KEY_SHARED or kind in STICKY:
            division = (KEY_SHARED | STICKY)[kind]
            self.subscription = KeyShared("s", cursor, readings, division=division, any_order=False)
        else:
            self.subscription = SingleActive("s", cursor, readings, SubType.Failover)
        log.watchers.append(self.subscription.wake)
        self._ids = 0

    def write(self, number: int, **metadata: object) -> Pending:
        return self.log.append((entry(b"%d" % number, **metadata),), messages=1, timestamp_ms=1)

    def join(self, permits: int = 10) -> tuple[Consumer, Ear]:
        self._ids += 1
        ear = Ear()
        consumer = Consumer(ear, self._ids, f"c{self._ids}", -1)
        self.subscription.add(consumer)
        self.subscription.flow(consumer, permits)
        return consumer, ear


async def house(
    kind: str,
    *,
    limits: UnackedLimits = UnackedLimits(0, 0),  # noqa: B008
    ledger_entries: int = 50,
) -> House:
    engine = MemoryEngine()
    await engine.start()
    log = await prepared(
        await engine.open(
            "public/default/persistent/t", LedgerPolicy(flush=Flush.os, max_ledger_entries=ledger_entries)
        )
    )
    return House(log, await (await log.cursors()).open("s", Start.earliest), kind, limits)


async def settle() -> None:
    for _ in range(40):
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_consumers_do_every_message_is_acknowledged_once(kind: str) -> None:
    seed = 7 if os.environ.get("CI") else random.randrange(1 << 32)
    dice = random.Random(seed)
    home = await house(kind)
    open_: dict[Consumer, tuple[Ear, int]] = {}
    acknowledged: dict[str, list[int]] = defaultdict(list)
    done: set[int] = set()
    written = 0
    for step in range(4000):
        action = dice.random()
        if written < 400 and action < 0.3:
            home.write(written, partition_key=f"k{written % 7}")
            written += 1
        elif action < 0.34 and len(open_) < 4:
            consumer, ear = home.join(dice.randrange(1, 20))
            open_[consumer] = ear, 0
        elif action < 0.36 and open_ and step < 3500:
            gone = dice.choice(list(open_))
            del open_[gone]
            home.subscription.remove(gone)
        elif open_:
            consumer = dice.choice(list(open_))
            ear, had = open_[consumer]
            fresh = ear.heard[had:]
            if kind == "exclusive" and consumer is not home.subscription.active_consumer:
                open_[consumer] = ear, len(ear.heard)
                continue
            taken = dice.randrange(len(fresh) + 1)
            for place, text, _ in fresh[:taken]:
                if kind != "exclusive" and place not in consumer.pending:
                    continue  # it was taken back
                if kind != "exclusive" and dice.random() < 0.1:
                    home.subscription.redeliver(consumer, [place], None)
                    continue
                home.subscription.acknowledge(consumer, place, None)
                number = int(text)
                if number not in done:
                    acknowledged[f"k{number % 7}"].append(number)
                done.add(number)
            open_[consumer] = ear, had + taken
            home.subscription.flow(consumer, taken)
        await settle() if dice.random() < 0.3 else await asyncio.sleep(0)
    survivor = next(iter(open_), None) or home.join(0)[0]
    for other in [each for each in open_ if each is not survivor]:
        home.subscription.remove(other)
    home.subscription.flow(survivor, 10_000)
    for _ in range(20):
        await settle()
        assert isinstance(survivor.sink, Ear)
        for place, text, _ in survivor.sink.heard:
            home.subscription.acknowledge(survivor, place, None)
            done.add(int(text))
    assert done == set(range(written)), f"seed {seed}"
    assert home.subscription.backlog == 0, f"seed {seed}"
    assert survivor.unacked == 0, f"seed {seed}"


@pytest.mark.parametrize("kind", ["shared", *KEY_SHARED])
async def test_nothing_is_read_while_nothing_may_be_sent(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    home = await house(kind, limits=UnackedLimits(0, 2))
    reads: list[int] = []
    read = home.log.read

    async def counted(offset: int, **options: Any) -> Any:
        reads.append(offset)
        return await read(offset, **options)

    monkeypatch.setattr(home.log, "read", counted)
    consumer, ear = home.join(permits=0)
    for number in range(3):
        home.write(number)
    home.subscription.wake()
    await settle()
    assert not reads, "no consumer has room"
    home.subscription.flow(consumer, 10)
    await settle()
    places = [place for place, _, _ in ear.heard]
    assert len(places) == 2, "then so many are out"
    reads.clear()
    for number in range(100):
        home.write(number)
    home.subscription.wake()
    await settle()
    assert not reads
    home.subscription.acknowledge(consumer, places[0], None)
    home.subscription.acknowledge(consumer, places[1], None)
    await settle()
    assert len(ear.heard) > 2


@pytest.mark.parametrize("kind", KEY_SHARED)
async def test_a_key_stays_in_order_while_consumers_come_and_go(kind: str) -> None:
    """No consumer gets a key's next message while another one still holds an earlier one."""
    seed = 7 if os.environ.get("CI") else random.randrange(1 << 32)
    dice = random.Random(seed)
    home = await house(kind)
    for number in range(300):
        home.write(number, partition_key=f"k{number % 5}")
    consumers = [home.join(7) for _ in range(2)]
    had = {consumer: 0 for consumer, _ in consumers}
    order: dict[int, list[int]] = defaultdict(list)
    for step in range(2000):
        await settle()
        held: dict[int, set[Consumer]] = defaultdict(set)
        for consumer, _ in consumers:
            for pending in consumer.pending.values():
                for each in pending.hashes:
                    held[each].add(consumer)
        assert all(len(owners) == 1 for owners in held.values()), f"seed {seed}"
        if step % 20 == 5 and len(consumers) < 6:
            consumers.append(home.join(7))
            had[consumers[-1][0]] = 0
        consumer, ear = dice.choice(consumers)
        for place, text, _ in ear.heard[had[consumer] : had[consumer] + 3]:
            home.subscription.acknowledge(consumer, place, None)
            order[int(text) % 5].append(int(text))
            had[consumer] += 1
            home.subscription.flow(consumer, 1)
        if sum(map(len, order.values())) == 300:
            break
    assert [order[key] for key in range(5)] == [list(range(key, 300, 5)) for key in range(5)], f"seed {seed}"


async def test_a_consumer_that_holds_too_much_gets_no_more() -> None:
    home = await house("shared", limits=UnackedLimits(5, 8))
    for number in range(20):
        home.write(number)
    first, first_ear = home.join(100)
    await settle()
    assert len(first_ear.heard) == 5
    second, second_ear = home.join(100)
    await settle()
    assert len(second_ear.heard) == 3
    assert home.subscription.is_blocked
    home.subscription.acknowledge(first, first_ear.heard[0][0], None)
    await settle()
    assert len(first_ear.heard) + len(second_ear.heard) == 9
    assert first.unacked + second.unacked == 8


async def test_acknowledged_parts_of_a_batch_make_room_for_the_next() -> None:
    home = await house("shared", limits=UnackedLimits(10, 0))
    for _ in range(2):
        home.log.append((entry(b"x", num_messages_in_batch=10),), messages=10, timestamp_ms=1)
    consumer, ear = home.join(100)
    await settle()
    assert (len(ear.heard), consumer.unacked) == (1, 10)
    home.subscription.acknowledge(consumer, ear.heard[0][0], 0b1)  # one of the ten is left
    await settle()
    assert (len(ear.heard), consumer.unacked) == (2, 11)


async def test_a_batch_that_is_acknowledged_once_for_each_of_its_messages_is_read_from_storage_for_none() -> (
    None
):
    """Clients do so; a linked share group would have to look each of them up."""
    home = await house("shared")
    queue, reads = Books(), []
    subscription = home.subscription
    assert isinstance(subscription, Shared)

    async def find() -> bool:
        return True

    subscription.link = LinkedWork(subscription, home.log, find, within_batches=True)
    await subscription.link.join(queue)
    read = home.log.entry
    home.log.entry = lambda position: reads.append(position) or read(position)  # type: ignore[method-assign,func-returns-value]
    for _ in range(20):
        home.log.append((entry(b"x", num_messages_in_batch=10),), messages=10, timestamp_ms=1)
    consumer, ear = home.join(200)
    await settle()
    places = [place for place, *_ in ear.heard]
    assert len(places) == 20
    for place in places:
        for left in range(9, -1, -1):
            subscription.acknowledge(consumer, place, (1 << left) - 1 or None)
        for _ in range(10):
            subscription.acknowledge(consumer, place, None)
    await settle()
    assert reads == []
    assert queue.done == set(range(200))
    subscription.acknowledge(consumer, places[0], None)
    await settle()
    assert reads == []


class Books(MagicMock):
    """A share partition that lets the subscription have everything."""

    start_offset = 0

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.done: set[int] = set()

    def standing(self, first: int, last: int) -> Standing:
        return Standing.FREE

    def done_within(self, first: int, last: int) -> int:
        return 0

    def claim(self, first: int, last: int) -> Claimed:
        return Claimed(0, 1)

    def accept(self, first: int, last: int) -> None:
        self.done.update(range(first, last + 1))


async def test_to_convert_many_batches_of_kafkas_gives_others_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slowly(entry: StoredEntry) -> Delivery:
        time.sleep(0.002)
        return Delivery(
            (entry.ledger_id, entry.entry_id), entry.last_offset, 1, b"", MessageMetadata(), False
        )

    monkeypatch.setattr(deliveries, "_foreign", slowly)
    monkeypatch.setattr(deliveries, "unpacked_bytes", len)
    foreign = [StoredEntry(1, number, number, bytes(64)) for number in range(50)]
    with of_others() as turns:
        assert len(await Deliveries(0).deliveries(foreign)) == 50
    assert turns.count >= 40


async def test_messages_wait_for_their_time_and_others_pass_them() -> None:
    home = await house("shared")
    home.write(0, deliver_at_time=5000)
    home.write(1)
    _, ear = home.join(100)
    await settle()
    assert [text for _, text, _ in ear.heard] == ["1"]
    assert home.subscription.delayed == 1
    home.now_ms = 5000
    home.subscription.wake()
    await settle()
    assert [text for _, text, _ in ear.heard] == ["1", "0"]


async def test_what_waits_for_its_time_comes_once_though_reading_begins_anew() -> None:
    home = await house("shared")
    home.write(0, deliver_at_time=2000)
    home.write(1)
    _, ear = home.join(10)
    await settle()
    for _ in range(3):
        home.subscription.rewind()
        home.subscription.wake()
        await settle()
    assert home.subscription.delayed == 1
    ear.heard.clear()
    home.now_ms = 3000
    home.subscription.wake()
    await settle()
    assert [text for _, text, _ in ear.heard] == ["0"]


async def test_a_batch_counts_as_its_messages_against_permits() -> None:
    home = await house("exclusive")
    for number in range(3):
        body = entry(b"x" * 100, num_messages_in_batch=10)
        home.log.append((body,), messages=10, timestamp_ms=number)
    consumer, ear = home.join(11)
    await settle()
    assert len(ear.heard) == 2
    assert consumer.permits == -9


async def test_damage_is_not_passed_over() -> None:
    """What cannot be read stops the subscription, which says so, rather than being skipped in silence."""
    home = await house("exclusive")
    home.write(0)
    home.log.append((b"\x0e\x01" + bytes(8) + b"\xff\xff\xff",), messages=1, timestamp_ms=1)
    home.log.append((b"\x00\x00\x00\x04\xff\xff\xff\xff",), messages=1, timestamp_ms=1)
    home.write(3)
    _, ear = home.join(100)
    await settle()
    assert "3" not in [text for _, text, _ in ear.heard]
    assert home.subscription.backlog == 4


@pytest.mark.parametrize("failure", [StorageFailed("for a test"), KeyError("of our own making")])
async def test_what_fails_for_a_while_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    home = await house("shared")
    for number in range(10):
        home.write(number)
    consumer, ear = home.join(5)
    await settle()
    read, failures = home.log.read, 1

    async def fails_once(*args: object, **kwargs: object) -> object:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise failure
        return await read(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(home.log, "read", fails_once)
    home.subscription._retry_s = 60.0
    home.subscription.redeliver(consumer, [ear.heard[0][0]], None)
    home.subscription.flow(consumer, 100)
    await settle()
    assert len(ear.heard) == 5
    home.subscription._tried()  # as it is once the time has come
    await settle()
    assert sorted(int(text) for _, text, _ in ear.heard[5:]) == [0, 5, 6, 7, 8, 9]


async def test_sticky_ranges_are_checked() -> None:
    home = await house("shared")
    readings = home.subscription._readings
    sticky = KeyShared("k", home.subscription.cursor, readings, division=Division.RANGES, any_order=False)
    sticky.add(Consumer(Ear(), 1, "a", -1, hash_ranges=((0, 100),)))
    for ranges in ((), ((5, 1),), ((0, 65536),), ((100, 200),), ((200, 300), (250, 400))):
        with pytest.raises(ConsumerAssignError):
            sticky.add(Consumer(Ear(), 2, "b", -1, hash_ranges=ranges))
    sticky.add(Consumer(Ear(), 3, "c", -1, hash_ranges=((101, 65535),)))


async def test_a_time_is_that_of_publication() -> None:
    """Clients seek to what a message tells; when the broker stored it is some time later."""
    home = await house("exclusive")
    for number in range(20):
        home.write(number, publish_time=1_000 + number // 2)
    places = Places(home.log)
    ledgers = home.log.ledgers()
    for time_ms, number in ((1, 0), (1_000, 0), (1_003, 6), (1_009, 18)):
        assert await places.at(time_ms) == Position(ledgers[0].ledger_id, number)
    assert await places.at(1_010) == await places.end()


async def test_a_reader_gets_the_hashes_that_it_wants_alone() -> None:
    home = await house("exclusive")
    keys = [f"key {number}" for number in range(40)]
    for number, key in enumerate(keys):
        home.write(number, partition_key=key)
    wanted = {
        n for n, key in enumerate(keys) if sticky_hash(MessageMetadata(partition_key=key)) <= HASH_RANGE // 2
    }
    assert 5 < len(wanted) < 35
    ear = Ear()
    consumer = Consumer(
        ear, 1, "reader", -1, hash_ranges=((0, HASH_RANGE // 4), (HASH_RANGE // 4 + 1, HASH_RANGE // 2))
    )
    home.subscription.add(consumer)
    home.subscription.flow(consumer, 100)
    await settle()
    assert [int(text) for _, text, _ in ear.heard] == sorted(wanted)
    assert consumer.permits == 100 - len(wanted), "what is passed over is not counted"
    home.subscription.remove(consumer)
    with pytest.raises(ConsumerAssignError):
        home.subscription.add(Consumer(Ear(), 2, "other", -1, hash_ranges=((5, 1),)))
    _, ear = home.join(100)
    await settle()
    assert len(ear.heard) == len(keys), "who names no hashes gets all"


class Counted(int):
    """A number that counts how often any of them was compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < other

    def __le__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) <= other


def test_sticky_ranges_cost_little_more_than_they_are() -> None:
    """As many as there may be, in two halves: no pair of them is compared that is not near in order."""
    keys, every = HashRanges(), range(HASH_RANGE)
    halves = [
        Consumer(
            Ear(), number, f"c{number}", -1, hash_ranges=tuple((Counted(at), at) for at in every[number::2])
        )
        for number in range(2)
    ]
    Counted.compared = 0
    for each in halves:
        keys.check(each)
        keys.add(each)
    assert Counted.compared < 10 * HASH_RANGE
    Counted.compared = 0
    assert [keys.owner(at) for at in (0, 1, 4096, 65535)] == [halves[0], halves[1], halves[0], halves[1]]
    assert Counted.compared < 4 * 20
    keys.remove(halves[0])
    assert [keys.owner(at) for at in (0, 1)] == [None, halves[1]]
    with pytest.raises(ConsumerAssignError, match="overlap"):
        keys.check(Consumer(Ear(), 3, "c", -1, hash_ranges=((0, 0),) * (HASH_RANGE + 1)))


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=8), st.integers(0, 40))
def test_sticky_ranges_are_those_of_the_first_who_came(asked: list[tuple[int, int]], key_hash: int) -> None:
    """Against looking through all of them: consumers come with one range each, and those that overlap stay out."""
    keys, there = HashRanges(), list[Consumer]()
    for number, (start, more) in enumerate(asked):
        end = start + more
        one = Consumer(Ear(), number, f"c{number}", -1, hash_ranges=((start, end),))
        if any(start <= each.hash_ranges[0][1] and each.hash_ranges[0][0] <= end for each in there):
            with pytest.raises(ConsumerAssignError):
                keys.add(one)
        else:
            keys.add(one)
            there.append(one)
    owner = next((e for e in there if e.hash_ranges[0][0] <= key_hash <= e.hash_ranges[0][1]), None)
    assert keys.owner(key_hash) is owner


def test_who_comes_takes_half_of_the_longest_stretch_of_hashes() -> None:
    one, two, three = (Consumer(Ear(), number, f"c{number}", -1) for number in range(3))
    keys = Halves()
    assert keys.owner(5) is None
    for consumer in (one, two, three):
        keys.add(consumer)
    # Pulsar's own: the new one has the lower half, and of equal stretches the first is halved.
    assert [keys.owner(each) for each in (0, 16_384, 16_385, 32_768, 32_769, 65_535)] == [
        three, three, two, two, one, one,
    ]  # fmt: skip
    keys.remove(one)
    assert [keys.owner(each) for each in (0, 16_385, 65_535)] == [three, two, two]
    keys.remove(three)
    assert {keys.owner(each) for each in range(1 << 16)} == {two}
    with pytest.raises(ConsumerAssignError):
        keys.check(Consumer(Ear(), 4, "sticky", -1, hash_ranges=((0, 100),)))


@pytest.mark.parametrize("seed", range(20))
def test_a_consumer_that_comes_or_goes_moves_no_keys_but_its_own(seed: int) -> None:
    dice, keys, inside = random.Random(seed), Halves(), list[Consumer]()
    before: list[Consumer | None] = [None] * (1 << 8)
    for number in range(40):
        gone = dice.choice(inside) if len(inside) > dice.randrange(1, 8) else None
        if gone is None:
            inside.append(Consumer(Ear(), number, f"c{number}", -1))
            keys.add(inside[-1])
        else:
            inside.remove(gone)
            keys.remove(gone)
        after = [keys.owner(each << 8) for each in range(1 << 8)]
        moved = [(old, new) for old, new in zip(before, after, strict=True) if old is not new]
        assert all(old is gone if gone is not None else new is inside[-1] for old, new in moved)
        assert set(after) == set(inside)
        before = after


async def partition(clock: Callable[[], int]) -> PulsarTopic:
    store = MemoryStore()
    engine = MemoryEngine(store, clock=clock)
    await engine.start()
    log = await prepared(
        await engine.open("public/default/persistent/t", LedgerPolicy(flush=Flush.os, max_ledger_entries=2))
    )
    name = TopicName("public", "default", "t")
    topic = PulsarTopic(
        Topic(name, "t", bytes(16), 1), 0, log, await log.cursors(), store, Deliveries(1 << 20), UnackedLimits(0, 0),
        clock, deduplicates=False,
    )  # fmt: skip
    await topic.load()
    return topic


@pytest.mark.parametrize(("rate", "interval_ms"), [(0.5, 1000), (1.0, 1000), (4.0, 250), (0.0, 100)])
async def test_cursors_are_kept_as_often_as_persistence_says(rate: float, interval_ms: int) -> None:
    now_ms = 1000
    topic = await partition(lambda: now_ms)
    subscription = await topic.subscription(Wanted("s", SubType.Exclusive))
    for number in range(3):
        await topic.log.append((entry(b"%d" % number),), messages=1, timestamp_ms=now_ms).settled()
    topic.apply(TopicLimits(persistence=Persistence(mark_delete_rate=rate)))

    async def kept() -> int:
        await asyncio.sleep(0.05)
        return (await mark_of(topic.log, topic._store, "s")).entry_id

    before, first = await kept(), topic.log.ledgers()[0].ledger_id
    now_ms += interval_ms - 1
    subscription.cursor.mark_delete(Position(first, 0))
    assert await kept() == before
    now_ms += 1
    subscription.cursor.mark_delete(Position(first, 1))
    assert await kept() == 1
    await topic.log.close()


async def test_what_is_too_old_is_passed_over_by_subscriptions_and_kept_in_the_log() -> None:
    now_ms = 1000
    topic = await partition(lambda: now_ms)
    log = topic.log
    subscription = await topic.subscription(Wanted("s", SubType.Exclusive))
    for now_ms in (1000, 2000, 3000, 4000, 5000):
        await log.append((entry(b"%d" % now_ms),), messages=1, timestamp_ms=now_ms).settled()
    assert subscription.backlog == 5
    await topic.expire(3000)
    assert (subscription.backlog, subscription.expired) == (3, 2)
    await topic.expire(9000)
    assert (subscription.backlog, subscription.expired) == (0, 5)
    assert log.log_start_offset == 0


@pytest.mark.parametrize(
    "quota", [TopicLimits(size_quota=Quota(1, EVICTION)), TopicLimits(age_quota=Quota(1, EVICTION))]
)
async def test_a_quota_moves_nothing_while_a_kafka_group_reads_in_the_place_of_consumers(
    quota: TopicLimits,
) -> None:
    now_ms = 1000
    topic = await partition(lambda: now_ms)
    linked = await topic.subscription(Wanted("linked", SubType.Exclusive))
    other = await topic.subscription(Wanted("other", SubType.Exclusive))
    for number in range(5):
        await topic.log.append((entry(b"%d" % number),), messages=1, timestamp_ms=now_ms).settled()
    topic.apply(quota)
    linked.pause()
    now_ms = 9000
    await backlog.enforce(topic, now_ms)
    assert (linked.backlog, other.backlog) == (5, 0)
    linked.go_on()
    await backlog.enforce(topic, now_ms)
    assert linked.backlog == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_sent_again_is_held_back_by_a_rate_too(kind: str) -> None:
    home = await house(kind)
    now_s = 0.0
    home.subscription.rate = RateLimit(Rate(5, 0, 10), lambda: now_s)
    for number in range(12):
        home.write(number, partition_key=f"k{number}")
    first, ear = home.join(permits=100)
    await settle()
    assert len(ear.heard) == 5
    home.subscription.remove(first)
    _, ear = home.join(permits=100)
    await settle()
    assert ear.heard == []
    for heard in (5, 10, 12):  # in the order in which they were written
        now_s += 10
        home.subscription.wake()
        await settle()
        assert [text for _, text, _ in ear.heard] == [f"{number}" for number in range(heard)]
    home.subscription.close()


async def test_only_who_is_active_acknowledges_all_before() -> None:
    home = await house("exclusive")
    for number in range(5):
        home.write(number)
    (first, ear), (second, _) = home.join(), home.join()
    await settle()
    place = ear.heard[3][0]
    with pytest.raises(NotAllowed, match="only the active consumer"):
        home.subscription.acknowledge_up_to(second, place, None)
    assert home.subscription.backlog == 5
    home.subscription.acknowledge_up_to(first, place, None)
    assert home.subscription.backlog == 1


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_what_is_read_next_lies_behind_what_was_read_and_what_is_done_with(kind: str) -> None:
    home = await house(kind)
    for number in range(20):
        home.write(number)
    ledger = home.log.ledgers()[0].ledger_id
    assert home.subscription.read_position.entry_id == 0
    home.join(permits=3)
    await settle()
    assert home.subscription.read_position == (ledger, 20)
    for number in range(10):
        home.write(number)
    home.subscription.skip_to(Position(ledger, 26))
    assert home.subscription.read_position == (ledger, 27)


class Chosen(Ear):
    """Keeps what it is told of who is active."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bool] = []

    def active_changed(self, consumer_id: int, is_active: bool) -> None:
        self.told.append(is_active)


@pytest.mark.parametrize("sub_type", [SubType.Failover, SubType.Exclusive])
async def test_failovers_consumers_are_told_which_of_them_is_active(sub_type: SubType.ValueType) -> None:
    home = await house("exclusive")
    home.subscription.sub_type = sub_type
    ears = [Chosen() for _ in range(3)]
    consumers = [Consumer(ear, number, f"c{number}", -1) for number, ear in enumerate(ears)]
    if sub_type == SubType.Exclusive:
        home.subscription.add(consumers[0])
        assert ears[0].told == [], "there is nobody else to be told from"
        return
    for consumer in consumers:
        home.subscription.add(consumer)
    assert [ear.told for ear in ears] == [[True], [False], [False]]
    home.subscription.remove(consumers[0])
    assert [ear.told for ear in ears] == [[True], [False, True], [False]]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_asked_for_again_comes_again_but_for_what_retention_took(kind: str) -> None:
    home = await house(kind)
    for number in range(55):
        await home.write(number).settled()
    consumer, ear = home.join(permits=100)
    await settle()
    assert [payload for _, payload, _ in ear.heard] == [str(number) for number in range(55)]
    while not home.log.ledgers()[0].sealed:  # noqa: ASYNC110  what is waited for wakes nobody
        await asyncio.sleep(0.001)
    await home.log.trim(50)  # all that was in the first ledger
    await settle()
    ear.heard.clear()
    home.subscription.redeliver(consumer, [], None)
    home.subscription.flow(consumer, 100)
    await settle()
    assert [payload for _, payload, _ in ear.heard] == [str(number) for number in range(50, 55)]
    for place, _, _ in ear.heard:
        home.subscription.acknowledge(consumer, place, None)
    home.subscription.flush_acks()
    await settle()
    assert home.subscription.backlog == 0


async def test_about_how_much_lies_behind_a_position_is_known() -> None:
    home = await house("shared")
    for number in range(75):
        await home.write(1000 + number).settled()
    first, second = home.log.ledgers()
    places = Places(home.log)
    one = first.size // 50
    assert places.bytes_behind(Position(first.ledger_id, -1)) == first.size + second.size
    assert places.bytes_behind(Position(first.ledger_id, 9)) == first.size * 40 // 50 + second.size
    assert places.bytes_behind(Position(second.ledger_id, -1)) == second.size
    assert abs(places.bytes_behind(Position(second.ledger_id, 23)) - one) < one // 2
    assert places.bytes_behind(Position(second.ledger_id, 24)) == 0
    assert places.bytes_behind(Position(second.ledger_id + 1, 0)) == 0


async def test_cursors_of_very_many_subscriptions_learn_of_acknowledgements_in_many_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three hundred whose time came at once held up everybody for 7 ms."""
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    topic = await partition(lambda: 1000)
    await topic.log.append((entry(b"x"),), messages=1, timestamp_ms=1000).settled()
    known: list[str] = []

    def noted(acks: Acknowledgements) -> None:
        known.append(acks._name)
        flush(acks)

    flush = Acknowledgements.flush
    monkeypatch.setattr(Acknowledgements, "flush", noted)
    subscriptions = [
        await topic.subscription(Wanted(f"s{n}", SubType.Exclusive, start=Start.earliest)) for n in range(20)
    ]
    known.clear()
    ledger_id = topic.log.ledgers()[0].ledger_id
    for each in subscriptions:
        each.acks.done((ledger_id, 0))
    seen = [0]
    while len(known) < 20:
        await asyncio.sleep(0)
        seen.append(len(known))
    assert max(after - before for before, after in pairwise(seen)) == 1
    assert {each.cursor.mark_delete_position for each in subscriptions} == {Position(ledger_id, 0)}


def write_in_pieces(home: House, number: int, pieces: int) -> None:
    for piece in range(pieces):
        home.write(number * 100 + piece, uuid=f"m{number}", chunk_id=piece, num_chunks_from_msg=pieces)


async def test_the_pieces_of_a_message_go_to_one_consumer_in_order_while_others_come_and_go() -> None:
    """A client throws away a piece whose predecessor it has not got, and acknowledges what is whole."""
    seed = 7 if os.environ.get("CI") else random.randrange(1 << 32)
    dice = random.Random(seed)
    home = await house("shared")
    pieces = [dice.choice((1, 1, 2, 3, 7)) for _ in range(150)]
    open_: dict[Consumer, tuple[Ear, int, dict[int, list[Place]]]] = {}
    whole: set[int] = set()
    written = 0
    for step in range(6000):
        action = dice.random()
        if written < len(pieces) and action < 0.2:
            write_in_pieces(home, written, pieces[written])
            written += 1
        elif not open_ or (action < 0.24 and len(open_) < 4):
            consumer, ear = home.join(dice.randrange(1, 4))
            open_[consumer] = ear, 0, {}
        elif action < 0.25 and len(open_) > 1 and step < 5000:
            gone = dice.choice(list(open_))
            del open_[gone]
            home.subscription.remove(gone)
        else:
            consumer = dice.choice(list(open_))
            ear, had, parts = open_[consumer]
            for place, text, _ in ear.heard[had:]:
                number, piece = divmod(int(text), 100)
                if piece == 0:
                    parts[number] = []
                if len(parts.get(number, ())) != piece or (piece and number not in parts):
                    raise AssertionError(
                        f"piece {piece} of {number} came to one who cannot use it, seed {seed}"
                    )
                parts[number].append(place)
                if piece == pieces[number] - 1:
                    whole.add(number)
                    for each in parts.pop(number):
                        home.subscription.acknowledge(consumer, each, None)
            home.subscription.flow(consumer, len(ear.heard) - had)
            open_[consumer] = ear, len(ear.heard), parts
        await settle() if dice.random() < 0.3 else await asyncio.sleep(0)
        if len(whole) == len(pieces):
            break
    assert whole == set(range(len(pieces))), f"seed {seed}"
    await settle()
    assert home.subscription.backlog == 0, f"seed {seed}"


async def test_a_consumer_without_room_keeps_only_its_own_messages_waiting() -> None:
    home = await house("shared")
    slow, slow_ear = home.join(1)
    write_in_pieces(home, 1, 3)
    await settle()
    _, other_ear = home.join(100)
    for number in range(2, 6):
        write_in_pieces(home, number, number - 1)
    await settle()
    assert [text for _, text, _ in slow_ear.heard] == ["100"]
    assert [text for _, text, _ in other_ear.heard] == [
        str(number * 100 + piece) for number in range(2, 6) for piece in range(number - 1)
    ]
    home.subscription.flow(slow, 1)
    await settle()
    assert [text for _, text, _ in slow_ear.heard] == ["100", "101"]
    home.subscription.remove(slow)
    await settle()
    assert [text for _, text, _ in other_ear.heard][-3:] == ["100", "101", "102"], "from the first piece on"


async def test_what_is_skipped_does_not_come_again_up_to_the_very_entry() -> None:
    home = await house("shared")
    consumer, ear = home.join(10)
    for number in range(3):
        home.write(number)
    await settle()
    places = [place for place, _, _ in ear.heard]
    assert consumer.unacked == 3
    home.subscription.skip_to(Position(*places[0]))
    assert consumer.unacked == 2
    held = home.subscription
    consumer.permits = 0
    held.redeliver(consumer, places[1:], None)
    held.skip_to(Position(*places[1]))
    held.flow(consumer, 10)
    await settle()
    assert [text for _, text, _ in ear.heard[3:]] == ["2"]


async def test_a_piece_that_waits_for_its_consumer_holds_up_nobody_elses_redelivery() -> None:
    home = await house("shared")
    slow, slow_ear = home.join(2)
    write_in_pieces(home, 1, 3)
    await settle()
    other, other_ear = home.join(1)
    home.write(900)
    await settle()
    assert ([text for _, text, _ in slow_ear.heard], [text for _, text, _ in other_ear.heard]) == (
        ["100", "101"],
        ["900"],
    )
    home.subscription.redeliver(slow, [slow_ear.heard[1][0]], None)
    home.subscription.redeliver(other, [other_ear.heard[0][0]], None)
    home.subscription.flow(other, 1)
    await settle()
    assert [text for _, text, _ in other_ear.heard] == ["900", "900"]


async def test_entries_between_two_places_are_counted_across_ledgers() -> None:
    home = await house("shared")
    for number in range(120):  # in ledgers of 50
        await home.write(number).settled()
    entries = [
        Position(ledger.ledger_id, entry_id)
        for ledger in home.log.ledgers()
        for entry_id in range(ledger.entries)
    ]
    assert len(entries) == 120
    places = Places(home.log)
    for mark in (Position(entries[0].ledger_id, -1), *entries[::7], entries[-1]):
        for following in (*entries[::9], entries[-1]):
            want = sum(mark < each < following for each in entries)
            assert places.entries_between(mark, following) == want, (mark, following)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_subscription_that_closed_sends_nothing_more(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = await house(kind)
    _, ear = home.join(10)
    home.write(0)
    await settle()
    assert len(ear.heard) == 1
    gate, read = asyncio.Event(), home.log.read

    async def slowly(*arguments: Any, **options: Any) -> Any:
        await gate.wait()
        return await read(*arguments, **options)

    monkeypatch.setattr(home.log, "read", slowly)
    home.write(1)
    await settle()
    home.subscription.close()
    gate.set()
    await settle()
    home.write(2)
    home.subscription.wake()
    await settle()
    assert len(ear.heard) == 1


@given(st.integers(1, 20).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, (1 << size) - 1))))
def test_runs_of_a_batch_that_are_done_are_all_that_does_not_remain(asked: tuple[int, int]) -> None:
    size, remaining = asked
    accepted: list[tuple[int, int]] = []
    queue = MagicMock(accept=lambda first, last: accepted.append((first, last)))
    LinkedWork._accept(queue, Span(100, 100 + size - 1), remaining)
    offsets = [offset for first, last in accepted for offset in range(first, last + 1)]
    assert offsets == [100 + index for index in range(size) if not remaining >> index & 1]
    assert all(after > last + 1 for (_, last), (after, _) in pairwise(accepted)), "runs are whole"
