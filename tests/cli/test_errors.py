"""Whatever goes wrong, one sentence says what, the next what to do now, and no traceback is shown."""

from __future__ import annotations

import json
import socket
from errno import EACCES
from os import strerror
from pathlib import Path

import pytest

from magnetar.cli.main import run
from tests.cli.operator import Operator
from tests.process import BrokerProcess

TOPIC = "cli-errors"

REFUSED = [
    "topic describe nope",
    "topic delete nope",
    f"topic create {TOPIC}",
    "topic create bad+name",
    "topic create more -c nope=1",
    "topic create more -c retention.ms=soon",
    f"topic add-partitions {TOPIC} 1",
    f"topic alter {TOPIC} -c cleanup.policy=never",
    "consume nope -e",
    f"consume {TOPIC} -p 9 -e",
    "group describe nope",
    "group delete nope",
    "explain nope-0@0",
    f"explain {TOPIC}-0@99",
    f"explain {TOPIC}-9@0",
    "config show --topic nope",
    "config alter nope=1",
    "config alter log.level=DEBUG",
    "ledger list nope-0",
    "permission admins nobody --role me",
]
MISUNDERSTOOD = [
    f"consume {TOPIC} -o soon",
    f"consume {TOPIC} --grep (",
    f"consume {TOPIC} -X nope=1",
    f"produce {TOPIC} -X nope=1",
    f"produce {TOPIC} -H nope",
    f"group seek {TOPIC}",
    "why nope",
    "why group",
    f"explain {TOPIC}",
    "topic list -b nowhere",
    "token show nope",
    "token validate nope",
    "token create --subject me",
]


@pytest.fixture
def at_broker(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGNETAR_BOOTSTRAP_SERVER", broker.address)
    run(["topic", "create", TOPIC])


@pytest.mark.slow
@pytest.mark.usefixtures("at_broker")
@pytest.mark.parametrize(
    ("command", "status"), [*((each, 1) for each in REFUSED), *((each, 2) for each in MISUNDERSTOOD)]
)
def test_an_error_says_what_to_do(command: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(command.split()) == status
    told = capsys.readouterr().err
    assert told.startswith("magnetar: ")
    assert "\n  -> " in told


NO_TABLE = "neither a path here nor a name in Spark's catalog"


@pytest.mark.parametrize(
    ("command", "status", "says"),
    [
        ("audit orders {here}/nothing", 3, NO_TABLE),
        ("audit orders {here} --format orc", 3, "auto, parquet, delta, iceberg"),
        ("restore {here}/nothing orders", 1, NO_TABLE),
    ],
)
def test_a_table_that_is_not_there_is_told_before_spark_starts(
    command: str,
    status: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "magnetar.pipeline.command_session.command_session", lambda *_: pytest.fail("started")
    )
    data = tmp_path / "data"
    if command.startswith("audit"):
        data.mkdir()
    words = [word.format(here=tmp_path) for word in command.split()]
    assert run([*words, "--data", str(data)]) == status
    assert says in capsys.readouterr().err
    assert data.exists() == command.startswith("audit"), "what fails leaves nothing behind"


@pytest.mark.usefixtures("at_broker")
def test_errors_in_json_say_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["topic", "describe", "nope", "--json"]) == 1
    assert "topic list" in json.loads(capsys.readouterr().err)["error"]["next_step"]


@pytest.mark.parametrize("command", ["topic list", "consume t -e", "produce t", "group list", "why t-0"])
def test_where_no_broker_is(command: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        ran = Operator(f"127.0.0.1:{nobody.getsockname()[1]}").run(*command.split(), stdin="a line\n")
    assert ran.status == 1
    assert "--bootstrap-server" in ran.err


def test_a_data_directory_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "metadata.sqlite").touch()

    def refuse(path: Path, *_: object) -> int:
        raise PermissionError(EACCES, strerror(EACCES), str(path))

    monkeypatch.setattr("magnetar.metadata.lock.os.open", refuse)
    assert run(["ledger", "verify", "--data", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"magnetar: {tmp_path}: {strerror(EACCES)}\n  -> ")


class TestABrokerThatCannotStart:
    def test_its_directory_is_in_use(self, broker: BrokerProcess, tmp_path: Path) -> None:
        self._refused("--data", str(broker.data), says="in use by process", then="--data", status=1)

    def test_its_port_is_taken(self, broker: BrokerProcess, tmp_path: Path) -> None:
        data = str(tmp_path / "data")
        self._refused(
            "--data", data, "--kafka", broker.address, says=broker.address, then="--kafka", status=1
        )

    def test_its_directory_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("something else")
        self._refused("--data", str(tmp_path / "data"), says=str(tmp_path / "data"), then="--data", status=1)

    def test_a_setting_that_does_not_exist(self, tmp_path: Path) -> None:
        self._refused(
            "--set", "num.partition=3", says="did you mean num.partitions", then="config settings", status=2
        )

    def _refused(self, *arguments: str, says: str, then: str, status: int) -> None:
        ran = Operator("").run("standalone", "--kafka", "127.0.0.1:0", *arguments)
        assert ran.status == status
        assert says in ran.err
        assert then in ran.err.rpartition("\n  -> ")[2]
