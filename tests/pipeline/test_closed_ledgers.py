"""Closed ledgers from bookies, without a JVM: of a few lines here, and real ones in ``tests/cluster/test_spark.py``."""

from __future__ import annotations

import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress

import pytest

from magnetar.ledger.bookkeeper.closed import (
    BookieConnections,
    BookieUnreachable,
    ClosedLedger,
    LedgerSegment,
    decode_metadata,
    metadata_path,
)
from magnetar.ledger.errors import LedgerCorrupt, LedgerError, LedgerNotFound
from magnetar.ledger.formats.protobuf import message, number
from magnetar.records.crc import crc32c
from magnetar.records.varint import encode_unsigned

CRC32, MAC, CRC32C, NONE = 1, 2, 3, 4
ENTRIES = 20_000


def content(entry_id: int) -> bytes:
    return b"%d " % entry_id * (entry_id % 40 + 1)


class OneBookie:
    """Answers for all entries but some; ``spoil`` may change what is stored, ``hang_up_at`` ends connections."""

    def __init__(self, digest: int = CRC32C) -> None:
        self.digest = digest
        self.missing: set[int] = set()
        self.spoiled: set[int] = set()
        self.hang_up_at: int | None = None
        self.asked = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                wire, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(wire,), daemon=True).start()

    def _answer(self, wire: socket.socket) -> None:
        with suppress(OSError), wire, wire.makefile("rb") as stream:
            while data := stream.read(24):
                size, version, operation, flags, ledger_id, entry_id = struct.unpack(">iBBhqq", data)
                assert (size, version, operation, flags) == (20, 2, 2, 0)
                self.asked += 1
                if self.hang_up_at is not None and self.asked >= self.hang_up_at:
                    return
                code, stored = (
                    (2, b"") if entry_id in self.missing else (0, self._stored(ledger_id, entry_id))
                )
                body = struct.pack(">BBhiqq", 2, 2, 0, code, ledger_id, entry_id) + stored
                wire.sendall(struct.pack(">i", len(body)) + body)

    def _stored(self, ledger_id: int, entry_id: int) -> bytes:
        head, entry = struct.pack(">qqqq", ledger_id, entry_id, entry_id - 1, 99), content(entry_id)
        if self.digest == CRC32C:
            digest = crc32c(entry, crc32c(head)).to_bytes(4, "big")
        elif self.digest == CRC32:
            digest = zlib.crc32(head + entry).to_bytes(8, "big")
        else:
            digest = b""
        if entry_id in self.spoiled:
            entry = entry[:-1] + b"!"
        return head + digest + entry


@pytest.fixture
def bookies() -> Iterator[list[OneBookie]]:
    made = [OneBookie() for _ in range(3)]
    yield made
    for each in made:
        each.close()


def ledger(bookies: list[OneBookie], entries: int = ENTRIES, digest: int = CRC32C) -> ClosedLedger:
    places = tuple(each.place for each in bookies)
    segments = (LedgerSegment(0, places), LedgerSegment(entries // 3, places[::-1]))
    return ClosedLedger(7, entries - 1, 1 << 20, 2, digest, segments)


@pytest.mark.parametrize("digest", [CRC32C, CRC32, NONE])
def test_all_entries_come_in_order_from_all_bookies(bookies: list[OneBookie], digest: int) -> None:
    for each in bookies:
        each.digest = digest
    with BookieConnections() as reading:
        found = [bytes(entry) for entry in reading.entries(ledger(bookies, digest=digest), 0, ENTRIES)]
        assert bytes(reading.entry(ledger(bookies, digest=digest), 4321)) == content(4321)
    assert found == [content(entry_id) for entry_id in range(ENTRIES)]
    assert all(each.asked > ENTRIES // 4 for each in bookies)


def test_what_one_bookie_does_not_give_comes_from_another(bookies: list[OneBookie]) -> None:
    bookies[0].missing = set(range(0, 3000, 3))
    bookies[1].spoiled = set(range(1, 3000, 3))
    with BookieConnections() as reading:
        found = [bytes(entry) for entry in reading.entries(ledger(bookies), 0, 3000)]
    assert found == [content(entry_id) for entry_id in range(3000)]


def test_a_bookie_that_hangs_up_is_left_alone(bookies: list[OneBookie]) -> None:
    bookies[2].hang_up_at = 500
    with BookieConnections() as reading:
        found = [bytes(entry) for entry in reading.entries(ledger(bookies), 0, 3000)]
    assert found == [content(entry_id) for entry_id in range(3000)]
    assert bookies[2].asked < 1000


def test_what_no_bookie_gives_is_an_error(bookies: list[OneBookie]) -> None:
    for each in bookies:
        each.missing, each.spoiled = {50}, {60}
    with BookieConnections() as reading:
        with pytest.raises(LedgerNotFound, match="no entry 50 of ledger 7"):
            list(reading.entries(ledger(bookies), 0, 100))
        with pytest.raises(LedgerCorrupt, match="entry 60"):
            list(reading.entries(ledger(bookies), 51, 100))
    for each in bookies:
        each.close()
    gone = ClosedLedger(7, 9, 9, 2, CRC32C, (LedgerSegment(0, ("127.0.0.1:1", "127.0.0.1:1")),))
    with BookieConnections() as reading, pytest.raises(BookieUnreachable, match="does not answer"):
        reading.entry(gone, 0)


def metadata(*, state: int = 3, last: int = 41, digest: int = CRC32C) -> bytes:
    segment = message(1, b"one:3181") + message(1, b"two:3181") + number(2, 0)
    later = message(1, b"two:3181") + message(1, b"three:3181") + number(2, 20)
    body = number(1, 2) + number(2, 2) + number(3, 4096) + number(4, last) + number(5, state)
    body += message(6, segment) + message(6, later) + number(7, digest) + message(8, b"") + number(9, 2)
    return b"BookieMetadataFormatVersion\t3\n" + encode_unsigned(len(body)) + body


def test_metadata_tells_where_entries_lie() -> None:
    found = decode_metadata(9, metadata())
    assert found is not None
    assert (found.last_entry, found.size, found.digest) == (41, 4096, CRC32C)
    assert found.bookies_of(0) == ["one:3181", "two:3181"]
    assert found.bookies_of(19) == ["two:3181", "one:3181"]
    assert found.bookies_of(21) == ["three:3181", "two:3181"]
    assert decode_metadata(9, metadata(state=1)) is None
    assert decode_metadata(9, metadata(state=2)) is None
    empty = decode_metadata(9, metadata(last=-1))
    assert empty is not None
    assert empty.last_entry == -1
    for wrong in (
        metadata(digest=MAC),
        metadata()[:-3],
        b"BookieMetadataFormatVersion\t2\nx",
        b"",
        b"\0" * 40,
    ):
        with pytest.raises(LedgerError):
            decode_metadata(9, wrong)


def test_paths_are_those_of_the_hierarchical_managers() -> None:
    assert metadata_path("/ledgers", 12) == "/ledgers/00/0000/L0012"
    assert metadata_path("/ledgers", 1234567890) == "/ledgers/12/3456/L7890"
    assert metadata_path("/ledgers", 12345678901) == "/ledgers/000/0000/0123/4567/L8901"
