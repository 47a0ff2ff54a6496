"""Spark for a project: a cluster's Connect server, or Spark in this process with one of its own on a free port."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar.pipeline.jobs.project import CONF
from magnetar.pipeline.jobs.spec import ProjectSpec
from magnetar.pipeline.stderr import stderr_to
from magnetar.pipeline.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"

_MODE = "SPARK_CONNECT_MODE_ENABLED"

_OF_BEFORE = {
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.hadoop.hive.metastore.disallow.incompatible.col.type.changes": "false",
}
"""Settings of new projects' own file that projects of before lack."""


@contextmanager
def spark_session(project: ProjectSpec, log: Path | None = None) -> Iterator[SparkSession]:
    """Return a Connect session, which declarative pipelines need, and end it; what Spark logs goes to ``log``."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    remote = os.environ.get("SPARK_REMOTE") or project.spark.remote
    context = None
    with stderr_to(log):
        if not remote:
            context, remote = _server(project)
        os.environ[_MODE] = "1"  # has pyspark.sql.functions build Connect's columns
        session = ConnectSession.builder.remote(remote).getOrCreate()
        try:
            yield session
        finally:
            session.stop()
            del os.environ[_MODE]
            if context is not None:
                context.stop()


def _server(project: ProjectSpec) -> tuple[Any, str]:
    """Start Spark with a Connect server in this process; give its context and address."""
    os.environ.setdefault("SPARK_CONF_DIR", str(project.directory / CONF))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", worker_python(project.spark.master))
    token = os.environ.setdefault("SPARK_CONNECT_AUTHENTICATE_TOKEN", str(uuid.uuid4()))
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    conf = SparkConf(loadDefaults=True).setMaster(project.spark.master).setAppName(project.directory.name)
    for name, value in _OF_BEFORE.items():
        conf.setIfMissing(name, value)
    conf.set("spark.plugins", _PLUGIN).set("spark.connect.grpc.binding.port", "0")
    conf.set("spark.connect.grpc.binding.address", "127.0.0.1")
    conf.set("spark.connect.authenticate.token", token)
    context = SparkContext.getOrCreate(conf)
    SparkSession(context)  # Connect serves the active session's configuration
    service = getattr(context._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    # By this name Spark sends the token without TLS; the server listens on the loopback address alone.
    return context, f"sc://localhost:{getattr(service, 'MODULE$').localPort()}"
