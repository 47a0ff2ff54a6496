"""Jobs: from topics to bronze, decoded and current-state tables, as Spark Declarative Pipelines.

A project is a directory of plain files that its users own: Spark's ``spark-pipeline.yaml``, Magnetar's
``magnetar-pipeline.yaml`` (see `magnetar.pipeline.jobs.spec`) and Python files in ``transformations/`` that say with
``@dp.table`` which table comes of which. Those files begin with::

    from magnetar.pipeline.jobs import load_topic

    flights = load_topic("flights")
"""

from __future__ import annotations

from magnetar.pipeline.jobs.spec import ProjectSpec, SpecError, TopicSpec, load_spec
from magnetar.pipeline.jobs.topic import TopicTables, load_topic

__all__ = ["ProjectSpec", "SpecError", "TopicSpec", "TopicTables", "load_spec", "load_topic"]
