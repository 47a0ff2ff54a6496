"""Check what has changed since main: format, lint, types, and the tests of the files that changed. ``make check``.

Tests are found in two ways: `tests/mutants/areas.toml` names them for whole rooms, and a test that imports a changed
module, itself or by way of its helpers, is run too. Tests marked ``slow`` or ``spark`` are left to ``make test``.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tools.mutants.lists import areas

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("src", "tests", "tools", "examples", "benchmarks", "compat")
MAX_FILE_BYTES = 512 << 10
MAX_SUBJECT = 72
_NEAREST = 2
"""So many of an area's tests are run: they are listed nearest first, and all of them would take minutes."""
_MOST = 12
"""So many tests are run unless all are asked for: a module that everything imports would bring half the suite."""


def changed(base: str = "main") -> list[str]:
    """Return paths of files that differ from where this branch left ``base``, uncommitted and new ones included."""
    forked = _git("merge-base", base, "HEAD").strip()
    lines = _git("diff", "--name-only", forked) + _git("ls-files", "--others", "--exclude-standard")
    return sorted({line for line in lines.splitlines() if (ROOT / line).is_file()})


def affected(paths: Iterable[str]) -> list[str]:
    """Return the paths of tests for changed files, the nearest first.

    Changed tests, then their areas', then tests that import a changed module, then those whose helpers do.
    """
    paths = set(paths)
    named = [test for area in areas() if paths.intersection(area.sources) for test in area.tests[:_NEAREST]]
    modules = {_module(path) for path in paths if path.endswith(".py")}
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    direct = [name for name in files if modules & _imports(name)]
    indirect = [name for name in files if modules & _imports_deeply(name)]
    tests = dict.fromkeys([*sorted(filter(_is_test, paths)), *named, *direct, *indirect])
    return [test for test in tests if not any(test.startswith(f"{other}/") for other in tests)]


def large_files(paths: Iterable[str]) -> list[str]:
    """Return files above `MAX_FILE_BYTES`."""
    return [path for path in paths if (ROOT / path).stat().st_size > MAX_FILE_BYTES]


def subject_fault(message: str) -> str | None:
    """Return what is wrong with a commit message's first line, or None."""
    subject = message.split("\n", 1)[0]
    if not subject.strip():
        return "the subject is empty"
    if len(subject) > MAX_SUBJECT and not subject.startswith(("Merge ", "Revert ")):
        return f"the subject has {len(subject)} characters; {MAX_SUBJECT} are allowed"
    return "the subject ends with a full stop" if subject.endswith(".") else None


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_") and path.endswith(".py")


def _module(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def _imports(path: str) -> frozenset[str]:
    """Return the modules that a file names in imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


@cache
def _imports_deeply(path: str) -> frozenset[str]:
    """Return the modules that a test imports itself or by way of its helpers below ``tests``."""
    found: set[str] = set()
    waiting, seen = [path], {path}
    while waiting:
        names = _imports(waiting.pop())
        found |= names
        for name in names:
            helper = name.replace(".", "/") + ".py"
            if name.startswith("tests.") and helper not in seen and (ROOT / helper).is_file():
                seen.add(helper)
                waiting.append(helper)
    return frozenset(found)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _run(name: str, *words: str) -> bool:
    """Run a command in the checkout and return whether it succeeded."""
    print(f"\033[1m{name}\033[0m", flush=True)
    return (
        subprocess.run([str(ROOT / ".venv" / "bin" / words[0]), *words[1:]], cwd=ROOT, check=False).returncode
        == 0
    )


def _check(base: str, most: int | None) -> int:
    paths = changed(base)
    code = [path for path in paths if path.endswith(".py") and path.startswith(SOURCES)]
    if large := large_files(paths):
        print(f"larger than {MAX_FILE_BYTES >> 10} KiB: {', '.join(large)}", file=sys.stderr)
        return 1
    if not code:
        print(f"no Python file differs from {base}")
        return 0
    print(f"{len(code)} Python files differ from {base}")
    good = _run("format", "ruff", "format", *code) and _run("lint", "ruff", "check", "--fix", *code)
    good = (
        good and _run("imports", "lint-imports", "--no-cache") and _run("types", "mypy", "--no-error-summary")
    )
    tests = affected(paths)
    if tests[most:] and most is not None:
        print(f"{len(tests) - most} more tests import what changed: --all runs them, too")
    tests = tests[:most]
    if good and tests:
        marks = "not slow and not spark"
        good = _run(f"tests: {' '.join(tests)}", "python", "-m", "pytest", "-n", "2", "-m", marks, *tests)
    return int(not good)


def main() -> int:
    """Return 0 where everything that was asked for holds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--base", default="main", help="the branch that changes are counted from")
    parser.add_argument(
        "--all", action="store_true", help=f"run all tests of what changed, and not only the nearest {_MOST}"
    )
    parser.add_argument(
        "--large-files", action="store_true", help=f"only look for files above {MAX_FILE_BYTES >> 10} KiB"
    )
    parser.add_argument(
        "--subject", metavar="FILE", type=Path, help="only check the commit message in this file"
    )
    options = parser.parse_args()
    if options.subject:
        fault = subject_fault(options.subject.read_text())
        print(fault, file=sys.stderr) if fault else None
        return int(fault is not None)
    if options.large_files:
        large = large_files(changed(options.base))
        print("\n".join(large), file=sys.stderr) if large else None
        return int(bool(large))
    return _check(options.base, None if options.all else _MOST)


if __name__ == "__main__":
    sys.exit(main())
