"""What records are searched for: a key, a text, a pattern, a header, a path into JSON. All of it in a thread.

Most records are never taken apart: bytes that each match has are looked for in the whole batch, and only records that
have them are decoded. So a search for what is rare passes over millions of records in a second. A pattern is RE2's,
which takes time in proportion to what it looks at, whatever the pattern is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import re2

from magnetar.console.json_paths import JsonPath, NoJsonPath, path_of
from magnetar.pulsar.rest.request import RestError
from magnetar.records.batch import BatchHeader, PlainRecord, records_in
from magnetar.records.errors import InvalidRecord
from magnetar.records.varint import decode_zigzag

MOST_OF_PATTERN = 1000
_FRAMED = b"\0\0\0"
"""Of a value that names a schema of the registry whose id is below 65,536."""

Decode = Callable[[bytes | None, bytes], Any]
"""Returns a value as JSON has it, of its bytes and the version of the topic's schema; None for what is none."""


class SoughtHeader(NamedTuple):
    """A header by its name, and its value if that matters."""

    name: str
    value: bytes | None = None

    def is_in(self, record: PlainRecord) -> bool:
        return any(
            each.key == self.name and (self.value is None or each.value == self.value)
            for each in record.headers
        )


class SoughtRecords(NamedTuple):
    """A filter of records, all of whose parts must hold; all records pass where nothing is given."""

    key: bytes | None = None
    """Its whole key."""
    text: bytes = b""
    """Part of its key, its value, or a header."""
    until_ms: int = 0
    """No record of this time or later; 0 for no bound."""
    header: SoughtHeader | None = None
    pattern: str = ""
    """RE2, found anywhere in its key, its value, or a header."""
    path: JsonPath | None = None
    """Into its value."""
    decode: Decode | None = None
    """What reads values that a path is looked for in."""
    only_json: bool = True
    """Whether values are JSON as they lie in their bytes: no topic's and no registry's schema reads them otherwise."""

    def among(self, body: memoryview, header: BatchHeader, version: bytes = b"") -> Iterator[PlainRecord]:
        """Return the records of a batch that are sought. ``version`` is that of the topic's schema."""
        words = self._words(body)
        if not words:
            found = records_in(body, header)
        else:
            data = bytes(body)
            rarest = min(words, key=data.count)
            if rarest not in data:
                return
            found = _with(data, header, rarest)
        for record in found:
            if self.takes(record, version):
                yield record

    def takes(self, record: PlainRecord, version: bytes = b"") -> bool:
        if self.key is not None and record.key != self.key:
            return False
        if self.until_ms and record.timestamp >= self.until_ms:
            return False
        if self.header is not None and not self.header.is_in(record):
            return False
        if self.text and not any(self.text in part for part in _parts(record)):
            return False
        if self.pattern and not any(_compiled(self.pattern).search(part) for part in _parts(record)):
            return False
        if self.path is None:
            return True
        assert self.decode is not None
        value = self.decode(record.value, version)
        return value is not None and self.path.is_in(value)

    @property
    def is_anything(self) -> bool:
        return self == SoughtRecords()

    def _words(self, body: memoryview) -> list[bytes]:
        """Return bytes that each sought record of a batch must have; without any, all are decoded."""
        words = [each for each in (self.text, self.key) if each]
        if self.header is not None:
            words += [each for each in (self.header.name.encode(), self.header.value) if each]
        if self.path is not None and self.only_json:
            data = bytes(body)
            if b"\\u" not in data and not _may_be_framed(data):
                words += self.path.words
        return words


def _may_be_framed(body: bytes) -> bool:
    """Return True unless no value can begin with the id of a schema. The first record's own zeros do not count."""
    _, at = decode_zigzag(memoryview(body), 0) if body else (0, 0)
    return body.find(_FRAMED, at + 1) >= 0


def _with(body: bytes, header: BatchHeader, word: bytes) -> Iterator[PlainRecord]:
    """Return the records of a batch in whose bytes there is a word; of others only the length is read."""
    view, size = memoryview(body), len(body)
    at, place = 0, body.find(word)
    for _ in range(header.records_count):
        if place < 0:
            return
        if at + 1 < size and (code := body[at]) < 0x80 and not code & 1:
            end = at + 1 + (code >> 1)
        elif at + 1 < size and (more := body[at + 1]) < 0x80 and not code & 1:
            end = at + 2 + ((more << 7) + code - 0x80 >> 1)
        else:
            length, start = decode_zigzag(view, at)
            end = start + length
            if length < 0:
                raise InvalidRecord("a record claims less than no bytes")
        if end > size:
            raise InvalidRecord("a record claims more bytes than its batch holds")
        if place < end:
            yield from records_in(view[at:end], header._replace(records_count=1))
            place = body.find(word, end)
        at = end


def _parts(record: PlainRecord) -> Iterator[bytes]:
    yield record.key or b""
    yield record.value or b""
    for header in record.headers:
        yield header.key.encode()
        yield header.value or b""


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = 1 << 20
    options.log_errors = False
    return options


@lru_cache(64)
def _compiled(pattern: str) -> re2._Regexp:
    return re2.compile(pattern, _options())


def sought_of(query: Mapping[str, str], until_ms: int, decode: Decode, *, only_json: bool) -> SoughtRecords:
    """Return what a query asks for: ``key``, ``text``, ``header``, ``pattern``, ``path``; raise ``RestError`` (400)."""
    key, text = query.get("key", ""), query.get("text", "")
    given = query.get("path", "").strip()
    try:
        path = path_of(given) if given else None
    except NoJsonPath as error:
        raise RestError(400, f"path: {error}") from None
    name, has_value, value = query.get("header", "").partition("=")
    header = (
        SoughtHeader(name, value.encode("utf-8", "surrogatepass") if has_value else None) if name else None
    )
    return SoughtRecords(
        key.encode("utf-8", "surrogatepass") if key else None,
        text.encode("utf-8", "surrogatepass"),
        until_ms,
        header,
        _checked(query.get("pattern", "")),
        path,
        decode if path is not None else None,
        only_json or path is None,
    )


def _checked(pattern: str) -> str:
    """Return a pattern that RE2 takes; raise ``RestError`` (400) for others."""
    if len(pattern) > MOST_OF_PATTERN:
        raise RestError(400, f"a pattern has at most {MOST_OF_PATTERN} letters")
    try:
        if pattern:
            _compiled(pattern)  # RE2 itself refuses what takes more than its memory
    except re2.error as error:
        why = error.args[0] if error.args else ""
        said = why.decode(errors="replace") if isinstance(why, bytes) else why
        raise RestError(400, f"the pattern is not understood: {said}") from None
    except UnicodeEncodeError:
        raise RestError(400, "the pattern is not understood: it is no text") from None
    return pattern
