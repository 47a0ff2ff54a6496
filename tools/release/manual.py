"""The man page and the completions, from the commands themselves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from typer._completion_shared import get_completion_script
from typer.main import get_command

from magnetar.cli.app import app

SHELLS = {"bash": "magnetar.bash", "zsh": "_magnetar", "fish": "magnetar.fish"}


def man_page(version: str, date: str) -> str:
    """Return magnetar(1) in troff."""
    root = get_command(app)
    lines = [
        f'.TH MAGNETAR 1 "{date}" "Magnetar {version}" "User Commands"',
        ".SH NAME",
        "magnetar \\- a broker for Kafka and Pulsar clients, and the tools to operate it",
        ".SH SYNOPSIS",
        ".B magnetar",
        ".I COMMAND",
        "[\\fIOPTIONS\\fR]",
        ".SH DESCRIPTION",
        _text(root.help or ""),
        ".SH COMMANDS",
        *_commands("magnetar", root),
        ".SH ENVIRONMENT",
        ".TP",
        ".B MAGNETAR_BOOTSTRAP_SERVER",
        "Broker that commands ask, as HOST:PORT.",
        ".TP",
        ".B MAGNETAR_COMMAND_CONFIG",
        "Properties file with the credentials of commands.",
        ".SH EXIT STATUS",
        "0 done, 1 failed, 2 the command was not understood; a broker whose disk has failed ends with 74.",
    ]
    return "\n".join(lines) + "\n"


def _commands(name: str, command: Any) -> Iterator[str]:
    context = click.Context(command)
    subcommands = getattr(command, "commands", {})
    for word in sorted(subcommands):
        each = subcommands[word]
        if each.hidden:
            continue
        if getattr(each, "commands", None):
            yield from _commands(f"{name} {word}", each)
            continue
        usage = " ".join(each.collect_usage_pieces(context))
        yield f".SS {_text(f'{name} {word} {usage}')}"
        yield _text(each.help or "")
        for option in each.params:
            record = option.get_help_record(context)
            if record is not None:
                yield ".TP"
                yield f".B {_text(record[0])}"
                yield _text(" ".join(record[1].split()) or " ")


def _text(text: str) -> str:
    """Return text that troff takes as it is."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").strip().splitlines() or [""]
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def completions() -> dict[str, str]:
    """Return the completion scripts by the names that shells look for."""
    return {
        name: get_completion_script(prog_name="magnetar", complete_var="_MAGNETAR_COMPLETE", shell=shell)
        + "\n"
        for shell, name in SHELLS.items()
    }


def main() -> None:
    """Write them all: ``python -m tools.release.manual VERSION DATE FOLDER``."""
    version, date, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    (folder / "completions").mkdir(parents=True, exist_ok=True)
    (folder / "magnetar.1").write_text(man_page(version, date), "utf-8")
    for name, script in completions().items():
        (folder / "completions" / name).write_text(script, "utf-8")


if __name__ == "__main__":
    main()
