"""One registry of open logs: both protocols hold the same, and whoever holds one learns that it closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar.base.errors import TopicNotFound
from magnetar.ledger.errors import LedgerClosed, LedgerFenced
from magnetar.ledger.formats.info import path_of
from magnetar.ledger.memory import MemoryEngine
from magnetar.logs import leader_epochs
from magnetar.logs.leader_epochs import LeaderEpochs
from magnetar.logs.open_logs import OpenLog
from magnetar.metadata import MetadataUnavailable
from magnetar.metadata.ops import ANY, Put
from magnetar.node.broker import Broker
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.broker.both import Both, both
from tests.pulsar import raw

NAME = "persistent://public/default/t"
SENT_AWAY = {BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER}


class Told:
    """A holder, and what it was told."""

    def __init__(self, *, fails: bool = False) -> None:
        self.reasons: list[Exception] = []
        self._fails = fails

    def log_closed(self, reason: Exception) -> None:
        self.reasons.append(reason)
        if self._fails:
            raise ValueError


async def opened(house: Both) -> OpenLog:
    """A topic with two records that both protocols use: a fetch is parked, a producer and a consumer are there."""
    await house.broker.create_topic("t", 1)
    assert (await house.kafka.produce("t", b"0", b"1")).error_code == 0
    assert (await house.pulsar.ask(raw.producer(NAME, 1, 1))).type == BaseCommand.PRODUCER_SUCCESS
    assert (await house.pulsar.ask(raw.subscribe(NAME))).type == BaseCommand.SUCCESS
    (held,) = house.broker.logs.open_logs.all()
    return held


async def parked(house: Both) -> asyncio.Future[Any]:
    fetch = house.kafka.fetch("t", 2)
    partition = house.kafka_services.partitions.all_open()[0]
    while not partition.waiting:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return fetch


async def sent_away(house: Both) -> set[int]:
    return {(await house.pulsar.hears(*SENT_AWAY)).type, (await house.pulsar.hears(*SENT_AWAY)).type}


async def test_both_protocols_hold_the_same_log() -> None:
    async with both() as house:
        held = await opened(house)
        assert house.kafka_services.partitions.all_open()[0].log is held.log
        assert house.pulsar_services.topics.all_open()[0].log is held.log
        assert house.broker.engine.opened() == [held.log]


async def test_many_who_ask_at_once_get_one_log_also_if_the_first_goes_away() -> None:
    async with both() as house:
        topic = await house.broker.create_topic("t", 1)
        asking = [asyncio.ensure_future(house.broker.logs.open_logs.open(topic, 0)) for _ in range(5)]
        await asyncio.sleep(0)
        asking[0].cancel()
        assert len({id(await each) for each in asking[1:]}) == 1
        with pytest.raises(TopicNotFound):
            await house.broker.logs.open_logs.open(topic, 1)


async def test_a_deleted_topic_is_not_opened_again_and_what_came_too_late_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered = leader_epochs.entered

    async with both() as house:
        topic = await house.broker.create_topic("t", 1)

        async def meanwhile(*arguments: Any) -> LeaderEpochs:
            found = await entered(*arguments)
            await house.broker.delete_topic("t")
            return found

        with monkeypatch.context() as slow:
            slow.setattr(leader_epochs, "entered", meanwhile)
            with pytest.raises(TopicNotFound, match="t was deleted"):
                await house.broker.logs.open_logs.open(topic, 0)
        assert house.broker.logs.open_logs.all() == []
        assert house.broker.engine.opened() == []
        asked: list[int] = []
        monkeypatch.setattr(house.broker.engine, "open", lambda *_: asked.append(1))
        with pytest.raises(TopicNotFound, match="t was deleted"):
            await house.broker.logs.open_logs.open(topic, 0)
        with pytest.raises(TopicNotFound, match="t was deleted"):
            house.broker.logs.open_logs.check(topic, 0)
        assert not asked, "nothing is made for it"


async def test_a_log_that_cannot_be_entered_is_not_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would close it when its bundle goes. Who got the bundle back was given it as it was before the others
    wrote: idempotent producers were told that they are out of order.
    """

    async def fails(*_: Any) -> LeaderEpochs:
        raise MetadataUnavailable("ZooKeeper cannot be reached")

    async with both() as house:
        topic = await house.broker.create_topic("t", 1)
        with monkeypatch.context() as broken:
            broken.setattr(leader_epochs, "entered", fails)
            with pytest.raises(MetadataUnavailable):
                await house.broker.logs.open_logs.open(topic, 0)
        assert house.broker.engine.opened() == []
        assert (await house.kafka.produce("t", b"0")).error_code == 0


