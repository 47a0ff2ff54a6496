"""What may not come by a form: of other pages, without the grant, twice, too late, or where the console only shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.console.conftest import browser, write_users
from tests.console.forms import SENT_BY_OWN_PAGE, Form, done, opened, send, text_of, unique
from tests.console.test_login import bearer, log_in
from tests.process import BrokerProcess
from tests.security.signing import SECURED, token

pytestmark = pytest.mark.slow
ACTIONS = ("produce", "delete-topic", "configure-topic", "compact-topic")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that asks for logins, and whose console changes things."""
    home = tmp_path_factory.mktemp("console-guarded")
    write_users(home / "users", root="secret")
    settings = (
        *SECURED,
        f"basic.auth.conf={home / 'users'}",
        "listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "console.read.only=false",
        f"audit.log.file={home / 'audit.log'}",
    )
    sets = [word for each in settings for word in ("--set", each)]
    with BrokerProcess(home / "data", "--http", "127.0.0.1:0", *sets, kafka=None) as process:
        yield process


@pytest.fixture
def topic(guarded: BrokerProcess) -> str:
    name = unique("hers")
    made(guarded, name)
    return name


def made(process: BrokerProcess, name: str) -> None:
    admin = kafka(process)
    for each in admin.create_topics([NewTopic(name, 1)]).values():
        each.result(60)


def kafka(process: BrokerProcess) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": process.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "public/default",
            "sasl.password": f"token:{token('root')}",
        }
    )


def allow(process: BrokerProcess, topic: str, role: str, *actions: str) -> None:
    path = f"/admin/v2/persistent/public/default/{topic}/permissions/{role}"
    with browser(process) as http:
        if actions:
            answer = http.post(path, json=list(actions), headers=bearer("root"))
        else:
            answer = http.delete(path, headers=bearer("root"))
    assert answer.status_code == 204, answer.text


@contextmanager
def logged_in(process: BrokerProcess, role: str) -> Iterator[httpx.Client]:
    with browser(process) as client:
        assert log_in(client, token=token(role)).status_code == 303
        yield client


def test_a_page_of_another_site_changes_nothing(guarded: BrokerProcess, topic: str) -> None:
    """All that a browser adds without being asked is there: the cookie, and headers that tell the page."""
    with logged_in(guarded, "root") as root:
        own = str(root.base_url).rstrip("/")
        form = opened(root, "delete-topic", topic=topic)
        fields = {**form.fields, "confirm": topic, "step": "do"}
        forged = {**fields, "token": ""}
        for headers, sent, status in (
            ({"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"}, fields, 403),
            ({"Sec-Fetch-Site": "same-site", "Origin": "http://evil.example"}, fields, 403),
            ({"Sec-Fetch-Site": "cross-site", "Origin": own}, fields, 403),
            ({"Sec-Fetch-Site": "none"}, fields, 415),
            ({"Origin": "null"}, fields, 403),
            ({"Origin": "http://evil.example"}, fields, 403),
            ({}, fields, 415),
            (SENT_BY_OWN_PAGE, forged, 403),
            ({"Origin": own}, forged, 403),
        ):
            answer = root.post(form.action, data=sent, headers=headers)
            assert answer.status_code == status, (headers, answer.text)
        for kind in ("text/plain", "multipart/form-data; boundary=x", "application/json"):
            headers = {**SENT_BY_OWN_PAGE, "Content-Type": kind}
            answer = root.post(form.action, content=json.dumps(fields), headers=headers)
            assert answer.status_code in (403, 415), kind
        for method in ("GET", "PUT", "DELETE"):
            answer = root.request(method, form.action, params=fields, headers=SENT_BY_OWN_PAGE)
            assert "<h2>Done</h2>" not in answer.text
        assert topic in kafka(guarded).list_topics(timeout=60).topics
        # Not even with a token of programs, which other checks let pass: the form's own is asked for.
        answer = root.post(form.action, data=forged, headers={**bearer("root"), **SENT_BY_OWN_PAGE})
        assert answer.status_code == 403
        answer = root.post(form.action, data=fields, headers=bearer("root"))
        assert answer.status_code == 403
        page = httpx.get(f"{own}{form.action}", headers=bearer("root"), trust_env=False)
        by_program = {**fields, "token": Form(page.text).fields["token"]}
        for site in (
            {},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "none"},
        ):
            headers = {**bearer("root"), **site}
            answer = httpx.post(f"{own}{form.action}", data=by_program, headers=headers, trust_env=False)
            assert answer.status_code == 403, "no browser says that a page of ours sends it"
        assert topic in kafka(guarded).list_topics(timeout=60).topics
        assert root.post(form.action, data=fields, headers={"Origin": own}).status_code == 200
        assert topic not in kafka(guarded).list_topics(timeout=60).topics


