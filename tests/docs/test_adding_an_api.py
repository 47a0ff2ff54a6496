"""Who does what ``docs/how-to-add-an-api.md`` says, and nothing else, has a broker with one API more."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from magnetar.auth import Right
from magnetar.kafka.rights import cluster
from magnetar.kafka.rows import Way
from magnetar.wire.kafka.messages import ApiKey

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = dict(BLOCK.findall((ROOT / "docs/how-to-add-an-api.md").read_text()))
TABLE = "src/magnetar/kafka/handlers/__init__.py"
NEEDED = ("src", "tests", "tools", "docs", "changes", "pyproject.toml", "Makefile")
OF_ALL_APIS = (
    "tests/security/test_authorization.py::test_every_api_has_the_guard_that_its_route_names",
    "tests/security/test_authorization.py::test_what_is_open_to_all_looks_for_itself_or_tells_nothing",
    "tests/security/test_tenants.py::test_routes_name_topics_where_kafkas_definitions_do",
    "tests/security/test_guards_pace.py",
    "tests/proxy/test_table.py",
    "tests/proxy/test_spreading.py",
    "tests/wire/test_between_brokers.py",
    "tests/wire/test_header.py",
    "tests/conversations/test_gone.py",
    "tests/wire/test_generated.py",
    "tests/wire/test_messages.py",
    "tests/hostile/test_requests.py",
    "tests/hostile/test_fuzz.py",
)


def with_line(table: str) -> str:
    """Return the table of routes with the page's line in it."""
    before, end, after = table.partition("    Route(ApiKey.DESCRIBE_TRANSACTIONS")
    assert end
    return f"{before}{BLOCKS['route'].rstrip()},\n{end}{after}"


def test_the_line_of_the_page_is_a_route_of_the_table() -> None:
    table: dict[str, Any] = {}
    exec(with_line((ROOT / TABLE).read_text()), table)
    added = table["ROUTE_BY_KEY"][ApiKey.UNREGISTER_BROKER]
    assert (added.way, added.rights) == (Way.CONTROLLER, cluster(Right.alter_cluster))


@pytest.mark.slow
@pytest.mark.skipif(
    not all(jar.exists() for jar in runpy.run_path(str(ROOT / "tools/import_messages.py"))["jar_paths"]()),
    reason="Kafka's jars are not here: `make codec` brings them",
)
def test_the_page_adds_an_api_in_one_file_one_line_and_one_test(tmp_path: Path) -> None:
    assert len(BLOCKS) == 3
    for name in NEEDED:
        made = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        made(ROOT / name, tmp_path / name)
    table = tmp_path / TABLE
    table.write_text(with_line(table.read_text()))
    del BLOCKS["route"]
    for path, text in BLOCKS.items():
        assert not (tmp_path / path).exists()
        (tmp_path / path).write_text(text)
    (test,) = [path for path in BLOCKS if path.startswith("tests/")]

    run(tmp_path, "tools/import_messages.py")
    if shutil.which("javac"):
        run(tmp_path, "tools/golden_bytes.py")
        run(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "tests/wire/test_golden.py")
    run(tmp_path, "-m", "ruff", "check", *BLOCKS)
    run(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", test, *OF_ALL_APIS)
    # A table of who may ask what changes with every API: its new lines are written, and then they hold.
    matrix = ("tests/security/matrix/test_matrix.py", "-k", "kafkas_apis")
    run(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", *matrix, "--rewrite")
    assert "UnregisterBroker" in (tmp_path / "tests/security/matrix/kafka.txt").read_text()
    run(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", *matrix)


def run(root: Path, *command: str) -> None:
    """Run Python there, with that tree's package."""
    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    done = subprocess.run(
        [sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
