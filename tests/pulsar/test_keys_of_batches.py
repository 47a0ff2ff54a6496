"""Batches of several keys on subscriptions that go by keys: what Kafka's producers send, in every entry format."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from magnetar.ledger.cursors.cursor import Start
from magnetar.ledger.formats.ack_sets import set_of
from magnetar.ledger.port import Position
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import Deliveries, Place
from magnetar.pulsar.dispatch.reading import Readings, UnackedLimits
from magnetar.pulsar.dispatch.single_active import SingleActive
from magnetar.records import sticky_keys
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.records.compression import Buffer, Codec
from magnetar.records.entry import kafka_message_head
from magnetar.records.mapping import key_of
from magnetar.records.pulsar_compression import decompress_payload
from magnetar.records.pulsar_entries import to_pulsar
from magnetar.records.pulsar_metadata import decode_metadata
from magnetar.records.pulsar_plain import framed_message, singles
from magnetar.records.sticky_keys import HASH_RANGE, hash_of_key
from magnetar.wire.pulsar.frames import read_frame
from magnetar.wire.pulsar.pulsar_pb2 import MessageMetadata
from tests.pulsar.test_dispatch import KEY_SHARED, STICKY, Ear, House, house, settle
from tests.records.test_pulsar_entries import NOW, kafka_entry
from tests.waiting import PATIENCE_S

FORMS = ("kafka", "mixed_kafka", "pulsar", "pulsar of before")
Keys = Sequence[bytes | None]


class Listener(Ear):
    """A connection that opens what it is sent, as clients do."""

    def __init__(self, home: House, written: dict[Place, Keys]) -> None:
        super().__init__()
        self.home = home
        self.written = written
        self.taken: list[tuple[Place, list[bytes | None]]] = []
        """Entries, each with the keys of the messages that may be had of it."""
        self.wrong: list[str] = []

    def deliver(self, parts: Sequence[Buffer]) -> None:
        for head, body in zip(parts[::2], parts[1::2], strict=True):
            message = read_frame(memoryview(bytes(head)[4:])).command.message
            place = message.message_id.ledgerId, message.message_id.entryId
            keys = _keys_in(body)
            if message.ack_set:
                remaining = set_of(message.ack_set, len(keys))
                keys = [each for index, each in enumerate(keys) if remaining >> index & 1]
            self.taken.append((place, keys))
            self._check(message.consumer_id, place)

    def _check(self, consumer_id: int, place: Place) -> None:
        """All that is earlier of an entry's keys is done with, or this consumer has it too."""
        subscription = self.home.subscription
        mine = next(each for each in subscription.consumers if each.consumer_id == consumer_id)
        keys = set(self.written[place]) - {None}
        first = self.written[place][0]
        if mine.hash_ranges and first is not None:
            ((start, end),) = mine.hash_ranges
            if not start <= hash_of_key(first) <= end:
                self.wrong.append(f"{place} of {keys} came to who has {start} to {end}")
        for other, theirs in self.written.items():
            if keys.isdisjoint(theirs) or subscription.acks.is_done(other) or other in mine.pending:
                continue
            elsewhere = any(other in each.pending for each in subscription.consumers)
            if other < place or elsewhere:
                self.wrong.append(f"{place} of {keys} came while {other} was elsewhere or still to come")


def _keys_in(framed: Buffer) -> list[bytes | None]:
    data = bytes(framed)
    end = 10 + int.from_bytes(data[6:10], "big")
    metadata = decode_metadata(data, 10, end)
    if not metadata.batched:
        return [key_of(metadata)]
    body = decompress_payload(metadata.compression, data[end:], metadata.uncompressed_size)
    return [key_of(single) for _, single, _ in singles(body, metadata.num_messages_in_batch)]


