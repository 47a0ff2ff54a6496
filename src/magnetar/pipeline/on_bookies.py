"""Topics of a cluster, past its brokers: closed ledgers straight from bookies, and what is open through Fetch.

``load("zk://HOST:PORT,HOST:PORT/PATH")`` names the cluster's ZooKeeper. The driver asks brokers for topics and for what
is visible, ZooKeeper for the ledgers of each partition and where they lie, and bookies for the few entries at which to
cut. Tasks read the entries of their slice and lay them out as a ledger's file has them, so that what reads files reads
these.

What is not in a closed ledger (the open one, those of compacted topics, those that brokers of Pulsar's wrote, which do
not say which offsets they hold), and all of it where only committed records are wanted, comes through Fetch.

Ledgers in tiered storage are read straight from there, where the driver can (it looks for keys in its environment);
otherwise brokers, which have keys, read them for it.
"""

from __future__ import annotations

import json
import logging
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from magnetar.ledger.bookkeeper.bookie_tls import BookieTls
from magnetar.ledger.bookkeeper.closed import (
    BookieConnections,
    ClosedLedger,
    as_file,
    decode_metadata,
    metadata_path,
)
from magnetar.ledger.errors import CannotOffload, TierFailed
from magnetar.ledger.formats.info import decode_info, path_of
from magnetar.ledger.formats.layout import FRAME_BYTES, HEADER_BYTES, encode_header, frame_head
from magnetar.ledger.port import LedgerSummary
from magnetar.metadata.zookeeper_security import ZooKeeperSecurity
from magnetar.pipeline.ledger_part import LedgerPart
from magnetar.pipeline.mapped import MappedLedger
from magnetar.pipeline.options import SourceOptions, TopicPartition
from magnetar.pipeline.port import RecordQuery, Slice, SliceSize
from magnetar.pipeline.slices import LedgerSlice, settle
from magnetar.pipeline.through_fetch import FetchReader
from magnetar.records.entry import last_offset
from magnetar.topics.names import Naming

if TYPE_CHECKING:
    import pyarrow as pa
    from kazoo.client import KazooClient

_NAMING = Naming()
_BROKERS = "/loadbalance/brokers"
_CONNECT_S = 30
_LEDGERS = "/ledgers"
_log = logging.getLogger("magnetar.pipeline")


class ClusterUnknown(Exception):
    """ZooKeeper does not answer, or knows no brokers there."""


