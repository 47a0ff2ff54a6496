"""The commands of pages that are no tutorials run, in order, at a broker with the topic and group that they name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.docs.test_tutorials import DOCS, steps
from tests.process import BrokerProcess
from tests.waiting import until

PAGES = ("disk-full", "sizing", "support", "troubleshooting", "upgrade")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(page: str, tmp_path: Path) -> None:
    found = [step for step in steps(DOCS / f"{page}.md") if step.language == "sh"]
    assert found
    with BrokerProcess(tmp_path / "data") as broker:
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MAGNETAR_BOOTSTRAP_SERVER": broker.address,
        }

        def shell(script: str) -> subprocess.CompletedProcess[str]:
            whole = ["bash", "-eo", "pipefail", "-c", script]
            return subprocess.run(whole, cwd=tmp_path, env=environment, capture_output=True, text=True)

        prepared = shell(
            "magnetar topic create orders && magnetar topic create old-topic\n"
            "printf '42:tea\\n7:coffee\\n' | magnetar produce orders -K :"
        )
        assert prepared.returncode == 0, prepared.stderr
        read_one(broker.address)
        for step in found:
            done = shell(step.code)
            assert done.returncode == 0, f"{step.code}\n{done.stdout}\n{done.stderr}"


def read_one(address: str) -> None:
    """Have the group ``shipping`` commit one of two records, and leave."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "shipping",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    found: list[object] = []

    def read() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            consumer.commit(message, asynchronous=False)
            found.append(message)
        return bool(found)

    until(read, 0)
    consumer.close()