def write(home: House, keys: Keys, form: str, *, producer_id: int = -1, codec: Codec = Codec.none) -> Place:
    """Append a batch of Kafka's, one record for each key, as it lies in a topic of an entry format."""
    records = [PlainRecord(key, b"%d" % number, (), NOW) for number, key in enumerate(keys)]
    batch = encode_batch(records, codec=codec, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    if form in ("kafka", "mixed_kafka"):
        head = kafka_message_head(NOW, len(keys), mixed=form == "mixed_kafka")
        parts: tuple[Buffer, ...] = (head, batch)
    else:
        message = to_pulsar(kafka_entry(batch, len(keys) - 1))
        framed = message.framed
        if form == "pulsar of before":  # without a key outside
            metadata = MessageMetadata.FromString(bytes(message.metadata))
            metadata.ClearField("partition_key")
            metadata.ClearField("ordering_key")
            framed = framed_message(metadata.SerializeToString(), message.payload, len(keys)).framed
        parts = (framed,)
    home.log.append(parts, messages=len(keys), timestamp_ms=1)
    return place_written(home)


def place_written(home: House) -> Place:
    ledger = home.log.ledgers()[-1]
    return ledger.ledger_id, ledger.entries - 1


def join(
    home: House, written: dict[Place, Keys], permits: int, hash_ranges: tuple[tuple[int, int], ...] = ()
) -> tuple[Consumer, Listener]:
    ear = Listener(home, written)
    number = random.randrange(1 << 40)
    consumer = Consumer(ear, number, f"c{number}", -1, hash_ranges=hash_ranges)
    home.subscription.add(consumer)
    home.subscription.flow(consumer, permits)
    return consumer, ear


QUARTERS = tuple(((at * HASH_RANGE // 4, (at + 1) * HASH_RANGE // 4 - 1),) for at in range(4))


@pytest.mark.parametrize("kind", [*KEY_SHARED, *STICKY])
async def test_no_key_is_at_two_consumers_or_out_of_order_whatever_batches_hold(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers come, go, acknowledge, refuse, and have time-outs at random; batches have one key, some, none, or very
    many. Of sticky consumers each has a quarter of the hashes, and nobody has those of one that left.
    """
    is_sticky = kind in STICKY
    monkeypatch.setattr(sticky_keys, "MAX_HASHES", 4)
    seed = 7 if os.environ.get("CI") else random.randrange(1 << 32)
    dice = random.Random(seed)
    home = await house(kind, ledger_entries=1000)
    written: dict[Place, Keys] = {}
    open_: dict[Consumer, tuple[Listener, int]] = {}
    ears: list[Listener] = []
    done: set[Place] = set()
    for step in range(3000):
        action = dice.random()
        if len(written) < 300 and action < 0.3:
            keys = [
                dice.choice((*(b"k%d" % n for n in range(12)), None))
                for _ in range(dice.choice((1, 1, 2, 3, 9)))
            ]
            if dice.random() < 0.2:
                home.write(0, partition_key="k1")
                keys, place = [b"k1"], place_written(home)
            else:
                place = write(
                    home,
                    keys,
                    dice.choice(FORMS),
                    producer_id=dice.choice((-1, 5)),
                    codec=dice.choice(list(Codec)),
                )
            written[place] = keys
        elif action < 0.34 and len(open_) < 4:
            free = [each for each in QUARTERS if each not in {other.hash_ranges for other in open_}]
            consumer, ear = join(home, written, dice.randrange(1, 20), dice.choice(free) if is_sticky else ())
            open_[consumer] = ear, 0
            ears.append(ear)
        elif action < 0.36 and open_ and step < 2500:
            gone = dice.choice(list(open_))
            del open_[gone]
            home.subscription.remove(gone)
        elif action < 0.38 and open_:
            late = dice.choice(list(open_))  # all that it has took too long
            home.subscription.redeliver(late, [], None)
        elif open_:
            consumer = dice.choice(list(open_))
            ear, had = open_[consumer]
            fresh = ear.taken[had : had + dice.randrange(1, 5)]
            for place, keys in fresh:
                home.subscription.flow(consumer, len(keys))
                if place not in consumer.pending:
                    continue  # it was taken back
                if dice.random() < 0.1:
                    home.subscription.redeliver(consumer, [place], None)
                    continue
                home.subscription.acknowledge(consumer, place, None)
                done.add(place)
            open_[consumer] = ear, had + len(fresh)
        await settle() if dice.random() < 0.3 else await asyncio.sleep(0)
        assert not [wrong for each in ears for wrong in each.wrong], f"seed {seed}"
    for other in list(open_):
        home.subscription.remove(other)
    last = [join(home, written, 10_000, each) for each in (QUARTERS if is_sticky else ((),))]

    def acknowledge() -> bool:
        for survivor, ear in last:
            for place in list(survivor.pending):
                home.subscription.acknowledge(survivor, place, None)
                done.add(place)
            assert not ear.wrong, f"seed {seed}"
        return len(done) == len(written)

    await until(acknowledge)
    assert done == set(written), f"seed {seed}"
    assert home.subscription.backlog == 0, f"seed {seed}"


async def until(is_so: Callable[[], bool]) -> None:
    """Wait: what is compressed is opened in a thread."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it did not come about"
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("producer_id", [-1, 5])
async def test_batches_of_one_key_go_where_that_keys_messages_of_pulsars_clients_go(
    form: str, producer_id: int
) -> None:
    home = await house("key_shared", ledger_entries=1000)
    keys = [b"key %d" % number for number in range(40)]
    written: dict[Place, Keys] = {}
    listeners = [join(home, written, 1000) for _ in range(3)]
    for key in keys:
        for count in (1, 3):
            written[write(home, [key] * count, form, producer_id=producer_id)] = [key] * count
        home.write(0, partition_key=key.decode())
        written[place_written(home)] = [key]
    await settle()
    found: dict[bytes, list[int]] = defaultdict(list)
    for number, (_, ear) in enumerate(listeners):
        assert len(ear.taken) > 3, "all of them have their share"
        for _, (key, *_) in ear.taken:
            assert key is not None
            found[key].append(number)
    assert {key: len(those) for key, those in found.items()} == dict.fromkeys(keys, 3)
    assert all(len(set(those)) == 1 for those in found.values())


@pytest.mark.parametrize("form", FORMS)
async def test_records_without_a_key_are_spread(form: str) -> None:
    home = await house("key_shared", ledger_entries=1000)
    written: dict[Place, Keys] = {}
    listeners = [join(home, written, 1000) for _ in range(3)]
    for count in (1, 2) * 30:
        written[write(home, [None] * count, form)] = [None] * count
    await settle()
    assert all(len(ear.taken) > 3 for _, ear in listeners)
    assert sum(len(ear.taken) for _, ear in listeners) == 60


async def test_a_batch_waits_for_all_of_its_keys_and_later_ones_of_these_wait_behind_it() -> None:
    home = await house("key_shared", ledger_entries=1000)
    written: dict[Place, Keys] = {}
    (one, first), (other, second) = (join(home, written, 1000) for _ in range(2))
    owner = home.subscription._keys.owner  # type: ignore[attr-defined]
    names = [b"k%d" % number for number in range(100)]
    a, d = [name for name in names if owner(hash_of_key(name)) is one][:2]
    b, c = [name for name in names if owner(hash_of_key(name)) is other][:2]
    places = [write(home, keys, "kafka") for keys in ([a], [b], [c, a, b], [b, c], [d, c])]
    alone = write(home, [d], "kafka")
    written.update(zip(places, ([a], [b], [c, a, b], [b, c], [d, c]), strict=True))
    written[alone] = [d]
    await settle()
    assert [place for place, _ in first.taken] == [places[0]]
    assert [place for place, _ in second.taken] == [places[1]]
    home.subscription.acknowledge(other, places[1], None)
    await settle()
    # What has a at the first consumer follows it there, with all that shares keys with it.
    assert [place for place, _ in first.taken] == [*places[:1], *places[2:], alone]
    assert not first.wrong + second.wrong
    for place in (places[0], *places[2:], alone):
        home.subscription.acknowledge(one, place, None)
    again = write(home, [b, a], "kafka")
    await settle()
    assert second.taken[-1][0] == again, "once they are drained the first key chooses again"


async def test_a_batch_that_may_go_does_not_wait_for_later_ones_that_may_not() -> None:
    home = await house("key_shared", ledger_entries=1000)
    written: dict[Place, Keys] = {}
    (one, first), (other, second), (_, third) = (join(home, written, each) for each in (0, 1000, 1000))
    owner = home.subscription._keys.owner  # type: ignore[attr-defined]
    names = [b"k%d" % number for number in range(200)]
    a, b = [name for name in names if owner(hash_of_key(name)) is one][:2]
    c = next(name for name in names if owner(hash_of_key(name)) is other)
    d = next(name for name in names if owner(hash_of_key(name)) not in (one, other))
    for keys in ([c], [d], [a, b], [b, c, d], [b]):
        written[write(home, keys, "kafka")] = keys
    await settle()
    taken = [[keys for _, keys in ear.taken] for ear in (first, second, third)]
    assert taken == [[], [[c]], [[d]]]
    home.subscription.flow(one, 1000)
    await settle()
    taken = [[keys for _, keys in ear.taken] for ear in (first, second, third)]
    assert taken == [[[a, b]], [[c]], [[d]]]
    assert home.subscription._pumping is None, "nothing is read while nothing can go"


async def test_what_comes_back_while_later_ones_are_read_goes_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = await house("key_shared", ledger_entries=1000)
    written: dict[Place, Keys] = {}
    leaving, ear = join(home, written, 1)
    places = [write(home, [b"a"], "kafka") for _ in range(2)]
    written.update((place, [b"a"]) for place in places)
    await settle()
    assert [place for place, _ in ear.taken] == places[:1]
    gate, read = asyncio.Event(), home.log.read

    async def slowly(*arguments: Any, **options: Any) -> Any:
        await gate.wait()
        return await read(*arguments, **options)

    monkeypatch.setattr(home.log, "read", slowly)
    home.subscription.flow(leaving, 1)
    await settle()
    _, heir = join(home, written, 1000)
    home.subscription.remove(leaving)
    gate.set()
    await settle()
    assert [place for place, _ in heir.taken] == places


@pytest.mark.parametrize("skipped", [False, True])
async def test_what_waits_and_is_done_with_does_not_come(skipped: bool) -> None:
    home = await house("key_shared", ledger_entries=1000)
    written: dict[Place, Keys] = {}
    (one, first), (other, second) = (join(home, written, 1000) for _ in range(2))
    owner = home.subscription._keys.owner  # type: ignore[attr-defined]
    names = [b"k%d" % number for number in range(100)]
    a = next(name for name in names if owner(hash_of_key(name)) is one)
    b = next(name for name in names if owner(hash_of_key(name)) is other)
    places = [write(home, keys, "kafka") for keys in ([a], [b], [a, b], [b, a])]
    written.update(zip(places, ([a], [b], [a, b], [b, a]), strict=True))
    await settle()
    assert [place for _, ear in ((one, first), (other, second)) for place, _ in ear.taken] == places[:2]
    if skipped:
        home.subscription.skip_to(Position(*places[2]))
    else:
        for consumer, place in ((one, places[2]), (one, places[0]), (other, places[1])):
            home.subscription.acknowledge(consumer, place, None)
    await settle()
    assert ([place for place, _ in first.taken], [place for place, _ in second.taken]) == (
        [places[0]],
        [places[1], places[3]],
    )


async def test_of_two_readers_that_divide_the_hashes_each_gets_its_messages_of_a_batch() -> None:
    home = await house("exclusive")
    names = [b"key %d" % number for number in range(60)]
    dice = random.Random(5)
    batches = [
        [dice.choice((*names, None)) for _ in range(dice.randrange(1, 30))] for _ in range(len(FORMS) * 4)
    ]
    for number, keys in enumerate(batches):
        write(home, keys, FORMS[number % len(FORMS)], codec=list(Codec)[number % len(Codec)])
    halves = [(0, HASH_RANGE // 2), (HASH_RANGE // 2 + 1, HASH_RANGE - 1)]
    got: list[bytes | None] = []
    for half in halves:
        reader = await reading(home, half, durable=False)
        keys = [key for _, keys in reader.taken for key in keys]
        assert all(half[0] <= hash_of_key(key) <= half[1] for key in keys if key is not None)
        got += keys
    assert sorted(got, key=repr) == sorted((key for keys in batches for key in keys), key=repr)
    lasting = await reading(home, halves[0], durable=True)
    assert [keys for _, keys in lasting.taken if keys] == [
        keys for keys in batches if any(hash_of_key(key) <= halves[0][1] for key in keys if key is not None)
    ], "a consumer acknowledges a batch when it has had all of it"


async def reading(home: House, wanted: tuple[int, int], *, durable: bool) -> Listener:
    """Return what an exclusive consumer has heard that wants some hashes only."""
    cursors = await home.log.cursors()
    cursor = await (cursors.open("d", Start.earliest) if durable else cursors.non_durable(Start.earliest))
    readings = Readings(home.log, Deliveries(1 << 20), lambda: home.now_ms, UnackedLimits(0, 0))
    subscription = SingleActive("r", cursor, readings, SubType.Exclusive)
    ear = Listener(home, {})
    ear._check = lambda *_: None  # type: ignore[method-assign]
    consumer = Consumer(ear, 1, "reader", -1, hash_ranges=(wanted,))
    subscription.add(consumer)
    subscription.flow(consumer, 10_000)
    await until(lambda: subscription.is_waiting)
    assert consumer.permits == 10_000 - sum(len(keys) for _, keys in ear.taken)
    return ear


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("codec", [Codec.none, Codec.zstd])
async def test_on_failover_the_next_one_gets_in_order_what_remains_of_batches(
    form: str, codec: Codec
) -> None:
    home = await house("failover")
    batches: list[Keys] = [[b"a", b"b", b"a"], [b"b"], [None, b"c"]]
    places = [write(home, keys, form, codec=codec) for keys in batches]
    ears: dict[Consumer, Listener] = {}
    for _ in range(2):
        consumer, ear = join(home, {}, 1000)
        ear._check = lambda *_: None  # type: ignore[method-assign]
        ears[consumer] = ear
    active = home.subscription.active_consumer
    assert active is not None
    await until(lambda: len(ears[active].taken) >= 3)
    heir = next(each for each in ears if each is not active)
    assert ears[active].taken[-3:] == list(zip(places, batches, strict=True))
    assert not ears[heir].taken or ears[heir].taken == ears[active].taken[:-3]
    ears[heir].taken.clear()
    home.subscription.acknowledge(active, places[0], 0b110)
    home.subscription.acknowledge(active, places[1], None)
    ears[active].taken.clear()
    home.subscription.redeliver(active, [places[2]], None)
    await until(lambda: len(ears[active].taken) == 2)
    remain = [(places[0], [b"b", b"a"]), (places[2], [None, b"c"])]
    assert ears[active].taken == remain, "all comes again, so that the order is kept"
    home.subscription.remove(active)
    await until(lambda: len(ears[heir].taken) == 2)
    assert ears[heir].taken == remain
    for place, _ in remain:
        home.subscription.acknowledge(heir, place, None)
    assert home.subscription.backlog == 0
