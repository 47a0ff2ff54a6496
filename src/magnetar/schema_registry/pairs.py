"""Which pairs of a reader's and a writer's places fit, where each may ask for others and all may ask for one another.

Each pair is looked at once, whatever the number of ways to it: it says what is wrong with it alone, and of which other
pairs it needs one each. What is wrong is then told back along those needs, and what is left fits, places that hold
themselves too. So the work grows with the pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from magnetar.schema_registry.work import TooComplex, Work

MAX_PAIRS = 50_000
"""Of one reader and one writer: they are kept until all are looked at, some 20 MB."""
_MAX_REASONS = 20
P = TypeVar("P")


class OneOf(NamedTuple):
    """A need: one of some pairs. ``why_not`` is said where there is none; without it, what is wrong with the pairs."""

    pairs: tuple[int, ...]
    why_not: str = ""


class PairFinding(NamedTuple):
    """What was found out about a pair."""

    wrong: tuple[str, ...] = ()
    needs: tuple[OneOf, ...] = ()


class Pairs(Generic[P]):
    """The pairs that a comparison comes across, by number."""

    def __init__(
        self, look: Callable[[P, P, str], PairFinding], key: Callable[[P], Hashable], work: Work
    ) -> None:
        """``look`` finds out about a pair at a path; places with the same ``key`` are the same."""
        self._look = look
        self._key = key
        self._work = work
        self._numbers: dict[Hashable, int] = {}
        self._places: list[tuple[P, P, str]] = []
        self._found: list[PairFinding] = []
        self._fails: list[bool] = []

    def of(self, reader: P, writer: P, path: str) -> int:
        """Return a pair's number; ``path`` is how it was first come across. Raises `TooComplex`."""
        self._work.step()
        key = self._key(reader), self._key(writer)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._places)
            if number == MAX_PAIRS:
                raise TooComplex(f"more than {MAX_PAIRS} pairs of types are to be compared")
            self._places.append((reader, writer, path))
        return number

    def need(self, reader: P, writer: P, path: str) -> OneOf:
        """Return the need of just this pair."""
        return OneOf((self.of(reader, writer, path),))

    def need_one(self, pairs: Iterable[tuple[P, P]], path: str, why_not: str) -> OneOf:
        """Return the need of one of these pairs."""
        return OneOf(tuple(self.of(reader, writer, path) for reader, writer in pairs), why_not)

    def clashes(self, reader: P, writer: P, path: str) -> list[str]:
        """Say why a reader's place does not fit a writer's; nothing if it does. Raises `TooComplex`."""
        root = self.of(reader, writer, path)
        while len(self._found) < len(self._places):
            self._found.append(self._look(*self._places[len(self._found)]))
        self._tell_back()
        return self._reasons(root)

    def _tell_back(self) -> None:
        """Mark all that fails because of what it needs."""
        asked_by: list[list[tuple[int, int]]] = [[] for _ in self._found]
        left: list[list[int]] = []
        for number, found in enumerate(self._found):
            left.append([len(need.pairs) for need in found.needs])
            for which, need in enumerate(found.needs):
                self._work.step(1 + len(need.pairs))
                for other in need.pairs:
                    asked_by[other].append((number, which))
        self._fails = [bool(found.wrong) or 0 in left[number] for number, found in enumerate(self._found)]
        waiting = [number for number, fails in enumerate(self._fails) if fails]
        while waiting:
            for asker, which in asked_by[waiting.pop()]:
                self._work.step()
                left[asker][which] -= 1
                if left[asker][which] == 0 and not self._fails[asker]:
                    self._fails[asker] = True
                    waiting.append(asker)

    def _reasons(self, root: int) -> list[str]:
        """Say what a pair fails for."""
        told: dict[str, None] = {}
        seen, waiting = {root}, [root] if self._fails[root] else []
        while waiting and len(told) < _MAX_REASONS:
            found = self._found[waiting.pop()]
            told |= dict.fromkeys(found.wrong)
            for need in reversed(found.needs):
                self._work.step(1 + len(need.pairs))
                if not all(self._fails[other] for other in need.pairs):
                    continue
                if need.why_not:
                    told[need.why_not] = None
                    continue
                for other in need.pairs:
                    if other not in seen:
                        seen.add(other)
                        waiting.append(other)
        return list(told)[:_MAX_REASONS]