def test_a_token_is_of_one_login_and_one_action(guarded: BrokerProcess, topic: str) -> None:
    with logged_in(guarded, "root") as root, logged_in(guarded, "root") as other:
        form = opened(root, "produce", topic=topic)
        fields = {**form.fields, "value": "x", "step": "do"}
        answer = other.post(form.action, data=fields, headers=SENT_BY_OWN_PAGE)
        assert answer.status_code == 403
        assert "another login" in text_of(answer)
        moved = opened(root, "delete-topic", topic=topic)
        stolen = {**moved.fields, "token": form.fields["token"], "confirm": topic, "step": "do"}
        assert root.post(moved.action, data=stolen, headers=SENT_BY_OWN_PAGE).status_code == 403
        for wrong in ("x", form.fields["token"][:-4] + "AAAA", "\u00e4", "A" * 5000):
            sent = {**fields, "token": wrong}
            assert root.post(form.action, data=sent, headers=SENT_BY_OWN_PAGE).status_code == 403
        # What seals a form opens no session.
        cookie = {"Cookie": f"magnetar_console={form.fields['token']}"}
        with browser(guarded) as nobody:
            assert nobody.get("/console/topics.json", headers=cookie).status_code == 401


def test_a_form_is_carried_out_once(guarded: BrokerProcess, topic: str) -> None:
    with logged_in(guarded, "root") as root:
        form = opened(root, "produce", topic=topic)
        assert send(root, form, value="once").status_code == 200
        again = send(root, form, value="once")
        assert again.status_code == 409
        assert "was sent before" in text_of(again)
        found = root.get("/console/records.json", params={"topic": topic}).json()["records"]
        assert [each["value"]["text"] for each in found] == ["once"]


def test_without_the_grant_there_is_no_form_and_no_act(guarded: BrokerProcess, topic: str) -> None:
    allow(guarded, topic, "alice", "consume")
    with logged_in(guarded, "alice") as alice, logged_in(guarded, "root") as root:
        page = alice.get("/console/topic", params={"topic": topic})
        assert page.status_code == 200
        assert "/console/act/" not in page.text
        assert "/console/act/produce" in root.get("/console/topic", params={"topic": topic}).text
        for action in ACTIONS:
            answer = alice.get(f"/console/act/{action}", params={"topic": topic})
            assert answer.status_code == 403, action
            assert 'name="token"' not in answer.text
        for action in ACTIONS:
            fields = {"topic": topic, "value": "x", "confirm": topic, "token": "x", "step": "do"}
            answer = alice.post(f"/console/act/{action}", data=fields, headers=SENT_BY_OWN_PAGE)
            assert answer.status_code == 403, action
        missing = alice.get("/console/act/delete-topic", params={"topic": "there-is-none"})
        assert missing.status_code == 403, "nor does she learn which topics there are"
        assert alice.get("/console/act/grant").status_code == 403
        assert alice.get("/console/act/abort-transaction").status_code == 403
        assert alice.get("/console/act/create-topic").status_code == 403


def test_a_grant_that_was_taken_away_meanwhile_counts(guarded: BrokerProcess, topic: str) -> None:
    allow(guarded, topic, "bob", "produce", "consume")
    with logged_in(guarded, "bob") as bob:
        form = opened(bob, "produce", topic=topic)
        late = opened(bob, "produce", topic=topic)
        assert send(bob, form, value="while he may").status_code == 200
        allow(guarded, topic, "bob")
        assert send(bob, late, value="too late").status_code == 403
        assert bob.get("/console/act/produce", params={"topic": topic}).status_code == 403
    with logged_in(guarded, "root") as root:
        found = root.get("/console/records.json", params={"topic": topic}).json()["records"]
        assert [each["value"]["text"] for each in found] == ["while he may"]


