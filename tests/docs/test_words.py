"""The house's prose in the field's words: what `tools/words.toml` lists becomes rarer, never more frequent."""

from __future__ import annotations

import json

import pytest

from tools.words import COUNTS, counts, in_module, in_page


@pytest.mark.parametrize(
    "line",
    [
        "Nobody is told of it.",
        "It goes to who listens.",
        "The record is kept beside the index.",
        "Leave it away, or say 1.",
        "Kafka's clients and Pulsar's.",
        "A cluster of Pulsar's that is served in place.",
        "The list is read anew, in the place of the old one.",
        "# What stands in the way",
        "## Who may",
    ],
)
def test_the_list_finds_what_is_read_twice(line: str) -> None:
    assert list(in_page("page.md", line)) != []


@pytest.mark.parametrize(
    "line",
    [
        "Clients that reconnect are notified immediately.",
        "Kafka clients and Pulsar clients share one topic.",
        "`nobody` is a user of Unix.",
        "```\nnobody\n```",
        "# Limitations",
        "## How to add an API",
    ],
)
def test_plain_sentences_pass(line: str) -> None:
    assert list(in_page("page.md", line)) == []


def test_comments_texts_and_openings_of_docstrings_are_read() -> None:
    module = (
        'def f():\n    """Tell the owner."""\n    # for who waits\n    raise ValueError("nobody listens")\n'
    )
    assert sorted(place.line for place in in_module("m.py", module)) == [1, 3, 4]


def test_no_page_and_no_room_has_more_of_them_than_before() -> None:
    bounds, found = json.loads(COUNTS.read_text()), counts()
    more = {
        name: f"{number}, not {bounds.get(name, 0)}"
        for name, number in found.items()
        if number > bounds.get(name, 0)
    }
    assert more == {}, "`python -m tools.words PATH` prints the places and what to write there"
