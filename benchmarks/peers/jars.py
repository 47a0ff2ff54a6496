"""Kafka's published jars, resolved by Maven once and kept in ``$PEERS_HOME`` (default ``~/.cache/peers``)."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

KAFKA_VERSION = "4.4.0"
"""Of the broker. Its tools, which load all brokers alike, are of the version in ``kafka-tools/pom.xml``."""
_HERE = Path(__file__).parent
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def kafka_libs(what: str = "kafka-server") -> Path:
    """Return the folder of the jars of ``kafka-server`` or ``kafka-tools``; fetch them unless they are there."""
    home = os.environ.get("PEERS_HOME") or Path.home() / ".cache" / "peers"
    libs, pom = Path(home) / what / "libs", _HERE / what / "pom.xml"
    done, wanted = libs / ".done", hashlib.sha256(pom.read_bytes()).hexdigest()
    if done.exists() and done.read_text() == wanted:
        return libs
    shutil.rmtree(libs, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", pom, _COPY, f"-DoutputDirectory={libs}"]
    subprocess.run([*command, "-DincludeScope=runtime"], check=True)
    done.write_text(wanted)
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
