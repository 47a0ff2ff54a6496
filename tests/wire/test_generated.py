"""The generated messages are what the generator writes, and nobody edited them."""

from __future__ import annotations

import hashlib
import runpy
from pathlib import Path
from typing import Any

import pytest

from magnetar.kafka.handlers import ROUTES
from tests.wire.values import OUTLINE

ROOT = Path(__file__).parent.parent.parent
MESSAGES = ROOT / "src/magnetar/wire/kafka/messages"
TOOL: dict[str, Any] = runpy.run_path(str(ROOT / "tools/import_messages.py"))
DIGESTS = {
    ROOT / path: digest
    for digest, path in (
        line.split("  ") for line in (ROOT / "tests/wire/generated.sha256").read_text().splitlines()
    )
}


def test_no_generated_file_was_edited_by_hand() -> None:
    edited = [
        path.name
        for path, digest in DIGESTS.items()
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest
    ]
    assert edited == [], "change the generator, then `make codec`"


def test_no_file_stands_beside_the_generated_ones() -> None:
    assert set(MESSAGES.glob("*.py")) == {path for path in DIGESTS if path.parent == MESSAGES}


def test_generated_is_what_is_served_or_stored_and_nothing_more() -> None:
    served = {route.name + kind for route in ROUTES for kind in ("Request", "Response")}
    assert {message["name"] for message in OUTLINE.values()} == served | TOOL["STORED"]


@pytest.mark.skipif(
    not all(jar.exists() for jar in TOOL["jar_paths"]()),
    reason=f"Kafka's jars are not in {TOOL['JARS']}: `make codec` brings them",
)
def test_the_generator_writes_the_same_bytes_again() -> None:
    generated: dict[Path, str] = TOOL["generate"]()
    assert set(generated) == {*DIGESTS, TOOL["DIGESTS"]}
    assert [path.name for path, text in generated.items() if path.read_text() != text] == []
