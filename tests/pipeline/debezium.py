"""A PostgreSQL of a test's own, and Debezium's engine, which writes what happens there to a broker's topics."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from tests.cluster.servers import free_port

ROOT = Path(__file__).parents[2]
_CONNECTOR = """\
name=magnetar
connector.class=io.debezium.connector.postgresql.PostgresConnector
offset.storage=org.apache.kafka.connect.storage.FileOffsetBackingStore
offset.storage.file.filename={directory}/offsets
offset.flush.interval.ms=0
database.hostname=127.0.0.1
database.port={port}
database.user=postgres
database.password=none
database.dbname=postgres
topic.prefix={prefix}
plugin.name=pgoutput
slot.name=magnetar
publication.autocreate.mode=filtered
table.include.list=public.things,public.emptied
decimal.handling.mode=string
skipped.operations=none
"""


def binaries() -> Path | None:
    """Return where PostgreSQL's programs are; None where there is none."""
    found = shutil.which("pg_ctl")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((each for each in places if (each / "initdb").exists()), None)


class Postgres:
    """One server with an empty database, on a free port of this machine."""

    def __init__(self) -> None:
        found = binaries()
        assert found is not None
        # Not below pytest's own folder, which each session of the same user shuts to all others when it begins.
        directory = self._directory = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._bin, self._data, self.port = found, directory / "pg", free_port()
        if os.getuid() == 0:  # it refuses to be root
            shutil.chown(directory, "postgres")
        self._as_server("initdb", "-D", self._data, "-A", "trust", "-U", "postgres", "--no-sync")
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={directory} "
            "-c wal_level=logical -c fsync=off"
        )
        self._as_server("pg_ctl", "-D", self._data, "-w", "-l", directory / "log", "-o", options, "start")

    def _as_server(self, program: str, *arguments: str | Path) -> None:
        command = [str(self._bin / program), *map(str, arguments)]
        if os.getuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd="/")
        assert done.returncode == 0, done.stderr

    def __enter__(self) -> Postgres:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._as_server("pg_ctl", "-D", self._data, "-m", "immediate", "stop")
        shutil.rmtree(self._directory)

    def run(self, sql: str) -> str:
        """Run statements, each in a transaction of its own unless they say otherwise; return what they give."""
        command = [str(self._bin / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-qtA",
                   "-v", "ON_ERROR_STOP=1", "-f", "-"]  # fmt: skip
        done = subprocess.run(command, input=sql, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


class Engine:
    """Debezium's engine; after a kill another one goes on where it was."""

    def __init__(self, directory: Path, database: Postgres, address: str, prefix: str) -> None:
        directory.mkdir(exist_ok=True)
        self.log = directory / "engine.log"
        properties = directory / "engine.properties"
        properties.write_text(_CONNECTOR.format(directory=directory, port=database.port, prefix=prefix))
        jars = subprocess.run(
            ["bash", "-c", f". {ROOT}/compat/jars.sh; jars debezium"], capture_output=True, text=True
        )
        assert jars.returncode == 0, jars.stderr
        command = ["java", "-Xmx256m", "-cp", f"{jars.stdout.strip()}/*", str(ROOT / "compat/debezium/Engine.java"),
                   str(properties), address]  # fmt: skip
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def kill(self) -> None:
        """End it as the kernel would."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Have it end in good order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
