"""Where keys may lie, and what is no key's location."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from magnetar.auth.keys import read_location
from magnetar.base.errors import InvalidConfig


def test_a_key_is_read_from_wherever_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "a key"
    path.write_bytes(b"\0secret\xff")
    text = base64.b64encode(b"\0secret\xff").decode()
    for location in (path.as_uri(), str(path), f"data:;base64,{text}", "data:,%00secret%FF", text):
        assert read_location(location, "token.secret.key") == b"\0secret\xff"


@pytest.mark.parametrize(
    "text", ["c2Vj*cmV0", "c2Vj\ncmV0", "c2VjcmV", "data:;base64,c2Vj*cmV0", "data:c2Vj"]
)
def test_what_is_not_quite_base64_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"token\.secret\.key") as refused:
        read_location(text, "token.secret.key")
    assert "c2Vj" not in str(refused.value)
