"""A data directory without its metadata: half a copy, which is refused before anything is written.

Only the metadata say which ledgers make up which topic. A broker that began with empty ones would be ready with no
topics, and a repair would then take the ledgers for unreferenced ones and delete them.
"""

from __future__ import annotations

from pathlib import Path

from magnetar.ledger.errors import LedgerError

METADATA = "metadata.sqlite"
_FOLDERS = ("ledgers", "journal")


class HalfACopy(LedgerError):
    """``parts`` are there without the metadata; nothing was changed."""

    next_step = (
        f"Put {METADATA} and its seal back from the same copy, restore a backup with 'magnetar backup restore', or "
        "choose another directory with --data."
    )

    def __init__(self, directory: Path, parts: list[str]) -> None:
        super().__init__(
            f"{directory} has {' and '.join(parts)}, but no {METADATA}: it is half a copy, "
            "since only the metadata have which ledgers make up which topic"
        )
        self.parts = parts


def parts_without_metadata(directory: Path) -> list[str]:
    """Return the folders with files in them that stand in ``directory`` without its metadata, if any."""
    if (directory / METADATA).exists():
        return []
    return [name for name in _FOLDERS if any(path.is_file() for path in (directory / name).rglob("*"))]


def refuse_half_a_copy(directory: Path) -> None:
    """Raise `HalfACopy` where a broker would begin with empty metadata although ledgers have something."""
    parts = parts_without_metadata(directory)
    if parts:
        raise HalfACopy(directory, parts)