class PastBrokersReader(FetchReader):
    """One look at a cluster."""

    def __init__(self, options: SourceOptions) -> None:
        assert options.zookeeper is not None
        hosts, slash, path = options.zookeeper.partition("/")
        self._root = (slash + path).rstrip("/")
        self._tls = options.bookie_tls
        self._zookeeper = _connected(hosts, ZooKeeperSecurity.read(options.zookeeper_config))
        try:
            if options.bootstrap_servers is None:
                found = {"bootstrap.servers": _kafka_addresses(self._zookeeper, self._root, options)}
                options = replace(options, kafka={**options.kafka, **found})
            super().__init__(options)
        except BaseException:
            self.close()
            raise
        self._bookies = BookieConnections(self._tls)
        self._unreadable_place: tuple[tuple[str, str], ...] | None = None
        own = self._root + _LEDGERS
        self._ledgers_at = own if self._zookeeper.exists(own) else _LEDGERS

    def slices(
        self, which: TopicPartition, low: int, high: int, size: SliceSize, ask: RecordQuery
    ) -> list[Slice]:
        if ask.read_committed or ask.times_ms is not None or ask.ledgers is not None or ask.skip_damage:
            return super().slices(which, low, high, size, ask)
        pieces: list[Slice] = []
        for summary in self._sealed(which):
            start, end = max(low, summary.first_offset), min(high, summary.last_offset + 1)
            if start >= end:
                continue
            found = (
                self._cut_offloaded(which, summary, start, end, size)
                if summary.offloaded
                else self._cut_closed(which, summary, start, end, size)
            )
            if found is None:
                continue
            if low < start:
                pieces += super().slices(which, low, start, size, ask)
            pieces += found
            low = end
        if low < high:
            pieces += super().slices(which, low, high, size, ask)
        return pieces

    def close(self) -> None:
        if hasattr(self, "_bookies"):
            self._bookies.close()
            super().close()
        self._zookeeper.stop()
        self._zookeeper.close()

    def _sealed(self, which: TopicPartition) -> list[LedgerSummary]:
        """Return the ledgers that may be read past the brokers, oldest first."""
        name = _NAMING.parse(which.topic).ledger_name(which.partition)
        stored = self._get(self._root + path_of(name))
        if stored is None:
            return []
        info = decode_info(stored, name=name)
        return [
            each for each in info.ledgers if each.sealed and each.first_offset >= 0 and not each.compacted
        ]

    def _cut_offloaded(
        self, which: TopicPartition, summary: LedgerSummary, low: int, high: int, size: SliceSize
    ) -> list[Slice] | None:
        """Return slices of what lies in tiered storage, None where this process cannot read it there."""
        from magnetar.pipeline.ledgers import LedgerMap
        from magnetar.pipeline.offloaded import offloaded_at

        filed = as_file(summary)
        at = offloaded_at(filed)
        if at is None or self._unreadable_place == at.place:
            return None
        try:
            cuts = LedgerMap(Path(), filed, live=False).cuts(low, high, size)
        except (TierFailed, CannotOffload) as error:
            self._unreadable_place = at.place
            _log.warning("what lies in tiered storage is read through brokers: %s", error)
            return None
        return [
            LedgerSlice(
                *which, cut.low, cut.high, "", at.ledger_id, cut.start, cut.end, cut.entry_id, offloaded=(at,)
            )
            for cut in cuts
        ]

    def _cut_closed(
        self, which: TopicPartition, summary: LedgerSummary, low: int, high: int, size: SliceSize
    ) -> list[Slice] | None:
        """Return slices of what lies on bookies, None where it is not to be had from them."""
        closed = self._closed(summary)
        return None if closed is None else self._cut(which, summary, closed, low, high, size)

    def _closed(self, summary: LedgerSummary) -> ClosedLedger | None:
        stored = self._get(metadata_path(self._ledgers_at, summary.ledger_id))
        closed = None if stored is None else decode_metadata(summary.ledger_id, stored)
        return None if closed is None or closed.last_entry < 0 else closed

    def _get(self, path: str) -> bytes | None:
        from kazoo.exceptions import NoNodeError

        try:
            found: bytes = self._zookeeper.get(path)[0]
            return found
        except NoNodeError:
            return None

    def _cut(
        self,
        which: TopicPartition,
        summary: LedgerSummary,
        closed: ClosedLedger,
        low: int,
        high: int,
        size: SliceSize,
    ) -> list[Slice]:
        first = self._entry_with(closed, low) if low > summary.first_offset else 0
        last = self._entry_with(closed, high - 1) if high <= summary.last_offset else closed.last_entry
        count = last - first + 1
        wanted = round(closed.size * count / (closed.last_entry + 1) / size.about_bytes)
        if size.max_offsets is not None:
            wanted = max(wanted, -(-(high - low) // size.max_offsets))
        wanted = max(min(wanted, count), 1)
        entries = [first + count * number // wanted for number in range(wanted)]
        lows = [low, *(self._last_offset(closed, each - 1) + 1 for each in entries[1:])]
        return [
            BookieSlice(
                *which, begin, end, "", closed.ledger_id, HEADER_BYTES, 0, entry,
                closed=closed, last=until - 1, tls=self._tls,
            )
            for begin, end, entry, until in zip(
                lows, [*lows[1:], high], entries, [*entries[1:], last + 1], strict=True
            )
            if begin < end
        ]  # fmt: skip

    def _entry_with(self, closed: ClosedLedger, offset: int) -> int:
        """Return the first entry whose last message has this offset or a later one."""
        low, high = 0, closed.last_entry
        while low < high:
            middle = (low + high) // 2
            if self._last_offset(closed, middle) < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _last_offset(self, closed: ClosedLedger, entry_id: int) -> int:
        return last_offset(self._bookies.entry(closed, entry_id))


@dataclass(frozen=True)
class BookieSlice(LedgerPart):
    """The records of ``[low, high)`` in some entries of one closed ledger, from ``entry_id`` to ``last``."""

    closed: ClosedLedger | None = None
    last: int = -1
    tls: BookieTls | None = None

    def read(self, ask: RecordQuery) -> Iterator[pa.RecordBatch]:
        from magnetar.pipeline.slice_reader import SliceReader

        settle()
        assert self.closed is not None
        fetched = EntriesAsFile(self.closed, self.entry_id, self.last, self.tls)
        whole = replace(self, end=len(fetched))
        return SliceReader(whole, ask, ledger=fetched).batches()


class EntriesAsFile(MappedLedger):
    """Some entries of a ledger, brought here and laid out as its file would have them."""

    def __init__(self, closed: ClosedLedger, first: int, last: int, tls: BookieTls | None = None) -> None:
        self.ledger_id = closed.ledger_id
        self.path = Path(f"ledger {closed.ledger_id} on bookies")
        parts: list[bytes | memoryview] = [encode_header(closed.ledger_id, 0)]
        size = HEADER_BYTES
        with BookieConnections(tls) as bookies:
            for entry_id, entry in enumerate(bookies.entries(closed, first, last + 1), first):
                parts += (frame_head(closed.ledger_id, entry_id, b"", [entry], len(entry)), entry)
                size += FRAME_BYTES + len(entry)
        self._map = mmap.mmap(-1, size)
        at = 0
        for part in parts:
            self._map[at : at + len(part)] = part
            at += len(part)
        self.data = np.frombuffer(self._map, np.uint8)

    def done_with(self, start: int, end: int) -> None:
        """Keep what is here: it does not come again."""


def _connected(hosts: str, security: ZooKeeperSecurity) -> KazooClient:
    from kazoo.handlers.threading import KazooTimeoutError

    from magnetar.metadata.kazoo_client import SecuredClient

    client = SecuredClient(hosts, security, read_only=True)
    try:
        client.start(timeout=_CONNECT_S)
    except KazooTimeoutError:
        client.close()
        raise ClusterUnknown(f"no ZooKeeper answers at {hosts}: {client.trouble}") from None
    return client


def _kafka_addresses(client: KazooClient, root: str, options: SourceOptions) -> str:
    """Return where Kafka's clients reach the brokers that live."""
    listener = options.kafka.get("security.protocol", "PLAINTEXT").upper()
    from kazoo.exceptions import NoNodeError

    found: list[str] = []
    try:
        for name in client.get_children(root + _BROKERS):
            found += _addresses_in(json.loads(client.get(f"{root}{_BROKERS}/{name}")[0]), listener)
    except NoNodeError:
        pass
    if not found:
        raise ClusterUnknown(
            f"ZooKeeper knows no broker below {root or '/'}: is it the path in metadataStoreUrl? "
            "Or name brokers by kafka.bootstrap.servers"
        )
    return ",".join(found)


def _addresses_in(told: dict[str, Any], listener: str) -> list[str]:
    """Return where a broker listens for Kafka's clients of this kind; nothing for brokers of Pulsar's."""
    endpoints = told.get("endpoints")
    for name in (listener, "kafka"):
        if isinstance(endpoints, dict) and name in endpoints:
            host, port = endpoints[name]
            return [f"{host}:{port}"]
    return []
