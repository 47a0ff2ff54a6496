"""The passes of a compaction alone: how long markers stay, and what holds deletions."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest

from magnetar.ledger.compaction.job import Copies, Job
from magnetar.ledger.compaction.passes import Passes
from magnetar.ledger.port import CompactionRules, NewEntry, StoredEntry
from magnetar.records import compaction
from magnetar.records.aborted import UNKNOWN, Decided
from magnetar.records.batch import TRANSACTIONAL, PlainRecord, encode_batch
from magnetar.records.control import marker_batch
from magnetar.records.copied import Copied, behind_broker_head, copied_from, copied_head
from magnetar.records.entry import broker_entry_head, index_of, kafka_message_head
from magnetar.records.pulsar_metadata import MessageMetadata, encode_metadata
from magnetar.records.pulsar_plain import framed_message, with_offsets

NOW_MS = 1_790_000_000_000
RULES = CompactionRules(replaces=True, tombstones_ms=1000)
PRODUCER = 7


class Log:
    """Entries one after the other, as they would be appended."""

    def __init__(self) -> None:
        self.entries: list[StoredEntry] = []

    def add(self, message: bytes) -> None:
        offset = len(self.entries)
        data = broker_entry_head(NOW_MS, offset) + message
        self.entries.append(StoredEntry(1, offset, offset, memoryview(data)))

    def write(self, key: bytes, value: bytes | None, *, transactional: bool = False) -> None:
        producer = {"producer_id": PRODUCER, "attributes": TRANSACTIONAL} if transactional else {}
        made = [PlainRecord(key, value, (), NOW_MS)]
        batch = encode_batch(made, base_offset=len(self.entries), **producer)  # type: ignore[arg-type]
        self.add(kafka_message_head(NOW_MS, 1) + batch)

    def end(self, *, committed: bool = True) -> None:
        batch = marker_batch(PRODUCER, 0, NOW_MS, committed=committed, coordinator_epoch=0)
        self.add(kafka_message_head(NOW_MS, 1) + bytes(with_offsets(memoryview(batch), len(self.entries))))

    def hide(self) -> None:
        metadata = MessageMetadata(
            b"p", 0, NOW_MS, batched=True, num_messages_in_batch=1, encryption_keys=(b"\x0a\x01k\x12\x01v",)
        )
        self.add(bytes(framed_message(encode_metadata(metadata), b"secret", 1).framed))


def decided(*aborted: tuple[int, int]) -> Decided:
    """Return that these offsets, of `PRODUCER`, are of aborted transactions."""
    columns = array("q", [PRODUCER] * len(aborted)), array("q"), array("q")
    for first, last in aborted:
        columns[1].append(first)
        columns[2].append(last)
    return Decided(columns, stable=1 << 40)


def run(
    copies: Sequence[StoredEntry],
    dirty: Sequence[StoredEntry],
    now_ms: int = NOW_MS,
    known: Decided | None = None,
    *,
    looks_back: bool = False,
) -> Copies:
    """Compact; of the log there are ``copies``, and ``dirty`` behind them."""
    passes = Passes(Job(RULES, 1000, 0, now_ms, known or decided(), looks_back))
    assert passes.note(dirty) == len(dirty)
    if passes.looks_back():
        passes.look_back(copies)
    made, behind = passes.copy(copies, are_copies=True), passes.copy(dirty, are_copies=False)
    made.entries += behind.entries
    made.ended += behind.ended
    made.removed += behind.removed
    made.unnoted |= behind.unnoted
    return made


def again(entries: Sequence[NewEntry]) -> list[StoredEntry]:
    """Return what was made as the copies of the next run."""
    return [
        StoredEntry(9, number, each.last_offset, memoryview(bytes(each.data)))
        for number, each in enumerate(entries)
    ]


def left(made: Copies) -> list[int]:
    return [each.last_offset for each in made.entries]


def test_a_marker_stays_for_a_while_once_nothing_is_left_that_it_ends() -> None:
    log = Log()
    log.write(b"k", b"1", transactional=True)
    log.end()
    first = run([], log.entries)
    log.write(b"k", b"2")
    later = NOW_MS + 5000  # long after the marker was copied first
    second = run(again(first.entries), log.entries[2:], later)
    assert left(second) == [1, 2], "whoever has read the first record must come by its end"
    log.write(b"k", b"3")
    third = run(again(second.entries), log.entries[3:], later + 999)
    assert left(third) == [1, 3]
    log.write(b"k", b"4")
    fourth = run(again(third.entries), log.entries[4:], later + 1000)
    assert left(fourth) == [4]
    assert (third.ended, fourth.ended) == ([], [1])


def test_what_was_aborted_goes_at_once_and_its_marker_later() -> None:
    log = Log()
    log.write(b"k", b"1")
    log.write(b"k", None, transactional=True)
    log.end(committed=False)
    made = run([], log.entries, known=decided((1, 2)))
    assert left(made) == [0, 2]
    assert made.ended == []
    assert left(run(again(made.entries), [], NOW_MS + 1000, decided((1, 2)))) == [0]


def test_a_marker_of_a_later_transaction_says_nothing_of_the_one_before() -> None:
    log = Log()
    log.write(b"k", b"1", transactional=True)
    log.end()
    log.write(b"other", b"1", transactional=True)
    log.end()
    first = run([], log.entries)
    log.write(b"k", b"2")
    second = run(again(first.entries), log.entries[4:], NOW_MS + 1)
    log.write(b"k", b"3")
    third = run(again(second.entries), log.entries[5:], NOW_MS + 5000)
    assert left(third) == [2, 3, 5], "the first marker ends nothing, the second one does"
    assert third.ended == [1]


@pytest.mark.parametrize("machine", [False, True], ids=["plain", "machine code"])
def test_what_cannot_be_opened_holds_deletions_behind_it_and_none_before(machine: bool) -> None:
    code = compaction.machine_code() if machine else None
    log = Log()
    log.write(b"before", None)
    log.hide()
    log.write(b"behind", None)
    passes = Passes(Job(RULES, 1000, 0, NOW_MS, decided()), code)
    passes.note(log.entries)
    copies = again(passes.copy(log.entries, are_copies=False).entries)
    passes = Passes(Job(RULES, 1000, 0, NOW_MS + 5000, decided()), code)
    assert left(passes.copy(copies, are_copies=True)) == [1, 2]


def test_what_is_of_a_transaction_that_nobody_knows_stays_and_holds_deletions() -> None:
    log = Log()
    log.write(b"k", b"1", transactional=True)
    log.end()
    log.write(b"k", None)
    first = run([], log.entries, known=UNKNOWN)
    assert left(first) == [0, 1, 2]
    assert left(run(again(first.entries), [], NOW_MS + 5000, UNKNOWN)) == [0, 1, 2]


def test_what_lies_past_the_last_stable_offset_is_not_taken_for_committed() -> None:
    log = Log()
    log.write(b"k", None, transactional=True)
    columns = array("q"), array("q"), array("q")
    made = run([], log.entries, known=Decided(columns, stable=0))
    assert left(run(again(made.entries), [], NOW_MS + 5000, Decided(columns, stable=0))) == [0]


def test_copies_of_before_transactions_were_compacted_lose_nothing() -> None:
    """Their keys were never noted: a deletion among them has deleted nothing yet."""
    log = Log()
    log.write(b"k", b"1")
    log.write(b"k", None, transactional=True)
    log.end()
    copies = [
        each._replace(
            data=memoryview(
                copied_head(NOW_MS, index_of(each.data).index, Copied(1, each.entry_id, NOW_MS))
                + bytes(behind_broker_head(each.data))
            )
        )
        for each in log.entries
    ]
    log.write(b"other", b"1")
    later = NOW_MS + 5000
    first = run(copies, log.entries[3:], later)
    assert left(first) == [0, 1, 2, 3]
    assert first.unnoted
    log.write(b"other", b"2")
    second = run(again(first.entries), log.entries[4:], later, looks_back=True)
    assert not second.unnoted
    assert left(second) == [2, 4], "the key was noted, and the deletion is of long ago"


def test_what_copies_of_before_have_deleted_stays_deleted() -> None:
    log = Log()
    log.write(b"k", b"1", transactional=True)
    log.end()
    log.write(b"k", None)
    copies = again(run([], log.entries, known=UNKNOWN).entries)
    log.write(b"other", b"1")
    later = NOW_MS + 5000
    first = run(copies, log.entries[3:], later)
    assert left(first) == [0, 1, 2, 3]
    log.write(b"other", b"2")
    assert left(run(again(first.entries), log.entries[4:], later)) == [0, 1, 2, 4]
    assert left(run(again(first.entries), log.entries[4:], later, looks_back=True)) == [1, 4]


def test_a_copy_tells_that_its_keys_were_noted() -> None:
    log = Log()
    log.write(b"k", b"1", transactional=True)
    log.write(b"plain", b"1")
    made = run([], log.entries)
    assert [copied_from(each.data).noted for each in made.entries] == [True, False]


def later(copies: Copies, known: Decided | None = None, now_ms: int = NOW_MS + 5000) -> Copies:
    """Compact what an earlier run has copied, long after."""
    return run(again(copies.entries), [], now_ms, known)


def test_what_was_aborted_is_something_that_its_marker_ends() -> None:
    """It was kept by a run that did not know; readers may have met it just now."""
    log = Log()
    log.write(b"k", b"1", transactional=True)
    log.end(committed=False)
    copies = run([], log.entries, known=UNKNOWN)
    found = later(copies, decided((0, 1)))
    assert left(found) == [1]
    assert (found.ended, found.removed) == ([], 1)
    assert later(found, decided((0, 1)), NOW_MS + 10_000).ended == [1]


def test_a_marker_behind_a_marker_ends_nothing() -> None:
    log = Log()
    log.write(b"k", b"1", transactional=True)
    log.end()
    log.end()
    copies = run([], log.entries)
    found = later(copies)
    assert left(found) == [0, 1]
    assert found.ended == [2]


def test_a_transaction_of_another_is_not_ended() -> None:
    log = Log()
    log.write(b"k", b"1", transactional=True)
    batch = marker_batch(PRODUCER + 1, 0, NOW_MS, committed=True, coordinator_epoch=0)
    log.add(kafka_message_head(NOW_MS, 1) + bytes(with_offsets(memoryview(batch), 1)))
    log.end()
    found = later(run([], log.entries))
    assert left(found) == [0, 2]
    assert found.ended == [1]


def piece(uuid: bytes, number: int, of: int, key: bytes | None) -> bytes:
    metadata = MessageMetadata(
        b"p", 0, NOW_MS, partition_key=key, uuid=uuid, num_chunks_from_msg=of, chunk_id=number,
        total_chunk_msg_size=of,
    )  # fmt: skip
    return bytes(framed_message(encode_metadata(metadata), b"x", 1).framed)


@pytest.mark.parametrize("machine", [False, True], ids=["plain", "machine code"])
def test_pieces_without_their_last_one_hold_deletions_of_their_key_alone(machine: bool) -> None:
    code = compaction.machine_code() if machine else None
    log = Log()
    log.write(b"k", None)  # 0: before
    log.add(piece(b"u", 0, 2, b"k"))
    log.write(b"k", None)  # 2: held
    log.write(b"other", None)
    passes = Passes(Job(RULES, 1000, 0, NOW_MS, decided()), code)
    passes.note(log.entries[:4])
    copies = again(passes.copy(log.entries[:4], are_copies=False).entries)
    passes = Passes(Job(RULES, 1000, 0, NOW_MS + 5000, decided()), code)
    assert left(passes.copy(copies, are_copies=True)) == [1, 2]


@pytest.mark.parametrize("machine", [False, True], ids=["plain", "machine code"])
def test_pieces_without_a_key_hold_nothing(machine: bool) -> None:
    code = compaction.machine_code() if machine else None
    log = Log()
    log.add(piece(b"u", 0, 2, None))
    log.write(b"k", None)
    log.write(b"other", b"1")
    passes = Passes(Job(RULES, 1000, 0, NOW_MS, decided()), code)
    passes.note(log.entries)
    copies = again(passes.copy(log.entries, are_copies=False).entries)
    passes = Passes(Job(RULES, 1000, 0, NOW_MS + 5000, decided()), code)
    assert left(passes.copy(copies, are_copies=True)) == [0, 2]
    assert passes._held_keys == set()


def test_a_whole_chunked_message_holds_no_deletion_and_goes_by_the_newest_of_its_key() -> None:
    log = Log()
    log.add(piece(b"u", 0, 2, b"k"))
    log.add(piece(b"u", 1, 2, b"k"))
    log.write(b"k", None)
    made = run([], log.entries)
    assert (left(made), made.removed) == ([2], 1)
    assert left(later(made)) == []


def test_a_marker_stays_for_as_long_as_nobody_knows_of_transactions() -> None:
    log = Log()
    log.end()
    found = later(run([], log.entries, known=UNKNOWN), UNKNOWN)
    assert (left(found), found.ended) == ([0], [])
    assert later(found).ended == [], "from then on it stays as long as deletions do"
