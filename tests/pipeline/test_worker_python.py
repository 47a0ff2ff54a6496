"""``magnetar-python`` takes Spark's zipped library off the path where the same is installed, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.pipeline.worker_python import worker_python

SAYS = "import json, pyspark, sys; print(json.dumps([sys.executable, sys.argv, sys.path, pyspark.__file__]))"


def spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def libraries(home: Path) -> list[str]:
    """Return what Spark puts in front of the path."""
    (jar,) = home.glob("jars/spark-core_*.jar")
    return [str(each) for each in (*sorted(home.glob("python/lib/*.zip"), reverse=True), jar)]


def asked(home: Path, path: list[str], *arguments: str) -> tuple[str, list[str], list[str], str]:
    """Return what Python says of itself: where it is, its arguments, its path, and where its pyspark is."""
    environment = os.environ | {"SPARK_HOME": str(home), "PYTHONPATH": ":".join(path)}
    command = [worker_python(), "-c", SAYS, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    executable, given, found, pyspark = json.loads(done.stdout)
    return executable, given, found, pyspark


def test_it_is_installed() -> None:
    assert worker_python() == str(Path(sys.executable).with_name("magnetar-python"))
    assert worker_python("spark://somewhere:7077") == sys.executable


def test_the_installed_library_is_found_and_what_else_is_on_the_path_stays(tmp_path: Path) -> None:
    home = spark_home()
    mine = [str(tmp_path / "with space"), str(tmp_path / "*"), str(home / "python" / "lib" / "other.jar")]
    (tmp_path / "starred").mkdir()  # what the star is not to become
    executable, given, path, pyspark = asked(home, [mine[0], *libraries(home), *mine[1:]], "a b", "*", ":")
    assert Path(executable).samefile(sys.executable)
    assert given == ["-c", "a b", "*", ":"]
    assert path[1:4] == mine
    assert not set(libraries(home)) & set(path)
    assert Path(pyspark).parent == home


def test_without_a_path_of_its_own_it_is_plain_python() -> None:
    home = spark_home()
    assert Path(asked(home, libraries(home))[3]).parent == home


@pytest.mark.parametrize("kind", ["another", "none"])
def test_another_spark_keeps_its_library(tmp_path: Path, kind: str) -> None:
    other = tmp_path / "spark"
    (other / "python" / "lib").mkdir(parents=True)
    zips = [str(other / "python" / "lib" / "pyspark.zip"), *libraries(spark_home())]
    _, _, path, pyspark = asked(other if kind == "another" else tmp_path / "none", zips)
    assert path[1 : 1 + len(zips)] == zips
    assert ".zip" in pyspark
