"""The list of versions (clients.json), and how each is brought into the cache and started.

A client has ``versions``, each with its year and what is left out: ``lacks`` by step, or ``create``, ``headers``,
``timestamps``, ``committed``, with the reason; the client's own ``lacks`` are all versions'. ``fails`` names steps that
fail on Apache Kafka as well, by the client's own fault. Python's have ``pins``, what else a version of that time needs,
and ``librdkafka``, the Go module with the library where no wheel for this Python has it; Node's have ``environment``,
what their installation must be given; Rust's ``sys``, the crate between it and librdkafka.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from run import HOME

from ages.steps import NAMES

HERE = Path(__file__).resolve().parent
FILE = HERE / "clients.json"
CACHE = HOME / "ages"
TRAITS = ("create", "headers", "timestamps", "committed")
"""What a client may lack beside whole steps."""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_once = threading.Lock()
"""Two threads must not install the same."""


@dataclass(frozen=True, eq=False)
class Age:
    """One version of one client."""

    client: str
    version: str
    year: int
    kind: str
    given: Mapping[str, Any]
    lacks: Mapping[str, str] = field(default_factory=dict)
    fails: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.client} {self.version}"

    @property
    def without(self) -> list[str]:
        return [trait for trait in TRAITS if trait in self.lacks]

    @property
    def steps(self) -> list[str]:
        return [step for step in NAMES if step not in self.lacks]

    @property
    def folder(self) -> Path:
        return CACHE / f"{self.client}-{self.version}"


def ages(file: Path = FILE) -> list[Age]:
    """All versions of all clients, as the file has them."""
    return [
        Age(
            client,
            version["version"],
            version["year"],
            given["kind"],
            {**given, **version, "pins": [*given.get("pins", ()), *version.get("pins", ())]},
            {**given.get("lacks", {}), **version.get("lacks", {})},
            {**given.get("fails", {}), **version.get("fails", {})},
        )
        for client, given in json.loads(file.read_text()).items()
        for version in given["versions"]
    ]


def names(file: Path = FILE) -> dict[str, str]:
    """How the page calls each client."""
    return {client: given["name"] for client, given in json.loads(file.read_text()).items()}


def started_by(age: Age) -> tuple[list[str], dict[str, str]]:
    """Install a version unless it is there; give its program's command, and what its environment must have."""
    with _once:
        return KINDS[age.kind](age)


def made(folder: Path, *commands: Sequence[str | Path], cwd: Path | None = None) -> Path:
    """Run the commands that fill a folder, unless they have all run."""
    done = folder / ".complete"
    if not done.exists():
        for command in commands:
            subprocess.run(
                list(map(str, command)), check=True, cwd=cwd, stdin=subprocess.DEVNULL, stdout=sys.stderr
            )
        done.touch()
    return folder


