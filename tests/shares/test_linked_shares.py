"""A share group and a Shared subscription of one name are one work queue: stock clients of both, and operators."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.hostile.client import Wire
from tests.process import BrokerProcess
from tests.shares.test_answers import RECORDS as RECORDS_ASKED
from tests.shares.test_answers import Asking, E, given
from tests.shares.test_dead_letters import configure, letters, make_queue
from tests.shares.test_share_consumers import (
    PATIENCE_S,
    QUICK,
    RECORDS,
    Worker,
    create,
    lag,
    produce,
    until,
)

LINKED = (*QUICK, "--set", "linked.subscriptions=crew,asked", "--http", "127.0.0.1:0")
HELLO = 200
KEPT_S = 2.0
"""Within which an acknowledgement of Pulsar's is durable, once the client was told of it."""
RECONNECTED_S = 1.0


def linked_broker(
    start: Callable[..., BrokerProcess],
    data: Path,
    *,
    kafka: str = "127.0.0.1:0",
    pulsar: str = "127.0.0.1:0",
) -> BrokerProcess:
    return start(data, *LINKED, "--pulsar", pulsar, kafka=kafka)


def came_again(crew: Sequence[Worker], broken: Sequence[tuple[float, float]]) -> list[object]:
    """Return what was delivered to anybody after somebody had been told, or had said for good, that it is done with.

    What a consumer of Pulsar's says just before it is killed, or while the broker is (from, to), may not have counted:
    its client tells of acknowledgements together, some time later, and forgets those that it cannot send.
    """
    since: dict[int, tuple[float, int]] = {}
    for worker in crew:
        lost = [(from_s - KEPT_S, to_s + RECONNECTED_S) for from_s, to_s in broken]
        if worker.killed is not None:
            lost.append((worker.killed - KEPT_S, worker.killed))
        for at, numbers in worker.acked:
            if worker.kind == "worker" or not any(low <= at <= high for low, high in lost):
                since.update((number, (at, id(worker))) for number in numbers if number not in since)
    return [
        (number, at - since[number][0], worker.kind, id(worker) == since[number][1])
        for worker in crew
        for at, numbers in worker.got
        for number in numbers
        if number in since
        and at > since[number][0] + 0.5  # a client takes some time to return what came before
    ]


