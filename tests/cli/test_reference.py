"""The page of all commands is what the commands say, and every command keeps the house's promises."""

from __future__ import annotations

import getopt
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from magnetar.cli import main
from magnetar.cli.app import app

ROOT = Path(__file__).resolve().parent.parent.parent


def commands(command: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command with its path."""
    for name, each in (command or get_command(app)).commands.items():
        if hasattr(each, "commands"):
            yield from commands(each, f"{path}{name} ")
        else:
            yield f"{path}{name}", each


ALL = dict(commands())


def options_of(name: str) -> set[str]:
    return {
        option for each in ALL[name].params if each.param_type_name == "option" for option in each.opts
    } - {"--help", "-h"}


def test_the_page_is_current() -> None:
    script = ROOT / "tools" / "cli_reference.py"
    check = subprocess.run([sys.executable, str(script), "--check"], check=False)
    assert check.returncode == 0, "run tools/cli_reference.py"


@pytest.mark.parametrize(
    "name", [name for name in ALL if name not in ("standalone", "broker", "proxy", "testing")]
)
def test_every_command_gives_json(name: str) -> None:
    assert "--json" in options_of(name)


@pytest.mark.parametrize("name", ALL)
def test_every_command_and_option_says_what_it_does(name: str) -> None:
    assert ALL[name].help
    untold = [each.opts for each in ALL[name].params if each.param_type_name == "option" and not each.help]
    assert not untold


def test_the_short_way_to_standalone_takes_the_same_options(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[str] = set()
    ask = getopt.gnu_getopt

    def noting(arguments: list[str], short: str, names: list[str]) -> Any:
        taken.update("--" + each.removesuffix("=") for each in names)
        return ask(arguments, short, names)

    monkeypatch.setattr(getopt, "gnu_getopt", noting)
    assert main.run(["standalone", "--no-such-option"]) == 2
    assert main.run(["standalone", "too", "many"]) == 2
    assert taken == options_of("standalone")
