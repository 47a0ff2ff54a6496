"""Offsets committed in transactions: whatever is committed, deleted, ended, compacted and started again in between,

groups have what plain commits and ended transactions say, in the log's order (KIP-98).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.background import Background
from magnetar.coordination import stated_log
from magnetar.coordination.batches import encode_stated, stated_in
from magnetar.coordination.decision import Fact, Marker, Transaction
from magnetar.coordination.log import MemoryOffsetsLog
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shard import Shard
from magnetar.kafka.coordinators.decider import GroupsDecider
from magnetar.kafka.coordinators.facts import Committer, OffsetCommit
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.records.batch import CONTROL, TRANSACTIONAL, batches

GROUPS, TOPICS = ("g", "h"), ("t", "u")
Name = tuple[str, str, int]
LATE_MS = 1 << 45
"""When all offsets are too old."""

names = st.tuples(st.sampled_from(GROUPS), st.sampled_from(TOPICS), st.integers(0, 1))
producers = st.integers(1, 3)
steps = st.one_of(
    st.tuples(st.just("commit"), names),
    st.tuples(st.just("commit in"), producers, names),
    st.tuples(st.just("end"), producers, st.booleans()),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("delete group"), st.sampled_from(GROUPS)),
    st.tuples(st.just("delete topic"), st.sampled_from(TOPICS)),
    st.tuples(st.just("expire")),
    st.tuples(st.just("wait")),
    st.tuples(st.just("restart")),
)


class Model:
    """What Kafka says: an ended transaction's offsets count from its end, unless their name was written since."""

    def __init__(self) -> None:
        self.kept: dict[Name, int] = {}
        self.open: dict[int, dict[Name, int]] = {}

    def commit(self, name: Name, offset: int) -> None:
        self.forget([name])
        self.kept[name] = offset

    def forget(self, names: list[Name]) -> None:
        for name in names:
            self.kept.pop(name, None)
            for held in self.open.values():
                held.pop(name, None)

    def end(self, producer: int, committed: bool) -> None:
        held = self.open.pop(producer, {})
        if committed:
            self.kept |= held

    def expire(self) -> None:
        """All is too old; what an open transaction has committed anew stays until that ends."""
        waiting = {name for held in self.open.values() for name in held}
        self.forget([name for name in self.kept if name not in waiting])

    def names(self) -> list[Name]:
        return list({*self.kept, *(name for held in self.open.values() for name in held)})


class SlowLog(MemoryOffsetsLog):
    async def append(self, partition: int, batch: bytes, records: int) -> int:
        await asyncio.sleep(0)
        return await super().append(partition, batch, records)


@contextmanager
def compacting(after: int) -> Iterator[None]:
    """Have logs compacted that are hardly longer than they must be, in as many steps as can be."""
    with (
        mock.patch.object(stated_log, "SNAPSHOT_AFTER", after),
        mock.patch.object(stated_log, "SNAPSHOT_FACTOR", 1),
        mock.patch.object(stated_log, "SNAPSHOT_BATCH", 1),
    ):
        yield


async def play(played: list[Any]) -> None:
    model, log = Model(), SlowLog(1)

    def taken_up(*, is_written: bool) -> Shard[GroupsDecider]:
        shard = Shard(0, log, lambda: GroupsDecider(GroupSettings(), lambda: "id"), lambda: 0, Background())
        shard.begin(asyncio.Semaphore(1), 0, is_written=is_written)
        return shard

    shard = taken_up(is_written=False)
    for offset, (verb, *about) in enumerate([*played, ("restart",)]):
        if verb == "wait":
            await asyncio.sleep(0)
        elif verb == "restart":
            await shard.close()
            shard = taken_up(is_written=True)
            await shard.reloaded()
        else:
            with suppress(CoordinatorRefused):  # there is no such group
                shard.tell(partial(decide, model=model, offset=offset, verb=verb, about=about))
        decider = shard.check_loaded()
        found = {
            (group, topic, partition): committed.offset
            for group in decider.groups
            for topic, partitions in decider.offsets.fetch(group).items()
            for partition, committed in partitions.items()
        }
        assert found == model.kept
        assert len(decider.offsets.pending) == sum(map(len, model.open.values()))
    await shard.close()


def decide(decider: GroupsDecider, model: Model, offset: int, verb: str, about: list[Any]) -> Any:
    offsets = decider.offsets
    match verb, about:
        case "commit", [(group, topic, partition) as name]:
            model.commit(name, offset)
            commit = OffsetCommit(topic, bytes(16), partition, offset, -1, "")
            return offsets.commit(group, Committer(), [commit], 9, 0)
        case "commit in", [producer, (group, topic, partition) as name]:
            model.open.setdefault(producer, {})[name] = offset
            commit = OffsetCommit(topic, bytes(16), partition, offset, -1, "")
            mine = Transaction(producer, 0)
            return offsets.commit(group, Committer(), [commit], 9, 0, transaction=mine)
        case "end", [producer, committed]:
            model.end(producer, committed)
            return offsets.end_transaction(Marker(Transaction(producer, 0), committed))
        case "delete", [(group, topic, partition) as name]:
            decision = offsets.delete(group, [(topic, partition)])
            model.forget([name])
            return decision
        case "delete group", [group]:
            decision = offsets.delete_group(group)
            model.forget([name for name in model.names() if name[0] == group])
            return decision
        case "expire", []:
            model.expire()
            return offsets.expire(LATE_MS)
        case _, [topic]:
            model.forget([name for name in model.names() if name[1] == topic])
            return offsets.delete_topic(topic)
    raise AssertionError(verb)


