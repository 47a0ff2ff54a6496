"""Format strings are kcat's."""

from __future__ import annotations

import pytest

from magnetar.admin.errors import Invalid
from magnetar.admin.lines import Seen
from magnetar.cli.formats import compile_format, unescape

RECORD = Seen("t", 3, 42, 1700, "CreateTime", b"key", b"\xffvalue", (("a", b"1"), ("b", None)))
EMPTY = Seen("t", 3, 42, -1, "none", None, None, ())


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%s\n", b"\xffvalue\n"),
        (r"%k\t%s", b"key\t\xffvalue"),
        ("%t-%p@%o", b"t-3@42"),
        ("%S %K", b"6 3"),
        ("%R", b"\0\0\0\x06"),
        ("%T", b"1700"),
        ("%h", b"a=1,b=NULL"),
        ("100%%", b"100%"),
        (r"\x00\x1f", b"\0\x1f"),
        ("", b""),
        ("ä", "ä".encode()),
    ],
)
def test_tokens(text: str, printed: bytes) -> None:
    assert compile_format(text)(RECORD) == printed


def test_nulls_have_no_size_and_print_as_they_were_told_to() -> None:
    assert compile_format("%k:%s:%S:%K")(EMPTY) == b"::-1:-1"
    assert compile_format("%k:%s", b"NULL")(EMPTY) == b"NULL:NULL"
    assert compile_format("%R")(EMPTY) == b"\xff\xff\xff\xff"


@pytest.mark.parametrize("text", ["%x", "%", "50% more", r"\q", r"\xg1"])
def test_what_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="means nothing"):
        compile_format(text)


def test_unescape_leaves_the_rest_alone() -> None:
    assert unescape(r"a\\nb") == rb"a\nb"
