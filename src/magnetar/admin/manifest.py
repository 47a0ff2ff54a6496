"""The list of ledgers that a restored topic is to be made of, as a file: a line to the admin socket has less room."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from magnetar.admin.errors import Declined
from magnetar.admin.plain import restore
from magnetar.ledger.port import LedgerSummary


@dataclass(frozen=True, slots=True)
class Log:
    """The ledgers of one partition, oldest first."""

    partition: int
    ledgers: tuple[LedgerSummary, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A topic to be made; ``ledgers`` is how many ids are asked for, ``logs`` what became of them."""

    topic: str
    partitions: int
    configs: dict[str, str]
    ledgers: int
    logs: tuple[Log, ...] = ()


@dataclass(frozen=True, slots=True)
class Reserved:
    """Ids that belong to nobody else."""

    ledgers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Adopted:
    """The topic that was made."""

    topic: str
    partitions: int


def read_manifest(path: Path) -> Manifest:
    """Return what the file says; raise `Declined`."""
    try:
        return restore(Manifest, json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Declined(f"{path} cannot be read as a list of ledgers: {error!r}") from error
