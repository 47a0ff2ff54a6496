"""Whether data written with one Avro schema can be read with another (Avro's rules of schema resolution).

What two types need is a graph: nodes are pairs of types, and a pair needs all of some pairs (a record its fields) or
one of them (a reader's union). Each pair is looked at once, so the work grows with the pairs and not with the ways to
them; then what cannot be read is told back along the graph, and what is left can, types that hold themselves too.

Logical types do not count, as for both of Avro's own checkers, which differ in names and enums (`Rules`).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from magnetar.schema_registry.avro_types import Type, types_of
from magnetar.schema_registry.work import TooComplex, Work

MOST_PAIRS = 50_000
"""Of one reader and one writer: they are kept until all are looked at, some 20 MB."""
_MOST_REASONS = 20
_PROMOTIONS = {
    "int": frozenset(("long", "float", "double")),
    "long": frozenset(("float", "double")),
    "float": frozenset(("double",)),
    "string": frozenset(("bytes",)),
    "bytes": frozenset(("string",)),
}


class Rules(Enum):
    """Whose rules: Avro's Java library has two checkers, and both are in use."""

    COMPATIBILITY = "SchemaCompatibility, which Confluent's registry asks"
    """Names of records, enums and fixed must agree in their last part, or the writer's full name is an alias of the
    reader. An enum must know all symbols or have a default. A reader's union needs one type that fits."""
    RESOLUTION = "Resolver, by way of SchemaValidator, which Pulsar asks"
    """What a Java reader is prepared for: records need no names in common, and an enum's unknown symbols are errors
    only once they are read. In a reader's union the type with the writer's full name is the one that must fit."""


def can_read(reader: Any, writer: Any, work: Work | None = None, rules: Rules = Rules.COMPATIBILITY) -> bool:
    """Whether a reader with one schema reads what was written with the other.

    Raises ``ValueError`` for no schema, `TooComplex` where ``work`` is used up.
    """
    work = work or Work()
    return not clashes(types_of([reader], work), types_of([writer], work), work, rules)


def clashes(reader: Type, writer: Type, work: Work, rules: Rules = Rules.COMPATIBILITY) -> list[str]:
    """Say why a reader cannot read what was written; nothing if it can. Raises `TooComplex`."""
    pairs = _Pairs(work, rules)
    root = pairs.of(reader, writer, "")
    pairs.explore()
    pairs.tell_back()
    return pairs.reasons(root)


class _Needs(NamedTuple):
    """What a pair of types needs to be read: all of some pairs, or with ``any_of`` one of them."""

    pairs: tuple[int, ...] = ()
    any_of: bool = False
    why_not: str = ""
    """Why it cannot be read whatever others say, or, of ``any_of``, where none can."""


