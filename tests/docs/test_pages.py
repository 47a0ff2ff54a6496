"""Pages keep their promises: links lead somewhere, and every make target they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from magnetar.kafka.handlers import ROUTES

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    dead = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert dead == []


def test_every_page_is_reached_from_the_readme() -> None:
    found, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in found or page not in PAGES:
            continue
        found.add(page)
        ahead += [(page.parent / link).resolve() for link in LINK.findall(page.read_text())]
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in found] == []


def test_decisions_have_a_number_each_and_stand_in_the_index() -> None:
    pages = sorted(ROOT.glob("docs/decisions/0*.md"))
    index = (ROOT / "docs/decisions/README.md").read_text()
    assert len({page.name[:4] for page in pages}) == len(pages)
    for page in pages:
        title = page.read_text().splitlines()[0].removeprefix("# ")
        assert f"- [{int(page.name[:4])}. {title}]({page.name})" in index


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE))
    assert named <= targets


def test_the_picture_counts_the_apis_that_are_served() -> None:
    assert f"{len(ROUTES)} APIs" in (ROOT / "docs/images/architecture.svg").read_text()


def test_the_makefile_explains_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())  # type: ignore[index]
    explained = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    assert phony == explained


def test_pins_are_hashed_and_name_no_place() -> None:
    pins = (ROOT / "constraints.txt").read_text()
    packages = re.findall(r"^([a-z0-9-]+)==.*?(?=^[a-z]|\Z)", pins, re.MULTILINE | re.DOTALL)
    assert len(packages) > 30
    assert "://" not in pins
    for block in re.split(r"^(?=[a-z])", pins, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in block, block.splitlines()[0]


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/decisions/0*.md")), ids=lambda page: page.stem)
def test_a_decision_says_since_when_it_holds_and_what_amends_it(page: Path) -> None:
    status = page.read_text().splitlines()[2]
    assert re.match(r"\*(Accepted|Superseded) 20\d\d-\d\d-\d\d\.", status), status
    for number, file in re.findall(r"\[(\d+)\]\((\d{4}-[^)]*)\)", status):
        assert int(file[:4]) == int(number)
