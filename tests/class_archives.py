"""Archives of classes (JEP 350) that the tests' JVMs begin with: to load what is needed for Spark, or for a bookie,
from jars takes about half of the processor time of a JVM that lives for a test.

An archive is made once, by a JVM that does what those of tests do and ends; it is kept with the virtual environment, by
what it depends on. A JVM that an archive does not fit goes on without it, and says nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

QUIET = "-Xlog:cds*=off"
"""Of an archive that does not fit the JVM would tell on its output, which may be a test's."""


def java_command() -> str | None:
    """Return where Java is, or None."""
    home = Path(os.environ.get("JAVA_HOME", "/nowhere"), "bin", "java")
    return str(home) if home.exists() else shutil.which("java")


def archives(
    name: str, parts: Sequence[str], jars: Iterable[Path], make: Callable[[dict[str, Path], Path], None]
) -> dict[str, tuple[str, ...]]:
    """Return, for each of ``parts``, the options of a JVM that begins with its archive; none where it cannot be made.

    All of them are made at once if one is not there: ``make`` is called with the paths that JVMs of ``jars`` are to
    write at their end (``-XX:ArchiveClassesAtExit``), and with one for what is said meanwhile.
    """
    java = java_command()
    if java is None:
        return dict.fromkeys(parts, ())
    folder = Path(sys.prefix, "class-archives")
    folder.mkdir(exist_ok=True)
    key = f"{name}-{_key(Path(java).resolve(), jars)}"
    kept = {part: folder / f"{key}-{part}.jsa" for part in parts}
    log = folder / f"{key}.said"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several workers one makes it
        if not log.exists():  # what failed once is not tried again
            for old in folder.glob(f"{name}-*"):
                old.unlink()
            written = {part: folder / f"{key}-{part}.making" for part in parts}
            try:
                make(written, log)
                for part, path in written.items():
                    path.rename(kept[part])
            except Exception as error:
                warnings.warn(f"JVMs begin without their classes: {error}: {log}", stacklevel=2)
            log.touch()
    return {
        part: (f"-XX:SharedArchiveFile={path}", QUIET) if path.exists() else () for part, path in kept.items()
    }


def _key(java: Path, jars: Iterable[Path]) -> str:
    """Name what an archive depends on: which Java it is, and which jars where."""
    release = java.parent.parent / "release"
    said = [str(java), release.read_text() if release.exists() else str(java.stat().st_mtime_ns)]
    for jar in sorted(jars):
        found = jar.stat()
        said.append(f"{jar} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:12]
