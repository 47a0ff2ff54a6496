"""Installs ``format("magnetar_table")``: Spark looks for ``DefaultSource`` in packages called ``pyspark_*``."""

from __future__ import annotations

from magnetar.pipeline.table_source import TableDataSource as DefaultSource

__all__ = ["DefaultSource"]
