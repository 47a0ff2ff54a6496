"""Compaction against a model that is a dict: through any sequence of appends, compactions, deletions and restarts, and
with the process killed at each single step of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from magnetar.ledger.compaction.runs import KeysDoNotFit
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.files import streams
from magnetar.ledger.files.disk import File
from magnetar.ledger.files.streams import LedgerFileWriter
from magnetar.ledger.memory import MemoryDisk, MemoryEngine
from magnetar.ledger.port import CompactionRules, Flush, LedgerPolicy, ManagedLedger, Position, StoredEntry
from magnetar.metadata import MemoryStore
from magnetar.metadata.errors import MetadataUnavailable, MetadataUncertain
from magnetar.metadata.ops import Put
from magnetar.metadata.staging import Outcome, StagedCommit
from magnetar.records import compaction
from magnetar.records.batch import PlainRecord, decode_records, encode_batch, read_header
from magnetar.records.compression import Buffer, Codec
from magnetar.records.conversion import framed_batch, kafka_batch
from magnetar.records.entry import kafka_message_head
from tests.ledger.entries import prepared

NAME = "public/default/persistent/t"
POLICY = LedgerPolicy(flush=Flush.os, max_ledger_entries=3)
NOW_MS = 1_790_000_000_000
SMALL = 24 * 40
"""Room for so few keys that compactions run several times."""
PULSAR = CompactionRules(buffer_bytes=SMALL)
KAFKA = CompactionRules(replaces=True, tombstones_ms=1000, buffer_bytes=SMALL)
Reading = Callable[[int], Awaitable[Sequence[StoredEntry]]]
Pairs = list[tuple[bytes, bytes | None]]
SOME = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"\xff", b""]), st.none() | st.binary(min_size=1, max_size=3)
    ),
    min_size=1,
    max_size=4,
)


class World:
    """A log, and every record that was ever appended to it."""

    def __init__(self) -> None:
        self.metadata, self.disk = MemoryStore(), MemoryDisk()
        self.now_ms = NOW_MS
        self.records: list[tuple[bytes, bytes | None]] = []
        self.engine: MemoryEngine | None = None
        self.log: ManagedLedger

    async def open(self, disk: MemoryDisk | None = None, executor: Executor | None = None) -> None:
        self.engine = MemoryEngine(
            self.metadata, disk or self.disk, clock=lambda: self.now_ms, executor=executor
        )
        await self.engine.start()
        self.log = await prepared(await self.engine.open(NAME, POLICY))

    async def restart(self) -> None:
        if self.engine is not None:
            await self.engine.close()
        await self.open()

    async def append(self, pairs: Pairs, codec: Codec, *, pulsar: bool) -> None:
        made = [PlainRecord(key, value, (), self.now_ms) for key, value in pairs]
        batch = encode_batch(made, base_offset=self.log.log_end_offset, codec=codec)
        message: list[Buffer] = [kafka_message_head(self.now_ms, len(made)), batch]
        if pulsar:
            message = [framed_batch(memoryview(batch), read_header(batch), self.now_ms, codec)]
        await self.log.append(message, messages=len(made), timestamp_ms=self.now_ms).settled()
        self.records += pairs

    async def state(
        self, read: Callable[[int], Awaitable[Sequence[StoredEntry]]], offset: int
    ) -> Mapping[bytes, bytes]:
        """Read to the end; give the values that are left, after a check that each record is the one of its offset."""
        found: dict[bytes, tuple[int, bytes | None]] = {}
        while entries := await read(offset):
            for entry in entries:
                for record in decode_records(kafka_batch(entry.data)):
                    assert self.records[record.offset] == (record.key, record.value)
                    if record.offset >= offset and record.key is not None:
                        found[record.key] = record.offset, record.value
            assert entries[-1].last_offset >= offset
            offset = entries[-1].last_offset + 1
        return {key: value for key, (_, value) in found.items() if value is not None}

    async def check(self) -> None:
        want: dict[bytes, bytes | None] = dict(self.records)
        alive = {key: value for key, value in want.items() if value is not None}
        log = self.log
        assert log.log_end_offset == len(self.records)
        first = dict(self.records[log.log_start_offset :])
        kept = {key: value for key, value in first.items() if value is not None}
        assert await self.state(lambda at: log.read(at, max_bytes=300), log.log_start_offset) == kept
        if log.log_start_offset == 0:
            assert await self.state(lambda at: log.read_compacted(at, max_bytes=300), 0) == alive
        for summary in log.ledgers():
            for entry_id in range(summary.entries):
                behind = await log.offset_behind(Position(summary.ledger_id, entry_id))
                assert summary.first_offset < behind <= summary.last_offset + 1
        assert await log.find_max_timestamp() is not None or not await log.read(
            log.log_start_offset, max_bytes=1
        )


class CompactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = World()

    def run(self, work: Awaitable[object]) -> None:
        async def rest() -> None:
            await work
            await asyncio.sleep(0)

        self.loop.run_until_complete(rest())

    @initialize()
    def open(self) -> None:
        self.run(self.world.restart())

    @rule(pairs=SOME, codec=st.sampled_from([Codec.none, Codec.lz4]), pulsar=st.booleans())
    def append(self, pairs: Pairs, codec: Codec, pulsar: bool) -> None:
        async def append() -> None:
            await self.world.append(pairs, codec, pulsar=pulsar)

        self.run(append())

    @rule()
    def compact_as_pulsar(self) -> None:
        self.run(self.world.log.compact(PULSAR))

    @rule(all_of_it=st.booleans())
    def compact_as_kafka(self, all_of_it: bool) -> None:
        async def compact() -> None:
            if all_of_it:
                await self.world.log.roll()
            await self.world.log.compact(KAFKA)

        self.run(compact())

    @rule()
    def time_passes(self) -> None:
        self.world.now_ms += 700

    @rule(share=st.floats(0, 1))
    def trim(self, share: float) -> None:
        log = self.world.log

        async def trim() -> None:
            await log.trim(int(log.log_start_offset + share * (log.log_end_offset - log.log_start_offset)))

        self.run(trim())

    @rule()
    def retain(self) -> None:
        log = self.world.log

        async def retain() -> None:
            log.policy = replace(POLICY, retention_ms=1000)
            await log.retain(self.world.now_ms)
            log.policy = POLICY

        self.run(retain())

    @rule()
    def restart(self) -> None:
        self.run(self.world.restart())

    @invariant()
    def nothing_is_lost(self) -> None:
        if self.world.engine is not None:
            self.run(self.world.check())

    def teardown(self) -> None:
        if self.world.engine is not None:
            self.run(self.world.engine.close())
        self.loop.close()


CompactionMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestCompaction = CompactionMachine.TestCase


class Killed(BaseException):
    """The process is gone."""


class MortalDisk(MemoryDisk):
    """Does so many changes, and then nothing any more."""

    def __init__(self, like: MemoryDisk, steps: int) -> None:
        super().__init__()
        self._files = like._files
        self.steps = steps

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise Killed

    def open(self, path: Path, *, create: bool = False) -> File:
        if create:
            self.step()
        file = super().open(path, create=create)
        write = file.write

        def mortal_write(parts: Sequence[Buffer], at: int) -> None:
            if self.steps == 0:  # the kill comes in the middle of it
                whole = b"".join(parts)
                write([whole[: len(whole) // 2]], at)
            self.step()
            write(parts, at)

        file.write = mortal_write  # type: ignore[method-assign]
        return file

    def replace(self, files: Mapping[Path, Buffer]) -> None:
        self.step()
        super().replace(files)

    def remove(self, path: Path) -> None:
        self.step()
        super().remove(path)


@contextmanager
def mortal_metadata(world: World, disk: MortalDisk) -> Iterator[None]:
    commit_all = world.metadata.blocking.commit_all

    def mortal_commits(commits: Sequence[StagedCommit]) -> list[Outcome]:
        disk.step()
        return commit_all(commits)

    with patch.object(world.metadata.blocking, "commit_all", mortal_commits):
        yield


@pytest.mark.parametrize("rules", [PULSAR, KAFKA], ids=["pulsar", "kafka"])
async def test_a_kill_at_any_step_loses_nothing(rules: CompactionRules) -> None:
    steps, killed = 0, True
    while killed:
        world = World()
        await world.open()
        for number in range(30):
            await world.append(
                [(b"%d" % (number % 3), b"%d" % number), (b"x", None)], Codec.none, pulsar=number % 2 == 0
            )
            if number == 12:
                await world.log.roll()
                await world.log.compact(rules)
        await world.restart()
        assert world.engine is not None
        await world.engine.close()
        disk = MortalDisk(world.disk, 1 << 30)
        with mortal_metadata(world, disk):
            await world.open(disk)
            disk.steps = steps
            try:
                await world.log.roll()
                await world.log.compact(rules)
                await asyncio.sleep(0.01)
            except (Killed, LedgerError):
                pass
            killed = disk.steps < 0
            disk.steps = -1
            await asyncio.sleep(0)
        await world.open()
        await world.check()
        await world.log.compact(rules)
        await world.check()
        await asyncio.sleep(0.01)
        assert world.engine is not None
        await world.engine.close()
        named = {each.ledger_id for each in world.log.ledger_list.info.files()}  # type: ignore[attr-defined]
        there = {int(path.stem, 16) for path in world.disk._files if path.suffix == ".ledger"}
        assert named <= there
        steps += 1
    assert steps > 8


class NoThreads(Executor):
    """Works at once, so that the turns of the loop are the same each time."""

    def submit(self, work: Callable[..., object], /, *given: object, **named: object) -> Future[object]:  # type: ignore[override]
        done = Future[object]()
        try:
            done.set_result(work(*given, **named))
        except Exception as error:
            done.set_exception(error)
        return done


def tell_later(world: World) -> None:
    """Have commits be kept a turn of the loop before whoever asked is told, as with a store in a thread."""
    commit = world.metadata._commit

    async def slowly(given: StagedCommit) -> Outcome:
        outcome = await commit(given)
        await asyncio.sleep(0)
        return outcome

    world.metadata._commit = slowly  # type: ignore[method-assign]


@pytest.mark.parametrize("rules", [PULSAR, KAFKA], ids=["pulsar", "kafka"])
async def test_a_compaction_that_is_cancelled_at_any_turn_is_done_or_was_never_begun(
    rules: CompactionRules,
) -> None:
    """As a broker does that ends: what was being committed just then counts all the same."""
    turns, was_done = 0, False
    while not was_done:
        world = World()
        await world.open(executor=NoThreads())
        tell_later(world)
        for number in range(12):
            await world.append([(b"%d" % (number % 3), b"%d" % number)], Codec.none, pulsar=False)
            if number == 6:
                await world.log.roll()
                await world.log.compact(rules)
        await world.log.roll()
        compacting = asyncio.ensure_future(world.log.compact(rules))
        for _ in range(turns):
            await asyncio.sleep(0)
        was_done = compacting.done()
        compacting.cancel()
        await asyncio.wait([compacting])
        await asyncio.sleep(0.01)
        await world.check()
        await world.restart()
        await world.check()
        await world.log.compact(rules)
        assert world.engine is not None
        await world.engine.close()
        named = {each.ledger_id for each in world.log.ledger_list.info.files()}  # type: ignore[attr-defined]
        there = {int(path.stem, 16) for path in world.disk._files if path.suffix == ".ledger"}
        assert named == there
        turns += 1
    assert turns > 20


async def test_a_compaction_of_which_nobody_knows_whether_it_counts_is_found_when_the_log_is_opened_anew() -> (
    None
):
    world = World()
    await world.open()
    for number in range(12):
        await world.append([(b"%d" % (number % 3), b"%d" % number)], Codec.none, pulsar=False)
    await world.log.roll()
    commit, get = world.metadata._commit, world.metadata.get

    async def lost_answer(asked: StagedCommit) -> Outcome:
        outcome = await commit(asked)
        (op,) = asked.ops
        if isinstance(op, Put) and b'"horizon"' in op.value:
            world.metadata.get = away  # type: ignore[method-assign]
            raise MetadataUncertain("the connection was lost")
        return outcome

    async def away(path: str) -> None:
        world.metadata.get = get  # type: ignore[method-assign]
        raise MetadataUnavailable("still lost")

    world.metadata._commit = lost_answer  # type: ignore[method-assign]
    with pytest.raises(LedgerError, match="opened anew"):
        await world.log.compact(KAFKA)
    world.metadata._commit = commit  # type: ignore[method-assign]
    await world.restart()
    assert world.log.compacted is not None
    await world.check()
    assert world.engine is not None
    await world.engine.close()


async def test_retention_while_copies_are_read_has_no_reader_skip_a_ledger() -> None:
    world = World()
    await world.open()
    for number in range(12):
        key = b"old" if number < 3 else b"%d" % number
        await world.append([(key, b"value" if number < 9 else None)], Codec.none, pulsar=False)
    await world.append([(b"old", None)], Codec.none, pulsar=False)
    await world.log.roll()
    await world.log.compact(KAFKA)
    await world.append([(b"new", b"value")], Codec.none, pulsar=False)
    first, second = world.log.ledgers()[:2]
    assert first.compacted
    assert second.compacted
    read_copies = world.log.reader.read_copies  # type: ignore[attr-defined]

    async def slow(*given: object, **options: object) -> list[StoredEntry]:
        found: list[StoredEntry] = await read_copies(*given, **options)
        if world.log.log_start_offset == 0:
            await world.log.trim(second.first_offset)
        return found

    with patch.object(world.log.reader, "read_copies", slow):
        entries = await world.log.read(0, max_bytes=1)
    assert [entry.last_offset for entry in entries] == [second.first_offset]
    assert world.engine is not None
    await world.engine.close()


@pytest.mark.parametrize("machine", [True, False])
@pytest.mark.parametrize("pulsar", [True, False])
async def test_the_plain_form_comes_to_the_same(machine: bool, pulsar: bool) -> None:
    code = compaction.machine_code() if machine else None
    world = World()
    await world.open()
    assert world.engine is not None
    world.engine.shared.workers.thread.machine = code
    for number in range(40):
        await world.append(
            [(b"k%d" % (number % 4), b"%d" % number), (b"\xfe", None)], Codec.lz4, pulsar=pulsar
        )
    await world.log.compact(CompactionRules())
    assert world.log.compaction.removed == 76
    await world.check()


async def test_damage_of_the_compacted_ledger_is_named_and_never_skipped() -> None:
    world = World()
    await world.open()
    for number in range(9):
        await world.append([(b"%d" % number, b"value")], Codec.none, pulsar=False)
    await world.log.compact(PULSAR)
    compacted = world.log.compacted
    assert compacted is not None
    (path,) = [
        p
        for p in world.disk._files
        if p.stem == f"{compacted.ledger.ledger_id:016x}" and p.suffix == ".ledger"
    ]
    world.disk._files[path][200] ^= 1
    with pytest.raises(LedgerError, match=f"{path}.*is damaged"):
        await world.state(lambda at: world.log.read_compacted(at, max_bytes=300), 0)
    await world.append([(b"0", b"again")], Codec.none, pulsar=False)
    with pytest.raises(LedgerError, match="is damaged"):
        await world.log.compact(PULSAR)
    assert world.log.compacted == compacted, "a compaction that fails changes nothing"
    assert world.log.compaction.status == "ERROR"
    assert "is damaged" in world.log.compaction.error


@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=200), st.integers(0, 1 << 40)), min_size=1, max_size=300
    ),
    st.sampled_from([Codec.none, Codec.zstd]),
    st.sampled_from([70, 9000]),
)
def test_records_without_a_key_are_found(
    some: list[tuple[bytes | None, int]], codec: Codec, size: int
) -> None:
    """Sizes of one byte to three."""
    records = [PlainRecord(key, b"v" * size, (), NOW_MS + later) for key, later in some]
    keyless = [number for number, (key, _) in enumerate(some) if key is None]
    assert compaction.keyless_records(encode_batch(records, codec=codec)) == keyless


async def test_an_entry_with_more_keys_than_the_map_holds_is_named_and_nothing_is_lost() -> None:
    world = World()
    await world.open()
    pairs: Pairs = [(b"%d" % number, b"v") for number in range(50)]
    await world.append(pairs, Codec.none, pulsar=False)
    await world.log.roll()
    with pytest.raises(KeysDoNotFit, match="has more keys than"):
        await world.log.compact(replace(KAFKA, buffer_bytes=24 * 4))
    await world.check()


async def test_a_compacted_ledger_is_written_while_it_is_made_and_not_gathered_whole() -> None:
    world, written = World(), []
    await world.open()
    for number in range(6):
        await world.append([(b"%d" % number, bytes(100))], Codec.none, pulsar=False)
    await world.log.roll()
    write = LedgerFileWriter._write

    def noted(writer: LedgerFileWriter) -> None:
        written.append(writer._size)
        write(writer)

    with patch.object(LedgerFileWriter, "_write", noted), patch.object(streams, "WRITE_BYTES", 100):
        assert await world.log.compact(KAFKA)
    assert len(written) > 3
    await world.check()
