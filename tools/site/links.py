"""Follow the links of a folder of HTML: files and anchors must be there, and nothing is loaded from elsewhere."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
_MARKUP = {".html", ".htm"}


@dataclass
class _Document(HTMLParser):
    """The anchors of one page, where its links lead, and what a browser loads to show it."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.update(value for name in ("id", "name") if (value := given.get(name)))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        if tag in _LOADED and (where := given.get(_LOADED[tag])):
            self.loaded.append(where)


def faults(folder: Path) -> list[str]:
    """Return a line for each link that leads nowhere and for each thing that is loaded from another machine."""
    documents: dict[Path, _Document] = {}
    for path in sorted(folder.rglob("*.html")):
        documents[path] = _Document()
        documents[path].feed(path.read_text())
    wrong: dict[str, None] = {}
    for path, document in documents.items():
        for link in [*document.links, *document.loaded]:
            if fault := _fault(folder, documents, path, link):
                wrong[f"{path.relative_to(folder)}: {link}: {fault}"] = None
        for link in document.loaded:
            if urlsplit(link).netloc:
                wrong[f"{path.relative_to(folder)}: {link}: loaded from another machine"] = None
    return list(wrong)


def _fault(folder: Path, documents: dict[Path, _Document], page: Path, link: str) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    target = page
    if parts.path:
        target = Path(os.path.normpath(page.parent / unquote(parts.path)))
    if folder not in target.parents or not target.is_file():
        return "no such file"
    anchor = unquote(parts.fragment)
    if anchor and target.suffix in _MARKUP and anchor not in documents[target].anchors:
        return "no such anchor"
    return None
