"""Repair gives up what it must, says which offsets, and nothing else."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from magnetar.admin.errors import AdminError, NotThere
from magnetar.doctor.ledgers import Gravity, verify
from magnetar.doctor.ledgers_dump import dump
from magnetar.doctor.ledgers_repair import repair
from magnetar.ledger.cursors.cursor import Start
from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.formats.layout import index_path, ledger_path
from magnetar.ledger.port import Position
from magnetar.metadata import DirectoryLock
from magnetar.metadata.seal import Seal, decode_seal, encode_seal
from tests.ledger.directory import LOGS, POLICY, content, fill, with_engine
from tests.ledger.entries import append_durably
from tests.ledger.test_damage import flip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("whole") / "data"
    fill(data)
    shutil.rmtree(data / "journal")  # closed in order: nothing of it is needed
    return data


@pytest.fixture
def data(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "data"))


def spoil(data: Path, ledger: int, *entries: int) -> Path:
    """Damage the payload of some entries of a ledger."""
    path = ledger_path(data, ledger)
    rows = dump(data, ledger=ledger).ledgers[0].entries
    for entry in entries:
        flip(path, rows[entry].at + 40, 0xFF)
    return path


def ledgers_of(data: Path, log: str = LOGS[0]) -> list[int]:
    return [each.ledger for each in dump(data, log=log).ledgers]


def next_base(data: Path, log: str = LOGS[0]) -> int:
    async def work(engine: FilesEngine) -> int:
        return (await append_durably(await engine.open(log, POLICY), b"next")).base_offset

    return with_engine(data, work)


def test_nothing_to_do(data: Path) -> None:
    done = repair(data)
    assert (done.actions, done.left) == ((), ())


@pytest.mark.parametrize("which", [0, 1])
def test_a_damaged_middle_is_given_up_only_when_told(data: Path, which: int) -> None:
    """Entries 3, 4 and 8 of a sealed ledger; each holds three messages."""
    before = content(shutil.copytree(data, data.with_name("before")))
    ledger = ledgers_of(data)[which]
    first = dump(data, ledger=ledger).ledgers[0].entries[0].first_offset
    path = spoil(data, ledger, 3, 4, 8)
    found = [(f.entry, f.first_offset, f.last_offset) for f in verify(data).findings]
    lost = [(first + 9, first + 14), (first + 24, first + 26)]
    assert found == [(3, *lost[0]), (8, *lost[1])]
    refused = repair(data)
    assert refused.actions == ()
    assert [each.file for each in refused.left] == [str(path)] * 2
    done = repair(data, drop_damaged=True)
    assert [(each.lost_first, each.lost_last) for each in done.lost] == lost
    assert done.left == ()
    gone = {offset for start, end in lost for offset in range(start, end + 1)}
    before[LOGS[0]] = [row for row in before[LOGS[0]] if row[0] not in gone]
    assert content(data) == before
    assert verify(data).is_whole
    assert next_base(data) == 93


def test_a_damaged_open_ledger_never_gives_an_offset_twice(data: Path) -> None:
    ledger = ledgers_of(data)[-1]
    spoil(data, ledger, 5, 6)  # the last two of seven
    done = repair(data, drop_damaged=True)
    assert [(each.lost_first, each.lost_last) for each in done.lost] == [(87, 92)]
    assert done.left == ()
    assert next_base(data) == 93
    assert content(data)[LOGS[0]][-1][0] == 93
    assert verify(data).is_whole


def test_a_lost_file_costs_its_offsets_and_no_more(data: Path) -> None:
    ledger_path(data, ledgers_of(data)[1]).unlink()
    assert [each.what for each in verify(data).findings] == ["the ledger's file is gone"]
    assert repair(data).actions == ()
    done = repair(data, drop_damaged=True)
    assert [(each.lost_first, each.lost_last) for each in done.lost] == [(36, 71)]
    assert [last for last, _ in content(data)[LOGS[0]]] == [*range(2, 36, 3), *range(74, 93, 3)]
    assert verify(data).is_whole


def test_headers_indexes_and_forgotten_files_cost_nothing(data: Path) -> None:
    before = content(shutil.copytree(data, data.with_name("before")))
    first, second, last = ledgers_of(data)
    flip(ledger_path(data, first), 3, 1)
    flip(index_path(data, first), 70, 1)
    index_path(data, second).unlink()
    with ledger_path(data, last).open("ab") as file:
        file.write(b"torn" * 100)
    stranger = ledger_path(data, 999)
    stranger.write_bytes(b"forgotten")
    report = verify(data)
    assert [(each.gravity, Path(each.file).name) for each in report.findings] == [
        (Gravity.damage, ledger_path(data, first).name),
        (Gravity.damage, index_path(data, first).name),
        (Gravity.wear, index_path(data, second).name),
        (Gravity.wear, ledger_path(data, last).name),
        (Gravity.wear, stranger.name),
    ]
    done = repair(data)
    assert (len(done.actions), done.lost, done.left) == (5, (), ())
    assert not stranger.exists()
    assert content(data) == before


def test_a_running_broker_is_left_alone(data: Path) -> None:
    lock = DirectoryLock(data)
    spoil(data, ledgers_of(data)[0], 2)
    report = verify(data)
    assert report.live
    assert [each.entry for each in report.findings] == [2]
    with pytest.raises(AdminError, match="in use"):
        repair(data, drop_damaged=True)
    lock.release()


def test_dump_shows_entries_and_damage(data: Path) -> None:
    ledger = ledgers_of(data)[0]
    spoil(data, ledger, 4)
    shown = dump(data, ledger=ledger).ledgers[0]
    assert [row.problem for row in shown.entries] == ["", "", "", "", "damaged", *[""] * 7]
    assert (shown.entries[4].first_offset, shown.entries[4].last_offset) == (12, 14)
    assert shown.entries[5].entry_format == "kafka"
    assert dump(data, ledger=ledger, first_entry=6, most=2).ledgers[0].entries[-1].entry == 7
    with pytest.raises(NotThere):
        dump(data, ledger=12345)
    with pytest.raises(NotThere):
        verify(data / "nowhere")


def test_rows_that_do_not_add_up_are_taken_with_leave_and_no_ledger_is_deleted(data: Path) -> None:
    before = content(data)
    whole = sorted((data / "ledgers").glob("*/*"))
    database = sqlite3.connect(data / "metadata.sqlite")
    database.execute("UPDATE digest SET nodes = nodes - 1, crcs = crcs + 1")
    database.commit()
    database.close()
    seal = data / "metadata.sqlite.seal"
    seal.write_bytes(encode_seal(Seal(decode_seal(seal.read_bytes(), "").commits, 0, 0)))
    report = verify(data)
    (damage,) = report.findings
    assert "--drop-damaged" in damage.do
    with pytest.raises(AdminError, match="not those of the last commit"):
        repair(data)
    done = repair(data, drop_damaged=True)
    assert [action.what.partition(":")[0] for action in done.actions] == ["its rows were taken as they are"]
    assert done.left == ()
    assert sorted((data / "ledgers").glob("*/*")) == whole
    assert content(data) == before


@pytest.fixture
def state(data: Path) -> Path:
    """The ledger of a cursor whose state outgrows the metadata."""
    before = set((data / "ledgers").glob("*/*.ledger"))

    async def work(engine: FilesEngine) -> None:
        log = await engine.open(LOGS[0], POLICY)
        cursor = await (await log.cursors()).open("s", Start.earliest)
        cursor.partly[Position(log.ledgers()[0].ledger_id, 3)] = (1 << 3_000_000) - 1
        cursor.keep()

    with_engine(data, work)
    (path,) = set((data / "ledgers").glob("*/*.ledger")) - before
    return path


def test_the_state_of_a_cursor_is_no_file_that_nothing_refers_to(data: Path, state: Path) -> None:
    assert repair(data).actions == ()
    assert verify(data).findings == ()
    assert state.exists()

    async def left(engine: FilesEngine) -> int:
        return len((await (await (await engine.open(LOGS[0], POLICY)).cursors()).open("s")).partly)

    assert with_engine(data, left) == 1


@pytest.mark.parametrize("is_gone", [True, False])
def test_damage_of_a_cursors_state_is_told_and_it_is_not_deleted(
    data: Path, state: Path, is_gone: bool
) -> None:
    state.unlink() if is_gone else flip(state, 1000, 0xFF)
    report = verify(data)
    assert [each.file for each in report.findings if each.gravity is Gravity.damage] == [str(state)]
    repair(data, drop_damaged=True)
    assert state.exists() is not is_gone

    async def work(engine: FilesEngine) -> None:
        cursors = await (await engine.open(LOGS[0], POLICY)).cursors()
        with pytest.raises(LedgerNotFound if is_gone else LedgerCorrupt):
            await cursors.open("s")
        await cursors.open("other")

    with_engine(data, work)