async def test_holders_of_a_deleted_topic_are_told_so() -> None:
    async with both() as house:
        held = await opened(house)
        fetch = await parked(house)
        await house.broker.delete_topic("t")
        assert (await fetch).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await sent_away(house) == SENT_AWAY
        assert isinstance(held.closed, TopicNotFound)
        assert not held.is_held
        assert not house.broker.logs.open_logs.all()
        assert not house.kafka_services.partitions.all_open()
        assert not house.pulsar_services.topics.all_open()


async def test_holders_of_a_released_log_are_told_and_come_back_to_all_it_held() -> None:
    async with both() as house:
        held = await opened(house)
        fetch = await parked(house)
        await house.broker.logs.open_logs.release([held], LedgerClosed("given away"))
        assert (await fetch).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await sent_away(house) == SENT_AWAY
        assert not house.broker.engine.opened()
        assert (await house.kafka.fetch("t", 0)).high_watermark == 2
        assert (await house.pulsar.ask(raw.producer(NAME, 1, 3))).type == BaseCommand.PRODUCER_SUCCESS
        (again,) = house.broker.logs.open_logs.all()
        assert again.log is not held.log


async def test_holders_learn_that_another_owner_took_a_log() -> None:
    async with both() as house:
        held = await opened(house)
        fetch = await parked(house)
        store = house.broker.store
        stored = await store.get(path_of(held.log.name))
        assert stored is not None
        await store.commit(
            [Put(path_of(held.log.name), stored.value, ANY)]
        )  # another one writes the list of ledgers
        with pytest.raises(LedgerFenced):
            await held.log.terminate()
        assert (await fetch).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await sent_away(house) == SENT_AWAY
        assert isinstance(held.closed, LedgerFenced)
        assert (await house.kafka.produce("t", b"2")).base_offset == 2


async def test_a_holder_that_fails_keeps_no_other_from_being_told() -> None:
    async with both() as house:
        held = await opened(house)

        me, fails = Told(), Told(fails=True)
        held.hold(fails)
        held.hold(me)
        await house.broker.logs.open_logs.release([held], LedgerClosed("given away"))
        assert [type(each) for each in me.reasons] == [LedgerClosed]
        with pytest.raises(LedgerClosed):
            held.hold(me)


async def test_a_log_is_closed_when_nobody_holds_it_and_not_before() -> None:
    async with both() as house:
        topic = await house.broker.create_topic("t", 1)
        logs = house.broker.logs.open_logs
        held = await logs.open(topic, 0)
        me = Told()
        held.hold(me)
        await logs.close_unheld()
        assert logs.all() == [held]
        held.leave(me)
        await logs.open(topic, 0)
        await logs.close_unheld()
        assert logs.all() == [held]  # somebody has just asked for it
        await logs.close_unheld()
        assert not logs.all()
        assert not house.broker.engine.opened()
        assert not me.reasons


class OpensSlowly(MemoryEngine):
    """One that closes no log for nothing but that nobody uses it, as BookKeeper's."""

    opens_slowly = True


@pytest.mark.parametrize("why", ["it opens slowly", "it is busy"])
async def test_what_the_engine_keeps_is_let_go_of_with_its_bundle(why: str) -> None:
    """Or who got the bundle back was given it as it was before the others wrote: readers saw an end long past."""
    async with both(engine_on=OpensSlowly if why == "it opens slowly" else MemoryEngine) as house:
        topic = await house.broker.create_topic("t", 1)
        logs, engine = house.broker.logs.open_logs, house.broker.engine
        first = await logs.open(topic, 0)
        if why == "it is busy":
            first.log.on_moved = lambda: None  # somebody listens to it
        await closed_meanwhile(house)
        assert engine.opened() == [first.log]
        again = await logs.open(topic, 0)  # nobody else had it: it is as good as it was
        assert again.log is first.log
        assert first.log.on_closed == [again.tell_closed]
        await closed_meanwhile(house)
        await logs.give_away(first.bundle)
        assert not logs.all()
        assert engine.opened() == []
        assert (await house.kafka.produce("t", b"0")).error_code == 0


