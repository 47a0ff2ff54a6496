"""Who sees what in the console of a broker that asks who somebody is, and how a browser logs in."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.console.conftest import browser, write_users
from tests.console.test_pages import check_harmless
from tests.process import BrokerProcess
from tests.security.signing import expiring, token
from tests.waiting import until

FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
OLD_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module", autouse=True)
def furnished(secured: BrokerProcess) -> None:
    """Make a topic of alice's, and one of nobody else's."""
    admin = AdminClient(
        {
            "bootstrap.servers": secured.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "public/default",
            "sasl.password": f"token:{token('root')}",
        }
    )
    for each in admin.create_topics([NewTopic("hers", 1), NewTopic("others", 1)]).values():
        each.result(60)
    with browser(secured) as http:
        grant(http, "alice", "consume")


def grant(http: httpx.Client, role: str, *actions: str) -> None:
    path = f"/admin/v2/persistent/public/default/hers/permissions/{role}"
    headers = bearer("root")
    answer = (
        http.post(path, json=list(actions), headers=headers)
        if actions
        else http.delete(path, headers=headers)
    )
    assert answer.status_code == 204, answer.text


def bearer(role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(role)}"}


def log_in(http: httpx.Client, **fields: str) -> httpx.Response:
    return http.post("/console/login?next=/console/topics%3Fq%3Dx", data=fields, headers=FORM)


def names(http: httpx.Client, **headers: str) -> list[str]:
    answer = http.get("/console/topics.json", headers=headers)
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()["topics"]]


def test_who_does_not_say_who_it_is_is_asked(secured: BrokerProcess) -> None:
    with browser(secured) as http:
        answer = http.get("/console/topics?q=a%26b")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/console/login?next=%2Fconsole%2Ftopics%3Fq%3Da%2526b"
        form = http.get(answer.headers["location"])
        assert form.status_code == 200
        check_harmless(form)
        assert 'name="password"' in form.text
        assert 'name="token"' in form.text
        assert http.get("/console/topics.json").status_code == 401
        assert http.get("/console/topics", headers={"Accept": "*/*"}).status_code == 401
        assert http.get("/console/console.css").status_code == 200


def test_each_sees_what_its_grants_let_it_see(secured: BrokerProcess) -> None:
    with browser(secured) as http:
        assert names(http, **bearer("root")) == ["hers", "others"]
        assert names(http, **bearer("alice")) == ["hers"]
        assert names(http, **bearer("sam")) == []
        of_root = http.get("/console/overview.json", headers=bearer("root")).json()
        of_alice = http.get("/console/overview.json", headers=bearer("alice")).json()
        assert (of_root["topics"], of_alice["topics"]) == (2, 1)
        assert of_root["acts"]
        assert of_alice["acts"] is None


@pytest.mark.parametrize("by", ["password", "token"])
def test_a_browser_logs_in_and_out(secured: BrokerProcess, by: str) -> None:
    with browser(secured) as http:
        fields = {"user": "root", "password": "secret"} if by == "password" else {"token": token("root")}
        answer = log_in(http, **fields)
        assert answer.status_code == 303, answer.text
        assert answer.headers["location"] == "/console/topics?q=x"
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "Path=/console" in cookie
        assert "secret" not in cookie
        assert names(http) == ["hers", "others"]
        page = http.get("/console")
        check_harmless(page)
        assert "root" in page.text
        assert "Log out" in page.text
        out = http.post("/console/logout", headers=FORM)
        assert out.status_code == 303
        assert http.get("/console/topics.json").status_code == 401


def test_the_cookie_opens_nothing_but_the_console(secured: BrokerProcess) -> None:
    with browser(secured) as http:
        cookie = log_in(http, token=token("root")).headers["set-cookie"].partition(";")[0]
        assert http.get("/admin/v2/tenants", headers={"Cookie": cookie}).status_code == 401
        assert http.get("/console/topics.json", headers={"Cookie": cookie}).status_code == 200
        damaged = f"{cookie[:-4]}AAAA"
        http.cookies.clear()
        for wrong in (
            damaged,
            "magnetar_console=x",
            "magnetar_console=\xe4",
            "magnetar_console=" + "A" * 9000,
        ):
            given = {"Cookie": wrong.encode("latin-1")}
            assert http.get("/console/topics.json", headers=given).status_code == 401


def test_wrong_passwords_and_tokens_are_refused_in_words(secured: BrokerProcess) -> None:
    with browser(secured) as http:
        for fields in (
            {"user": "root", "password": "wrong"},
            {"user": "<script>", "password": "x"},
            {"token": "abc"},
            {"token": "\u202e"},
            {},
        ):
            answer = log_in(http, **fields)
            assert answer.status_code == 401
            assert "set-cookie" not in answer.headers
            check_harmless(answer)


def test_a_form_of_another_page_logs_nobody_in(secured: BrokerProcess) -> None:
    with browser(secured) as http:
        root = {"user": "root", "password": "secret"}
        own = str(http.base_url).rstrip("/")
        for headers, status in (
            ({"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"}, 403),
            ({"Sec-Fetch-Site": "same-site", "Origin": "http://evil.example"}, 403),
            ({"Sec-Fetch-Site": "none"}, 415),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({}, 415),
            ({"Origin": own}, 303),
        ):
            answer = http.post("/console/login", data=root, headers={**OLD_FORM, **headers})
            assert answer.status_code == status, headers
        # And other paths take no forms from own pages, either.
        answer = http.post("/admin/v2/tenants", data=root, headers={**FORM, **bearer("root")})
        assert answer.status_code != 204


@pytest.mark.parametrize(
    "place",
    ["//evil.example", "https://evil.example/console", "javascript:alert(1)", "/admin/v2", "/console\n"],
)
def test_a_login_goes_on_to_the_console_alone(secured: BrokerProcess, place: str) -> None:
    with browser(secured) as http:
        answer = http.post(
            "/console/login", params={"next": place}, data={"token": token("root")}, headers=FORM
        )
        assert answer.headers["location"] == "/console"


def test_what_ends_a_login(secured: BrokerProcess, tmp_path: Path) -> None:
    """A grant taken away, a token that expired, a password that was changed count at once."""
    with browser(secured) as http, browser(secured) as alice:
        assert log_in(alice, token=token("alice")).status_code == 303
        assert names(alice) == ["hers"]
        grant(http, "alice")
        assert names(alice) == []
        grant(http, "alice", "consume")
        assert names(alice) == ["hers"]
    with browser(secured) as short:
        assert log_in(short, token=expiring(2, "root")).status_code == 303
        until(lambda: short.get("/console/topics.json").status_code == 401)
    users = secured.data.parent / "users"
    with browser(secured) as root:
        assert log_in(root, user="root", password="secret").status_code == 303
        try:
            time.sleep(0.01)  # the file is known by its time
            write_users(users, root="another")
            until(lambda: root.get("/console/topics.json").status_code == 401)
        finally:
            write_users(users, root="secret")


def test_what_is_too_long_for_a_cookie_is_said(secured: BrokerProcess) -> None:
    with browser(secured) as http:
        answer = log_in(http, token=token("root", note="x" * 3000))
        assert answer.status_code == 401
        assert "too long for a cookie" in answer.text
        assert log_in(http, token="x" * 100_000).status_code == 413
