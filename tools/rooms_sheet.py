"""Write the sheet of rooms in ``docs/design.md`` from the linter's layers and the rooms' own pages.

Run it after moving a room or changing its first sentence; ``--check`` tells if the sheet is stale.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "design.md"
BEGIN, END = "<!-- rooms: made by tools/rooms_sheet.py -->\n", "<!-- end of rooms -->\n"


def floors() -> list[list[str]]:
    """Return the rooms' names floor by floor, the highest first, as the linter's first contract has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [
        [name.removeprefix("magnetar.") for name in layer.split(" | ")] for layer in contracts[0]["layers"]
    ]


def rooms() -> set[str]:
    """Return the names of all packages directly below ``src/magnetar``."""
    return {path.parent.name for path in (ROOT / "src" / "magnetar").glob("*/__init__.py")}


def page_of(room: str) -> str:
    """Return a room's page: the docstring of its ``__init__.py``, empty where it has none."""
    tree = ast.parse((ROOT / "src" / "magnetar" / room / "__init__.py").read_text())
    return ast.get_docstring(tree) or ""


def sheet() -> str:
    """Return the table, with one row per room."""
    lines = ["| floor | room | what it is |", "|---|---|---|"]
    order = floors()
    for height, floor in zip(range(len(order), 0, -1), order, strict=True):
        for room in floor:
            sentence = " ".join(page_of(room).split("\n\n")[0].split())
            lines.append(f"| {height} | [`{room}`](../src/magnetar/{room}/__init__.py) | {sentence} |")
    return "\n".join(lines) + "\n"


def written(text: str) -> str:
    """Return the page's text with the sheet as it is now."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{sheet()}\n{END}{tail}"


def main() -> int:
    """Write the page, or tell with ``--check`` whether it is stale."""
    text = PAGE.read_text()
    new = written(text)
    if "--check" in sys.argv[1:]:
        return int(new != text)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