@pytest.mark.slow
def test_workers_of_both_kinds_and_the_broker_are_killed_and_every_record_is_done_with_once(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = linked_broker(start_broker, tmp_path / "data")
    address, url = broker.address, broker.pulsar_url
    kafka, pulsar = (address, "crew", "work"), (url, "crew", "work", "pulsar_worker")
    create(address, "work")
    crew = [Worker(*each) for each in (kafka, pulsar) for _ in range(2)]

    def done() -> set[int]:
        return set().union(*(worker.done for worker in crew))

    sent = 0
    while not all(worker.done for worker in crew):  # all are there before the real work begins
        produce(address, "work", range(sent, sent + HELLO))
        sent += HELLO
        until(lambda sent=sent: len(done()) == sent, lambda: [len(worker.done) for worker in crew])  # type: ignore[misc]
    filling = threading.Thread(target=produce, args=(address, "work", range(sent, sent + RECORDS)))
    filling.start()
    until(lambda: len(done()) > sent + RECORDS // 4, lambda: len(done()))
    filling.join()
    for victim in crew[::2]:
        victim.kill()
    crew += [Worker(*kafka), Worker(*pulsar)]
    broken = time.monotonic()
    broker.kill()
    killed = len(done())
    broker = linked_broker(
        start_broker, tmp_path / "data", kafka=address, pulsar=url.removeprefix("pulsar://")
    )
    restarted = time.monotonic()
    # However fast they were, there is something left to do.
    produce(address, "work", range(sent + RECORDS, sent + RECORDS + RECORDS // 4))
    until(lambda: lag(address, "crew", "work") == 0, lambda: (lag(address, "crew", "work"), len(done())))
    for worker in crew:
        if worker.killed is None:
            worker.end()
    sent += RECORDS + RECORDS // 4
    assert killed < sent, "there was nothing left to do"
    had = {number for worker in crew for _, numbers in worker.got for number in numbers}
    missing = sorted(set(range(sent)) - had)
    assert not missing, (len(missing), missing[0], missing[-1])
    assert len(done()) > sent * 0.8
    again = came_again(crew, [(broken, restarted)])
    assert not again, (len(again), again[0], again[-1])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, pulsar.Client]]:
    given = ("--set", "share.auto.offset.reset=earliest", "--set", "linked.subscriptions=*")
    data = tmp_path_factory.mktemp("both") / "data"
    with BrokerProcess(data, *given, "--pulsar", "127.0.0.1:0") as process:
        client = pulsar.Client(process.pulsar_url)
        yield process, client
        client.close()


def subscribe(client: pulsar.Client, name: str, **given: Any) -> pulsar.Consumer:
    asked = {"consumer_type": pulsar.ConsumerType.Shared, "batch_index_ack_enabled": True, **given}
    return client.subscribe(f"public/default/{name}-partition-0", name, **asked)


def received(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    """Return so many messages, and see that no more come."""
    messages = [consumer.receive(PATIENCE_S * 1000) for _ in range(count)]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    return messages


def numbers(messages: Sequence[pulsar.Message]) -> list[int]:
    return [int(each.data()) for each in messages]


def wanted(asking: Asking, epoch: int, offsets: Sequence[tuple[int, int, int]]) -> None:
    """Have the member be given this, waiting for it."""
    assert given(asking.fetch(epoch, max_wait_ms=PATIENCE_S * 1000, min_bytes=1)) == offsets


def test_what_one_kind_holds_the_other_waits_for_and_a_batch_goes_whole_but_for_what_is_done_with(
    both: tuple[BrokerProcess, pulsar.Client],
) -> None:
    process, client = both
    with Wire(process.host_and_port) as wire:
        asking = Asking(wire, "halves")
        assert given(asking.fetch(0, max_records=4, share_acquire_mode=1)) == [(0, 3, 1)]
        consumer = subscribe(client, "halves")
        assert received(consumer, 0) == []
        assert asking.judged(1, (0, 1, [1]), (2, 3, [2])) == E.NONE
        messages = received(consumer, 8)
        assert numbers(messages) == list(range(2, 10))
        assert messages[0].redelivery_count() == 1  # as a member had some of them before
        assert given(asking.fetch(2)) == []
        for message in messages[:3]:
            consumer.acknowledge(message)
        until(lambda: asking.at("halves", 0) == [(5, 5)], lambda: asking.at("halves", 0))
        consumer.close()
        wanted(asking, 3, [(5, 9, 2)])
        assert asking.judged(4, (5, 9, [1])) == E.NONE
        assert asking.at("halves", 0) == [(10, 0)]
        assert received(subscribe(client, "halves"), 0) == []


def test_who_acknowledges_late_is_heard_and_whoever_has_it_by_then_holds_nothing(
    both: tuple[BrokerProcess, pulsar.Client],
) -> None:
    process, client = both
    with Wire(process.host_and_port) as wire:
        asking = Asking(wire, "late")
        assert given(asking.fetch(0, max_records=0)) == []
        consumer = subscribe(client, "late", initial_position=pulsar.InitialPosition.Earliest)
        messages = received(consumer, RECORDS_ASKED)
        consumer.close()
        wanted(asking, 1, [(0, 9, 1)])  # what came before the group is not counted
        consumer = subscribe(client, "late")
        for message in messages:
            consumer.acknowledge(message)
        until(lambda: asking.at("late", 0) == [(10, 0)], lambda: asking.at("late", 0))
        assert asking.judged(2, (0, 9, [1])) == E.NONE  # it lies before all that is kept
        assert received(consumer, 0) == []
        consumer.close()


def test_what_a_consumer_leaves_the_next_one_gets(both: tuple[BrokerProcess, pulsar.Client]) -> None:
    process, client = both
    with Wire(process.host_and_port) as wire:
        asking = Asking(wire, "leaving")
        assert given(asking.fetch(0)) == [(0, 9, 1)]
        assert asking.judged(1, (0, 9, [2])) == E.NONE
        consumer = subscribe(client, "leaving")
        assert received(consumer, RECORDS_ASKED)[0].redelivery_count() == 1
        other = subscribe(client, "leaving")
        assert received(other, 0) == []
        consumer.close()
        assert received(other, RECORDS_ASKED)[0].redelivery_count() == 2
        other.close()


def test_a_group_that_comes_second_begins_where_the_subscription_is(
    both: tuple[BrokerProcess, pulsar.Client],
) -> None:
    process, client = both
    with Wire(process.host_and_port) as wire:
        asking = Asking(wire, "second")
        consumer = subscribe(client, "second", initial_position=pulsar.InitialPosition.Earliest)
        messages = received(consumer, RECORDS_ASKED)
        for message in (*messages[:4], messages[6]):
            consumer.acknowledge(message)
        consumer.close()
        assert given(asking.fetch(0)) == [(4, 5, 1), (7, 9, 1)]


def test_an_entry_waits_until_what_a_member_gave_up_is_in_the_dead_letter_queue(
    both: tuple[BrokerProcess, pulsar.Client],
) -> None:
    process, client = both
    make_queue(process.address, "dlq.linked")
    configure(process.address, "letters", "dlq.linked")
    with Wire(process.host_and_port) as wire:
        asking = Asking(wire, "letters")
        assert given(asking.fetch(0)) == [(0, 9, 1)]
        consumer = subscribe(client, "letters")
        assert received(consumer, 0) == []
        assert asking.judged(1, (0, 3, [3]), (4, 6, [2]), (7, 9, [3])) == E.NONE
        messages = received(consumer, 3)
        assert numbers(messages) == [4, 5, 6]
        assert [each.source[1] for each in letters(process.address, "dlq.linked")] == [0, 1, 2, 3, 7, 8, 9]
        for message in messages:
            consumer.acknowledge(message)
        until(lambda: asking.at("letters", 0) == [(10, 0)], lambda: asking.at("letters", 0))
        consumer.close()
        assert received(subscribe(client, "letters"), 0) == []


def test_only_shared_subscriptions_are_a_share_groups(both: tuple[BrokerProcess, pulsar.Client]) -> None:
    process, client = both
    with Wire(process.host_and_port) as wire:
        asking = Asking(wire, "kinds")
        assert given(asking.fetch(0)) == [(0, 9, 1)]
        with pytest.raises(pulsar.ConsumerBusy):
            subscribe(client, "kinds", consumer_type=pulsar.ConsumerType.Exclusive)
        other = Asking(wire, "exclusive")
        consumer = subscribe(client, "exclusive", consumer_type=pulsar.ConsumerType.Exclusive)
        (row,) = other.fetch(0).responses[0].partitions
        assert row.error_code == E.INCONSISTENT_GROUP_PROTOCOL
        assert "Exclusive consumers" in row.error_message
        consumer.close()


def test_both_are_moved_together(both: tuple[BrokerProcess, pulsar.Client]) -> None:
    process, client = both
    with Wire(process.host_and_port) as wire:
        asking = Asking(wire, "moved")
        assert given(asking.fetch(0)) == [(0, 9, 1)]
        assert asking.judged(1, (0, 9, [1])) == E.NONE
        consumer = subscribe(client, "moved")
        (row,) = asking.alter("moved", 0, 6).responses[0].partitions
        assert row.error_code == E.NON_EMPTY_GROUP
        consumer.close()
        until(lambda: not alter(asking, 6), lambda: alter(asking, 6))
        consumer = subscribe(client, "moved")
        assert numbers(received(consumer, 4)) == [6, 7, 8, 9]
        consumer.seek(pulsar.MessageId.earliest)
        assert numbers(received(consumer, RECORDS_ASKED)) == list(range(10))
        assert asking.at("moved", 0) == [(0, 10)]
        consumer.close()


def alter(asking: Asking, offset: int) -> int:
    (row,) = asking.alter(asking.name, 0, offset).responses[0].partitions
    return int(row.error_code)
