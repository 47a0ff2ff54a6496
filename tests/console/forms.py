"""A browser that fills in forms: it reads a page, keeps its hidden fields, and sends what a person would."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from uuid import uuid4

import httpx

from tests.console.test_pages import check_harmless


class Form(HTMLParser):
    """The fields of the form of an action, as a browser sends them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.buttons: list[str] = []
        self.action = ""
        self._area: str | None = None
        self._select: str | None = None
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form" and given.get("class") == "act":
            self.action, self._inside = given["action"], True
        if not self._inside:
            return
        if tag == "input":
            is_box = given.get("type") == "checkbox"
            if not is_box or "checked" in given:
                self.fields[given["name"]] = given.get("value", "")
        elif tag == "textarea":
            self._area = given["name"]
            self.fields[self._area] = ""
        elif tag == "select":
            self._select = given["name"]
        elif tag == "option" and self._select:
            if "selected" in given or self._select not in self.fields:
                self.fields[self._select] = given.get("value", "")
        elif tag == "button":
            self.buttons.append(given.get("value", ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
        elif tag == "textarea":
            self._area = None
        elif tag == "select":
            self._select = None

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self.fields[self._area] += data.removeprefix("\n")


def unique(name: str) -> str:
    """Return a name that nothing has yet: a test may run twice in one broker."""
    return f"{name}-{uuid4().hex[:8]}"


SENT_BY_OWN_PAGE = {"Sec-Fetch-Site": "same-origin"}


def opened(http: httpx.Client, action: str, **query: str) -> Form:
    """Return the form of an action."""
    answer = http.get(f"/console/act/{action}", params=query)
    assert answer.status_code == 200, answer.text
    check_harmless(answer)
    form = Form(answer.text)
    assert form.fields["token"]
    return form


def send(http: httpx.Client, form: Form, step: str = "do", **fields: str | None) -> httpx.Response:
    """Fill in a form, None for a box that is not ticked, and press a button."""
    data = {**form.fields, **fields, "step": step}
    kept = {name: value for name, value in data.items() if value is not None}
    answer = http.post(form.action, data=kept, headers=SENT_BY_OWN_PAGE)
    check_harmless(answer)
    return answer


def done(http: httpx.Client, action: str, about: dict[str, str], **fields: str | None) -> str:
    """Fill in and send a form that is carried out; return the page."""
    answer = send(http, opened(http, action, **about), **fields)
    assert answer.status_code == 200, text_of(answer)
    assert "<h2>Done</h2>" in answer.text, text_of(answer)
    return text_of(answer)


def text_of(answer: httpx.Response) -> str:
    """Return what a person reads on a page, in one line."""
    import html

    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", answer.text)))


def rows(answer: httpx.Response) -> list[list[str]]:
    """Return the cells of the rows that a preview shows."""
    import html

    found: list[Any] = re.findall(r"<tr>(.*?)</tr>", answer.text, re.DOTALL)
    return [[html.unescape(cell) for cell in re.findall(r"<bdi>(.*?)</bdi>", row)] for row in found[1:]]
