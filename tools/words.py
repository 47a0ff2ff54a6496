"""Find words that a native reader reads twice, in pages, docstrings, comments, messages and descriptions.

``python -m tools.words PATH...`` prints each place with what to write there. ``--write`` stores how many places are
left in ``docs/words.json``, by page and by room; ``tests/docs/test_words.py`` checks that a count there only falls.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COUNTS = ROOT / "docs" / "words.json"
GENERATED = {"docs/compatibility.md", "docs/configuration.md", "docs/cli.md"}
"""Pages whose text stands in the code or in results, where it is counted."""


@dataclass(frozen=True)
class Word:
    """One entry of the word list."""

    pattern: re.Pattern[str]
    write: str


@dataclass(frozen=True)
class Place:
    """One place where an entry of the list matches: the path below the root, the line from 1, and the words."""

    path: str
    line: int
    words: str
    write: str


@cache
def listed(kind: str) -> tuple[Word, ...]:
    """Return the entries for ``word``, ``heading`` or ``docstring``."""
    entries = tomllib.loads((ROOT / "tools" / "words.toml").read_text())[kind]
    return tuple(
        Word(re.compile(each["pattern"]), each["write"])
        for each in (entries if isinstance(entries, list) else [entries])
    )


def in_page(path: str, text: str) -> Iterator[Place]:
    """Yield the places in a Markdown page; blocks of code and what stands in backticks are not prose."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and not line.startswith(("    ", "<!--")):
            title = line.lstrip("#").strip() if line.startswith("#") else ""
            yield from _matches(path, number, _bare(line), "word")
            yield from _matches(path, number, _bare(title), "heading") if title else ()


def in_module(path: str, text: str) -> Iterator[Place]:
    """Yield the places in a module's comments and in all its texts, and in how its docstrings open."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING}:
            for number, line in enumerate(token.string.splitlines(), token.start[0]):
                yield from _matches(path, number, _bare(line), "word")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            opening = (ast.get_docstring(node) or "").split("\n", 1)[0]
            yield from _matches(path, node.lineno, opening, "docstring")


def sources() -> Iterator[Path]:
    """Yield all pages and modules that the list holds for, in order."""
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))
    yield from sorted(path for path in (ROOT / "docs").glob("*.md") if f"docs/{path.name}" not in GENERATED)
    yield from sorted(
        path
        for path in (ROOT / "src").rglob("*.py")
        if "messages" not in path.parts and "_pb2" not in path.name
    )


def places(paths: Iterable[Path]) -> Iterator[Place]:
    """Yield the places in files, or in the files below folders."""
    for path in paths:
        if path.is_dir():
            yield from places(sorted(each for each in path.rglob("*") if each.suffix in {".py", ".md"}))
            continue
        name = str(path.resolve().relative_to(ROOT))
        read = in_module if path.suffix == ".py" else in_page
        yield from read(name, path.read_text())


def counts() -> dict[str, int]:
    """Return how many places each page and each room has; those without any are left out."""
    found = Counter(_owner(place.path) for place in places(sources()))
    return dict(sorted(found.items()))


def _owner(path: str) -> str:
    """Return what a count stands for: a page, or the folder of a room, so that a module may move inside it."""
    return "/".join(path.split("/")[:3]).removesuffix(".py") if path.startswith("src/") else path


def _bare(line: str) -> str:
    return re.sub(r"`[^`]*`|\]\([^)]*\)|https?://\S+", "_", line)


def _matches(path: str, number: int, text: str, kind: str) -> Iterator[Place]:
    for word in listed(kind):
        yield from (
            Place(path, number, match[0].strip(), word.write) for match in word.pattern.finditer(text)
        )


def main() -> int:
    """Print places, or store their counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", nargs="*", type=Path, help="pages, modules or folders (default: all)")
    parser.add_argument(
        "--write", action="store_true", help=f"store the counts in {COUNTS.relative_to(ROOT)}"
    )
    options = parser.parse_args()
    if options.write:
        COUNTS.write_text(json.dumps(counts(), indent=1) + "\n")
        return 0
    found = list(places(options.path or sources()))
    for place in found:
        print(f"{place.path}:{place.line}: {place.words!r}: {place.write}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
