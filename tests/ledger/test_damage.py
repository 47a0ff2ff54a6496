"""Flip any byte of any file of a data directory: it is named, or it changes nothing. Wrong bytes are never read."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from magnetar.doctor.ledgers import Gravity, Report, verify
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.files import journal
from magnetar.metadata import MetadataError
from tests.ledger.directory import Content, content, fill

FLIPS = int(os.environ.get("MAGNETAR_FLIPS", "250"))


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("closed") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "SEGMENT_BYTES", 16 * 4096)
        patch.setattr(journal, "ROUND_BYTES", 4 * 4096)
        fill(data)
    return data


@pytest.fixture(scope="module")
def due(closed: Path, tmp_path_factory: pytest.TempPathFactory) -> Content:
    copy = tmp_path_factory.mktemp("due") / "data"
    shutil.copytree(closed, copy)
    return content(copy)


def test_a_whole_directory_has_no_findings(closed: Path) -> None:
    report = verify(closed)
    assert report.findings == ()
    assert (report.logs, report.ledgers, report.entries) == (4, 10, 94)
    assert not report.live


@pytest.mark.slow
def test_any_flipped_byte_is_named_or_changes_nothing(closed: Path, due: Content, tmp_path: Path) -> None:
    seed = int(os.environ.get("MAGNETAR_SEED", str(random.randrange(1 << 30))))
    dice = random.Random(seed)
    files = sorted(path.relative_to(closed) for path in closed.rglob("*") if path.is_file())
    named, to_be_named = 0, 0
    for number in range(FLIPS):
        file = files[number % len(files)]
        size = (closed / file).stat().st_size
        if size:
            spot, bits = dice.randrange(size), dice.randrange(1, 256)
            named += one_flip(closed, due, tmp_path / str(number), file, spot, bits, f"seed {seed}")
            to_be_named += not harmless(file)
    assert named == to_be_named > 0


@pytest.mark.parametrize("name", ["*.index", "*.seal"])
def test_every_byte_of_a_small_file_counts(closed: Path, due: Content, tmp_path: Path, name: str) -> None:
    path = next(iter(sorted(closed.rglob(name))))
    for spot in range(path.stat().st_size):
        with flipped(path, spot, 0x41):
            report = verify(closed)
        assert names(report, path), f"byte {spot}"


def test_every_byte_of_a_ledger_counts(closed: Path) -> None:
    path = min(closed.glob("ledgers/*/*.ledger"), key=lambda each: each.stat().st_size)
    for spot in range(path.stat().st_size):
        with flipped(path, spot, 1 << spot % 8):
            report = verify(closed)
        assert names(report, path), f"byte {spot}"
        assert all(0 <= each.at <= spot for each in report.findings if each.file == str(path))


def test_a_damaged_schema_of_the_metadata_is_named(closed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(closed, copy)
    file = copy / "metadata.sqlite"
    flip(file, file.read_bytes().index(b"CREATE TABLE node") + len(b"CREATE TA"), ord("B") ^ ord("\t"))
    assert names(verify(copy), file)
    found = content_or_error(copy)
    assert isinstance(found, str)
    assert "metadata.sqlite" in found


def one_flip(closed: Path, due: Content, copy: Path, file: Path, spot: int, bits: int, seed: str) -> bool:
    """Flip a byte in a copy; tell whether it was named."""
    shutil.copytree(closed, copy)
    flip(copy / file, spot, bits)
    said = f"{seed}: byte {spot} of {file} xor {bits}"
    is_named = names(verify(copy), copy / file)
    found = content_or_error(copy)
    if isinstance(found, str):
        assert is_named, f"{said}: refused, but not named by verify: {found}"
        assert file.name.removesuffix(".seal") in found, f"{said}: not named: {found}"
    else:
        assert found == due, f"{said}: other bytes were read"
        assert is_named or harmless(file), f"{said}: nobody noticed"
    shutil.rmtree(copy)
    return is_named


def content_or_error(data: Path) -> Content | str:
    try:
        return content(data)
    except (LedgerError, MetadataError) as error:
        return str(error)


def harmless(file: Path) -> bool:
    """A clean directory needs nothing of its journal; of the lock only the name; SQLite builds its -shm anew."""
    return file.suffix == ".journal" or file.name in ("lock", "metadata.sqlite-shm")


def names(report: Report, file: Path) -> bool:
    return any(each.gravity is Gravity.damage and each.file == str(file) for each in report.findings)


class flipped:
    def __init__(self, file: Path, spot: int, bits: int) -> None:
        self._about = file, spot, bits

    def __enter__(self) -> None:
        flip(*self._about)

    def __exit__(self, *_: object) -> None:
        flip(*self._about)


def flip(file: Path, spot: int, bits: int) -> None:
    with file.open("r+b") as open_file:
        open_file.seek(spot)
        byte = open_file.read(1)[0]
        open_file.seek(spot)
        open_file.write(bytes([byte ^ bits]))
