"""The Spark session of the pipeline's tests, for migrations by Spark."""

from tests.pipeline.conftest import spark  # noqa: F401
