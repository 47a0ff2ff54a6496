"""Closed ledgers read straight from bookies, without a JVM: they never change, so no agreement is needed.

For tools and Spark tasks, which may wait. For what may change (open ledgers, recovery, fencing) there is BookKeeper's
own client (`magnetar.ledger.bookkeeper.bookies`). BookKeeper's protocol, version 2, numbers big-endian:

    question  4 length, 1 version (2), 1 operation (2: read an entry), 2 flags, 8 ledger id, 8 entry id
    answer    4 length, 1 version, 1 operation, 2 flags, 4 code, 8 ledger id, 8 entry id, then what is stored:
    stored    8 ledger id, 8 entry id, 8 last add confirmed, 8 length so far, a digest of these and the entry, the entry
    keep      4 length, 1 version, 1 operation (1: keep an entry), 2 flags (2: though the ledger is fenced), 20 the key
              (SHA-1 of "ledger" and the ledger's password), stored; answered as above, with nothing stored

The digest is CRC32C (4 bytes), CRC32 (8), or none; ledgers with a MAC need a password and are refused. Where a ledger's
entries lie is in ZooKeeper, as a protobuf message behind a line of text (LedgerMetadataFormat).
"""

from __future__ import annotations

import hashlib
import socket
import ssl
import struct
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from magnetar.ledger.bookkeeper.bookie_tls import START_TLS, BookieTls, refused
from magnetar.ledger.errors import LedgerCorrupt, LedgerError, LedgerNotFound
from magnetar.ledger.formats.layout import file_bytes
from magnetar.ledger.formats.protobuf import fields
from magnetar.ledger.values import LedgerSummary
from magnetar.records.crc import crc32c
from magnetar.records.errors import CorruptBatch

_LENGTH = struct.Struct(">i")
_QUESTION = struct.Struct(">iBBhqq")
_ANSWER = struct.Struct(">BBhiqq")
_STORED = struct.Struct(">qqqq")
_KEPT = struct.Struct(">iBBh20s")
_NOTHING = memoryview(b"")
_VERSION, _KEEP, _READ = 2, 1, 2
_RECOVERS = 2  # the flag of a client that copies a ledger's entries: the ledger may be fenced
_OK, _NO_LEDGER, _NO_ENTRY, _UNREADABLE = 0, 1, 2, 101
_METADATA = b"BookieMetadataFormatVersion\t"
_DELIMITED = b"BookieMetadataFormatVersion\t3\n"
_CLOSED = 3
_CRC32, _CRC32C, _NONE = 1, 3, 4
_DIGEST_BYTES = {_CRC32: 8, _CRC32C: 4, _NONE: 0}
_AHEAD = 64  # questions on their way; bookies answer each connection in any order
_MAX_ANSWER_BYTES = 64 << 20
_MAX_WORDS_BYTES = 1 << 16  # of an answer that has no entry
_TIMEOUT_S = 30.0


class BookieUnreachable(LedgerError):
    """A bookie does not answer, or hangs up."""


def as_file(summary: LedgerSummary) -> LedgerSummary:
    """Return a ledger of bookies with the size that its file would have."""
    return replace(summary, size=file_bytes(summary.entries, summary.size))


class LedgerSegment(NamedTuple):
    """The bookies (HOST:PORT) that store the ledger from an entry on."""

    first_entry: int
    bookies: tuple[str, ...]


@dataclass(frozen=True)
class ClosedLedger:
    """The location of a ledger that never changes any more: a value that a driver sends to tasks."""

    ledger_id: int
    last_entry: int
    size: int
    write_quorum: int
    digest: int
    segments: tuple[LedgerSegment, ...]

    def bookies_of(self, entry_id: int) -> list[str]:
        """Return the bookies that have an entry, in the order to ask them."""
        at = bisect_right(self.segments, entry_id, key=lambda each: each.first_entry) - 1
        bookies = self.segments[at].bookies
        return [bookies[(entry_id + copy) % len(bookies)] for copy in range(self.write_quorum)]


def metadata_path(root: str, ledger_id: int) -> str:
    """Return the path of a ledger's metadata below ``root``, as BookKeeper's hierarchical managers have it."""
    if ledger_id < 10**10:
        text = f"{ledger_id:010d}"
        return f"{root}/{text[:2]}/{text[2:6]}/L{text[6:]}"
    text = f"{ledger_id:019d}"
    return f"{root}/{text[:3]}/{text[3:7]}/{text[7:11]}/{text[11:15]}/L{text[15:]}"


