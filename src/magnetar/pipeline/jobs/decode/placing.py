"""Which column of a table that is there each field of each version goes to.

A field goes to the column of its name, or of an alias that the table has, which may have to become wider. Where the
table cannot (int to text, in Delta int to long), it goes to ``name_2``, or the next that takes it. The same versions
give the same columns in every run. A column that the table does not have yet is made wide enough for all versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from magnetar.pipeline.jobs.decode.fields import Facts, FieldFacts, counterpart, merged, widest
from magnetar.pipeline.jobs.decode.reserved import RESERVED
from magnetar.pipeline.jobs.spec import TopicSpec
from magnetar.pipeline.tables.evolution import CannotEvolve, Widens, evolved


class VersionFields(NamedTuple):
    """One version of a schema: its id, its fields, and what is to be known of them."""

    schema_id: int
    type: pa.StructType
    facts: Facts


class Moved(NamedTuple):
    """A field that cannot go where fields of its name go, and the column that it goes to."""

    schema_id: int
    field: str
    reason: str
    column: str
    base: str
    """The column that fields of its name go to."""


@dataclass(frozen=True)
class Placed:
    """The columns for all versions, the columns of each version's fields by its id, and what moved."""

    fields: pa.StructType
    facts: Facts
    columns: Mapping[int, Mapping[str, str]]
    moved: tuple[Moved, ...]


def placed(versions: Sequence[VersionFields], table: Mapping[str, pa.DataType], widens: Widens) -> Placed:
    """Return the places of all versions' fields beside what ``table`` has."""
    together, facts = merged((each.type, each.facts) for each in versions)
    known = {name.lower(): kind for name, kind in table.items()}
    taken = {each.name.lower() for each in together} | set(RESERVED)
    fields: dict[str, pa.DataType] = {}
    kept: dict[str, FieldFacts] = {}
    columns: dict[int, dict[str, str]] = {each.schema_id: {} for each in versions}
    moved: list[Moved] = []
    for base in together.names:
        told = facts.get(base, FieldFacts())
        home = _home(base, told, known, taken)
        if home != base:  # which records of versions that come later may be called by
            told = replace(told, aliases=told.aliases | {base})
        first = {} if home.lower() in known else {home: together.field(base).type}
        family = _Family(home, first, known, taken, widens)
        for version in versions:
            name = counterpart(base, told, version.type.names)
            if name is not None:
                column, reason = family.place(version.type.field(name).type)
                columns[version.schema_id][name] = column
                if column != home:
                    moved.append(Moved(version.schema_id, name, reason, column, home))
        fields |= family.columns
        # A record has one field of a family, so that the others are no fields that it lacks.
        alone = told if len(family.columns) == 1 else FieldFacts(inside=told.inside)
        kept |= dict.fromkeys(family.columns, alone)
    return Placed(pa.struct(list(fields.items())), kept, columns, tuple(moved))


def _home(base: str, told: FieldFacts, table: Mapping[str, pa.DataType], taken: set[str]) -> str:
    """Return the column of a field: the one that the table has by an alias, where it has none of the name."""
    if base.lower() in table:
        return base
    known = (each for each in sorted(told.aliases) if each.lower() in table and each.lower() not in taken)
    return next(known, base)


def placed_by_setting(
    topic: TopicSpec, versions: Sequence[VersionFields], table: Mapping[str, pa.DataType], widens: Widens
) -> Placed:
    """Return the places as the topic's ``changed_types`` has them: versions of dead letters bring no columns."""
    places = placed(versions, table, widens)
    if topic.changed_types != "dead_letters" or not places.moved:
        return places
    moved = {each.schema_id for each in places.moved}
    fitting = placed([each for each in versions if each.schema_id not in moved], table, widens)
    if not fitting.columns:  # no version is left, and a table without columns there is not
        own = [(name, kind) for name, kind in table.items() if name not in RESERVED]
        fitting = replace(fitting, fields=pa.struct(own))
    return replace(fitting, columns=places.columns, moved=places.moved)


class _Family:
    """The columns of one field, whose versions have types that no column has together."""

    def __init__(
        self, base: str, columns: dict[str, pa.DataType], table: Mapping[str, pa.DataType], taken: set[str],
        widens: Widens,
    ) -> None:  # fmt: skip
        self.columns = columns
        self._base, self._table, self._taken, self._widens = base, table, taken, widens

    def place(self, kind: pa.DataType) -> tuple[str, str]:
        """Return the column that takes a type, and why the first one does not."""
        reason = ""
        for name in self._names():
            there = self.columns.get(name, self._table.get(name.lower()))
            if there is not None and name.lower() not in self._table and name == self._base:
                return name, reason  # new, and made for all versions
            try:
                self.columns[name] = kind if there is None else self._both(name, there, kind)
            except CannotEvolve as error:
                reason = reason or str(error)
                continue
            return name, reason
        raise AssertionError("names without end")

    def _both(self, name: str, there: pa.DataType, kind: pa.DataType) -> pa.DataType:
        wide = widest(there, kind)
        if wide == there or name.lower() not in self._table:
            return wide
        return evolved(there, kind, self._widens, name)

    def _names(self) -> Iterator[str]:
        yield self._base
        number = 1
        while True:
            number += 1
            name = f"{self._base}_{number}"
            if name.lower() not in self._taken:
                yield name


def renamed(array: pa.StructArray, columns: Mapping[str, str]) -> pa.StructArray:
    """Return a version's records with the names of the columns that their fields go to."""
    names = [columns.get(name, name) for name in array.type.names]
    if names == array.type.names:
        return array
    fields = [pa.field(name, each.type) for name, each in zip(names, array.type, strict=True)]
    return pa.StructArray.from_arrays(array.flatten(), fields=fields, mask=array.is_null())
