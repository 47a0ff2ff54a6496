"""Spark's own Kafka connector: its jars, resolved by Maven once and kept in ``$PEERS_HOME`` (else ``~/.cache/peers``).

Its companion ``spark-token-provider-kafka-0-10`` is not to be had from every mirror. It looks up delegation tokens, and
without authentication there are none. Where it cannot be resolved, a stand-in of ours for the three classes that the
connector calls is compiled from ``spark/`` beside this file. It is for measuring alone: it hides nothing in logs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

CONNECTOR_VERSION = "4.2.0"
_HERE = Path(__file__).parent / "spark"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_TOKENS = f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{CONNECTOR_VERSION}"


def connector_jars() -> str:
    """Give the value of ``spark.jars``; fetch and compile what is not there."""
    home = os.environ.get("PEERS_HOME") or Path.home() / ".cache" / "peers"
    libs = Path(home) / "spark-kafka" / f"libs-{CONNECTOR_VERSION}"
    if not (libs / ".done").exists():
        shutil.rmtree(libs, ignore_errors=True)
        libs.mkdir(parents=True)
        _maven("-f", str(_HERE / "pom.xml"), f"{_PLUGIN}:copy-dependencies", f"-DoutputDirectory={libs}")
        _bring_tokens(libs)
        (libs / ".done").touch()
    return ",".join(str(each) for each in sorted(libs.glob("*.jar")))


def _bring_tokens(libs: Path) -> None:
    try:
        _maven(f"{_PLUGIN}:copy", f"-Dartifact={_TOKENS}", f"-DoutputDirectory={libs}")
    except subprocess.CalledProcessError:
        _compile_stand_in(libs)


def _compile_stand_in(libs: Path) -> None:
    import pyspark

    classes = libs / "classes"
    jars = Path(pyspark.__file__).parent / "jars"
    sources = sorted(map(str, _HERE.rglob("*.java")))
    command = ["javac", "--release", "17", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), *sources]
    subprocess.run(command, check=True)
    subprocess.run(
        ["jar", "--create", "--file", str(libs / "tokens-stand-in.jar"), "-C", str(classes), "."], check=True
    )
    shutil.rmtree(classes)


def _maven(*arguments: str) -> None:
    subprocess.run(["mvn", "-q", "-B", *arguments], check=True, capture_output=True)
