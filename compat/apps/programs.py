"""Other people's programs, in the language that each is for: what they need comes from that language's registry, once.

A Python program needs ``packages`` as pip has them, a Node program as npm has them, a Java program (one file) Maven's
``group:artifact:version``, a Go program (one file) ``module@version``.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ages.catalogue import fresh, made
from run import HOME

PEOPLE = Path(__file__).with_name("people")
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_JVM = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
_POM = """<project><modelVersion>4.0.0</modelVersion><groupId>compat</groupId><artifactId>people</artifactId>
<version>1</version><dependencies>{dependencies}</dependencies></project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>\n"
)


def command(file: str, packages: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """Install what a program of ``people`` needs unless it is there, and return how it is started."""
    program = PEOPLE / file
    started = {".py": _python, ".mjs": _node, ".java": _java, ".go": _go}[program.suffix]
    return started(program, packages, options)


def folder_of(packages: Sequence[str], *, of: bytes = b"") -> Path:
    """Where these packages are installed, a folder for each set of them."""
    digest = hashlib.sha256("\n".join(packages).encode() + of).hexdigest()[:8]
    first = packages[0].replace("==", "-").replace("/", "-").replace(":", "-")
    return fresh(HOME / "apps" / f"{first}-{digest}")


def _python(program: Path, packages: Sequence[str], options: Sequence[str]) -> list[str]:
    libraries = folder_of(packages)
    made(libraries, [sys.executable, "-m", "pip", "install", "-q", "--target", libraries, *packages])
    return ["env", f"PYTHONPATH={libraries}", sys.executable, *options, str(program)]


def _node(program: Path, packages: Sequence[str], options: Sequence[str]) -> list[str]:
    libraries = folder_of(packages)
    (libraries / "package.json").write_text('{"private": true}\n')
    quiet = ("--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
    made(libraries, ["npm", "install", *quiet, *packages], cwd=libraries)
    return ["env", f"NODE_MODULES={libraries / 'node_modules'}", "node", *options, str(program)]


def _java(program: Path, packages: Sequence[str], options: Sequence[str]) -> list[str]:
    return ["java", *_JVM, "-cp", f"{jars(packages)}/*", *options, str(program)]


def jars(packages: Sequence[str]) -> Path:
    """The folder with these jars and all that they need."""
    libraries = folder_of(packages)
    dependencies = "".join(_DEPENDENCY.format(*each.split(":")) for each in packages)
    pom = libraries / "pom.xml"
    pom.write_text(_POM.format(dependencies=dependencies))
    copy = ["mvn", "-q", "-B", "-f", pom, _COPY, f"-DoutputDirectory={libraries}", "-DincludeScope=runtime"]
    return made(libraries, copy)


def _go(program: Path, packages: Sequence[str], options: Sequence[str]) -> list[str]:
    libraries = folder_of(packages, of=program.read_bytes())
    shutil.copy(program, libraries / program.name)
    (libraries / "go.mod").write_text("module people\n\ngo 1.26.0\n")
    build = ["go", "build", "-mod=mod", "-o", "program", "."]
    made(libraries, *(["go", "get", each] for each in packages), build, cwd=libraries)
    return [str(libraries / "program"), *options]
