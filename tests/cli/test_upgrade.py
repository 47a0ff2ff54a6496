"""``magnetar upgrade``: directories of every format, of a newer one, and beside a running broker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.admin.broker_state import ClientsOfSoftware
from magnetar.admin.errors import Declined
from magnetar.doctor import upgrades
from magnetar.metadata import SqliteFile
from magnetar.metadata.formats import FORMAT, FORMAT_PATH
from tests.cli.operator import Operator
from tests.on_disk.test_formats import ARCHIVES, digests, newer, unpacked
from tests.process import BrokerProcess

operator = Operator("127.0.0.1:1")
_ = newer


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_each_format_is_told_of_before_and_raised_once(archive: Path, tmp_path: Path) -> None:
    data = unpacked(archive, tmp_path)
    number = ARCHIVES.index(archive)
    before = digests(data)
    ran = operator.run("upgrade", "--data", data, "--check", "--json")
    found = json.loads(ran.out)
    assert ran.status == (3 if number < FORMAT else 0), ran.err
    assert (found["format"], found["reads_up_to"], found["running"]) == (number, FORMAT, "")
    assert [each["format"] for each in found["changes"]] == list(range(number + 1, FORMAT + 1))
    assert digests(data) == before, "a look has changed something"
    done = operator.run("upgrade", "--data", data, "--yes")
    assert done.status == 0, done.err
    again = operator.run("upgrade", "--data", data, "--check", "--json")
    assert again.status == 0, again.err
    assert json.loads(again.out)["format"] == FORMAT
    assert "nothing was changed" in operator.ok("upgrade", "--data", data, "--yes")
    store = SqliteFile(data / "metadata.sqlite", read_only=True)
    stored = store.get(FORMAT_PATH)
    store.close()
    assert stored is not None
    numbers = [each["format"] for each in json.loads(stored.value)["history"]]
    assert len(numbers) == len(set(numbers)), "it was raised twice"


@pytest.mark.parametrize("words", [("--check",), ("--yes",)])
def test_a_newer_format_is_refused_and_stays_as_it_is(
    newer: Path, words: tuple[str, ...], tmp_path: Path
) -> None:
    copy = shutil.copytree(newer, tmp_path / "copy")
    ran = operator.run("upgrade", "--data", newer, *words)
    assert ran.status == 1
    assert "written by Magnetar 9.9.9" in ran.err
    assert "nothing has been changed" in ran.err
    assert digests(newer) == digests(copy)


@pytest.mark.slow
def test_of_a_running_broker_nothing_is_raised_but_clients_are_looked_at(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        ran = operator.run("upgrade", "--data", broker.data, "--check")
        assert ran.status == 0, ran.err
        assert "All connected clients would be served." in ran.out


@pytest.mark.slow
def test_a_directory_in_use_is_not_raised(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, pytest.raises(Declined, match="in use"):
        upgrades.upgrade(broker.data)


def test_clients_that_this_release_does_not_serve_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = unpacked(ARCHIVES[-1], tmp_path)
    clients = (
        ClientsOfSoftware("kafka", "old", "0.9", 4, {"Produce": 2, "Fetch": 4, "Vanished": 1}),
        ClientsOfSoftware("kafka", "new", "4.0", 1, {"Produce": 11}),
        ClientsOfSoftware("pulsar", "Pulsar-Java-v2.10", "", 2),
    )
    state: Any = SimpleNamespace(version="0.0.9", clients=clients)
    monkeypatch.setattr(upgrades, "running_state", lambda data: state)
    found = upgrades.plan(data)
    assert [(each.software, each.api, each.asks_for, each.served_from) for each in found.unserved] == [
        ("old", "Produce", 2, 3),
        ("old", "Vanished", 1, 2),
    ]
    assert found.running == "0.0.9"


def test_what_is_no_data_directory_is_not_there(tmp_path: Path) -> None:
    ran = operator.run("upgrade", "--data", tmp_path, "--check")
    assert ran.status == 1
    assert list(tmp_path.iterdir()) == []
