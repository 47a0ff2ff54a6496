"""What a broker counts of itself, once, for whatever names it is told under.

Counters are plain numbers on objects that are there anyway, and grow per batch or per request where something happens.
When somebody asks (``/metrics``), each *source* makes tables of them; `magnetar.figures.exposition` writes those down.
Counters begin at 0 with the process, as Prometheus has it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from magnetar.auth import Access
from magnetar.base.printable import printable_lines
from magnetar.figures.dialects import Dialects
from magnetar.ledger.durations import Durations
from magnetar.ledger.port import ManagedLedger

if TYPE_CHECKING:
    from magnetar.figures.buckets import EntryBuckets

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those that Kafka's own exporters give."""


class Bounds(NamedTuple):
    """Where a log begins and ends, in messages, and what it takes on disk."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    size: int
    """Bytes."""
    ledgers: int
    offloaded: int = 0
    """Bytes that are in tiered storage, whether they are here, too, or not."""


class LogFigures:
    """What came into one partition's log and went out of it, by any protocol, since the process began.

    It outlives the log's being closed and opened again. Messages and bytes in are counted when they are placed, as
    Kafka does; ``failed_...`` are requests that failed for reasons that a client cannot expect.
    """

    __slots__ = (
        "buckets",
        "bytes_in",
        "bytes_out",
        "converted_in_ns",
        "converted_out_ns",
        "failed_fetches",
        "failed_produces",
        "failed_tier_reads",
        "fetches",
        "log",
        "looks",
        "messages_in",
        "messages_out",
        "produces",
        "seen",
    )

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = 0
        self.buckets: EntryBuckets | None = None
        """Counts entries by what Pulsar counts of the last minute, where that is asked for."""
        self.converted_in_ns = self.converted_out_ns = 0
        """How long it took to convert what came in, or went to Kafka consumers, in another format than is stored."""
        self.messages_out = self.bytes_out = 0
        """What Kafka's consumers fetched, and what Pulsar's subscriptions had sent when they ended."""
        self.produces = self.fetches = 0
        """How often Kafka's clients, or its coordinators, named the partition."""
        self.failed_produces = self.failed_fetches = 0
        self.failed_tier_reads = 0
        """How often Kafka clients could not be given what lies in tiered storage."""
        self.log: ManagedLedger | None = None
        """While it is open."""
        self.seen: Bounds | None = None
        """What the log was when it was closed, because nobody used it."""
        self.looks: Any = None
        """What whoever makes rates of these figures keeps of its last looks."""

    @property
    def bounds(self) -> Bounds | None:
        """How far the log goes; None as long as this broker has not opened it, or another one has it."""
        log = self.log
        if log is None:
            return self.seen
        ledgers = log.ledgers()
        return Bounds(
            log.log_start_offset,
            log.log_end_offset,
            log.high_watermark,
            sum([each.size for each in ledgers]),
            len(ledgers),
            sum([each.size for each in ledgers if each.offload is not None and each.offload.complete]),
        )

    def closed(self, *, is_kept: bool) -> None:
        """The log is closed; ``is_kept``: it stays what it is until this broker opens it again."""
        self.seen = self.bounds if is_kept else None
        self.log = None

    def add(self, other: LogFigures) -> None:
        """Count what another one counted, too."""
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.messages_out += other.messages_out
        self.bytes_out += other.bytes_out
        self.produces += other.produces
        self.fetches += other.fetches
        self.failed_produces += other.failed_produces
        self.failed_fetches += other.failed_fetches
        self.failed_tier_reads += other.failed_tier_reads


class Family(NamedTuple):
    """One figure: its name, of which kind it is (counter, gauge, summary or untyped), and what it says."""

    name: str
    kind: str
    text: str
    suffix: str = ""
    """What a line's name has besides, of a summary: ``_count`` or ``_sum``."""


class FigureTable(NamedTuple):
    """Some figures of many things."""

    families: Sequence[Family]
    rows: list[tuple[Any, ...]]
    """Of each thing its labels (`labelled`), then a value of each family; None for none. The list is given away."""


Source = Callable[[Access | None], Iterator[FigureTable | None]]
"""Makes tables of what may be seen (see `magnetar.auth.may`), in steps: after each of them, those that give
None too, others may have their turn."""


class Figures:
    """Who tells what. Handlers add their sources."""

    def __init__(self, dialects: Dialects | None = None) -> None:
        self.dialects = dialects or Dialects()
        self.before: list[Callable[[], Awaitable[None]]] = []
        """Awaited before the sources are asked: what takes reading. Each has a bound of its own in time."""
        self.sources: list[Source] = []
        self.failures = 0
        """How often a source failed, so that what it tells was missing."""


def escaped(value: str) -> str:
    """Return a label's value as it is written; people read these pages on terminals, too."""
    if not value.isprintable():
        value = printable_lines(value)
    if "\\" in value or '"' in value or "\n" in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def labelled(**labels: str) -> str:
    """Return labels as they are written behind a name; nothing for none."""
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{escaped(value)}"' for name, value in labels.items()]) + "}"


def summary(name: str, text: str) -> tuple[Family, Family, Family]:
    """Return the families of a summary: its quantiles, count and sum."""
    return tuple(Family(name, "summary", text, suffix) for suffix in ("", "_count", "_sum"))  # type: ignore[return-value]


def summarized(durations: Durations, per_second: float = 1.0, **labels: str) -> list[tuple[Any, ...]]:
    """Return the rows of a `summary`; ``per_second`` is the unit, 1000 for ms."""
    rows: list[tuple[Any, ...]] = [
        (labelled(**labels, quantile=str(fraction)), round(value * per_second, 6), None, None)
        for fraction, value in zip(QUANTILES, durations.quantiles(QUANTILES), strict=False)
    ]
    return [*rows, (labelled(**labels), None, durations.count, round(durations.seconds * per_second, 6))]
