"""Spark's JVMs of tests begin with the archive of their classes; where it does not fit nobody hears of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.pipeline.class_archive import options, without
from tests.pipeline.test_worker_python import spark_home

pytestmark = pytest.mark.spark
SUBMIT = "org.apache.spark.deploy.SparkSubmit"


def loaded(tmp_path: Path, *options: str) -> tuple[str, str]:
    """Have Spark tell its version; return where its first class came from, and all that it said."""
    log = tmp_path / "classes"
    (tmp_path / "conf").mkdir()
    (
        tmp_path / "conf" / "spark-defaults.conf"
    ).touch()  # a class path with a folder that is not empty has no archive
    said = " ".join((os.environ["SPARK_SUBMIT_OPTS"], *options, f"-Xlog:class+load:file={log}"))
    done = subprocess.run(
        [spark_home() / "bin" / "spark-submit", "--version"],
        env=os.environ | {"SPARK_SUBMIT_OPTS": said, "SPARK_CONF_DIR": str(tmp_path / "conf")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    (source,) = [line for line in log.read_text().splitlines() if f" {SUBMIT} source: " in line]
    return source.partition(" source: ")[2], done.stdout


def test_a_jvm_begins_with_it(tmp_path: Path) -> None:
    assert set(options()) <= set(os.environ["SPARK_SUBMIT_OPTS"].split())
    source, _ = loaded(tmp_path)
    assert source == "shared objects file (top)"


def test_a_users_jvm_has_the_class_path_that_spark_gives_it() -> None:
    assert "-XX:+UseSerialGC" in without()
    assert not {"-cp", *options()} & set(without().split())


def test_one_that_it_does_not_fit_goes_without_and_says_nothing(tmp_path: Path) -> None:
    source, said = loaded(tmp_path, "-cp", f"{tmp_path / 'conf'}:{spark_home() / 'jars'}/*")
    assert source.startswith(("file:", "jrt:"))
    assert "[cds" not in said
