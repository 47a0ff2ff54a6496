"""Whether data written with one Avro schema can be read with another (Avro's rules of schema resolution).

Logical types do not count, as for both of Avro's own checkers, which differ in names and enums (`Rules`).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from magnetar.schema_registry.avro_types import Type, types_of
from magnetar.schema_registry.pairs import OneOf, PairFinding, Pairs
from magnetar.schema_registry.work import Work

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
    return _Comparison(work, by_name=rules is Rules.COMPATIBILITY).clashes(reader, writer)


class _Comparison:
    def __init__(self, work: Work, *, by_name: bool) -> None:
        self._work = work
        self._by_name = by_name
        self._pairs: Pairs[Type] = Pairs(self._look, id, work)

    def clashes(self, reader: Type, writer: Type) -> list[str]:
        return self._pairs.clashes(reader, writer, "")

    def _look(self, reader: Type, writer: Type, path: str) -> PairFinding:
        at = path or "/"
        if writer.kind == "union":
            return PairFinding(needs=tuple(self._pairs.need(reader, each, path) for each in writer.parts))
        if reader.kind == "union":
            pairs = ((each, writer) for each in self._branches(reader, writer))
            why_not = f"{at}: reader union lacking writer type {writer}"
            return PairFinding(needs=(self._pairs.need_one(pairs, path, why_not),))
        if reader.kind != writer.kind:
            if reader.kind in _PROMOTIONS.get(writer.kind, ()):
                return PairFinding()
            return PairFinding((f"{at}: reader type {reader} not compatible with writer type {writer}",))
        if reader.name and not self._names_agree(reader, writer):
            return PairFinding((f"{at}: name {reader.name}, expected {writer.name}",))
        if reader.kind == "record":
            return self._record(reader, writer, path)
        if reader.kind == "enum":
            self._work.step(len(writer.symbols) + len(reader.symbols))
            missing = sorted(set(writer.symbols).difference(reader.symbols))
            if self._by_name and missing and reader.default is None:
                return PairFinding((f"{at}: enum {reader.name} lacks {', '.join(missing[:10])}",))
        if reader.kind == "fixed" and reader.size != writer.size:
            return PairFinding((f"{at}: fixed {reader.name} has {reader.size} bytes, not {writer.size}",))
        inside = f"{path}/{'items' if reader.kind == 'array' else 'values'}"
        both = zip(reader.parts, writer.parts, strict=True)
        return PairFinding(needs=tuple(self._pairs.need(mine, theirs, inside) for mine, theirs in both))

    def _branches(self, reader: Type, writer: Type) -> Iterator[Type]:
        """Yield the types of a reader's union that may fit a writer's."""
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

    def _record(self, reader: Type, writer: Type, path: str) -> PairFinding:
        theirs = {each.name: each for each in writer.fields}
        self._work.step(len(theirs))
        wrong: list[str] = []
        needs: list[OneOf] = []
        for each in reader.fields:
            self._work.step(1 + len(each.aliases))
            at = f"{path}/{each.name}"
            wrote = [theirs[name] for name in dict.fromkeys((each.name, *each.aliases)) if name in theirs]
            if len(wrote) > 1:
                wrong.append(f"{at}: it and its aliases are several fields of the writer")
            elif wrote:
                needs.append(self._pairs.need(each.type, wrote[0].type, at))
            elif not each.has_default:
                wrong.append(f"{at}: reader field missing default value")
        return PairFinding(tuple(wrong), tuple(needs))
