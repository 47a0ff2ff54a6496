"""PostgreSQL as the distribution has it, with logical decoding, for one check."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Self

from apps.topics import until
from benchmarks.peers.server import free_port

_FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
_SETTINGS = ("wal_level=logical", "fsync=off", "max_connections=20", "shared_buffers=16MB")


class Postgres:
    """One server on loopback, ended with the block. It refuses to run as root, so root has ``postgres`` run it."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder / "postgres"
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        self._bin = _FOUND[-1]

    def __enter__(self) -> Self:
        self._folder.mkdir()
        if self._as:
            shutil.chown(self._folder, "postgres")
            for parent in self._folder.parents[:2]:
                parent.chmod(0o755)  # temporary folders are closed to others
        data = self._folder / "data"
        subprocess.run(
            [*self._as, self._bin / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync"],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
        )
        options = [f"--{each}" for each in _SETTINGS]
        where = ["-D", data, "-k", self._folder, "-h", "127.0.0.1", "-p", str(self.port)]
        with (self._folder.parent / "postgres.log").open("ab") as log:
            self._server = subprocess.Popen(
                [*self._as, self._bin / "postgres", *where, *options], stdout=log, stderr=log, cwd="/"
            )
        until("PostgreSQL", lambda: self.do("select 1"))
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-q", "-v", "ON_ERROR_STOP=1"]
        self._shell = subprocess.Popen(
            [self._bin / "psql", *address], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        return self

    def do(self, statement: str) -> str:
        """Run a statement and return what it gives."""
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-Atc", statement]
        done = subprocess.run([self._bin / "psql", *address], check=True, capture_output=True, text=True)
        return done.stdout.strip() or "done"

    def send(self, statement: str) -> None:
        """Have one session run a statement; ``settle`` waits for all of them."""
        assert self._shell.stdin is not None
        print(statement, file=self._shell.stdin, flush=True)

    def settle(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        if self._shell.wait():
            raise AssertionError("psql failed; see postgres.log")

    def __exit__(self, *_: object) -> None:
        self._shell.kill()
        self._server.terminate()
        self._server.wait()
