"""Installs ``spark.read.format("magnetar")``: Spark looks for ``DefaultSource`` in packages called ``pyspark_*``."""

from __future__ import annotations

from magnetar.pipeline.source import MagnetarDataSource as DefaultSource

__all__ = ["DefaultSource"]
