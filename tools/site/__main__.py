"""Build the documentation as a site below ``build/site``: ``make site``. Neither building nor reading uses a network.

Pages stay where they are in the tree, where their links work on any git host. This copies those that can be reached
from the README and from `docs/README.md` into a folder, has Sphinx make HTML of them, puts each page next to it as
Markdown, writes ``llms.txt`` and ``llms-full.txt``, and follows every link and anchor of what was made. The first
thing that is wrong ends it with status 1. `docs/README.md` is the map: its parts are the site's.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.site.links import faults

ROOT = Path(__file__).resolve().parents[2]
FRONT = "README.md"
MAP = "docs/README.md"
DECISIONS = "docs/decisions/README.md"
PARTS = ("Tutorials", "How to", "Reference", "Explanation", "Decisions", "The project")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?://|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
_ROW = re.compile(r"^- \[([^\]]+)\]\(([^)]+)\):? ?(.*)$")
_ANCHOR = re.compile(r'^<a id="([a-z-]+)"></a>$', re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    """One row of the map: where the page is below the root, what it is called there, and what it is about."""

    path: str
    title: str
    about: str


def parts(root: Path = ROOT) -> dict[str, list[Page]]:
    """Return the pages of the map, by its headings of the second level."""
    found: dict[str, list[Page]] = {}
    rows: list[Page] = []
    text = (root / MAP).read_text()
    for line in re.sub(r"\n  (?=\S)", " ", text).splitlines():
        if line.startswith("## "):
            rows = found.setdefault(line[3:], [])
        elif row := _ROW.match(line):
            path = os.path.normpath(os.path.join("docs", row[2]))
            rows.append(Page(path, row[1], row[3]))
    return found


def reached(root: Path = ROOT) -> list[str]:
    """Return the paths of all Markdown pages that links lead to from the front page and the map, the map's first."""
    ahead = [FRONT, MAP, *(page.path for rows in parts(root).values() for page in rows)]
    found: dict[str, None] = {}
    while ahead:
        path = ahead.pop(0)
        if path not in found:
            found[path] = None
            ahead += [to for to in _linked(root, path) if to.endswith(".md")]
    return list(found)


def stage(root: Path, to: Path) -> list[str]:
    """Copy the pages and what they link to into an empty folder, as Sphinx wants them; return the pages."""
    pages = reached(root)
    for path in pages:
        target = to / _staged(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_for_sphinx(root, path, (root / path).read_text()))
        for other in _linked(root, path):
            if not other.endswith(".md") and (root / other).is_file():
                (to / other).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / other, to / other)
    with (to / _staged(FRONT)).open("a") as index:
        index.write(f"\n{_tree('', [_staged(MAP)])}")
        for part, rows in parts(root).items():
            index.write(f"\n{_tree(part, [page.path for page in rows])}")
    return pages


def build(staged: Path, out: Path) -> int:
    """Make HTML of the staged pages; a warning is an error, and all of them are printed."""
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going"]
    command += ["-c", str(ROOT / "tools" / "site"), "-d", str(staged / ".doctrees"), str(staged), str(out)]
    return subprocess.run(command, check=False).returncode


def for_machines(root: Path, pages: list[str], out: Path) -> None:
    """Put each page next to its HTML as it is, and write ``llms.txt`` and ``llms-full.txt`` (llmstxt.org)."""
    for path in pages:
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, out / path)
    known = {page.path: page for rows in parts(root).values() for page in rows}
    others = [path for path in pages if path not in known and path not in (FRONT, MAP)]
    (out / "llms.txt").write_text("\n".join(_list_of_pages(root, others)) + "\n")
    whole = [f"<!-- {path} -->\n\n{(root / path).read_text().strip()}\n" for path in pages]
    (out / "llms-full.txt").write_text("\n".join(whole))


def _list_of_pages(root: Path, others: list[str]) -> Iterator[str]:
    """Yield the lines of ``llms.txt``: the map's parts, and at its end the pages that only other pages lead to."""
    yield "# Magnetar"
    yield ""
    yield "> " + " ".join(_summary((root / FRONT).read_text()).split())
    yield ""
    yield f"- [Read this first]({FRONT})\n- [All pages]({MAP})\n- [All pages in one file](llms-full.txt)"
    for part, rows in parts(root).items():
        yield f"\n## {part}\n"
        yield from (
            f"- [{page.title}]({page.path})" + (f": {_bare(page.about)}" if page.about else "")
            for page in rows
        )
    yield "\n## Optional\n"
    yield from (f"- [{_title(root, path)}]({path})" for path in others)


def _summary(front: str) -> str:
    """Return the front page's first paragraph."""
    return front.split("\n\n")[1]


def _bare(text: str) -> str:
    """Return text without links: those of the map lead from `docs`, not from where ``llms.txt`` is."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def _title(root: Path, path: str) -> str:
    heading = re.search(r"^#+ (.*)$", (root / path).read_text(), re.MULTILINE)
    return heading[1] if heading else path


def _linked(root: Path, path: str) -> list[str]:
    """Return the paths below the root that a page links to and that are files."""
    text = _FENCE.sub("", (root / path).read_text())
    folder = os.path.dirname(path)
    paths = (os.path.normpath(os.path.join(folder, match[3])) for match in _LINK.finditer(text))
    return [each for each in dict.fromkeys(paths) if not each.startswith("..") and (root / each).is_file()]


def _staged(path: str) -> str:
    return "index.md" if path == FRONT else path


def _for_sphinx(root: Path, path: str, text: str) -> str:
    """Return a page with anchors in MyST's way, links to the front page by its other name, and folders not linked."""
    folder = os.path.dirname(path)

    def link(match: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(folder, match[3]))
        if target == FRONT:
            return f"{match[1]}[{match[2]}]({os.path.relpath('index.md', folder or '.')}{match[4] or ''})"
        if (root / target).is_dir():
            return match[2]
        return match[0]

    fences = iter(_FENCE.findall(text))
    pieces = [_LINK.sub(link, _ANCHOR.sub(r"(\1)=", piece)) for piece in _FENCE.split(text)]
    return "".join(piece + next(fences, "") for piece in pieces)


def _tree(caption: str, paths: list[str]) -> str:
    named = f":caption: {caption}\n" if caption else ""
    return (
        "```{toctree}\n:hidden:\n"
        + named
        + "\n"
        + "".join(f"{path.removesuffix('.md')}\n" for path in paths)
        + "```\n"
    )


def make(root: Path, out: Path) -> list[str]:
    """Make the site of a tree; return what is wrong with it, in lines."""
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="magnetar-site-") as folder:
        pages = stage(root, Path(folder))
        if build(Path(folder), out):
            return ["Sphinx has warnings, which are errors here"]
    shutil.rmtree(out / ".doctrees", ignore_errors=True)
    for_machines(root, pages, out)
    return faults(out)


def main() -> int:
    """Make the site, and say where it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "site", help="a folder, which is replaced"
    )
    out = parser.parse_args().out
    wrong = make(ROOT, out)
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        print(f"{out / 'index.html'}: open it in a browser; nothing has to serve it")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
