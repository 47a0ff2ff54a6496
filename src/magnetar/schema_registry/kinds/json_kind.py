"""JSON Schema: checked by jsonschema, compared keyword by keyword (`json_compatibility`)."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import re2

from magnetar.schema_registry.errors import InvalidSchema
from magnetar.schema_registry.kinds.json_compatibility import Document, clashes
from magnetar.schema_registry.work import TooComplex, Work, read_json


class JsonSchema:
    """One schema, with those it refers to."""

    def __init__(self, text: str, document: Document) -> None:
        self.text = text
        self.document = document

    def reads(self, writer: Any, work: Work) -> list[str]:
        """Say why this does not allow what ``writer`` allows."""
        return clashes(self.document, writer.document, work)


def parse(text: str, references: Mapping[str, str], work: Work) -> JsonSchema:
    """Understand a JSON Schema (drafts 4 to 2020-12); raise `InvalidSchema`. Its text is that given, without blanks."""
    root = _json(text, work)
    if not isinstance(root, dict | bool):
        raise InvalidSchema("Invalid schema of type JSON: it must be an object or a boolean")
    _check(root, work)
    others = {name: _json(each, work) for name, each in references.items()}
    return JsonSchema(json.dumps(root, separators=(",", ":"), ensure_ascii=False), Document(root, others))


def _json(text: str, work: Work) -> Any:
    try:
        return read_json(text, work)
    except TooComplex:
        raise
    except ValueError as error:
        raise InvalidSchema(f"Invalid schema of type JSON: it is not JSON: {error}") from None


def _check(root: Any, work: Work) -> None:
    from jsonschema.validators import Draft7Validator, validator_for

    said = root.get("$schema", "") if isinstance(root, dict) else ""
    if not isinstance(said, str):
        raise InvalidSchema("Invalid schema of type JSON: $schema must be a string")
    try:
        draft = validator_for(root, default=Draft7Validator)
    except ValueError as wrong:  # it is taken apart as an address
        raise InvalidSchema(f"Invalid schema of type JSON: $schema is no URI: {wrong}") from None
    check = _counting(validator_for(draft.META_SCHEMA, default=draft))
    _here.work = work
    try:
        error = next(check(draft.META_SCHEMA, format_checker=_formats()).iter_errors(root), None)
    finally:
        del _here.work
    if error is not None:
        raise InvalidSchema(f"Invalid schema of type JSON: {error.message[:500]}")


_here = threading.local()
"""The `Work` of a check that is under way in this thread: what jsonschema calls is not given any."""


@cache
def _counting(draft: Any) -> Any:
    """Return a validator that counts its steps, and looks for items that are there twice by sorting them."""
    from jsonschema.validators import extend

    keywords = {name: _counted(check) for name, check in draft.VALIDATORS.items()}
    return extend(draft, keywords | {"uniqueItems": _unique_items})


def _counted(check: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*given: Any) -> Any:
        _here.work.step(10)  # each is some fifty microseconds
        return check(*given)

    return counted


def _unique_items(validator: Any, wanted: Any, items: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if not wanted or not isinstance(items, list):
        return
    texts = []
    for each in items:
        texts.append(json.dumps(each, sort_keys=True))
        _here.work.step(1 + len(texts[-1]) // 64)
    if len(set(texts)) < len(texts):
        yield ValidationError(f"{str(items)[:200]} has non-unique elements")


@cache
def _formats() -> Any:
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    checker.checks("regex")(_is_pattern)
    return checker


def _is_pattern(text: Any) -> bool:
    if not isinstance(text, str):
        return True
    _here.work.step(1 + len(text))
    try:
        re2.compile(text)
    except re2.error:
        try:
            re.compile(text)  # it looks ahead or back
        except (re.error, RecursionError, OverflowError):
            return False
    return True
