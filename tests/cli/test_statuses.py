"""Exit statuses: one table, and every command keeps to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from magnetar.cli import statuses
from magnetar.cli.app import app
from tests.cli.operator import Operator

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
NOWHERE = "127.0.0.1:1"
operator = Operator(NOWHERE)

# What each command needs to be understood; files and directories are not there.
GIVEN: dict[str, tuple[str, ...]] = {
    "topic create": ("t",), "topic describe": ("t",), "topic list": (), "topic delete": ("t", "--yes"),
    "group list": (), "group describe": ("g",), "group delete": ("g", "--yes"),
    "txn list": (), "quota list": (), "user list": (),
    "explain": ("t-0@1",), "why": ("t-0",), "health": (), "doctor": (), "bundle": (),
    "ledger list": ("t-0",), "consume": ("t", "-e"),
}  # fmt: skip
"""Those that ask the bootstrap server before anything else."""


def commands() -> Iterator[tuple[str, ...]]:
    """Yield the words of every command."""

    def below(words: tuple[str, ...], command: object) -> Iterator[tuple[str, ...]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield words
            return
        for name, each in inner.items():
            yield from below((*words, name), each)

    yield from below((), get_command(app))


COMMAND = get_command(app)
ALL = sorted(commands())


def status_of(*words: str) -> object:
    """Run the command line in this process, as the parsing of all commands would cost a second each."""
    with pytest.raises(SystemExit) as ended:
        COMMAND(list(words), prog_name="magnetar")
    return ended.value.code


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_is_done_and_an_unknown_option_is_not_understood(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(*words, "--help") == statuses.DONE
    assert capsys.readouterr().out
    assert status_of(*words, "--no-such-option") == statuses.NOT_UNDERSTOOD
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err


@pytest.mark.slow
@pytest.mark.parametrize("words", sorted(GIVEN))
def test_without_a_broker_it_fails_and_says_what_to_do(words: str) -> None:
    assert tuple(words.split()) in ALL
    ran = operator.run(*words.split(), *GIVEN[words], stdin="")
    assert ran.status == statuses.FAILED, (ran.out, ran.err)
    assert "  -> " in ran.err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["backup", "ledger", "restore", "upgrade"])
def test_a_directory_that_is_not_there_is_never_done(name: str, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    words = {
        "backup": ("backup", "create", str(tmp_path), "--data", gone), "ledger": ("ledger", "verify", "--data", gone),
        "restore": ("backup", "restore", gone, "--data", gone), "upgrade": ("upgrade", "--data", gone),
    }  # fmt: skip
    assert operator.run(*words[name]).status in (statuses.FAILED, statuses.NOT_UNDERSTOOD)


def test_the_groups_alone_are_not_understood() -> None:
    for words in ([], ["topic"], ["nosuch"], ["topic", "nosuch"]):
        assert operator.run(*words).status == statuses.NOT_UNDERSTOOD


def test_the_table_is_shown_and_stands_in_the_page() -> None:
    shown = json.loads(operator.ok("help", "exit", "--json"))
    assert [each["number"] for each in shown] == [each.number for each in statuses.TABLE]
    page = PAGE.read_text()
    for each in statuses.TABLE:
        assert f"| {each.number} | {each.means}" in page
    assert operator.run("help", "nosuch").status == statuses.FAILED
    assert "exit" in operator.ok("help")
