"""Have Kafka's own classes write examples of the messages that `tests/wire/golden.txt` does not have yet.

    .venv/bin/python tools/golden_bytes.py

It needs the jars that `make codec` brings, and a JDK: `java` compiles `RewriteWithKafka.java` by itself. What is there
stays.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests/wire/golden.txt"
sys.path.insert(0, str(ROOT))  # the examples are those of the tests


def main() -> None:
    lines = GOLDEN.read_text().splitlines()
    new = missing({line.split(" ")[0] for line in lines})
    if new:
        wanted = [*lines, *rewritten(new)]
        GOLDEN.write_text(
            "".join(f"{line}\n" for line in sorted(wanted, key=lambda line: line.split(" ")[0]))
        )
    print(f"{len(new)} lines are new")


def missing(there: set[str]) -> list[str]:
    """Return ``name version hex`` of each version of the messages that are not there, as our codec writes them."""
    from tests.wire.values import OUTLINE, build, versions_of

    random = Random(1)
    return [
        f"{outline['name']} {version} {bytes(build(module, version, random).encode(version)).hex()}"
        for module, outline in OUTLINE.items()
        if outline["name"] not in there
        for version in versions_of(module)
    ]


def rewritten(lines: Sequence[str]) -> list[str]:
    """Return the lines as Kafka's classes read and write them."""
    jars = runpy.run_path(str(ROOT / "tools/import_messages.py"))["jar_paths"]()
    command = ["java", "-cp", ":".join(map(str, jars)), ROOT / "tools/RewriteWithKafka.java"]
    done = subprocess.run(command, input="\n".join(lines), stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    main()
