"""Many entries of Pulsar's at once to Kafka's form, by `magnetar.records.kernels.pulsar_many`.

For a Fetch, entries that follow each other share a record batch where one head can speak for all of them: the offsets
in it are theirs, and a client has fewer batches to open. For Spark each entry keeps a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from magnetar.records.check import TakesLong
from magnetar.records.compression import MAX_DECOMPRESSED_BYTES, Buffer
from magnetar.records.conversion import Kernels, machine_code
from magnetar.records.errors import RecordsError
from magnetar.records.pulsar_compression import decompress_into
from magnetar.records.pulsar_metadata import MAX_MESSAGES

MOST_PARTS = 30_000
"""Messages and properties that are gone through while somebody waits: some 5 ms. A batch of a MB may have a hundred
thousand properties, each of which costs what a message does."""
BATCH_BYTES = 128 << 10
"""About how large a batch of several entries becomes."""


class Joined(NamedTuple):
    """Record batches of the next ``entries`` entries; ``batch`` None leaves one to `plain_kafka_batch`."""

    batch: memoryview | None
    entries: int


def joined_batches(
    entries: Sequence[Buffer],
    most_bytes: int,
    *,
    places: Sequence[int] = (),
    hurried: bool = False,
    max_unpacked: int = 1 << 62,
) -> list[Joined] | None:
    """Convert entries in their order, until ``most_bytes`` but one at least; None without machine code.

    ``places`` tells where in one and the same object of bytes the entries, views of it, begin. ``hurried`` raises
    ``TakesLong`` where one has to be decompressed or left to the plain form, or where there are more than `MOST_PARTS`;
    so is raised where more than ``max_unpacked`` bytes would be decompressed.
    """
    kernels = machine_code(sum(map(len, entries)))
    if kernels is None:
        return None
    np, many = kernels.one.np, kernels.many
    sizes = np.fromiter(map(len, entries), np.int64, len(entries))
    spans = np.empty((len(entries), 2), np.int64)
    if places:
        data = np.frombuffer(memoryview(entries[0]).obj, np.uint8)
        spans[:, 0] = places
    else:
        data = np.frombuffer(b"".join(entries), np.uint8)
        spans[:, 0] = sizes.cumsum() - sizes
    spans[:, 1] = spans[:, 0] + sizes
    opened = OpenedEntries(kernels, data, spans)
    if hurried:
        if opened.takes_long:
            raise TakesLong
        opened.facts[:, kernels.one.LIMIT] = MOST_PARTS
    count = opened.inflate(0, most_bytes, max_unpacked)
    out = np.empty(opened.room(0, count), np.uint8)
    made = np.empty((count, many.MADE_FIELDS), np.int64)
    size, done = many.fill_joined(
        data, opened.inflated, spans[:count], opened.bodies[:count], opened.facts[:count],
        most_bytes, BATCH_BYTES, out, made,
    )  # fmt: skip
    if size == kernels.one.TOO_MANY:
        raise TakesLong
    view = memoryview(out.data).toreadonly()
    return [
        Joined(None, 1) if start == many.TO_PLAIN else Joined(view[start:end], held)
        for start, end, held in made[:done].tolist()
        if start != many.WITH_THE_FIRST
    ]


class OpenedEntries:
    """The metadata of many entries ``data[start:end]`` of ``spans``, and their payloads decompressed piece by piece."""

    def __init__(self, kernels: Kernels, data: Any, spans: Any) -> None:
        self._code = code = kernels.one
        self._data = data
        self._spans = spans
        self.facts = code.np.empty((len(spans), code.FACTS), code.np.int64)
        kernels.many.open_entries(data, spans, self.facts)
        self.facts[self.facts[:, code.MESSAGES] > MAX_MESSAGES, code.STATUS] = code.KernelStatus.PLAIN
        self.sizes = spans[:, 1] - spans[:, 0]
        self._compressed = self.facts[:, code.STATUS] == code.KernelStatus.COMPRESSED
        self.bodies = code.np.zeros((len(spans), 2), code.np.int64)
        self.inflated = data[:0]
        if self._compressed.any():
            claimed = self.facts[:, code.UNCOMPRESSED_SIZE]
            wrong = self._compressed & ((claimed < 0) | (claimed > MAX_DECOMPRESSED_BYTES))
            self.facts[wrong, code.STATUS] = code.KernelStatus.PLAIN
            self._compressed &= ~wrong
            self.sizes = code.np.where(self._compressed, claimed, self.sizes)

    @property
    def takes_long(self) -> bool:
        """Whether this is more than copying."""
        return bool((self.facts[:, self._code.STATUS] != self._code.KernelStatus.DONE).any())

    def inflate(self, first: int, most_bytes: int, max_unpacked: int = 1 << 62) -> int:
        """Decompress from entry ``first`` on, about ``most_bytes`` at once; give how far that goes.

        Raises ``TakesLong`` if an entry has so much inside that it becomes more than ``max_unpacked``.
        """
        np, code = self._code.np, self._code
        ends = self.sizes[first:].cumsum()
        stop = first + min(int(np.searchsorted(ends, most_bytes)) + 1, len(ends))
        here = first + np.flatnonzero(self._compressed[first:stop])
        if not len(here):
            return stop
        ends = self.sizes[here].cumsum()
        self.bodies[here, 1], self.bodies[here, 0] = ends, ends - self.sizes[here]
        if ends[-1] > max_unpacked:
            raise TakesLong(int(ends[-1]))
        self.inflated = np.empty(int(ends[-1]), np.uint8)
        view = memoryview(self.inflated)
        stored = memoryview(self._data)
        for row in here.tolist():
            at, end = int(self._spans[row, 0] + self.facts[row, code.PAYLOAD_AT]), int(self._spans[row, 1])
            start, stop_at = self.bodies[row].tolist()
            try:
                decompress_into(int(self.facts[row, code.COMPRESSION]), stored[at:end], view[start:stop_at])
            except RecordsError:
                self.facts[row, code.STATUS] = code.KernelStatus.PLAIN  # which has the words for it
        return stop

    def room(self, first: int, stop: int) -> int:
        """Return how many bytes the records of these entries take at most."""
        np, code = self._code.np, self._code
        facts, sizes = self.facts[first:stop], self.sizes[first:stop]
        # A single message has its key and its properties beside what was compressed, a batch inside.
        beside = self._compressed[first:stop] & (facts[:, code.BATCHED] == 0)
        stored = self._spans[first:stop, 1] - self._spans[first:stop, 0]
        # A message takes 6 bytes at least: a count beyond that is a lie, and must not take memory.
        messages = np.clip(facts[:, code.MESSAGES], 0, sizes // 6 + 1)
        return int((sizes + beside * stored + code.HEADER_BYTES + code.RECORD_BYTES * messages).sum())


def kafka_rows(data: Any, spans: Any, most_bytes: int) -> Iterator[tuple[int, int, Any, Any]]:
    """Yield (first, stop, bytes, table) of some entries after the other, until all of ``spans`` are through.

    The table's columns are those of `pulsar_many.fill_rows`; ``ROW_START`` -1 stands for an entry that
    `kafka_batch` is to be asked for. ``most_bytes`` bounds what is decompressed at once. Only after `use_machine_code`.
    """
    kernels = machine_code(0)
    assert kernels is not None
    np, many = kernels.one.np, kernels.many
    spans = np.ascontiguousarray(spans)
    opened = OpenedEntries(kernels, data, spans)
    first = 0
    while first < len(spans):
        stop = opened.inflate(first, most_bytes)
        out = np.empty(opened.room(first, stop), np.uint8)
        made = np.empty((stop - first, many.ROW_FIELDS), np.int64)
        size = many.fill_rows(
            data,
            opened.inflated,
            spans[first:stop],
            opened.bodies[first:stop],
            opened.facts[first:stop],
            out,
            made,
        )
        yield first, stop, out[:size], made
        first = stop
