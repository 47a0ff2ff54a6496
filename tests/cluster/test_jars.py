"""Jars that are missing, damaged or cannot be brought are named, and what to do."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.ledger.bookkeeper import jars
from tests.cluster.servers import java


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a folder with three jars, which are the whole list."""
    lines = []
    for name in ("one", "two", "three"):
        data = name.encode() * 1000
        (tmp_path / f"{name}-1.0-linux.jar").write_bytes(data)
        lines.append(f"org.example:{name}:1.0:linux {hashlib.sha256(data).hexdigest()}\n")
    monkeypatch.setattr(jars, "_list", lambda: "".join(lines).encode())
    monkeypatch.setenv("PATH", "")
    return tmp_path


def test_what_is_whole_is_not_brought_again(three: Path) -> None:
    assert jars.install(three) == three
    assert [file.name for file in jars.installed(three)] == [
        f"{each}-1.0-linux.jar" for each in ("one", "two", "three")
    ]


def test_a_jar_that_is_missing_is_named(three: Path) -> None:
    (three / "two-1.0-linux.jar").unlink()
    with pytest.raises(jars.JarsError, match=r"two-1\.0-linux\.jar .*: run `magnetar bookkeeper install`"):
        jars.installed(three)
    with pytest.raises(jars.JarsError, match="Maven"):
        jars.install(three)


def test_a_jar_with_another_byte_is_refused(three: Path) -> None:
    damaged = three / "two-1.0-linux.jar"
    data = bytearray(damaged.read_bytes())
    data[1500] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(
        jars.JarsError, match=r"two-1\.0-linux\.jar is not the two 1\.0 that is pinned: its sha256"
    ):
        jars.verify(three)


def test_no_jars_at_all_are_a_command_to_run(tmp_path: Path) -> None:
    with pytest.raises(jars.JarsError, match=f"BookKeeper's jars are not in {tmp_path}: run"):
        jars.installed(tmp_path)


def test_the_list_names_each_file_once_and_what_it_was_made_for() -> None:
    names = [jar.file_name for jar in jars.pinned()]
    assert len(set(names)) == len(names) > 100
    assert f"managed-ledger-{jars.PULSAR_VERSION}.jar" in names
    assert all(len(jar.sha256) == 64 for jar in jars.pinned())


def test_options_of_ones_own_reach_the_jvm_and_wrong_ones_are_told() -> None:
    java()
    program = """
from magnetar.ledger.bookkeeper.jvm import start_jvm
from magnetar.ledger.errors import StorageFailed
try:
    start_jvm([], 1 << 26, 1 << 26)
except StorageFailed as error:
    print(error)
else:
    import jpype
    print(jpype.JClass("java.lang.System").getProperty("said"))
"""

    def said(options: str) -> str:
        environment = {**os.environ, "PULSAR_EXTRA_OPTS": options}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert said("-Dsaid='two words' -XX:TieredStopAtLevel=1") == "two words\n"
    wrong = "is PULSAR_EXTRA_OPTS='-XX:NoSuchThing' right?"
    told = said("-XX:NoSuchThing")
    assert told.startswith("Java does not start: ")
    assert wrong in told
    assert "No closing quotation" in said("-Dsaid='two")
