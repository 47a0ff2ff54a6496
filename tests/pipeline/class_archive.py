"""The archive of classes that Spark's JVMs of tests begin with, and the session that it is made of."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.class_archives import archives


def options() -> tuple[str, ...]:
    """Return what Spark's JVMs are told, the archive made first if need be."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return ()
    jars = Path(found.origin).parent / "jars"
    told = archives("spark", ["session"], jars.glob("*.jar"), lambda paths, log: _make(jars, paths, log))[
        "session"
    ]
    return (*told, *_class_path(jars)) if told else ()


def without() -> str:
    """Return SPARK_SUBMIT_OPTS of a JVM as users have it: a project's ``conf`` is in its class path."""
    return os.environ["SPARK_SUBMIT_OPTS"].replace(" ".join(options()), "")


def _class_path(jars: Path) -> tuple[str, str]:
    """Leave SPARK_CONF_DIR out, which Spark puts first and looks into by itself: with a folder there is no archive."""
    return "-cp", f"{jars}/*"


def _make(jars: Path, paths: dict[str, Path], log: Path) -> None:
    own = (f"-XX:ArchiveClassesAtExit={paths['session']}", *_class_path(jars))
    said = " ".join((os.environ.get("SPARK_SUBMIT_OPTS", ""), *own))
    environment = os.environ | {
        "SPARK_SUBMIT_OPTS": said,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as out:
        subprocess.run([sys.executable, "-m", __name__], env=environment, stdout=out, stderr=out, check=True)


def _session(folder: Path) -> None:
    """Do with Spark what tests do: SQL, files, Python workers, a stream; wait until its JVM has ended."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .config("spark.connect.grpc.binding.port", "0")
        .getOrCreate()
    )
    rows = session.range(1000).selectExpr("id", "id % 7 AS k", "CAST(id AS STRING) AS v")
    rows.write.partitionBy("k").parquet(str(folder / "rows"))
    read = session.read.parquet(str(folder / "rows"))
    read.createOrReplaceTempView("read")
    session.sql("SELECT k, count(*), max(v) FROM read GROUP BY k ORDER BY k").collect()
    read.mapInArrow(lambda batches: batches, read.schema).toArrow()
    stream = session.readStream.schema(read.schema).parquet(str(folder / "rows")).writeStream
    stream = stream.trigger(availableNow=True).option("checkpointLocation", str(folder / "checkpoint"))
    copying = stream.foreachBatch(lambda frame, _: frame.write.mode("append").parquet(str(folder / "copy")))
    copying.start().awaitTermination()
    gateway = SparkContext._gateway
    assert gateway is not None
    service = getattr(gateway.jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    address = f"sc://127.0.0.1:{getattr(service, 'MODULE$').localPort()}"
    subprocess.run([sys.executable, "-m", "tests.pipeline.class_archive", address], check=True)
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _pipeline(address: str, folder: Path) -> None:
    """Do with Spark Connect what pipelines do."""
    (folder / "spark-pipeline.yaml").write_text(
        f"name: p\nstorage: file://{folder}/storage\nlibraries:\n  - glob:\n      include: code/**\n"
    )
    (folder / "code").mkdir()
    (folder / "code" / "p.sql").write_text(
        "CREATE MATERIALIZED VIEW p AS SELECT id, id % 7 AS k FROM range(100);\n"
    )
    command = [Path(sys.executable).parent / "spark-pipelines", "--remote", address, "run"]
    subprocess.run(command, cwd=folder, check=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="magnetar-classes-") as made:
        if sys.argv[1:]:
            _pipeline(sys.argv[1], Path(made))
        else:
            _session(Path(made))
