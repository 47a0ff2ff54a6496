"""Both stores keep the contract; the embedded one also keeps its data, its lock and its temper."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from magnetar.metadata import (
    DirectoryInUse,
    MemoryStore,
    MemoryTree,
    MetadataCorrupt,
    MetadataStore,
    SqliteFile,
    SqliteStore,
)
from magnetar.metadata.local import LocalStore
from tests.contracts.metadata_store import MetadataStoreContract


class LocalStoreContract(MetadataStoreContract):
    async def lose_session(self, store: MetadataStore) -> None:
        assert isinstance(store, LocalStore)
        await store.lose_session()


class TestMemoryStore(LocalStoreContract):
    @pytest.fixture
    def tree(self) -> MemoryTree:
        return MemoryTree()

    @pytest.fixture
    def store(self, tree: MemoryTree) -> MetadataStore:
        return MemoryStore(tree)

    @pytest.fixture
    def other(self, tree: MemoryTree) -> MetadataStore:
        return MemoryStore(tree)


class TestMemoryStoreWithParents(TestMemoryStore):
    """Parents come into being, as ZooKeeper's must."""

    @pytest.fixture
    def tree(self) -> MemoryTree:
        return MemoryTree(makes_parents=True)


class TestSqliteStore(LocalStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[MetadataStore]:
        store = SqliteStore(tmp_path / "metadata.sqlite")
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, store: SqliteStore) -> AsyncIterator[MetadataStore]:
        other = store.another()
        yield other
        await other.close()


def filled(file: Path, nodes: int = 40) -> SqliteFile:
    store = SqliteFile(file)
    for number in range(nodes):
        store.put(f"/admin/topics/{number}", b"value %d" % number * 5)
    for number in range(0, nodes, 3):
        store.delete(f"/admin/topics/{number}")
    return store


def crash_copy(source: Path, target: Path) -> Path:
    """What a killed process leaves behind: the files as they are on disk, the store still open."""
    target.mkdir()
    for file in source.iterdir():
        shutil.copy(file, target / file.name)
    return target / "metadata.sqlite"


def test_everything_is_back_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "metadata.sqlite"
    store = filled(file)
    before = list(store.scan("/"))
    store.close()
    again = SqliteFile(file)
    assert list(again.scan("/")) == before
    again.close()


def test_everything_is_back_after_a_crash(tmp_path: Path) -> None:
    live = tmp_path / "live"
    store = filled(live / "metadata.sqlite")
    copy = SqliteFile(crash_copy(live, tmp_path / "crashed"))
    assert list(copy.scan("/")) == list(store.scan("/"))
    copy.close()
    store.close()


def test_a_second_process_is_told_who_has_the_directory(tmp_path: Path) -> None:
    store = SqliteFile(tmp_path / "metadata.sqlite")
    script = (
        "import pathlib, sys, magnetar.metadata as m\n"
        "try: m.SqliteFile(pathlib.Path(sys.argv[1]))\n"
        "except m.DirectoryInUse as error: print(error.pid, error)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "metadata.sqlite")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"{os.getpid()} ")
    assert str(tmp_path) in said
    with pytest.raises(DirectoryInUse):
        SqliteFile(tmp_path / "metadata.sqlite")
    store.close()
    SqliteFile(tmp_path / "metadata.sqlite").close()


def test_a_reader_sees_what_a_live_broker_has_written(tmp_path: Path) -> None:
    file = tmp_path / "metadata.sqlite"
    store = filled(file)
    reader = SqliteFile(file, read_only=True)
    store.put("/late", b"!")
    assert reader.get("/late") == (b"!", 0)
    assert list(reader.scan("/")) == list(store.scan("/"))
    reader.close()
    store.close()
    late = SqliteFile(file, read_only=True)
    assert late.get("/late") == (b"!", 0)
    late.close()
    SqliteFile(file).close()


def test_any_byte_flipped_while_closed_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "metadata.sqlite"
    filled(file).close()
    seed = random.randrange(1 << 30)
    spots = random.Random(seed).sample(range(file.stat().st_size), 150)
    for spot in [0, 20, 100, *spots]:
        with _flipped(file, spot), pytest.raises(MetadataCorrupt, match=r"metadata\.sqlite"):
            assert not SqliteFile(file), f"byte {spot} with seed {seed}"
    for spot in range(32):
        with _flipped(tmp_path / "metadata.sqlite.seal", spot), pytest.raises(MetadataCorrupt, match="seal"):
            SqliteFile(file)
    SqliteFile(file).close()


def test_a_byte_flipped_after_a_crash_is_noticed_or_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = tmp_path / "live"
    store = filled(live / "metadata.sqlite")
    before = list(store.scan("/"))
    seed = random.randrange(1 << 30)
    dice = random.Random(seed)
    noticed = 0
    for round_ in range(60):
        file = crash_copy(live, tmp_path / f"crashed-{round_}")
        name = dice.choice(["metadata.sqlite", "metadata.sqlite-wal", "metadata.sqlite.seal"])
        damaged = file.with_name(name)
        flip(damaged, dice.randrange(damaged.stat().st_size))
        caplog.clear()
        try:
            again = SqliteFile(file)
        except MetadataCorrupt:
            noticed += 1
        else:
            assert list(again.scan("/")) == before, f"seed {seed}"
            again.close()
            noticed += "torn or damaged" in caplog.text
    assert noticed > 20
    store.close()


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    live = tmp_path / "live"
    store = filled(live / "metadata.sqlite")
    store.close()
    file = crash_copy(live, tmp_path / "crashed")
    file.with_name("metadata.sqlite.seal").unlink()
    data = file.read_bytes()
    flip(file, data.index(b"value 7value 7"))
    with pytest.raises(MetadataCorrupt) as caught:
        SqliteFile(file)
    assert caught.value.path == "/admin/topics/7"


def test_a_lost_file_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    file = tmp_path / "metadata.sqlite"
    filled(file).close()
    file.unlink()
    with pytest.raises(MetadataCorrupt, match="gone"):
        SqliteFile(file)


def test_ten_thousand_topics_are_listed_and_outlive_the_store(tmp_path: Path) -> None:
    file = tmp_path / "metadata.sqlite"
    store = SqliteFile(file)
    with store.transaction():
        for number in range(10_000):
            store.put(
                f"/admin/partitioned-topics/public/default/persistent/topic-{number}", b'{"partitions":1}'
            )
    for _ in range(2):
        assert len(store.children("/admin/partitioned-topics/public/default/persistent")) == 10_000
        assert len(list(store.scan("/admin/partitioned-topics/"))) == 10_000
        store.close()
        store = SqliteFile(file)
    store.close()


class _flipped:
    """Flip one byte for the length of a block."""

    def __init__(self, file: Path, spot: int) -> None:
        self._file, self._data, self._spot = file, file.read_bytes(), spot

    def __enter__(self) -> None:
        flip(self._file, self._spot)

    def __exit__(self, *_: object) -> None:
        self._file.write_bytes(self._data)


def flip(file: Path, spot: int) -> None:
    data = bytearray(file.read_bytes())
    data[spot] ^= 0x5A
    file.write_bytes(data)
