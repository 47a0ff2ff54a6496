"""The tutorials' commands run, in order, and print what the page says."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", sorted(DOCS.glob("tutorial-*.md")), ids=lambda page: page.stem)
def test_a_tutorial_does_what_it_says(page: Path, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "MAGNETAR_BOOTSTRAP_SERVER": address,
        "SPARK_SUBMIT_OPTS": class_archive.without(),
    }
    process = subprocess.Popen(
        ["bash", "-m", "-c", script_of(page).replace("127.0.0.1:9092", address)],
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
            wanted = expected.replace("127.0.0.1:9092", address)
            assert wanted in lines, f"{step.code}\ndid not print {wanted!r}, but:\n" + "\n".join(lines)
            del lines[: lines.index(wanted) + 1]


def end_brokers(directory: Path) -> None:
    """End a broker that a failed tutorial left behind."""
    for word in directory.glob("*/broker.json"):
        found = re.search(r'"pid": (\d+)', word.read_text())
        if found:
            os.kill(int(found[1]), signal.SIGKILL)
