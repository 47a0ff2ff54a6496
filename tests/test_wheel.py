"""The wheel has all that the tree has, and what it asks for is enough: installed alone, it serves stock clients."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import PathDistribution, distribution
from pathlib import Path
from urllib.request import urlopen

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
RECORDS = 20_000

# What a user's own program does, run by the venv's Python, which has what the wheel asks for and nothing else.
_CLIENT = f"""
import sys
from confluent_kafka import Consumer, Producer

producer = Producer({{"bootstrap.servers": sys.argv[1]}})
for number in range({RECORDS}):
    producer.produce("orders", b"%d" % number, key=b"%d" % (number % 7))
    if number % 5_000 == 0:
        producer.poll(0)
assert producer.flush() == 0
consumer = Consumer({{"bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest"}})
consumer.subscribe(["orders"])
seen = []
while len(seen) < {RECORDS}:
    for message in consumer.consume({RECORDS}, timeout=1):
        assert message.error() is None, message.error()
        seen.append(int(message.value()))
consumer.close()
assert sorted(seen) == list(range({RECORDS}))
print(len(seen))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", built], cwd=ROOT, check=True
    )
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The ``bin`` of a new venv that has the wheel, and of the packages here those that its metadata ask for."""
    venv = wheel.parent / "venv"
    subprocess.run([sys._base_executable, "-m", "venv", "--without-pip", venv], check=True)  # type: ignore[attr-defined]
    python = venv / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", wheel], check=True)
    (site,) = venv.glob("lib/python3*/site-packages")
    (itself,) = (PathDistribution(path) for path in site.glob("magnetar-*.dist-info"))
    for name in asked_for(itself.requires or []):
        for top in {file.parts[0] for file in distribution(name).files or [] if file.parts[0] != ".."}:
            (site / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    return venv / "bin"


def asked_for(requirements: list[str]) -> set[str]:
    """Return the names of what these ask for without extras, and of what that asks for in turn."""
    found: set[str] = set()
    ahead = [(Requirement(each), "") for each in requirements]
    while ahead:
        wanted, extra = ahead.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(wanted.name)
        for each in distribution(name).requires or []:
            if name not in found:
                ahead.append((Requirement(each), ""))
            ahead += [(Requirement(each), own) for own in wanted.extras if f'extra == "{own}"' in each]
        found.add(name)
    return found


def test_it_has_every_file_of_the_packages(wheel: Path) -> None:
    kept = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = {path.removeprefix("src/") for path in kept.stdout.splitlines()}
    assert len(files) > 500
    with zipfile.ZipFile(wheel) as archive:
        assert files - set(archive.namelist()) == set()


@pytest.mark.slow
def test_only_what_it_asks_for_is_there(installed: Path) -> None:
    script = "from importlib.util import find_spec; print(*filter(find_spec, ('pyspark', 'numba', 'numpy', 'pytest')))"
    found = subprocess.run([installed / "python", "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


@pytest.fixture
def served(installed: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Addresses of a broker that the installed command runs, by what is served there."""
    ports = [f"--{what}=127.0.0.1:0" for what in ("kafka", "pulsar", "http", "schema-registry")]
    command = [installed / "magnetar", "standalone", "--data", tmp_path / "data", *ports]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = next(line for line in process.stdout if line.startswith("ready "))
        yield dict(word.split("=", 1) for word in ready.split()[1:])
    finally:
        process.terminate()
        assert process.wait() == 0
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.slow
def test_it_serves_a_stock_client_and_the_commands(installed: Path, served: dict[str, str]) -> None:
    ran = subprocess.run(
        [installed / "python", "-c", _CLIENT, served["kafka"]], capture_output=True, text=True, check=False
    )
    assert ran.stdout.split() == [str(RECORDS)], ran.stderr
    describe = [
        installed / "magnetar",
        "topic",
        "describe",
        "orders",
        "--json",
        "--bootstrap-server",
        served["kafka"],
    ]
    told = subprocess.run(describe, capture_output=True, text=True, check=True)
    assert str(RECORDS) in told.stdout
    with urlopen(f"http://{served['http']}/metrics", timeout=60) as answer:
        assert b"\n" in answer.read()
    with urlopen(f"http://{served['schema-registry']}/subjects", timeout=60) as answer:
        assert json.load(answer) == []
