"""Every page held against axe's rules, in both themes, at the width of a desk and of a phone. Needs Chromium.

``MAGNETAR_AXE`` is the file ``axe.min.js`` of the npm package ``axe-core``; Playwright drives Debian's Chromium.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from tests.console.test_pages import commit, make
from tests.console.test_records import _Sends
from tests.process import BrokerProcess

CHROMIUM = shutil.which("chromium")
AXE = os.environ.get("MAGNETAR_AXE", "")
PATHS = (
    "",
    "/topics?q=axe",
    "/topic?topic=axe",
    "/records?topic=axe",
    "/records?topic=axe&path=$.id%20=%207",
    "/record?topic=axe&partition=0&offset=0",
    "/tail?topic=axe",
    "/ledgers?topic=axe",
    "/configuration?topic=axe",
    "/why?topic=axe",
    "/groups",
    "/group?group=axe",
    "/subscription?topic=axe-events&subscription=axe",
    "/schemas",
    "/transactions",
    "/clients",
    "/permissions",
    "/cluster",
    "/login",
    "/nothing",
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine"),
    pytest.mark.skipif(not AXE, reason="MAGNETAR_AXE does not name axe.min.js"),
]


@pytest.fixture
def furnished(house: BrokerProcess, http: httpx.Client) -> None:
    make(house, "axe", partitions=2)
    rows = [(b"key", json.dumps({"id": number, "text": "x" * 400})) for number in range(20)]
    _Sends(house)("axe", *rows, (b"\xff", b"\xff\x00"), headers=[("trace", b"1")], partition=0)
    commit(house, "axe", "axe")
    client = pulsar.Client(house.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    name = "persistent://public/default/axe-events"
    client.subscribe(name, "axe").close()
    client.create_producer(name).send(b"1")
    client.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_violates_a_rule(
    house: BrokerProcess, request: pytest.FixtureRequest, theme: Any, width: int
) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    if (theme, width) == ("light", 1280):
        request.getfixturevalue("furnished")
    rules = Path(AXE).read_text()
    found: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        # The rules are a script of the test's, which the pages' policy would not let run.
        context = browser.new_context(
            color_scheme=theme, viewport={"width": width, "height": 900}, bypass_csp=True
        )
        page = context.new_page()
        for path in PATHS:
            page.goto(f"http://{house.served['http'][0]}/console{path}", wait_until="domcontentloaded")
            page.evaluate(rules)
            told = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            found += [f"{path}: {each['id']}: {each['nodes'][0]['html']}" for each in told["violations"]]
            if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                found.append(f"{path}: wider than the window")
        browser.close()
    assert found == []
