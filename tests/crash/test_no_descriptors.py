"""A broker whose descriptors are used up by connections says so, and serves new clients once some have gone."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from pathlib import Path

import pytest

from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from tests.hostile.client import Wire
from tests.process import BrokerProcess

LIMIT = 160
SECONDS = 60


@pytest.mark.slow
def test_accepting_goes_on(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
        clients = [socket.create_connection(broker.host_and_port) for _ in range(LIMIT + 20)]
        until = time.monotonic() + SECONDS
        while not said(broker) and time.monotonic() < until:
            time.sleep(0.05)
        assert len(said(broker)) == 1
        for client in clients:
            client.close()
        while time.monotonic() < until:
            with contextlib.suppress(OSError), Wire(broker.host_and_port) as wire:
                assert wire.ask(ApiVersionsRequest(), 0).error_code == 0
                break
        else:
            raise AssertionError("nobody is served any more")


def said(broker: BrokerProcess) -> list[str]:
    return [line for line in broker.log_lines() if "new connections are closed" in line]
