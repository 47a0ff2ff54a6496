"""``tools/install.sh`` on systems that lack something: what it asks apt for, and what it says to who may not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "tools" / "install.sh"
SYSTEMS = ("awk", "bash", "cut", "dirname", "env", "grep", "head", "paste", "sed", "sort", "touch")


class System:
    """A PATH of a system's own, in a copy of the tree whose `.venv` is there; apt and pip note what they are told."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.calls = home / "calls"
        self._bin = home / "bin"
        (home / "tools").mkdir()
        shutil.copy(SCRIPT, home / "tools")
        self._bin.mkdir()
        for tool in SYSTEMS:
            (self._bin / tool).symlink_to(shutil.which(tool) or tool)
        self.program("id", "echo 0")
        self.program(".venv/bin/python", 'case "$*" in *install*) echo "pip ${*: -1}" >> calls ;; esac')

    def program(self, name: str, script: str) -> None:
        path = self.home / name if "/" in name else self._bin / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{script}\n")
        path.chmod(0o755)

    def java(self, version: str, name: str = "java") -> None:
        self.program(name, f"""echo 'openjdk version "{version}" 2026-10-20' >&2""")

    def apt(self, *, brings: str = "21.0.9") -> None:
        """Bring an apt that knows two runtimes once it has lists of packages, and has only the newer one."""
        for tool in ("cat", "mv"):
            (self._bin / tool).symlink_to(shutil.which(tool) or tool)
        self.java(brings, "not-yet/java")
        self.program("apt-cache", "if [ -e lists ]; then cat lists; fi")
        self.program(
            "apt-get",
            """echo "apt-get $1 ${*: -1}" >> calls
if [ "$1" = update ]; then
  printf '%s\\n' 'openjdk-17-jre-headless - a JRE' 'openjdk-21-jre-headless - a newer one' > lists; exit
fi
[ "${*: -1}" = openjdk-21-jre-headless ] && [ -e lists ] && mv not-yet/java bin/java""",
        )

    def install(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(self.home / "tools" / "install.sh")],
            env={"PATH": str(self._bin), **environment},
            cwd=self.home,
            capture_output=True,
            text=True,
        )

    @property
    def called(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    @property
    def is_installed(self) -> bool:
        return (self.home / ".venv" / "installed").exists()


PIP = ["pip constraints.txt", "pip ."]


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def test_root_is_brought_a_runtime_though_apt_has_no_lists_yet(system: System) -> None:
    system.apt()
    done = system.install()
    assert done.returncode == 0, done.stderr
    assert system.called == [
        "apt-get install default-jre-headless",
        "apt-get update -q",
        "apt-get install openjdk-21-jre-headless",
        *PIP,
    ]
    assert system.is_installed


def test_others_are_told_what_to_type_before_anything_is_brought(system: System) -> None:
    system.apt()
    system.program("id", "echo 1000")
    (system.home / "lists").write_text("openjdk-17-jre-headless - a JRE\n")
    done = system.install()
    assert done.returncode == 1
    assert "a Java runtime, 17 or newer" in done.stdout
    assert "sudo apt-get install -y openjdk-17-jre-headless" in done.stderr
    assert system.called == []
    assert not system.is_installed


def test_where_there_is_no_apt_it_says_what_is_missing(system: System) -> None:
    done = system.install()
    assert done.returncode == 1
    assert "a Java runtime, 17 or newer" in done.stdout
    assert "Please install what is missing" in done.stderr
    assert system.called == []


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_an_old_runtime_will_not_do(system: System, version: str) -> None:
    system.java(version)
    assert system.install().returncode == 1


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_one_that_will_do_is_left_alone(system: System, version: str) -> None:
    system.java(version)
    done = system.install()
    assert done.returncode == 0, done.stderr
    assert system.called == PIP


def test_java_none_goes_without(system: System) -> None:
    assert system.install(JAVA="none").returncode == 0
    assert system.called == PIP


def test_packages_that_do_not_bring_it_end_in_a_message(system: System) -> None:
    system.apt(brings="11.0.2")
    done = system.install()
    assert done.returncode == 1
    assert "do not bring it" in done.stderr
    assert not system.is_installed
    assert system.called[-1] == "apt-get install openjdk-21-jre-headless"
