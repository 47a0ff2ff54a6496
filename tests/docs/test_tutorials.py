"""The tutorials' commands run, in order, and print what the page says."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.pipeline import class_archive

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 560


class Step(NamedTuple):
    """One command block and the lines that its output must hold, in this order."""

    language: str
    code: str
    expected: tuple[str, ...]


def steps(page: Path) -> list[Step]:
    """Return a page's commands; a text block says what the block before it prints."""
    found: list[Step] = []
    for language, content in BLOCK.findall(page.read_text()):
        if language == "text":
            found[-1] = found[-1]._replace(expected=tuple(content.splitlines()))
        else:
            found.append(Step(language, content, ()))
    return found


def script_of(page: Path) -> str:
    """Return one bash script of all steps, so that jobs and directories last; each step announces itself."""
    parts = ["set -e"]
    for number, step in enumerate(steps(page)):
        parts.append(f"echo '=== {number}'")
        if step.language == "sh":
            parts.append(step.code)
        else:
            parts.append(f"python - <<'PYTHON'\n{step.code}PYTHON")
    return "\n".join(parts)


def free_addresses() -> dict[str, str]:
    """Return a free address for each that the pages name."""
    with ExitStack() as stack:
        found = {}
        for named in ("127.0.0.1:9092", "127.0.0.1:6650", "127.0.0.1:8080"):
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            found[named] = f"127.0.0.1:{probe.getsockname()[1]}"
        return found


def at(addresses: dict[str, str], text: str) -> str:
    """Return text of a page with the addresses that are free."""
    for named, free in addresses.items():
        text = text.replace(named, free)
    return text


def tutorials() -> list[object]:
    """Return all tutorials; those with Spark are marked so."""
    pages = sorted(DOCS.glob("tutorial-*.md"))
    needs = [[] if page.stem == "tutorial-ten-minutes" else [pytest.mark.spark] for page in pages]
    return [pytest.param(page, marks=marks, id=page.stem) for page, marks in zip(pages, needs, strict=True)]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", tutorials())
def test_a_tutorial_does_what_it_says(page: Path, tmp_path: Path) -> None:
    addresses = free_addresses()
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MAGNETAR_BOOTSTRAP_SERVER": addresses["127.0.0.1:9092"],
        "SPARK_SUBMIT_OPTS": class_archive.without(),
    }
    process = subprocess.Popen(
        ["bash", "-m", "-c", at(addresses, script_of(page))],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
    finally:
        end_brokers(tmp_path)
        process.kill()
    assert process.returncode == 0, output
    printed = dict(zip(*[iter(re.split(r"^=== (\d+)\n", output, flags=re.MULTILINE)[1:])] * 2, strict=True))
    for number, step in enumerate(steps(page)):
        lines = [line.rstrip() for line in printed[str(number)].splitlines()]
        for expected in step.expected:
            wanted = at(addresses, expected)
            assert wanted in lines, f"{step.code}\ndid not print {wanted!r}, but:\n" + "\n".join(lines)
            del lines[: lines.index(wanted) + 1]


def end_brokers(directory: Path) -> None:
    """End a broker that a failed tutorial left behind."""
    for word in directory.glob("*/broker.json"):
        found = re.search(r'"pid": (\d+)', word.read_text())
        if found:
            os.kill(int(found[1]), signal.SIGKILL)