def fresh(folder: Path) -> Path:
    if not (folder / ".complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    return folder


_POM = """<project><modelVersion>4.0.0</modelVersion><groupId>compat</groupId><artifactId>ages</artifactId>
<version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>
<version>{version}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""
OLDEST_JAVA = "0.11.0.3"
"""What the program is compiled against: users run what was compiled long ago with newer jars."""


def _java(age: Age) -> tuple[list[str], dict[str, str]]:
    libs = _jars(age.version)
    source = HERE / "AgesJava.java"
    classes = fresh(CACHE / f"java-classes-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}")
    against = f"{_jars(OLDEST_JAVA)}/*"
    made(
        classes,
        ["javac", "-nowarn", "-Xlint:-options", "--release", "8", "-cp", against, "-d", classes, source],
    )
    return ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{classes}:{libs}/*", "AgesJava"], {}


def _jars(version: str) -> Path:
    folder = fresh(CACHE / f"java-{version}")
    (folder / "pom.xml").write_text(_POM.format(version=version))
    copy = ["mvn", "-q", "-B", "-f", folder / "pom.xml", _COPY, f"-DoutputDirectory={folder}"]
    return made(folder, copy)


def _python(age: Age) -> tuple[list[str], dict[str, str]]:
    wanted = [f"{age.given['package']}=={age.version}", *age.given["pins"]]
    folder = fresh(age.folder)
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", folder, *wanted]
    if "librdkafka" in age.given and not (folder / ".complete").exists():
        vendored = _librdkafka(age.given["librdkafka"])
        command = ["env", f"C_INCLUDE_PATH={vendored}", f"LIBRARY_PATH={vendored}", *command]
    made(folder, command)
    return [sys.executable, str(HERE / age.given["program"])], {"PYTHONPATH": str(folder)}


def _librdkafka(module: str) -> Path:
    """A folder to compile against: the Go client's module of that time has librdkafka built, with its header."""
    told = subprocess.run(
        ["go", "mod", "download", "-json", module], check=True, capture_output=True, text=True
    )
    vendored = Path(json.loads(told.stdout)["Dir"]) / "kafka" / "librdkafka_vendor"
    folder = CACHE / f"librdkafka-{module.rpartition('@')[2]}"
    (folder / "librdkafka").mkdir(parents=True, exist_ok=True)
    shutil.copy(vendored / "librdkafka_glibc_linux.a", folder / "librdkafka.a")
    shutil.copy(vendored / "rdkafka.h", folder / "librdkafka" / "rdkafka.h")
    return folder


def _go(age: Age) -> tuple[list[str], dict[str, str]]:
    folder = fresh(age.folder)
    module = age.given["module"]
    for name in ("program.go", *age.given["sources"]):
        text = (HERE / "go" / name).read_text()
        (folder / name).write_text(text.replace(IMPORTED, module))
    (folder / "go.mod").write_text("module ages\n\ngo 1.26.0\n")
    commands = (["go", "get", f"{module}@v{age.version}"], ["go", "build", "-mod=mod", "-o", "program", "."])
    made(folder, *commands, cwd=folder)
    return [str(folder / "program")], {}


IMPORTED = "CLIENT"
"""Stands in sources for the path of a module that has had several."""


def _node(age: Age) -> tuple[list[str], dict[str, str]]:
    wanted = [f"{age.given['package']}@{age.version}", *age.given["pins"]]
    folder = fresh(age.folder)
    (folder / "package.json").write_text('{"private": true}\n')
    quiet = ("--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
    environment = [f"{name}={value}" for name, value in age.given.get("environment", {}).items()]
    made(folder, ["env", *environment, "npm", "install", *quiet, *wanted], cwd=folder)
    return ["node", str(HERE / "node" / age.given["program"])], {"NODE_MODULES": str(folder / "node_modules")}


def _package(age: Age) -> tuple[list[str], dict[str, str]]:
    """Of the distribution: it is there, in the one version that it has, or apt-get is to bring it."""
    told = subprocess.run([age.given["asked"], "-V"], capture_output=True, text=True, check=True).stdout
    assert f"Version {age.version} " in told, told
    return [sys.executable, str(HERE / age.given["program"])], {}


_CARGO = """[package]
name = "ages"
version = "0.0.0"
edition = "2021"

[[bin]]
name = "ages"
path = "main.rs"

[dependencies]
rdkafka = {{ version = "={version}", default-features = false, features = ["libz", "zstd", "dynamic-linking"] }}
rdkafka-sys = "={sys}"
futures = {{ version = "0.3", default-features = false, features = ["executor"] }}
"""


def _rust(age: Age) -> tuple[list[str], dict[str, str]]:
    """With the distribution's librdkafka, which has to be as new as the crate ``rdkafka-sys`` wants it."""
    folder = fresh(age.folder)
    shutil.copy(HERE / "rust" / "main.rs", folder)
    (folder / "Cargo.toml").write_text(_CARGO.format(version=age.version, sys=age.given["sys"]))
    made(folder, ["cargo", "build", "--quiet"], cwd=folder)
    return [str(folder / "target" / "debug" / "ages")], {}


KINDS = {
    "package": _package,
    "java": _java,
    "python": _python,
    "go": _go,
    "node": _node,
    "rust": _rust,
}
