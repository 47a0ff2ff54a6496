"""One SQLite file that knows when it has been damaged: what the embedded metadata store keeps.

Write-ahead log with ``synchronous=FULL``, so a write that returned survives power loss. Three things protect it:
every row carries a crc32c over path, version and value; one row, written in every transaction, holds the number of
rows, the xor of their checksums and the number of commits, so lost and resurrected rows are noticed; and the seal
beside the file (`magnetar.metadata.seal`) covers what rows do not. Other processes may read while a broker writes.

What the disk did to a commit that failed is in doubt: its bytes may be in the log and come back with the next start. So
the digest is read from the database by every transaction, never remembered, and an empty commit is made in the doubtful
one's place at once, if the disk lets us; any later one does the same.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from magnetar.metadata.blocking import BlockingStore
from magnetar.metadata.errors import (
    BadVersion,
    MetadataCorrupt,
    MetadataFailed,
    MetadataFull,
    MetadataUnavailable,
    MetadataUncertain,
    NotFound,
    RowsMismatch,
)
from magnetar.metadata.formats import FORMAT_PATH, format_of
from magnetar.metadata.lock import DirectoryLock
from magnetar.metadata.modes import FILE_MODE
from magnetar.metadata.ops import (
    Stored,
    below,
    check_path,
    child_names,
)
from magnetar.metadata.seal import Seal, SealFile
from magnetar.metadata.staging import Node, Outcome, StagedCommit, Staging
from magnetar.records.crc import crc32c

_SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    path TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, crc INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS digest (
    id INTEGER PRIMARY KEY CHECK (id = 1), nodes INTEGER NOT NULL, crcs INTEGER NOT NULL, commits INTEGER NOT NULL
);
INSERT OR IGNORE INTO digest VALUES (1, 0, 0, 0);
"""
_LAST = "\U0010ffff"
_DISK = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
}
_VERSION = struct.Struct(">q")
_Row = tuple[bytes, int, int]
"""Value, version and checksum."""


class Digest(NamedTuple):
    """What all rows together amount to, and how many transactions led there."""

    nodes: int
    crcs: int
    commits: int


def row_crc(path: str, value: bytes, version: int) -> int:
    """Return the checksum that a row carries."""
    crc: int = crc32c(path.encode("utf-8", "surrogateescape"))
    crc = crc32c(_VERSION.pack(version), crc)
    return int(crc32c(value, crc))


