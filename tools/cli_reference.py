"""Write ``docs/cli.md`` from the commands themselves. Run it after changing one; ``--check`` tells if it is stale."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from magnetar.admin.reasons import Reason
from magnetar.cli import formats
from magnetar.cli.app import app
from magnetar.cli.connection import OPTIONS, PANEL
from magnetar.cli.statuses import TABLE

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"

HEAD = """\
# The command line

*Made by `tools/cli_reference.py`; change the commands' own descriptions instead of this page.*

`magnetar` starts a broker and is the operator's hand for it. Everything that Kafka's protocol offers is asked over
that protocol, so those commands work against any Kafka broker too. `explain`, `why` and `ledger list` ask what only
our broker knows, through a socket in its data directory (`DATA/admin.sock`, for its owner alone); the directory is
found by asking the broker, or named with `--data`. `explain` and `ledger` also work where no broker runs.

- **Broker**: `--bootstrap-server HOST:PORT`, or the environment's `MAGNETAR_BOOTSTRAP_SERVER`, or 127.0.0.1:9092.
- **Connection**: the options and variables [below](#connection), or a context.
- **Output**: tables for people; `--json` for programs, with the same names on every release. Sizes are bytes, times
  are ms since 1970; what is absent is `null`. With `--json` an error is JSON too, on standard error.
- **Exit status**: 0 done, 1 failed, 2 the command was not understood; all are [below](#exit-statuses). An error says
  what to do next.
- **Completion**: `magnetar --install-completion`. Topics, partitions and groups are completed too, where a broker
  answers within half a second.
- **Places in a partition**: `beginning` (or `earliest`), `end` (or `latest`), an offset, `-N` (so many before the end),
  `s@TIME` (ms since 1970, or ISO 8601).
"""

STATUSES = """
## Exit statuses

All commands keep to this table; `magnetar help exit` shows it.

| Status | |
|---|---|
"""

CONNECTION = """
## Connection

All commands that ask a broker take these options; the environment's variable of the same name means the same.

| Option | Variable | |
|---|---|---|
"""

PRECEDENCE = """

An option goes before a variable, a variable before the context, the context before the default. Login and TLS are
each taken as a whole from the first of these that says anything about it. `MAGNETAR_COMMAND_CONFIG`, a file of Kafka
client settings, goes before the context and after all other variables.

`magnetar context add NAME` stores addresses and credentials under a name, `use` chooses one for all commands, and
`--context` or `MAGNETAR_CONTEXT` for one of them. They are in `magnetar/contexts.json` below `XDG_CONFIG_HOME`
(`~/.config`), for its owner alone; a file of another user, or one that others may open, is refused.

```
magnetar context add prod -b kafka.example:9093 --http-url https://kafka.example:8443 --user ops --password-file secret
magnetar context use prod
magnetar topic list
```
"""

LINES = """
## Lines and records

`produce` takes a value per line; with `--key-separator` a key before it; with `--format json` an object per line:
`{"key": ..., "value": ..., "headers": ..., "partition": ..., "timestamp": ...}`, each of which may be left out.
Bytes that are not UTF-8 are `{"base64": "..."}`. `consume --json` writes such lines: what one writes the other reads.

`consume --format` takes a text with these tokens:

```
"""

WHY = """
## Reasons

`why` names one of these. The words are stable; the sentence beside them has the figures.

"""


def page() -> str:
    """Return the whole page."""
    tokens = inspect.cleandoc(formats.__doc__ or "").split("\n\n")[1]
    reasons = ", ".join(f"`{reason}`" for reason in Reason)
    commands = "".join(_commands(get_command(app), "magnetar"))
    connection = "".join(_connection_rows())
    statuses = "".join(f"| {each.number} | {each.means} |\n" for each in TABLE)
    before = f"{HEAD}{STATUSES}{statuses}{CONNECTION}{connection}"
    return f"{before}{PRECEDENCE}{LINES}{tokens}\n```\n{WHY}{reasons}\n\n## Commands\n{commands}"


def _connection_rows() -> Iterator[str]:
    yield "| `--context` NAME | `MAGNETAR_CONTEXT` | Cluster and login, as `magnetar context` has them. |\n"
    for name, (_, metavar, told) in OPTIONS.items():
        shown = metavar.replace("|", "\\|")
        yield f"| `--{name.replace('_', '-')}` {shown} | `MAGNETAR_{name.upper()}` | {told} |\n"


def _commands(command: Any, path: str) -> Iterator[str]:
    """Yield each command below ``command``, the commands of a group behind it."""
    for name, each in command.commands.items():
        if hasattr(each, "commands"):
            yield from _commands(each, f"{path} {name}")
        else:
            yield _command(each, f"{path} {name}")


def _command(command: Any, path: str) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [
        each
        for each in command.params
        if each.param_type_name == "option" and getattr(each, "rich_help_panel", None) != PANEL
    ]
    usage = " ".join([path, *(_argument(each) for each in arguments)])
    rows = "".join(f"| {_option(each)} | {_told(each)} |\n" for each in options)
    connects = len(options) < sum(each.param_type_name == "option" for each in command.params)
    rows += "| ... | and those of a [connection](#connection). |\n" if connects else ""
    told = "\n".join(line.strip() for line in (command.help or "").splitlines())
    return f"\n### `{usage}`\n\n{told}\n\n| Option | |\n|---|---|\n{rows}"


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    kind = option.metavar or ("" if option.is_flag else option.name.upper().strip("_"))
    return f"{names} {kind}".rstrip().replace("|", "\\|")


def _told(option: Any) -> str:
    told = (option.help or "").replace("|", "\\|")
    default = option.default
    if default not in (None, False, True, "", []) and not callable(default):
        told += f" Default `{getattr(default, 'value', default)}`."
    return f"{told} Required." if option.required else told


def main() -> int:
    """Write the page, or with ``--check`` give 1 if it is not what it should be."""
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
