"""The site is built without a warning, its links and anchors hold, search needs no server, `llms.txt` is whole."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.site.__main__ import DECISIONS, FRONT, MAP, PARTS, ROOT, make, parts, reached
from tools.site.links import faults


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    assert make(ROOT, out) == []
    return out


@pytest.mark.slow
def test_every_page_is_in_the_site_as_html_and_as_markdown(site: Path) -> None:
    pages = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md"))]
    assert {MAP, DECISIONS} < set(pages)
    for page in pages:
        assert (site / page).with_suffix(".html").is_file(), page
        assert (site / page).read_text() == (ROOT / page).read_text(), page
    assert (site / "index.html").is_file()
    assert len(list((site / "_images").iterdir())) > 5


@pytest.mark.slow
def test_llms_txt_names_every_page_and_nothing_that_is_missing(site: Path) -> None:
    text = (site / "llms.txt").read_text()
    named = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", text, re.MULTILINE)
    assert [name for name in named if not (site / name).is_file()] == []
    assert set(reached()) <= set(named)
    assert len(named) == len(set(named))
    whole = (site / "llms-full.txt").read_text()
    assert [page for page in reached() if f"<!-- {page} -->" not in whole] == []


@pytest.mark.slow
def test_search_works_from_a_file(site: Path) -> None:
    page = (site / "search.html").read_text()
    assert re.findall(r'<script src="(?:\./)?searchindex\.js', page), "a browser loads no JSON from file://"
    assert "SHOW_SEARCH_SUMMARY: false" in (site / "_static/documentation_options.js").read_text()
    fetching = [path.name for path in site.rglob("*.js") if re.search(r"\bfetch\(|XMLHttp", path.read_text())]
    assert fetching == ["searchtools.js"], "which fetches summaries, and they are off"
    index = json.loads(
        (site / "searchindex.js").read_text().removeprefix("Search.setIndex(").removesuffix(")")
    )
    files = index["docnames"]
    at = index["terms"]["bookkeep"]
    assert "docs/cluster" in {files[each] for each in (at if isinstance(at, list) else [at])}
    assert {page.removesuffix(".md") for page in reached() if page != FRONT} < set(files)


def test_the_map_has_the_four_parts_of_diataxis_and_every_page_once() -> None:
    found = parts()
    assert tuple(found) == PARTS
    assert PARTS[:4] == ("Tutorials", "How to", "Reference", "Explanation")
    rows = [page.path for pages in found.values() for page in pages]
    assert len(rows) == len(set(rows))
    pages = {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md")} - {MAP}
    assert pages | {DECISIONS} <= set(rows)
    assert [page.path for pages in found.values() for page in pages if not page.about] == []


def tree(root: Path, page: str) -> Path:
    """Make a small tree with one page of docs."""
    (root / "docs").mkdir(parents=True)
    (root / FRONT).write_text("# Front\n\n**Magnetar** is a broker.\n\n[All](docs/README.md)\n")
    (root / MAP).write_text("# Map\n\n## Tutorials\n\n- [A page](page.md): about\n  something\n")
    (root / "docs/page.md").write_text(page)
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "holds"),
    [
        ("# Page\n\n## A heading\n\n[here](#a-heading), [front](../README.md)\n", True),
        ('# Page\n\n<a id="short"></a>\n\n## A heading\n\n[here](#short)\n', True),
        ("# Page\n\n[nowhere](none.md)\n", False),
        ("# Page\n\n[no such heading](#nothing)\n", False),
        ("# Page\n\n[no such heading there](README.md#nothing)\n", False),
        ("# Page\n\n![no picture](none.png)\n", False),
    ],
)
def test_a_broken_link_ends_it(tmp_path: Path, page: str, holds: bool) -> None:
    assert (make(tree(tmp_path / "tree", page), tmp_path / "out") == []) is holds


def test_links_of_html_are_followed(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="b.html#y"></a><a href="#x"></a><a href="http://e/"></a>'
    )
    (tmp_path / "b.html").write_text(
        '<p id="y"><a href="a.html#z"></a><img src="c.png"><script src="https://e/s.js">'
    )
    assert faults(tmp_path) == [
        "b.html: a.html#z: no such anchor",
        "b.html: c.png: no such file",
        "b.html: https://e/s.js: loaded from another machine",
    ]
