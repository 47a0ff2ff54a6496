"""Whether each document that one JSON Schema allows passes another.

Keywords that narrow (``required``, ``enum``, ``minimum`` ...) may only get wider. As with Confluent's registry, what a
writer does not name counts by its *content model*: open (anything may be there, so what is added may clash with it),
closed (``additionalProperties: false``), or of one kind (``additionalProperties: {...}``). Where two keywords cannot be
compared (``if``, patterns that differ), they must be equal.

A schema is a plain part and combinations. Of ``allOf`` each part must be kept to; ``anyOf`` and ``oneOf`` are ways to
pass, of which every way of the writer must be one of the reader's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import re2

from magnetar.schema_registry.pairs import OneOf, PairFinding, Pairs
from magnetar.schema_registry.work import TooComplex, Work

_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains")
_ZERO_SAYS_NOTHING = frozenset(("minLength", "minItems", "minProperties"))
_SAME = (
    "pattern",
    "if",
    "then",
    "else",
    "propertyNames",
    "contains",
    "unevaluatedProperties",
    "unevaluatedItems",
)
_WAYS = ("anyOf", "oneOf")
_TYPES = ("null", "boolean", "object", "array", "number", "integer", "string")
_TOLD = frozenset(("title", "description", "$schema", "$id", "id", "default", "examples", "$comment", "definitions",
                   "$defs", "readOnly", "writeOnly", "deprecated", "connect.type", "connect.index"))  # fmt: skip
_MAX_HOPS = 100


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """A schema's JSON, and those it refers to by their names."""

    root: Any
    others: Mapping[str, Any]


class _Place:
    """A node in a document, behind all its ``$ref``; or, with ``ways``, any or all of some nodes."""

    __slots__ = ("document", "node", "root", "ways")

    def __init__(self, document: Document, root: Any, node: Any, ways: str = "") -> None:
        self.document = document
        self.root = root
        """The text in which the node stands."""
        self.node = node
        self.ways = ways
        """The keyword whose branches are meant; "" for the node itself."""

    def inside(self, node: Any, work: Work) -> _Place:
        """Return a place in the same document; follow ``$ref``, and stay where that leads nowhere."""
        document, root = self.document, self.root
        for _ in range(_MAX_HOPS):
            if not isinstance(node, dict) or not isinstance(node.get("$ref"), str):
                break
            name, _, pointer = node["$ref"].partition("#")
            other = root if not name else document.others.get(name)
            found = other
            for part in pointer.strip("/").split("/") if pointer.strip("/") else ():
                work.step()
                part = part.replace("~1", "/").replace("~0", "~")
                if isinstance(found, list):
                    found = found[int(part)] if part.isdecimal() and int(part[:9]) < len(found) else None
                else:
                    found = found.get(part) if isinstance(found, dict) else None
            if found is None:
                break
            root, node = other, found
        return _Place(document, root, node)

    def get(self, name: str, default: Any = None) -> Any:
        return self.node.get(name, default) if isinstance(self.node, dict) else default

    @property
    def key(self) -> tuple[int, int, str]:
        return id(self.root), id(self.node), self.ways

    @property
    def takes_all(self) -> bool:
        return self.node is True or (isinstance(self.node, dict) and not self.node.keys() - _TOLD)

    @property
    def types(self) -> set[str]:
        said = self.get("type", list(_TYPES))
        found = {said} if isinstance(said, str) else set(said)
        return found | {"integer"} if "number" in found else found


def clashes(reader: Document, writer: Document, work: Work) -> list[str]:
    """Say what the reader refuses of what the writer allows; nothing if it takes all. Raises `TooComplex`."""
    comparison = _Comparison(work)
    mine, theirs = (_Place(each, each.root, True).inside(each.root, work) for each in (reader, writer))
    try:
        return comparison.pairs.clashes(mine, theirs, "#")
    except TooComplex:
        raise
    except (TypeError, AttributeError, ValueError, KeyError, IndexError) as error:
        # A reference may lead to what is no schema.
        return [f"#: the schemas cannot be compared: {error!r}"[:300]]


