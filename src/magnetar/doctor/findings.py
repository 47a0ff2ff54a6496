"""What a checkup of one broker finds: how bad, what, why it matters, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Grade(StrEnum):
    """Gravity of a finding. The values are stable: scripts may match them."""

    error = "error"
    """Something does not work, or will not survive the next failure."""
    warning = "warning"
    """It works, and an operator should act."""
    note = "note"
    """Good to know."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One finding. ``check`` is the name of the check, stable for scripts."""

    level: Grade
    check: str
    what: str
    why: str
    do: str


@dataclass(slots=True)
class Looked:
    """Findings of one part of a checkup, its figures, and the checks that it could not make."""

    advice: list[Advice] = field(default_factory=list)
    measured: dict[str, str] = field(default_factory=dict)
    not_looked: dict[str, str] = field(default_factory=dict)

    def add(self, level: Grade, check: str, what: str, why: str, do: str) -> None:
        """Add one finding."""
        self.advice.append(Advice(level, check, what, why, do))


@dataclass(frozen=True, slots=True)
class Checkup:
    """All of it: the worst first. ``level`` is that of the worst finding, None where there is none."""

    data: str
    running: bool
    version: str
    level: Grade | None
    findings: tuple[Advice, ...]
    measured: dict[str, str]
    not_looked: dict[str, str]


def whole(data: str, version: str, looked: Looked, *, running: bool) -> Checkup:
    """Return what was found, the worst first."""
    order = list(Grade)
    found = sorted(looked.advice, key=lambda each: order.index(each.level))
    return Checkup(
        data,
        running,
        version,
        found[0].level if found else None,
        tuple(found),
        dict(looked.measured),
        dict(looked.not_looked),
    )