class _Pairs:
    """The pairs of types that a comparison comes across, by number."""

    def __init__(self, work: Work, rules: Rules) -> None:
        self._work = work
        self._by_name = rules is Rules.COMPATIBILITY
        self._numbers: dict[tuple[int, int], int] = {}
        self._types: list[tuple[Type, Type, str]] = []
        self._needs: list[_Needs] = []
        self._fails: list[bool] = []

    def of(self, reader: Type, writer: Type, path: str) -> int:
        """Give a pair's number; ``path`` is how it was first come across."""
        self._work.step()
        key = id(reader), id(writer)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._types)
            if found == MOST_PAIRS:
                raise TooComplex(f"more than {MOST_PAIRS} pairs of types are to be compared")
            self._types.append((reader, writer, path))
        return found

    def explore(self) -> None:
        """Find out what each pair needs."""
        while len(self._needs) < len(self._types):
            self._needs.append(self._needed(*self._types[len(self._needs)]))

    def _needed(self, reader: Type, writer: Type, path: str) -> _Needs:
        if writer.kind == "union":
            return _Needs(tuple(self.of(reader, each, path) for each in writer.parts))
        if reader.kind == "union":
            pairs = tuple(self.of(each, writer, path) for each in self._branches(reader, writer))
            return _Needs(pairs, True, f"{path or '/'}: reader union lacking writer type {writer}")
        if reader.kind != writer.kind:
            if reader.kind in _PROMOTIONS.get(writer.kind, ()):
                return _Needs()
            return _Needs(
                why_not=f"{path or '/'}: reader type {reader} not compatible with writer type {writer}"
            )
        if reader.name and not self._names_agree(reader, writer):
            return _Needs(why_not=f"{path or '/'}: name {reader.name}, expected {writer.name}")
        if reader.kind == "record":
            return self._record(reader, writer, path)
        if reader.kind == "enum":
            self._work.step(len(writer.symbols) + len(reader.symbols))
            missing = sorted(set(writer.symbols).difference(reader.symbols))
            if self._by_name and missing and reader.default is None:
                return _Needs(why_not=f"{path or '/'}: enum {reader.name} lacks {', '.join(missing[:10])}")
        if reader.kind == "fixed" and reader.size != writer.size:
            return _Needs(
                why_not=f"{path or '/'}: fixed {reader.name} has {reader.size} bytes, not {writer.size}"
            )
        inside = f"{path}/{'items' if reader.kind == 'array' else 'values'}"
        both = zip(reader.parts, writer.parts, strict=True)
        return _Needs(tuple(self.of(mine, theirs, inside) for mine, theirs in both))

    def _branches(self, reader: Type, writer: Type) -> Iterator[Type]:
        """Give the types of a reader's union that may fit a writer's."""
        self._work.step(len(reader.parts))
        if not self._by_name and writer.name:
            named = [each for each in reader.parts if writer.name in (each.name, *each.aliases)]
            if named:
                yield named[0]
                return
        for each in reader.parts:
            if each.kind != writer.kind:
                if each.kind in _PROMOTIONS.get(writer.kind, ()):
                    yield each
            elif not each.name or self._names_agree(each, writer):
                yield each

    def _names_agree(self, reader: Type, writer: Type) -> bool:
        self._work.step(1 + len(reader.aliases))
        if reader.kind == "record" and not self._by_name:
            return True
        return reader.local_name == writer.local_name or writer.name in reader.aliases

    def _record(self, reader: Type, writer: Type, path: str) -> _Needs:
        theirs = {each.name: each for each in writer.fields}
        self._work.step(len(theirs))
        pairs = []
        for each in reader.fields:
            self._work.step(1 + len(each.aliases))
            at = f"{path}/{each.name}"
            wrote = [theirs[name] for name in dict.fromkeys((each.name, *each.aliases)) if name in theirs]
            if len(wrote) > 1:
                return _Needs(why_not=f"{at}: it and its aliases are several fields of the writer")
            if wrote:
                pairs.append(self.of(each.type, wrote[0].type, at))
            elif not each.has_default:
                return _Needs(why_not=f"{at}: reader field missing default value")
        return _Needs(tuple(pairs))

    def tell_back(self) -> None:
        """Mark all that fails because of what it needs."""
        asked_by: list[list[int]] = [[] for _ in self._needs]
        left = [0] * len(self._needs)
        for number, needs in enumerate(self._needs):
            self._work.step(1 + len(needs.pairs))
            left[number] = len(needs.pairs)
            for other in needs.pairs:
                asked_by[other].append(number)
        self._fails = [_fails_alone(needs) for needs in self._needs]
        waiting = [number for number, fails in enumerate(self._fails) if fails]
        while waiting:
            for asker in asked_by[waiting.pop()]:
                self._work.step()
                left[asker] -= 1
                if not self._fails[asker] and (left[asker] == 0 or not self._needs[asker].any_of):
                    self._fails[asker] = True
                    waiting.append(asker)

    def reasons(self, root: int) -> list[str]:
        """Say what a pair fails for."""
        found: dict[str, None] = {}
        seen, waiting = {root}, [root] if self._fails[root] else []
        while waiting and len(found) < _MOST_REASONS:
            self._work.step()
            needs = self._needs[waiting.pop()]
            if needs.why_not:
                found[needs.why_not] = None
                continue
            for other in reversed(needs.pairs):
                if self._fails[other] and other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return list(found)


def _fails_alone(needs: _Needs) -> bool:
    return bool(needs.why_not) and not needs.pairs