class SqliteFile(BlockingStore):
    """Open the store in ``file``, and lock its directory unless ``read_only``, or ``lock`` holds it already.

    Raises `DirectoryInUse`, `MetadataUnavailable`, `NewerFormat`, or `MetadataCorrupt` with the damaged node or file;
    with ``takes_rows``, rows that are whole are taken for those of the last commit. Threads may share it. Nodes that
    live by a session are kept in memory alone: they end with this process at the latest.
    """

    def __init__(
        self,
        file: Path,
        *,
        read_only: bool = False,
        takes_rows: bool = False,
        lock: DirectoryLock | None = None,
    ) -> None:
        super().__init__()
        self._file = file
        self._takes_rows = takes_rows
        self.in_doubt = False
        """Whether what the last commit, which failed, wrote may come back with the next start."""
        self._held = ExitStack()
        """What is let go of at the end, the last first."""
        self._guard = threading.RLock()
        self._depth = 0
        self._closed = False
        self._digest = Digest(0, 0, 0)
        self._ephemeral: dict[str, Node] = {}
        self._changed: dict[str, Node | None] = {}
        """By path, what the transaction that is under way changes."""
        self._seal: SealFile | None = None
        try:
            if read_only:
                self._db = self._connect(f"{file.resolve().as_uri()}?mode=ro")
                self._refuse_newer(self._db)
            else:
                if lock is None:
                    self._held.callback(DirectoryLock(file.parent).release)
                self._open_sealed()
        except OSError as error:
            self._held.close()
            raise MetadataUnavailable(f"{error.filename or file}: {error.strerror or error}") from error
        except BaseException:
            self._held.close()
            raise

    def get(self, path: str) -> Stored | None:
        with self._guard:
            node = self._ephemeral.get(check_path(path))
            if node is not None:
                return Stored(node.value, node.version)
            row = self._row(path)
        return None if row is None else _checked(path, *row)

    def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        with self.transaction():
            row = self._row(check_path(path))
            self._changed[path] = None
            actual = -1 if row is None else row[1]
            if expected_version is not None and expected_version != actual:
                raise BadVersion(path, expected_version, actual)
            self._write(path, Node(bytes(value), actual + 1), row)
            return actual + 1

    def delete(self, path: str, expected_version: int | None = None) -> None:
        with self.transaction():
            row = self._row(check_path(path))
            self._changed[path] = None
            if row is None:
                raise NotFound(path)
            if expected_version is not None and expected_version != row[1]:
                raise BadVersion(path, expected_version, row[1])
            self._write(path, None, row)

    def children(self, path: str) -> list[str]:
        with self._guard:
            return child_names(path, sorted([*self._beneath(path)]))

    def scan(self, prefix: str) -> Iterator[tuple[str, Stored]]:
        query = "SELECT path, value, version, crc FROM node WHERE path >= ? AND path < ? ORDER BY path"
        with self._guard:
            with self._translated():
                rows = self._db.execute(query, (prefix, prefix + _LAST)).fetchall()
            kept = [(row[0], _checked(*row)) for row in rows]
            mine = [
                (path, Stored(*node[:2])) for path, node in self._ephemeral.items() if path.startswith(prefix)
            ]
        return iter(sorted(kept + mine) if mine else kept)

    def commit_all(self, commits: Sequence[StagedCommit]) -> list[Outcome]:
        rows: dict[str, _Row | None] = {}

        def find(path: str) -> Node | None:
            if path in self._ephemeral:
                return self._ephemeral[path]
            row = rows[path] = self._row(path)
            return None if row is None else Node(*row[:2])

        with self.transaction():
            staging = Staging(find, self._beneath)
            outcomes = [staging.attempt(commit) for commit in commits]
            for path, node in staging.changed.items():
                row = rows[path] if path in rows else self._row(path)
                self._write(path, None if node is not None and node.owner else node, row)
                self._changed[path] = node
        return outcomes

    def end_session(self, session: int) -> None:
        with self._guard:
            ended = [path for path, node in self._ephemeral.items() if node.owner == session]
            for path in ended:
                del self._ephemeral[path]
        self._tell(ended)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._guard:
            if self._depth:
                yield
                return
            self._begin()
            before, self._depth, self._changed = self._digest, 1, {}
            try:
                yield
                self._commit(changed=self._digest != before)
            except BaseException:
                self._take_back()
                raise
            finally:
                self._depth = 0
            self._keep_ephemeral()
            changed = self._changed.keys()
        self._tell(changed)

    def _keep_ephemeral(self) -> None:
        for path, node in self._changed.items():
            if node is not None and node.owner:
                self._ephemeral[path] = node
            else:
                self._ephemeral.pop(path, None)

    def _write(self, path: str, node: Node | None, row: _Row | None) -> None:
        """Write a row in the place of the one that is there, and keep count of all in the digest."""
        self._check_begun()
        old_crc = 0 if row is None else row[2]
        new_crc = 0 if node is None else row_crc(path, node.value, node.version)
        with self._translated():
            if node is not None:
                query = "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?)"
                self._db.execute(query, (path, node.value, node.version, new_crc))
            elif row is not None:
                self._db.execute("DELETE FROM node WHERE path = ?", (path,))
        nodes, crcs, commits = self._digest
        nodes += (node is not None) - (row is not None)
        self._digest = Digest(nodes, crcs ^ old_crc ^ new_crc, commits)

    def _begin(self) -> None:
        with self._translated():
            self._db.execute("BEGIN IMMEDIATE")
        try:
            self._digest = self._stored_digest()
        except BaseException:
            self._take_back()
            raise

    def _commit(self, *, changed: bool) -> None:
        self._check_begun()
        if changed:
            self._digest = self._digest._replace(commits=self._digest.commits + 1)
            with self._translated():
                self._db.execute("UPDATE digest SET nodes = ?, crcs = ?, commits = ?", self._digest)
        try:
            with self._translated():
                self._db.execute("COMMIT")
        except MetadataFailed as error:
            self._take_back()
            self.in_doubt = changed and not self._is_settled()
            if self.in_doubt:
                raise MetadataUncertain(str(error)) from error
            raise
        if changed:
            self.in_doubt, self.trouble = False, ""
            if self._seal is not None:
                self._seal.follow(self._digest.commits)

    def _check_begun(self) -> None:
        """Raise unless the transaction is under way: SQLite itself takes one back after some failures."""
        if not self._db.in_transaction:
            raise MetadataUnavailable(f"{self._file}: the disk failed in the midst of a transaction")

    def _take_back(self) -> None:
        if self._db.in_transaction:
            with suppress(sqlite3.DatabaseError):  # what made it necessary is what is told
                self._db.execute("ROLLBACK")

    def _is_settled(self) -> bool:
        """Write over what a failed commit may have left in the log, and tell whether that could be done."""
        try:
            self._begin()
            commits = self._digest.commits + 1
            with self._translated():
                self._db.execute("UPDATE digest SET commits = ?", (commits,))
                self._db.execute("COMMIT")
        except (MetadataFailed, MetadataCorrupt):
            self._take_back()
            return False
        if self._seal is not None:
            self._seal.follow(commits)
        return True

    def is_writable(self) -> bool:
        with self._guard:
            if self.trouble and not self._depth and self._is_settled():
                self.in_doubt, self.trouble = False, ""
            return not self.trouble

    def close(self) -> None:
        with self._guard:
            if self._closed:
                return
            self._closed = True
            try:
                if self._seal is not None:
                    with self._translated():
                        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._db.close()
                if self._seal is not None:
                    self._seal.close()
            finally:
                self._held.close()

    def check(self) -> None:
        """Read every row; raise `MetadataCorrupt` unless they are those of the last commit."""
        with self._guard, self._translated():
            self._db.execute("BEGIN")  # one snapshot: a broker may be writing
            try:
                self._verified_digest()
            finally:
                self._db.execute("ROLLBACK")

    def _beneath(self, path: str) -> Iterator[str]:
        prefix = below(path)
        query = "SELECT path FROM node WHERE path >= ? AND path < ?"
        with self._translated():
            rows = self._db.execute(query, (prefix, prefix + _LAST)).fetchall()
        yield from (row[0] for row in rows)
        yield from (each for each in self._ephemeral if each.startswith(prefix))

    def _row(self, path: str) -> _Row | None:
        with self._translated():
            row: _Row | None = self._db.execute(
                "SELECT value, version, crc FROM node WHERE path = ?", (path,)
            ).fetchone()
        return row

    def _open_sealed(self) -> None:
        self._look_before_writing()
        self._seal = SealFile(self._file)
        self._held.callback(self._seal.abandon)
        known = self._seal.verify()
        self._seal.break_open(known.commits)
        os.close(
            os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        )  # SQLite would say 0644
        self._db = self._connect(self._file.resolve().as_uri())
        self._refuse_newer(self._db)
        with self._translated():
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)
            self._digest = self._taken_digest(known) if self._takes_rows else self._verified_digest()
            if (health := self._db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise MetadataCorrupt(str(self._file), str(health))
        if self._digest.commits < known.commits:
            lost = known.commits - self._digest.commits
            raise MetadataCorrupt(str(self._file) + "-wal", f"{lost} committed transactions are missing")

    def _look_before_writing(self) -> None:
        """Raise `NewerFormat` while the file is as it was; other faults are found when it is opened to write."""
        if self._file.exists():
            with suppress(sqlite3.DatabaseError, MetadataFailed, MetadataCorrupt):
                db = sqlite3.connect(f"{self._file.resolve().as_uri()}?mode=ro", uri=True, timeout=5)
                try:
                    self._refuse_newer(db)
                finally:
                    db.close()

    def _refuse_newer(self, db: sqlite3.Connection) -> None:
        """Raise `NewerFormat` for what a newer release has written; a file without rows has no format yet."""
        with self._translated():
            try:
                row = db.execute("SELECT value FROM node WHERE path = ?", (FORMAT_PATH,)).fetchone()
            except sqlite3.OperationalError:
                return
        if row is not None and type(row[0]) is bytes:
            format_of(row[0], str(self._file.parent))

    def _connect(self, uri: str) -> sqlite3.Connection:
        with self._translated():
            db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5)
            self._held.callback(db.close)
            # A damaged path must still be readable enough to be named.
            db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
            return db

    def _verified_digest(self) -> Digest:
        """Check each row, then that they are the rows of the last commit."""
        nodes, crcs = self._sum()
        digest = self._stored_digest()
        if digest[:2] != (nodes, crcs):
            raise RowsMismatch(str(self._file), f"its {nodes} rows are not those of the last commit")
        return digest

    def _taken_digest(self, known: Seal) -> Digest:
        """Check each row, and write the digest of those that are there."""
        nodes, crcs = self._sum()
        digest = self._stored_digest()
        if digest[:2] != (nodes, crcs):
            digest = Digest(nodes, crcs, max(digest.commits, known.commits) + 1)
            self._db.execute("UPDATE digest SET nodes = ?, crcs = ?, commits = ?", digest)
        return digest

    def _sum(self) -> tuple[int, int]:
        """Return how many rows there are, and the xor of their checksums; raise for one that does not bear its own."""
        nodes = crcs = 0
        for row in self._db.execute("SELECT path, value, version, crc FROM node"):
            _checked(*row)
            nodes, crcs = nodes + 1, crcs ^ row[3]
        return nodes, crcs

    def _stored_digest(self) -> Digest:
        with self._translated():
            row = self._db.execute("SELECT nodes, crcs, commits FROM digest").fetchone()
        if row is None or not all(type(each) is int for each in row):
            raise MetadataCorrupt(str(self._file), "the row that sums up all others is gone or damaged")
        return Digest(*row)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn SQLite's errors into this package's words."""
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # a damaged schema is quoted as it is
            # The low byte is the class of the error, the rest says which kind.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
            if code in _DISK:
                self.trouble = f"{self._file}: {error}"
                failed = MetadataFull if code == sqlite3.SQLITE_FULL else MetadataUnavailable
                raise failed(self.trouble) from error
            raise MetadataCorrupt(str(self._file), str(error)) from error


def _checked(path: str, value: bytes, version: int, crc: int) -> Stored:
    # Damage can change even the type of a column.
    if not (type(value) is bytes and type(version) is int and crc == row_crc(path, value, version)):
        raise MetadataCorrupt(path, "the row's checksum does not match")
    return Stored(value, version)
