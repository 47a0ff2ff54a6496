"""The list of ledgers that a restore hands to a running broker comes back from its file as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from magnetar.admin.errors import Declined
from magnetar.admin.manifest import Log, Manifest, read_manifest
from magnetar.admin.plain import plain
from magnetar.ledger.port import LedgerSummary


def written(path: Path, unknown: bytes) -> Manifest:
    ledgers = tuple(
        LedgerSummary(7 + i, 10 * i, 10 * i + 9, 3, 99, sealed=True, unknown=unknown) for i in range(3)
    )
    made = Manifest("orders", 2, {"retention.ms": "1"}, 3, (Log(0, ledgers), Log(1, ())))
    path.write_text(json.dumps(plain(made)))
    return made


@pytest.mark.parametrize("unknown", [b"", b"\x10\x01"])
def test_it_comes_back_as_it_was(tmp_path: Path, unknown: bytes) -> None:
    made = written(tmp_path / "m", unknown)
    assert read_manifest(tmp_path / "m") == made


def test_bytes_that_json_cannot_say_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "m", b"\xff")
    with pytest.raises(Declined, match="cannot be read as a list of ledgers"):
        read_manifest(tmp_path / "m")
