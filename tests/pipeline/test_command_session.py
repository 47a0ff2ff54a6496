"""A command's Spark session is its own to end only when nobody had one before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from magnetar.pipeline.command_session import command_session

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_session_of_another_thread_is_used_and_left_alone(spark: Any) -> None:
    """Spark's active session is a thread's: one test lost its connection to the JVM, and all that came after failed."""

    def counted() -> int:
        with command_session("test") as session:
            return int(session.range(3).count())

    with ThreadPoolExecutor(1) as other:
        assert other.submit(counted).result() == 3
    assert spark.range(4).count() == 4
