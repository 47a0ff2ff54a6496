"""What beginners get wrong ends a broker's start at once, in words that name it and say what to do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.servers import Server, class_path, free_port, java, zookeeper

java()
MAGNETAR = Path(sys.executable).with_name("magnetar")
REFUSED = 1


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A ZooKeeper that knows of no bookies."""
    class_path()
    server = zookeeper(tmp_path_factory.mktemp("metadata"))
    server.start()
    yield server
    server.kill()


class Start:
    """``magnetar broker`` as it is started by somebody who has read one page."""

    def __init__(self, directory: Path, hosts: str, *extra: str, **environment: str) -> None:
        config = directory / "broker.conf"
        config.write_text("\n".join([f"metadataStoreUrl=zk:{hosts}/east", "clusterName=east", *extra]) + "\n")
        self._command = [MAGNETAR, "broker", "--config", config, "--set", f"data.dir={directory / 'data'}"]
        self._command += ["--set", f"listeners=PLAINTEXT://127.0.0.1:{free_port()}"]
        self._command += ["--set", "pulsar.listeners=", "--set", "http.listeners="]
        self._environment = {**os.environ, **environment}

    def run(self, *more: str) -> str:
        """Return what it says until it ends by itself."""
        given = [part for each in more for part in ("--set", each)]
        done = subprocess.run(
            [*self._command, *given], env=self._environment, check=False, capture_output=True, text=True
        )
        assert done.returncode == REFUSED, (done.returncode, done.stderr)
        assert "Traceback" not in done.stderr
        assert "ledger verify" not in done.stderr, "nothing is damaged"
        return done.stderr


@pytest.mark.slow
def test_zookeepers_port_refuses(tmp_path: Path) -> None:
    said = Start(tmp_path, where := f"127.0.0.1:{free_port()}").run()
    assert f"ZooKeeper at {where} cannot be reached: {where} refuses connections; trying again" in said
    assert f"magnetar: ZooKeeper at {where} cannot be reached: {where} refuses connections\n" in said
    assert "  -> Start ZooKeeper, or name its clientPort in metadataStoreUrl" in said
    assert "TLS" not in said


@pytest.mark.slow
def test_zookeepers_name_is_unknown(tmp_path: Path) -> None:
    said = Start(tmp_path, "no-such-host.invalid:2181").run()
    assert "the name no-such-host.invalid is not known" in said
    assert "TLS" not in said


@pytest.mark.slow
def test_another_service_listens_there(tmp_path: Path) -> None:
    """One that ends connections which it does not understand, as a bookie does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        answering = subprocess.Popen(
            [sys.executable, "-c", _ENDS_CONNECTIONS, str(server.fileno())], pass_fds=[server.fileno()]
        )
        try:
            said = Start(tmp_path, where).run()
        finally:
            answering.kill()
            answering.wait()
    assert f"what listens at {where} is not ZooKeeper" in said
    assert "a bookie's port (3181)" in said
    assert "TLS" not in said


_ENDS_CONNECTIONS = """
import socket, sys
server = socket.socket(fileno=int(sys.argv[1]))
while True:
    client, _ = server.accept()
    client.recv(100)
    client.close()
"""


@pytest.mark.slow
def test_bookies_were_not_set_up(tmp_path: Path, metadata: Server) -> None:
    said = Start(tmp_path, f"127.0.0.1:{metadata.port}").run()
    assert "no bookies were set up at zk://" in said
    assert "there is no /east/ledgers/available, which is where they are looked for without" in said
    assert "initnewcluster" in said
    assert "bookkeeperMetadataServiceUri" in said


def test_bookies_were_set_up_elsewhere(tmp_path: Path, metadata: Server) -> None:
    from kazoo.client import KazooClient

    client = KazooClient(f"127.0.0.1:{metadata.port}")
    client.start()
    client.ensure_path("/ledgers/available")
    try:
        said = Start(tmp_path, f"127.0.0.1:{metadata.port}").run()
        there = f"bookkeeperMetadataServiceUri=zk+hierarchical://127.0.0.1:{metadata.port}/ledgers"
        assert f"  -> They are at /ledgers there: set {there}." in said
    finally:
        client.delete("/ledgers", recursive=True)
        client.stop()


@pytest.fixture
def ready(metadata: Server) -> Iterator[str]:
    """Return where a ZooKeeper is that knows of bookies, though none runs."""
    from kazoo.client import KazooClient

    client = KazooClient(f"127.0.0.1:{metadata.port}")
    client.start()
    client.ensure_path("/east/ledgers/available")
    yield f"127.0.0.1:{metadata.port}"
    client.delete("/east", recursive=True)
    client.stop()


@pytest.mark.slow
def test_no_java(tmp_path: Path, ready: str) -> None:
    library = tmp_path / "no-java" / "lib" / "server" / "libjvm.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"junk")
    said = Start(tmp_path, ready, JAVA_HOME=str(tmp_path / "no-java")).run()
    assert "no Java 17 or newer was found for BookKeeper's client" in said
    assert "openjdk-17-jre-headless" in said


@pytest.mark.slow
def test_no_jars_and_a_jar_of_something_else(tmp_path: Path, ready: str) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    start = Start(tmp_path, ready)
    said = start.run(f"bookkeeper.jars={jars}")
    assert f"BookKeeper's jars are not in {jars}: run `magnetar bookkeeper install`" in said
    for each in Path(class_path()).parent.glob("*.jar"):
        (jars / each.name).symlink_to(each)
    junk = next(jars.glob("bookkeeper-server-4*.jar"))
    junk.unlink()
    junk.write_bytes(b"junk")
    said = start.run(f"bookkeeper.jars={jars}")
    assert f"{junk} is not the bookkeeper-server" in said
    assert "'magnetar bookkeeper install' brings what is missing" in said


@pytest.mark.slow
def test_a_port_that_is_taken_is_said_before_anything_else(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = Start(tmp_path, f"127.0.0.1:{free_port()}").run(f"listeners=PLAINTEXT://127.0.0.1:{port}")
    assert f"listener PLAINTEXT cannot serve on 127.0.0.1:{port}: address already in use" in said
    assert "ZooKeeper" not in said