def decode_metadata(ledger_id: int, data: bytes) -> ClosedLedger | None:
    """Decode the metadata of a ledger, None while it is open; raise ``LedgerCorrupt`` for an unknown form."""
    if not data.startswith(_DELIMITED):
        version = data[len(_METADATA) :].split(b"\n")[0][:10] if data.startswith(_METADATA) else data[:10]
        raise LedgerCorrupt(f"ledger {ledger_id}: metadata of version {version!r} is not known here")
    try:
        ((_, body),) = fields(
            b"\x0a" + data[len(_DELIMITED) :]
        )  # its size stands before it, as a field's would
        numbers: dict[int, int] = {}
        segments = []
        for place, value in fields(body):
            if isinstance(value, int):
                numbers[place] = value
            elif place == 6:
                inner = list(fields(value))
                first = next((v for p, v in inner if p == 2 and isinstance(v, int)), 0)
                bookies = tuple(v.decode() for p, v in inner if p == 1 and isinstance(v, bytes))
                segments.append(LedgerSegment(first, bookies))
        if numbers[5] != _CLOSED:
            return None
        last = numbers[4]
        last = last - (1 << 64) if last >= 1 << 63 else last  # -1 for a ledger without entries
        found = ClosedLedger(ledger_id, last, numbers[3], numbers[1], numbers.get(7, _CRC32), tuple(segments))
    except (CorruptBatch, TypeError, ValueError, KeyError) as error:
        raise LedgerCorrupt(f"ledger {ledger_id}: its metadata cannot be read: {error!r}") from None
    if found.digest not in _DIGEST_BYTES:
        raise LedgerCorrupt(f"ledger {ledger_id} has a digest that needs its password")
    return found


class EntryCopy(NamedTuple):
    """One bookie's copy of an entry."""

    bookie: str
    stored: memoryview
    """The stored bytes of it; empty if the bookie has no whole copy."""
    error: LedgerError | None
    """What is wrong with it."""


def entry_in(ledger: ClosedLedger, stored: memoryview) -> memoryview:
    """Return the entry within the stored bytes."""
    return stored[_STORED.size + _DIGEST_BYTES[ledger.digest] :]


