"""The commands of each page are ones that our own command line takes, whatever a topic is called."""

from __future__ import annotations

import html
import re
import shlex

import httpx
import pytest

from tests.cli.operator import Operator
from tests.console.test_pages import make, page, produce
from tests.process import BrokerProcess

PAGES = {
    "": {},
    "topics": {},
    "topic": {"topic": "commanded"},
    "ledgers": {"topic": "commanded", "partition": "1"},
    "configuration": {"topic": "commanded"},
    "records": {"topic": "commanded", "partition": "1", "offset": "0"},
    "groups": {},
    "transactions": {},
    "permissions": {},
    "cluster": {},
    "why": {"topic": "commanded", "partition": "1"},
    "record": {"topic": "commanded", "partition": "1", "offset": "0"},
}


@pytest.fixture(scope="module", autouse=True)
def topic(house: BrokerProcess) -> None:
    make(house, "commanded", partitions=2)
    produce(house, "commanded", b"x", partition=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_names_can_be_run(house: BrokerProcess, http: httpx.Client, name: str) -> None:
    text = page(http, f"/console/{name}".rstrip("/"), **PAGES[name])
    lines = [html.unescape(each) for each in re.findall(r"<code>(magnetar .*)</code>", text)]
    assert lines
    for line in lines:
        Operator(house.address).ok(*shlex.split(line)[1:])
    assert "pulsar-admin --admin-url http://" in text
    assert f"--bootstrap-server {house.address}" in text


def test_names_are_quoted_for_shells(http: httpx.Client) -> None:
    name = "$(reboot);'x"
    assert http.put(f"/admin/v2/persistent/public/default/{name}").status_code == 204
    text = page(http, "/console/topic", topic=f"public/default/{name}")
    (line,) = [html.unescape(each) for each in re.findall(r"<code>(magnetar .*)</code>", text)]
    assert shlex.split(line) == ["magnetar", "topic", "describe", f"public/default/{name}"]