class _Comparison:
    def __init__(self, work: Work) -> None:
        self._work = work
        self._plain: dict[int, tuple[Any, dict[str, Any]]] = {}
        self.pairs: Pairs[_Place] = Pairs(self._look, lambda place: place.key, work)

    def _look(self, reader: _Place, writer: _Place, path: str) -> PairFinding:
        if writer.ways:
            return PairFinding(needs=tuple(self._need(reader, each, path) for each in self._branches(writer)))
        if reader.takes_all or writer.node is False:
            return PairFinding()
        if reader.node is False:
            return PairFinding((f"{path}: nothing is allowed any more",))
        if reader.ways:
            return PairFinding(needs=(self._one_way(reader, writer, path),))
        combined = [name for name in ("allOf", *_WAYS) if reader.get(name)]
        if combined:
            return PairFinding(needs=tuple(self._all_of(reader, writer, path, combined)))
        ways = [_Place(writer.document, writer.root, writer.node, name) for name in _WAYS if writer.get(name)]
        parts = [writer.inside(each, self._work) for each in writer.get("allOf") or ()]
        if ways or parts:
            # Each part alone allows at least what all of them do.
            pairs = [(reader, each) for each in (self._without(writer), *parts, *ways)]
            why_not = f"{path}: it allows less than any part of what was combined"
            return PairFinding(needs=(self.pairs.need_one(pairs, path, why_not),))
        return self._keywords(reader, writer, path)

    def _need(self, reader: _Place, writer: _Place, path: str) -> OneOf:
        return self.pairs.need(reader, writer, path)

    def _branches(self, place: _Place) -> list[_Place]:
        return [place.inside(each, self._work) for each in place.node[place.ways]]

    def _without(self, place: _Place) -> _Place:
        """Return a node without its combinations: the same one each time."""
        known = self._plain.get(id(place.node))
        if known is None:
            plain = {name: value for name, value in place.node.items() if name not in ("allOf", *_WAYS)}
            known = self._plain[id(place.node)] = (place.node, plain)
        return _Place(place.document, place.root, known[1])

    def _all_of(self, reader: _Place, writer: _Place, path: str, combined: list[str]) -> Iterator[OneOf]:
        yield self._need(self._without(reader), writer, path)
        for name in combined:
            if name == "allOf":
                for each in reader.get(name):
                    yield self._need(reader.inside(each, self._work), writer, path)
            else:
                yield self._need(_Place(reader.document, reader.root, reader.node, name), writer, path)

    def _one_way(self, reader: _Place, writer: _Place, path: str) -> OneOf:
        pairs = [(each, writer) for each in self._branches(reader)]
        for name in _WAYS:
            if writer.get(name):
                pairs.append((reader, _Place(writer.document, writer.root, writer.node, name)))
        pairs += [(reader, writer.inside(each, self._work)) for each in writer.get("allOf") or ()]
        return self.pairs.need_one(pairs, path, f"{path}/{reader.ways}: no branch allows it any more")

    # -- plain schemas ------------------------------------------------------------------------------------------

    def _keywords(self, reader: _Place, writer: _Place, path: str) -> PairFinding:
        lost = writer.types - reader.types
        if lost:
            return PairFinding((f"{path}: type {', '.join(sorted(lost))} is not allowed any more",))
        self._work.step(20)
        wrong = [*_bounds(reader, writer, path), *self._values(reader, writer, path)]
        needs: list[OneOf] = []
        if reader.get("not") is not None:
            if writer.get("not") is None:
                wrong.append(f"{path}: not was added")
            else:  # what the reader forbids must have been forbidden
                mine, theirs = (each.inside(each.get("not"), self._work) for each in (reader, writer))
                needs.append(self._need(theirs, mine, f"{path}/not"))
        both = writer.types & reader.types
        if "object" in both:
            self._objects(reader, writer, path, wrong, needs)
            self._dependencies(reader, writer, path, wrong, needs)
        if "array" in both:
            self._arrays(reader, writer, path, wrong, needs)
        return PairFinding(tuple(wrong), tuple(needs))

    def _values(self, reader: _Place, writer: _Place, path: str) -> Iterator[str]:
        for keyword in _SAME:
            mine = reader.get(keyword)
            if mine is not None and not _equal(mine, writer.get(keyword), self._work):
                yield f"{path}: {keyword} is another"
        if reader.get("uniqueItems") is True and writer.get("uniqueItems") is not True:
            yield f"{path}: uniqueItems is asked for"
        step, was = reader.get("multipleOf"), writer.get("multipleOf")
        if _is_number(step) and (not _is_number(was) or step == 0 or was % step != 0):
            yield f"{path}: multipleOf {step} is another"
        allowed = self._allowed(reader)
        if allowed is not None:
            before = self._allowed(writer)
            if before is None or not before <= allowed:
                yield f"{path}: enum allows less"

    def _allowed(self, place: _Place) -> set[str] | None:
        values = place.get("enum")
        if isinstance(place.node, dict) and "const" in place.node:
            values = [place.node["const"]]
        if values is None:
            return None
        found = set()
        for each in values:
            text = json.dumps(each, sort_keys=True)
            self._work.step(1 + len(text) // 64)
            found.add(text)
        return found

    def _objects(
        self, reader: _Place, writer: _Place, path: str, wrong: list[str], needs: list[OneOf]
    ) -> None:
        mine, theirs = reader.get("properties", {}), writer.get("properties", {})
        must, did = reader.get("required", ()), set(writer.get("required", ()))
        self._work.step(len(mine) + len(theirs) + len(must) + len(did))
        for name in sorted(set(must) - did):
            own = mine.get(name)
            if not (isinstance(own, dict) and "default" in own):
                wrong.append(f"{path}/properties/{name}: it is required now")
        for name in theirs:
            at, old = f"{path}/properties/{name}", writer.inside(theirs[name], self._work)
            if name in mine:
                needs.append(self._need(reader.inside(mine[name], self._work), old, at))
                continue
            for each in self._others(reader, name):
                if each.node is False and old.node is not False:
                    wrong.append(f"{at}: it is not allowed any more")
                else:
                    needs.append(self._need(each, old, at))
        for name in mine.keys() - theirs.keys():
            at, new = f"{path}/properties/{name}", reader.inside(mine[name], self._work)
            for each in self._others(writer, name):
                if each.takes_all and not new.takes_all:
                    wrong.append(f"{at}: it was added to an open content model, where anything may be")
                else:
                    needs.append(self._need(new, each, at))
        patterns, before = reader.get("patternProperties", {}), writer.get("patternProperties", {})
        rest, others = self._rest(reader), self._rest(writer)
        for pattern in patterns:
            at, new = f"{path}/patternProperties/{pattern}", reader.inside(patterns[pattern], self._work)
            old = writer.inside(before[pattern], self._work) if pattern in before else others
            if old.takes_all and not new.takes_all:
                wrong.append(f"{at}: it was added to an open content model, where anything may be")
            else:
                needs.append(self._need(new, old, at))
        for pattern in before.keys() - patterns.keys():
            at = f"{path}/patternProperties/{pattern}"
            needs.append(self._need(rest, writer.inside(before[pattern], self._work), at))
        needs.append(self._need(rest, others, f"{path}/additionalProperties"))

    def _rest(self, place: _Place) -> _Place:
        """Return what a property must be that nothing names."""
        rest = place.get("additionalProperties", place.get("unevaluatedProperties", True))
        return place.inside(rest, self._work)

    def _others(self, place: _Place, name: str) -> list[_Place]:
        """Return what says what may be under a name that is not among the properties."""
        found = []
        for pattern, node in place.get("patternProperties", {}).items():
            self._work.step(1 + len(name) // 16)
            try:
                if re2.search(pattern, name):
                    found.append(place.inside(node, self._work))
            except re2.error:
                continue
        return found or [self._rest(place)]

    def _dependencies(
        self, reader: _Place, writer: _Place, path: str, wrong: list[str], needs: list[OneOf]
    ) -> None:
        for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
            before = writer.get(keyword, {})
            for name, mine in reader.get(keyword, {}).items():
                self._work.step()
                at, theirs = f"{path}/{keyword}/{name}", before.get(name)
                if isinstance(mine, list):
                    if not isinstance(theirs, list) or set(mine) - set(theirs):
                        wrong.append(f"{at}: more depends on it")
                elif theirs is None or isinstance(theirs, list):
                    wrong.append(f"{at}: it was added")
                else:
                    mine, theirs = reader.inside(mine, self._work), writer.inside(theirs, self._work)
                    needs.append(self._need(mine, theirs, at))

    def _arrays(
        self, reader: _Place, writer: _Place, path: str, wrong: list[str], needs: list[OneOf]
    ) -> None:
        mine, rest = self._items(reader)
        theirs, others = self._items(writer)
        for number in range(max(len(mine), len(theirs))):
            at = f"{path}/items/{number}"
            if number < len(mine) and number < len(theirs):
                needs.append(self._need(mine[number], theirs[number], at))
            elif number < len(theirs):
                needs.append(self._need(rest, theirs[number], at))
            elif others.takes_all and not mine[number].takes_all:
                wrong.append(f"{at}: it was added to an open content model, where anything may be")
            else:
                needs.append(self._need(mine[number], others, at))
        needs.append(self._need(rest, others, f"{path}/items"))

    def _items(self, place: _Place) -> tuple[list[_Place], _Place]:
        """Return what the first items must be, each, and all that follow."""
        items, first = place.get("items", place.get("unevaluatedItems", True)), place.get("prefixItems")
        if first is None and isinstance(items, list):
            first, items = items, place.get("additionalItems", True)
        self._work.step(len(first or ()))
        return [place.inside(each, self._work) for each in first or ()], place.inside(items, self._work)


def _bounds(reader: _Place, writer: _Place, path: str) -> Iterator[str]:
    for keyword in _LOWER:
        new, old = reader.get(keyword), writer.get(keyword)
        if _is_number(new) and (not _is_number(old) or new > old):
            if new > 0 or keyword not in _ZERO_SAYS_NOTHING:
                yield f"{path}: {keyword} {new} is more than before"
        elif new is True and old is not True:  # draft 4
            yield f"{path}: {keyword} was added"
    for keyword in _UPPER:
        new, old = reader.get(keyword), writer.get(keyword)
        if _is_number(new) and (not _is_number(old) or new < old):
            yield f"{path}: {keyword} {new} is less than before"
        elif new is True and old is not True:
            yield f"{path}: {keyword} was added"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(one: Any, other: Any, work: Work) -> bool:
    """Whether two pieces of JSON are the same; counts what it looks at."""
    work.step()
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(_equal(each, other[name], work) for name, each in one.items())
        )
    if isinstance(one, list):
        return (
            isinstance(other, list)
            and len(one) == len(other)
            and all(_equal(mine, theirs, work) for mine, theirs in zip(one, other, strict=True))
        )
    return type(one) is type(other) and bool(one == other)