class BookieConnections:
    """Connections to bookies, made when they are first needed. For one thread."""

    def __init__(self, tls: BookieTls | None = None) -> None:
        self._tls = None if tls is None else tls.context()
        self._open: dict[str, _Bookie] = {}
        self._failed: dict[str, BookieUnreachable] = {}

    def close(self) -> None:
        """Close them."""
        for each in self._open.values():
            each.close()
        self._open.clear()

    def __enter__(self) -> BookieConnections:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def entries(self, ledger: ClosedLedger, first: int, end: int) -> Iterator[memoryview]:
        """Yield the entries in ``[first, end)``, each checked; many are requested at the same time.

        An entry that one bookie does not return comes from another; raises ``LedgerError`` if none has it.
        """
        asked: deque[tuple[int, _Bookie | None]] = deque()
        following = first
        while following < end or asked:
            while following < end and len(asked) < _AHEAD:
                asked.append((following, self._ask(ledger, following)))
                following += 1
            entry_id, bookie = asked.popleft()
            yield self._answered(ledger, entry_id, bookie)

    def entry(self, ledger: ClosedLedger, entry_id: int) -> memoryview:
        """Return one entry."""
        return next(self.entries(ledger, entry_id, entry_id + 1))

    def copies(self, ledger: ClosedLedger, first: int, end: int) -> Iterator[list[EntryCopy]]:
        """Yield the copies of each entry in ``[first, end)``, one for every bookie that should have it."""
        asked: deque[tuple[int, list[str]]] = deque()
        following = first
        while following < end or asked:
            while following < end and len(asked) < _AHEAD:
                places = ledger.bookies_of(following)
                for place in places:
                    self._ask_one(ledger, following, place)
                asked.append((following, places))
                following += 1
            entry_id, places = asked.popleft()
            yield [self._copy(ledger, entry_id, place) for place in places]

    def _ask_one(self, ledger: ClosedLedger, entry_id: int, place: str) -> None:
        if place not in self._failed:
            try:
                self._connect(place).ask(ledger.ledger_id, entry_id)
            except BookieUnreachable as error:
                self._give_up(place, error)

    def _copy(self, ledger: ClosedLedger, entry_id: int, place: str) -> EntryCopy:
        try:
            if place in self._failed:
                raise self._failed[place]
            stored = self._connect(place).answer(ledger.ledger_id, entry_id)
            _checked(ledger, entry_id, stored)
        except BookieUnreachable as error:
            self._give_up(place, error)
            return EntryCopy(place, _NOTHING, error)
        except LedgerError as error:
            return EntryCopy(place, _NOTHING, error)
        return EntryCopy(place, stored, None)

    def put_copy(self, place: str, stored: memoryview, password: bytes) -> None:
        """Store another bookie's copy of an entry at a bookie; raise ``LedgerError``."""
        self._connect(place).keep(stored, hashlib.sha1(b"ledger" + password).digest())

    def _ask(self, ledger: ClosedLedger, entry_id: int) -> _Bookie | None:
        """Ask the first bookie that can be reached; None if the next one has to be tried when the answer is due."""
        for place in ledger.bookies_of(entry_id):
            if place not in self._failed:
                try:
                    bookie = self._connect(place)
                    bookie.ask(ledger.ledger_id, entry_id)
                    return bookie
                except BookieUnreachable as error:
                    self._give_up(place, error)
        return None

    def _answered(self, ledger: ClosedLedger, entry_id: int, bookie: _Bookie | None) -> memoryview:
        whys: list[LedgerError] = []
        if bookie is not None:
            try:
                return _checked(ledger, entry_id, bookie.answer(ledger.ledger_id, entry_id))
            except BookieUnreachable as error:
                whys.append(error)
                self._give_up(bookie.place, error)
            except LedgerError as error:
                whys.append(error)
        for place in ledger.bookies_of(entry_id):
            if bookie is not None and place == bookie.place:
                continue
            try:
                other = self._connect(place)
                other.ask(ledger.ledger_id, entry_id)
                return _checked(ledger, entry_id, other.answer(ledger.ledger_id, entry_id))
            except BookieUnreachable as error:
                whys.append(error)
                self._give_up(place, error)
            except LedgerError as error:
                whys.append(error)
        raise type(whys[-1])(f"entry {entry_id} of ledger {ledger.ledger_id}: {'; '.join(map(str, whys))}")

    def _connect(self, place: str) -> _Bookie:
        if place not in self._open:
            self._open[place] = _Bookie(place, self._tls)
        return self._open[place]

    def _give_up(self, place: str, why: BookieUnreachable) -> None:
        self._failed[place] = why
        gone = self._open.pop(place, None)
        if gone is not None:
            gone.close()


