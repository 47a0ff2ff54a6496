"""Clients that end at the first answer leave one line in the log, which names them."""

from __future__ import annotations

import logging
import struct

import pytest

from magnetar.kafka import giving_up
from magnetar.kafka.giving_up import IN_A_ROW, SILENT_S, WITHIN_S, GivingUp
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from tests.hostile.client import Wire
from tests.process import BrokerProcess

OLD = ("10.0.0.7", "apache-kafka-java", "3.5.1")
NEW = ("10.0.0.7", "apache-kafka-java", "4.4.0")


def gives_up(process: BrokerProcess, version: str, times: int, *, goes_on: bool = False) -> None:
    for _ in range(times):
        with Wire(process.host_and_port) as wire:
            request = ApiVersionsRequest(client_software_name="giver-up", client_software_version=version)
            wire.ask(request, 3)
            if goes_on:
                wire.ask(MetadataRequest(topics=[]), 12)
            wire.socket.shutdown(1)
            assert wire.is_closed()  # by then the broker has counted it


def lines(process: BrokerProcess, version: str) -> list[str]:
    return [line for line in process.log_lines() if f"giver-up {version}" in line]


def test_a_client_that_gives_up_again_and_again_is_named_once(target: BrokerProcess) -> None:
    gives_up(target, "1.5", IN_A_ROW - 1)
    assert lines(target, "1.5") == []
    gives_up(target, "1.5", IN_A_ROW * 2)
    (line,) = lines(target, "1.5")
    assert "from 127.0.0.1" in line
    assert "WARN" in line


def test_one_that_goes_on_between_is_not(target: BrokerProcess) -> None:
    for _ in range(3):
        gives_up(target, "2.5", IN_A_ROW - 1)
        gives_up(target, "2.5", 1, goes_on=True)
    assert lines(target, "2.5") == []


def test_what_asks_for_nothing_is_a_probe(target: BrokerProcess) -> None:
    before = len(target.log_lines())
    for _ in range(IN_A_ROW * 2):
        with Wire(target.host_and_port) as wire:
            wire.send(struct.pack(">i", 40)[:2])
    assert [line for line in target.log_lines()[before:] if "ApiVersions" in line] == []


def test_rows_are_of_a_moment_and_silence_is_of_one_software(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    seen = GivingUp(logging.getLogger("test"), lambda: now_s)
    for _ in range(IN_A_ROW * 3):
        seen.gave_up(OLD, "c")
        now_s += WITHIN_S / (IN_A_ROW - 1.5)
    assert caplog.messages == [], "too slow to be a row"
    for _ in range(IN_A_ROW):
        seen.gave_up(OLD, "c")
        seen.gave_up(NEW, "c")
    assert ["3.5.1" in text for text in caplog.messages] == [True, False]
    now_s += SILENT_S
    for _ in range(IN_A_ROW):
        seen.gave_up(OLD, "c")
    assert len(caplog.messages) == 3


def test_it_remembers_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving_up, "MOST", 10)
    seen = GivingUp(logging.getLogger("test"), lambda: 0.0)
    for number in range(100):
        for _ in range(IN_A_ROW):
            seen.gave_up((str(number), "", ""), "")
    assert len(seen._rows) == len(seen._logged_s) == 10
