"""Batches that are laid out as one that was checked before: then only what they must have in common is compared.

A producer of records that are all alike sends batch after batch of the same geometry: as many records, of the same
lengths. Once every field of such a batch was checked, another of as many bytes and records is well-formed if the same
bytes stand in all places that say lengths, offset deltas and numbers of headers, however keys and values differ. All
records of one shape lie at one distance, so each such place is a strided slice, compared in C.

Times differ, too: a layout is for batches whose timestamp deltas take a byte each and are not negative, the first 0.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

Shape: TypeAlias = tuple[int, int, int, int, int, int, int, int]
"""A record's size; where in it lie body, offset delta, key, value, headers; how many those are; the time's delta."""
MAX_LAYOUTS = 32
MAX_RECORDS = 5000
_NOT_NEGATIVE = bytes(range(0, 0x80, 2))  # zigzag codes of one byte


class RecordRun(NamedTuple):
    """So many records of one shape, end to end from ``at`` on. They have no headers."""

    at: int
    records: int
    shape: Shape


class BatchLayout:
    """What all batches of one geometry have in common."""

    __slots__ = ("_same", "_times")

    def __init__(self, body: bytes, runs: Sequence[RecordRun]) -> None:
        """``body`` is well-formed, and nothing but these runs."""
        self._same: list[tuple[slice, bytes]] = []
        self._times: list[slice] = []
        for at, count, shape in runs:
            stride, first = shape[:2]
            end = at + (count - 1) * stride + 1
            for place in _telling(body, at, shape):
                where = slice(at + place, end + place, stride)
                self._same.append((where, body[where]))
            self._times.append(slice(at + first + 1, end + first + 1, stride))

    def fits(self, body: bytes) -> bool:
        """Return whether a batch of as many bytes is well-formed because it looks the same; its least time is 0."""
        for where, same in self._same:
            if body[where] != same:
                return False
        times = self._times
        if body[times[0].start]:
            return False
        for where in times:  # noqa: SIM110 - a generator would cost each batch three calls more
            if body[where].translate(None, _NOT_NEGATIVE):
                return False
        return True


def _telling(body: bytes, at: int, shape: Shape) -> Iterator[int]:
    """Yield the places in a record at ``at`` that say how long what is, and which record it is."""
    _, first, offset_at, key_at, value_at, headers_at, _, _ = shape
    yield from range(first)
    yield from range(offset_at, key_at)
    for place in (key_at, value_at, headers_at):
        while True:
            yield place
            if body[at + place] < 0x80:
                break
            place += 1


class Layouts:
    """Those that were met last, by how many records and bytes a batch has. One is learned when it is met again."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], BatchLayout | None] = OrderedDict()

    def fit(self, body: bytes, count: int) -> bool:
        """Return whether it is known that these are so many well-formed records, the earliest at time 0."""
        layout = self._known.get((count, len(body)))
        return layout is not None and layout.fits(body)

    def met(self, body: bytes, count: int, runs: Sequence[RecordRun]) -> None:
        """Take note of well-formed records, which begin with these runs."""
        if count > MAX_RECORDS or sum(run.records for run in runs) != count:
            return
        if any(shape[2] - shape[1] != 2 for _, _, shape in runs):
            return  # attributes, then a time of more than a byte
        key, known = (count, len(body)), self._known
        if key in known:
            known[key] = BatchLayout(body, runs)
        else:
            known[key] = None
            if len(known) > MAX_LAYOUTS:
                known.popitem(last=False)