async def closed_meanwhile(house: Both) -> None:
    """Have all duties close what nobody holds, one right after the other."""
    for _ in range(2):
        await house.broker.logs.open_logs.close_unheld()


async def test_a_log_is_open_when_whoever_asked_for_it_goes_on() -> None:
    async with both() as house:
        topic = await house.broker.create_topic("t", 1)
        logs, me = house.broker.logs.open_logs, Told()

        async def hold() -> OpenLog:
            held = await logs.open(topic, 0)
            held.hold(me)
            return held

        holding = asyncio.ensure_future(hold())
        while not logs.all():  # noqa: ASYNC110
            await asyncio.sleep(0)
        await closed_meanwhile(house)
        held = await holding
        await closed_meanwhile(house)
        assert (logs.all(), held.closed, me.reasons) == ([held], None, [])


async def test_a_log_is_kept_open_for_pulsars_topic_while_its_cursors_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with both() as house:
        topic = await house.broker.create_topic("t", 1)
        held = await house.broker.logs.open_logs.open(topic, 0)
        cursors = type(held.log).cursors

        async def slow(log: Any) -> Any:
            await closed_meanwhile(house)
            return await cursors(log)

        monkeypatch.setattr(type(held.log), "cursors", slow)
        made = await house.pulsar_services.topics.open(topic, 0)
        assert (made.log, held.closed) == (held.log, None)


async def sealed(broker: Broker, **configs: str) -> OpenLog:
    """A log of two sealed ledgers and an open one, that nobody holds."""
    topic = await broker.create_topic("t", 1, {key.replace("_", "."): text for key, text in configs.items()})
    held = await broker.logs.open_logs.open(topic, 0)
    me = Told()
    held.hold(me)
    for _ in range(2):
        for key in (b"a", b"b"):
            appended = held.log.append(
                (raw.entry(b"v", partition_key=key.decode()),), messages=1, timestamp_ms=1
            )
            await appended.settled()
        await held.log.roll()
    await held.log.append((raw.entry(b"v", partition_key="c"),), messages=1, timestamp_ms=1).settled()
    held.leave(me)
    return held


@pytest.mark.parametrize("protocol", ["kafka", "pulsar"])
@pytest.mark.parametrize("does_its_duty", [True, False])
async def test_retention_is_the_brokers_whichever_protocol_is_served(
    protocol: str, does_its_duty: bool
) -> None:
    async with both([protocol], log_retention_check_interval_ms="1") as house:
        gone = await sealed(house.broker, retention_ms="-1", retention_bytes="0" if does_its_duty else "-1")
        for _ in range(200):
            await asyncio.sleep(0.001)
            ledgers = await house.broker.engine.summaries(gone.log.name)
            if ledgers[0].first_offset:
                break
        assert bool(ledgers[0].first_offset) is does_its_duty


@pytest.mark.parametrize("protocol", ["kafka", "pulsar"])
async def test_the_log_cleaner_is_the_brokers_whichever_protocol_is_served(protocol: str) -> None:
    async with both([protocol], log_cleaner_backoff_ms="1") as house:
        gone = await sealed(house.broker, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        async with asyncio.timeout(20):
            while not (await house.broker.engine.summaries(gone.log.name))[0].compacted:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("protocol", ["kafka", "pulsar"])
async def test_a_topic_past_its_threshold_is_compacted_whichever_protocol_is_served(protocol: str) -> None:
    async with both([protocol], broker_service_compaction_monitor_interval_ms="1") as house:
        gone = await sealed(house.broker, compaction_threshold="1")
        held = await house.broker.logs.open_logs.open(gone.topic, 0)
        held.hold(Told())
        async with asyncio.timeout(20):
            while held.log.compacted is None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