class _Bookie:
    """One connection. Raises `BookieUnreachable`."""

    def __init__(self, place: str, tls: ssl.SSLContext | None) -> None:
        self.place = place
        host, _, port = place.rpartition(":")
        try:
            self._socket = socket.create_connection((host, int(port)), _TIMEOUT_S)
        except (OSError, ValueError) as error:
            raise BookieUnreachable(f"bookie {place} does not answer: {error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._begin_tls(tls, host)
        self._stream = self._socket.makefile("rb", 1 << 20)
        self._came: dict[tuple[int, int], tuple[int, memoryview]] = {}

    def _begin_tls(self, tls: ssl.SSLContext, host: str) -> None:
        """Request TLS, and shake hands; what follows is version 2 again, which a bookie accepts."""
        try:
            self._socket.sendall(_LENGTH.pack(len(START_TLS)) + START_TLS)
            (size,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
            if not 0 < size <= _MAX_WORDS_BYTES or not _is_ok(self._exactly(size)):
                raise BookieUnreachable(
                    f"bookie {self.place} has no TLS: set tlsProviderFactoryClass there, "
                    "or bookkeeperTLSClientAuthentication=false here"
                )
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except ssl.SSLError as error:
            self._socket.close()
            raise BookieUnreachable(refused(self.place, error)) from None
        except (OSError, struct.error) as error:
            self._socket.close()
            raise BookieUnreachable(f"no TLS with bookie {self.place}: {error}") from None
        except BookieUnreachable:
            self._socket.close()
            raise

    def _exactly(self, size: int) -> bytes:
        """Return so many bytes and not one more: what follows belongs to TLS."""
        found = b""
        while len(found) < size:
            some = self._socket.recv(size - len(found))
            if not some:
                raise ConnectionError("it hung up")
            found += some
        return found

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def ask(self, ledger_id: int, entry_id: int) -> None:
        try:
            self._socket.sendall(_QUESTION.pack(_QUESTION.size - 4, _VERSION, _READ, 0, ledger_id, entry_id))
        except OSError as error:
            raise BookieUnreachable(f"the connection to bookie {self.place} broke: {error}") from None

    def answer(self, ledger_id: int, entry_id: int) -> memoryview:
        """Return the stored bytes of an entry that was requested; raise ``LedgerNotFound`` if there are none."""
        while (ledger_id, entry_id) not in self._came:
            try:
                self._read()
            except (OSError, ValueError, struct.error) as error:
                raise BookieUnreachable(f"the connection to bookie {self.place} broke: {error}") from None
        code, stored = self._came.pop((ledger_id, entry_id))
        if code == _UNREADABLE:
            raise LedgerCorrupt(f"bookie {self.place} cannot read entry {entry_id} of ledger {ledger_id}")
        if code in (_NO_LEDGER, _NO_ENTRY):
            raise LedgerNotFound(f"bookie {self.place} has no entry {entry_id} of ledger {ledger_id}")
        if code != _OK:
            raise BookieUnreachable(f"bookie {self.place} answers with code {code}")
        return stored

    def keep(self, stored: memoryview, key: bytes) -> None:
        """Send an entry to be stored, and wait until it is."""
        ledger_id, entry_id = _STORED.unpack_from(stored)[:2]
        head = _KEPT.pack(_KEPT.size - 4 + len(stored), _VERSION, _KEEP, _RECOVERS, key)
        try:
            self._socket.sendall(head + bytes(stored))
            while (ledger_id, entry_id) not in self._came:
                self._read(_KEEP)
        except (OSError, ValueError, struct.error) as error:
            raise BookieUnreachable(f"the connection to bookie {self.place} broke: {error}") from None
        code, _ = self._came.pop((ledger_id, entry_id))
        if code != _OK:
            raise LedgerError(f"bookie {self.place} does not keep it: it answers with code {code}")

    def _read(self, due: int = _READ) -> None:
        (size,) = _LENGTH.unpack(self._stream.read(_LENGTH.size))
        if not _ANSWER.size <= size <= _MAX_ANSWER_BYTES:
            raise ValueError(f"it announces {size} bytes")
        data = memoryview(self._stream.read(size))
        if len(data) < size:
            raise ValueError("it hung up amid an answer")
        version, operation, _, code, ledger_id, entry_id = _ANSWER.unpack_from(data)
        if version != _VERSION or operation != due:
            raise ValueError(f"it speaks version {version}, operation {operation}")
        self._came[ledger_id, entry_id] = code, data[_ANSWER.size :]


def _is_ok(answer: bytes) -> bool:
    """True if a bookie's answer of version 3 reports success."""
    try:
        return dict(fields(answer)).get(2) == _OK
    except (CorruptBatch, ValueError):
        return False


def _checked(ledger: ClosedLedger, entry_id: int, stored: memoryview) -> memoryview:
    """Return the entry behind its head; raise ``LedgerCorrupt`` unless the digest is right."""
    begin = _STORED.size + _DIGEST_BYTES[ledger.digest]
    if len(stored) < begin or _STORED.unpack_from(stored)[:2] != (ledger.ledger_id, entry_id):
        raise LedgerCorrupt(f"entry {entry_id} of ledger {ledger.ledger_id} is another one")
    head, digest, entry = stored[: _STORED.size], stored[_STORED.size : begin], stored[begin:]
    if ledger.digest == _CRC32C:
        is_right = crc32c(entry, crc32c(head)) == int.from_bytes(digest, "big")
    elif ledger.digest == _CRC32:
        is_right = zlib.crc32(entry, zlib.crc32(head)) == int.from_bytes(digest, "big")
    else:
        is_right = True
    if not is_right:
        raise LedgerCorrupt(
            f"the digest of entry {entry_id} of ledger {ledger.ledger_id} does not fit its bytes"
        )
    return entry
