"""Kafka's published jars, resolved by Maven once and kept in ``$PEERS_HOME`` (default ``~/.cache/peers``)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

KAFKA_VERSION = "4.3.1"
_HERE = Path(__file__).parent
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def kafka_libs() -> Path:
    """Give the folder of the jars; fetch them if they are not there."""
    home = os.environ.get("PEERS_HOME") or Path.home() / ".cache" / "peers"
    libs = Path(home) / "kafka" / "libs"
    if (libs / ".done").exists() and (libs / f"kafka-tools-{KAFKA_VERSION}.jar").exists():
        return libs
    shutil.rmtree(libs, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", _HERE / "pom.xml", _COPY, f"-DoutputDirectory={libs}"]
    subprocess.run([*command, "-DincludeScope=runtime"], check=True)
    (libs / ".done").touch()
    return libs


def java(main_class: str, *arguments: str | Path, options: tuple[str, ...] = ()) -> list[str]:
    """Give the command line that runs a class of Kafka's jars."""
    return [
        "java",
        *options,
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={_HERE / 'log4j2.yaml'}",
        "-cp",
        f"{kafka_libs()}/*",
        main_class,
        *map(str, arguments),
    ]
