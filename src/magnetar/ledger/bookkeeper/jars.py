"""Pulsar's and BookKeeper's jars: a pinned list (``jars.txt``), downloaded once by Maven, and checked.

They are of the versions that Pulsar's release was built with. A line of the list is
``group:artifact:version[:classifier] sha256``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

PULSAR_VERSION = "4.2.4"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>magnetar</groupId><artifactId>bookkeeper-jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{}
  </dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}"
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)


class JarsError(Exception):
    """The jars are missing, or not those of the list; the message says what to do."""


class Jar(NamedTuple):
    """One file of the list."""

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Return the name that Maven gives it."""
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + ".jar"


def pinned() -> list[Jar]:
    """Return the list."""
    return [_parsed(line) for line in _list().decode().splitlines()]


def _list() -> bytes:
    return files(__package__).joinpath("jars.txt").read_bytes()


def _parsed(line: str) -> Jar:
    coordinate, sha256 = line.split()
    group, artifact, version, *classifier = coordinate.split(":")
    return Jar(group, artifact, version, "".join(classifier), sha256)


def default_directory() -> Path:
    """Return the directory of the jars of this list: ``MAGNETAR_JARS``, else below the user's cache."""
    named = os.environ.get("MAGNETAR_JARS")
    if named:
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "magnetar" / f"bookkeeper-{hashlib.sha256(_list()).hexdigest()[:12]}"


def installed(directory: Path | None = None) -> list[Path]:
    """Return the jars in the order of the list; raise `JarsError` if one is missing. Their bytes are not checked."""
    directory = directory or default_directory()
    found = [directory / jar.file_name for jar in pinned()]
    missing = [file.name for file in found if not file.is_file()]
    if missing:
        what = "BookKeeper's jars are" if len(missing) == len(found) else f"{missing[0]} and maybe others are"
        raise JarsError(f"{what} not in {directory}: run `magnetar bookkeeper install`")
    return found


def verify(directory: Path | None = None) -> None:
    """Raise `JarsError` if a jar is missing or not the one of the list."""
    _check(pinned(), installed(directory))


def _check(jars: Sequence[Jar], found: Sequence[Path]) -> None:
    for jar, file in zip(jars, found, strict=True):
        with file.open("rb") as opened:
            sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
        if sha256 != jar.sha256:
            raise JarsError(
                f"{file} is not the {jar.artifact} {jar.version} that is pinned: its sha256 is {sha256}, not"
                f" {jar.sha256}. Delete it, from Maven's own store of files (~/.m2) as well, and run"
                " `magnetar bookkeeper install`"
            )


def install(directory: Path | None = None) -> Path:
    """Download missing jars, by Maven; return the directory. Raise `JarsError` if that cannot be done."""
    directory = directory or default_directory()
    try:
        verify(directory)
    except JarsError:
        _bring(directory)
    return directory


def _bring(directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsError(
            "Maven (mvn) brings BookKeeper's jars and is not here: install it (Debian: apt-get install maven), or copy"
            f" the jars of another machine to {directory}"
        )
    directory.parent.mkdir(parents=True, exist_ok=True)
    jars = pinned()
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".jars-") as scratch:
        pom, brought = Path(scratch, "pom.xml"), Path(scratch, "jars")
        pom.write_text(_POM.format("\n".join(map(_dependency, jars))))
        command = [maven, "-q", "-B", "-f", str(pom), _COPY, f"-DoutputDirectory={brought}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            said = [line for line in done.stdout.splitlines() if "ERROR" in line][:3] or [done.stderr.strip()]
            raise JarsError("Maven could not bring BookKeeper's jars:\n" + "\n".join(said))
        _check(jars, [brought / jar.file_name for jar in jars])
        directory.mkdir(exist_ok=True)
        for jar in jars:
            (brought / jar.file_name).replace(directory / jar.file_name)


def _dependency(jar: Jar) -> str:
    classifier = f"<classifier>{jar.classifier}</classifier>" if jar.classifier else ""
    return _DEPENDENCY.format(jar.group, jar.artifact, jar.version, classifier)
