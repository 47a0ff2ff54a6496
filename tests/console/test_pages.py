"""The first page and the list of topics, asked of a real broker that stock clients use."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.process import BrokerProcess
from tests.waiting import until

SCRIPT = "<script>alert(1)</script>"
BIDI = "abc\u202etxt.exe"
ESCAPE = "\x1b[2Jgone"


class Tags(HTMLParser):
    """Collects the tags of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def page(http: httpx.Client, path: str, **query: str) -> str:
    """Return a page, held against what each must be."""
    answer = http.get(path, params=query)
    assert answer.status_code == 200, answer.text
    check_harmless(answer)
    return answer.text


def check_harmless(answer: httpx.Response) -> None:
    """Hold a page against what each must be: no script, no style but the one, nothing of other sites."""
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    for tag, attributes in Tags(answer.text).tags:
        assert tag not in ("script", "iframe", "img", "object", "embed", "style", "svg"), answer.text
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, attributes)
            assert name != "style", (tag, attributes)
            if name in ("href", "src", "action"):
                assert value is not None
                assert value.startswith(("/", "#")), (tag, attributes)
                assert not value.startswith("//"), (tag, attributes)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", answer.text)


def facts(http: httpx.Client, path: str, **query: str) -> Any:
    """Return the same page as JSON."""
    answer = http.get(f"{path}.json", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.content.isascii()
    return answer.json()


def produce(house: BrokerProcess, topic: str, *values: bytes, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": house.address})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


def make(house: BrokerProcess, *names: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": house.address})
    made = admin.create_topics([NewTopic(name, partitions) for name in names])
    for each in made.values():
        each.result(60)


def commit(house: BrokerProcess, topic: str, group: str) -> None:
    """Read a record as a group, and commit."""
    settings = {"bootstrap.servers": house.address, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    until(lambda: (found := consumer.poll(1)) is not None and found.error() is None)
    consumer.commit(asynchronous=False)
    consumer.close()


def test_the_first_page_tells_whether_all_is_well(http: httpx.Client) -> None:
    assert "All is well" in page(http, "/console")
    told = facts(http, "/console/overview")
    assert told["health"] == {"status": "ok", "reasons": []}
    assert http.get("/").headers["location"] == "/console"


def test_it_shows_rates_and_lags_and_acts(house: BrokerProcess, http: httpx.Client) -> None:
    make(house, "rates", partitions=2)
    produce(house, "rates", *[b"x" * 100] * 50)
    commit(house, "rates", "slow")
    facts(http, "/console/overview")

    def shown() -> bool:
        produce(house, "rates", *[b"x" * 100] * 50)
        told = facts(http, "/console/overview")
        return any(each["topic"] == "rates" and each["records_in"] > 0 for each in told["busiest"])

    until(shown)
    told = facts(http, "/console/overview")
    (lag,) = [each for each in told["lags"] if each["name"] == "slow"]
    assert lag["lag"] >= 99
    assert lag["age_s"] is not None
    assert any(each["operation"] == "CreateTopics" and each["name"] == "rates" for each in told["acts"])
    text = page(http, "/console")
    assert "slow" in text
    assert "rates" in text
    assert f"--bootstrap-server {house.address}" in text


def test_topics_are_filtered_sorted_and_paged(house: BrokerProcess, http: httpx.Client) -> None:
    make(house, *(f"list-{number:02}" for number in range(25)))
    make(house, "list-wide", partitions=7)
    produce(house, "list-07", b"x" * 10_000)
    first = facts(http, "/console/topics", q="list-", size="10")
    assert (first["found"], first["pages"]) == (26, 3)
    assert [each["name"] for each in first["topics"]] == [f"list-{number:02}" for number in range(10)]
    last = facts(http, "/console/topics", q="LIST-", size="10", page="3")
    assert [each["name"] for each in last["topics"]][-1] == "list-wide"
    assert facts(http, "/console/topics", q="list-", sort="size")["topics"][0]["name"] == "list-07"
    assert facts(http, "/console/topics", q="list-", sort="partitions")["topics"][0]["partitions"] == 7
    assert (
        facts(http, "/console/topics", q="list-", sort="name", up="true")["topics"][0]["name"] == "list-wide"
    )
    assert facts(http, "/console/topics", namespace="public/other")["found"] == 0
    assert facts(http, "/console/topics", internal="true", q="__consumer")["found"] >= 0
    text = page(http, "/console/topics", q="list-", size="10")
    assert "Page 1 of 3" in text
    assert "size=10" in text
    assert http.get("/console/topics.json", params={"sort": "colour"}).status_code == 400
    assert facts(http, "/console/topics", page="99", size="10", q="list-")["page"] == 3


@pytest.mark.parametrize("name", [SCRIPT, BIDI, ESCAPE, '"><img src=x onerror=alert(1)>', "{{7*7}}", "a\nb"])
def test_what_a_group_is_called_is_text_on_every_page(
    house: BrokerProcess, http: httpx.Client, name: str
) -> None:
    make_once(house, "named")
    produce(house, "named", b"a", b"b", b"c")
    commit(house, "named", name)
    told = facts(http, "/console/overview")
    assert name in [each["name"] for each in told["lags"]] or len(told["lags"]) == 10
    assert "49" not in re.findall(r"<bdi>([^<]*)</bdi>", page(http, "/console"))
    page(http, "/console/topics", q=name)


def make_once(house: BrokerProcess, name: str) -> None:
    if name not in AdminClient({"bootstrap.servers": house.address}).list_topics(timeout=60).topics:
        make(house, name)


def test_topics_with_markup_in_their_names_are_shown_as_they_are(
    house: BrokerProcess, http: httpx.Client
) -> None:
    name = "<b onclick=x>&amp;'\""
    answer = http.put(f"/admin/v2/persistent/public/default/{name}")
    assert answer.status_code == 204, answer.text
    text = page(http, "/console/topics", q="onclick")
    assert "&lt;b onclick=x&gt;&amp;amp;&#39;&#34;" in text
    assert facts(http, "/console/topics", q="onclick")["topics"][0]["local"] == name


def test_what_is_no_page_and_what_would_change_something(http: httpx.Client) -> None:
    for path in ("/console/nothing", f"/console/{SCRIPT}", "/console/topics/more"):
        answer = http.get(path)
        assert answer.status_code == 404
        check_harmless(answer)
    assert http.get("/console/nothing.json").json() == {"reason": "there is no page /console/nothing.json"}
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = http.request(method, "/console/topics", headers={"Content-Type": "application/json"})
        assert answer.status_code == 405
    assert http.head("/console").status_code == 200
    style = http.get("/console/console.css")
    assert style.headers["content-type"].startswith("text/css")
    assert "url(" not in style.text


def test_pages_of_other_sites_may_link_here_and_nothing_else(http: httpx.Client) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert http.get("/console/topics", headers=link).status_code == 200
    for headers in (
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Origin": "http://evil.example"},
        {"Host": "evil.example"},
    ):
        assert http.get("/console/topics.json", headers=headers).status_code == 403