def test_what_a_form_names_is_refused_by_what_carries_it_out(guarded: BrokerProcess, topic: str) -> None:
    """A client that may read a record may not send it to any topic."""
    other = unique("others")
    made(guarded, other)
    allow(guarded, topic, "carol", "produce", "consume")
    with logged_in(guarded, "carol") as carol:
        done(carol, "produce", {"topic": topic}, value="hers")
        form = opened(carol, "send-again", topic=topic, partition="0", offset="0")
        answer = send(carol, form, to=other)
        assert answer.status_code in (403, 409)
        assert "TOPIC_AUTHORIZATION_FAILED" in text_of(answer)
        answer = send(
            carol, opened(carol, "send-again", topic=topic, partition="0", offset="0"), drop="yes", to=topic
        )
        assert "Not done" in text_of(answer), "nor drop what she may only read"
    with logged_in(guarded, "root") as root:
        assert root.get("/console/records.json", params={"topic": other}).json()["records"] == []
        first = root.get("/console/topic.json", params={"topic": topic}).json()["rows"][0]["first"]
        assert first == 0


def test_audit_lines_name_the_client_and_the_console(guarded: BrokerProcess, topic: str) -> None:
    log = guarded.data.parent / "audit.log"
    with logged_in(guarded, "root") as root:
        done(root, "grant", {}, role="dave", target=f"public/default/{topic}", produce="yes", consume=None)
        done(root, "revoke", {}, role="dave", target=f"public/default/{topic}")
        done(root, "delete-topic", {"topic": topic}, confirm=topic)
        acts = root.get("/console/overview.json").json()["acts"]
    lines = [json.loads(line) for line in Path(log).read_text().splitlines()]
    mine = [each for each in lines if topic in json.dumps(each) and each["protocol"] == "console"]
    assert {each["principal"] for each in mine} == {"root"}
    assert {each["address"] for each in mine} == {"127.0.0.1"}
    assert [each["operation"] for each in mine][-1] == "DeleteTopics"
    assert len(mine) == 3
    assert any(each["protocol"] == "console" and each["name"] == topic for each in acts)


def test_a_login_that_ended_is_asked_for_again(guarded: BrokerProcess, topic: str) -> None:
    with logged_in(guarded, "root") as root:
        form = opened(root, "produce", topic=topic)
        root.post("/console/logout", headers=SENT_BY_OWN_PAGE)
        root.cookies.clear()
        answer = root.post(form.action, data={**form.fields, "step": "do"}, headers=SENT_BY_OWN_PAGE)
        assert answer.status_code in (303, 401)


def test_a_browser_of_an_open_broker_has_forms_of_its_own(changing: BrokerProcess) -> None:
    name = unique("open")
    with browser(changing) as one, browser(changing) as other:
        form = opened(one, "create-topic")
        cookie = one.cookies.get("magnetar_console_form")
        assert cookie
        fields = {**form.fields, "name": name, "step": "do"}
        answer = other.post(form.action, data=fields, headers=SENT_BY_OWN_PAGE)
        assert answer.status_code == 403
        assert send(one, form, name=name).status_code == 200


def test_a_console_that_only_shows_has_no_forms(house: BrokerProcess) -> None:
    with browser(house) as http:
        answer = http.get("/console/act/create-topic")
        assert answer.status_code == 403
        assert "console.read.only=false" in answer.text
        answer = http.post("/console/act/create-topic", data={"name": "x"}, headers=SENT_BY_OWN_PAGE)
        assert answer.status_code == 403
        assert "/console/act/" not in http.get("/console/topics").text


def test_large_and_broken_forms_are_refused(changing: BrokerProcess) -> None:
    with browser(changing) as http:
        form = opened(http, "create-topic")
        large = {**form.fields, "configs": "x" * (3 << 20)}
        assert http.post(form.action, data=large, headers=SENT_BY_OWN_PAGE).status_code == 413
        headers = {**SENT_BY_OWN_PAGE, "Content-Type": "application/x-www-form-urlencoded"}
        for body in (b"token=%ff%fe", b"\xff\xfe=1", b"&".join(b"a=1" for _ in range(200)), b""):
            answer = http.post(form.action, content=body, headers=headers)
            assert answer.status_code in (400, 403), body[:20]
        assert http.get("/console/act/no-such-thing").status_code == 404
