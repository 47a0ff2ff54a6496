"""Kafka's published jars, resolved by Maven once and kept in ``$PEERS_HOME`` (default ``~/.cache/peers``)."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

KAFKA_VERSION = "4.4.0"
"""Of the broker. Its tools, which load all brokers alike, are of the version in ``kafka-tools/pom.xml``."""
_HERE = Path(__file__).parent
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def kafka_libs(what: str = "kafka-server") -> Path:
    """Return the folder of the jars of ``kafka-server`` or ``kafka-tools``; fetch them unless they are there.

    Each version of a list of jars has its own: trees that differ in it do not take each other's jars away.
    """
    home = os.environ.get("PEERS_HOME") or Path.home() / ".cache" / "peers"
    pom = _HERE / what / "pom.xml"
    libs = Path(home) / what / f"libs-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    done = libs / ".done"
    if not done.exists():
        command = ["mvn", "-q", "-B", "-f", pom, _COPY, f"-DoutputDirectory={libs}"]
        subprocess.run([*command, "-DincludeScope=runtime"], check=True)
        done.touch()
    return libs


def java(
    main_class: str, *arguments: str | Path, options: tuple[str, ...] = (), libs: str = "kafka-server"
) -> list[str]:
    """Return the command line that runs a class of Kafka's jars."""
    return [
        "java",
        *options,
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={_HERE / 'log4j2.yaml'}",
        "-cp",
        f"{kafka_libs(libs)}/*",
        main_class,
        *map(str, arguments),
    ]