@given(st.lists(steps, min_size=1, max_size=60), st.integers(0, 20))
def test_groups_have_what_commits_and_ended_transactions_say(played: list[Any], compact_after: int) -> None:
    with compacting(compact_after):
        asyncio.run(play(played))


async def test_a_transaction_that_ends_while_its_log_is_compacted() -> None:
    """Its offsets must be in the snapshot: its marker comes behind that, and what lay before it is gone."""
    mine = Transaction(1, 0)
    log = SlowLog(1)

    def taken_up(*, is_written: bool) -> Shard[GroupsDecider]:
        shard = Shard(0, log, lambda: GroupsDecider(GroupSettings(), lambda: "id"), lambda: 0, Background())
        shard.begin(asyncio.Semaphore(1), 0, is_written=is_written)
        return shard

    def commit(offset: int, transaction: Transaction | None, group: str = "g") -> None:
        commits = [OffsetCommit("t", bytes(16), 0, offset, -1, "")]
        shard.tell(
            lambda decider: decider.offsets.commit(group, Committer(), commits, 9, 0, transaction=transaction)
        )

    for ticks in range(1, 40):
        log = SlowLog(1)
        shard = taken_up(is_written=False)
        with compacting(6):  # once, and not again for the marker
            for offset in (1, 2, 3):
                commit(offset, None)
                commit(offset, None, "h")
            commit(9, mine)
            for _ in range(ticks):
                await asyncio.sleep(0)
            shard.tell(lambda decider: decider.offsets.end_transaction(Marker(mine, True)))
            await shard.close()
        again = taken_up(is_written=True)
        await again.reloaded()
        assert again.made is not None
        assert again.made.offsets.fetch("g")["t"][0].offset == 9, ticks
        await again.close()


def test_batches_are_of_one_transaction_or_none_in_order() -> None:
    one, other = Transaction(1, 0), Transaction(2, 5)
    stated = [
        Fact(b"a", b"1"),
        Fact(b"b", None),
        Fact(b"c", b"x", one),
        Fact(b"d", b"y", one),
        Fact(b"e", b"z", other),
        Marker(one, True, 7),
        Marker(other, False),
        Fact(b"f", b"2"),
    ]
    made = list(encode_stated(stated, 0))
    found = [(header, batch) for data, _ in made for header, batch in batches(memoryview(data))]
    assert [count for _, count in made] == [2, 2, 1, 1, 1, 1]
    assert [(header.producer_id, header.producer_epoch) for header, _ in found] == [
        (-1, -1),
        one,
        other,
        one,
        other,
        (-1, -1),
    ]
    kinds = [header.attributes & (CONTROL | TRANSACTIONAL) for header, _ in found]
    both = CONTROL | TRANSACTIONAL
    assert kinds == [0, TRANSACTIONAL, TRANSACTIONAL, both, both, 0]
    assert [each for header, batch in found for each in stated_in(header, batch)] == stated


def test_a_group_that_only_waits_for_a_transaction_is_there_when_it_ends() -> None:
    decider = GroupsDecider(GroupSettings(), lambda: "id")
    mine = Transaction(1, 0)
    decider.offsets.commit(
        "g", Committer(), [OffsetCommit("t", bytes(16), 0, 5, -1, "")], 9, 0, transaction=mine
    )
    assert decider.offsets.fetch("g") == {}
    with pytest.raises(CoordinatorRefused):
        decider.offsets.delete_group("g")
    decider.offsets.expire(1 << 60)
    decider.offsets.end_transaction(Marker(mine, True))
    assert decider.offsets.fetch("g")["t"][0].offset == 5


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_old_offset_stays_while_a_transaction_has_staged_another(is_committed: bool) -> None:
    decider = GroupsDecider(GroupSettings(), lambda: "id")
    offsets, mine = decider.offsets, Transaction(1, 0)
    for group in GROUPS:
        offsets.commit(group, Committer(), [OffsetCommit("t", bytes(16), 0, 5, -1, "")], 9, 0)
    offsets.commit("g", Committer(), [OffsetCommit("t", bytes(16), 0, 77, -1, "")], 9, 1, transaction=mine)
    offsets.expire(LATE_MS)
    assert {group: kept.offsets["t"][0].offset for group, kept in decider.groups.items()} == {"g": 5}
    offsets.end_transaction(Marker(mine, is_committed))
    assert offsets.fetch("g")["t"][0].offset == (77 if is_committed else 5)
    offsets.expire(LATE_MS)
    assert not decider.groups
