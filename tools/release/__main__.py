"""Make everything that a release has, below ``dist/VERSION``, from the commit that is checked out.

    make release [REPOSITORY=https://...] [SIGNING_KEY=FILE]

REPOSITORY is where the tree can be browsed: links of the README lead there. SIGNING_KEY is an SSH key that signs the
checksums (``ssh-keygen -Y sign``, namespace ``file``). Nothing is uploaded, tagged or committed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tools.release import changes, readme

ROOT = Path(__file__).resolve().parents[2]
_HERE = Path(__file__).resolve().parent


class CannotRelease(Exception):
    """The reason that there is no release, for the person who makes it."""


def main() -> int:
    """Make it; return the exit status."""
    parser = argparse.ArgumentParser(prog="make release", description="Make a release's files.")
    parser.add_argument("--repository", default="")
    parser.add_argument("--signing-key", default="")
    options = parser.parse_args()
    try:
        Release(ROOT, options.repository, options.signing_key).make()
    except (CannotRelease, ValueError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def run(words: Sequence[str | Path], cwd: Path | None = None, **environment: str) -> str:
    """Return what a program writes; raise `CannotRelease` with its last words if it fails."""
    done = subprocess.run(
        [str(each) for each in words], cwd=cwd, capture_output=True, text=True, env=os.environ | environment
    )
    if done.returncode:
        raise CannotRelease(f"{' '.join(map(str, words[:4]))} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


class Release:
    """One release of the commit that is checked out in ``root``."""

    def __init__(self, root: Path, repository: str, signing_key: str) -> None:
        self.root = root
        self.repository = repository
        self.signing_key = signing_key
        self.version = version_of(root)
        self.epoch = run(["git", "log", "-1", "--format=%ct"], root).strip()
        self.date = datetime.fromtimestamp(int(self.epoch), UTC).date().isoformat()
        self.folder = root / "dist" / self.version

    def make(self) -> None:
        """Make all files, and say what is left to do."""
        changed = run(["git", "status", "--porcelain", "--untracked-files=normal"], self.root)
        if changed:
            raise CannotRelease(f"the tree differs from its commit:\n{changed}")
        if self.folder.exists():
            raise CannotRelease(f"{self.folder} is there already; remove it to begin again")
        with tempfile.TemporaryDirectory(prefix="release-") as work:
            self._make(Path(work))
        self._say_what_is_left()

    def _make(self, work: Path) -> None:
        self._say("Bringing the tools")
        tools = venv(work / "tools", "-r", _HERE / "requirements.txt")
        self._say("Building twice")
        stages = [self._staged(work / each) for each in ("one", "two")]
        built = [self._built(tools, stage) for stage in stages]
        check_same(*built)
        self.folder.mkdir(parents=True)
        packages = [self._kept(each) for each in sorted(built[0].iterdir())]
        run([tools / "twine", "check", "--strict", *packages])
        (wheel,) = (each for each in packages if each.suffix == ".whl")
        self._say("Installing what was built")
        installed = venv(work / "installed", wheel, "-c", self._bounds(work))
        self._write_of_installed(tools, installed, stages[0])
        self._write_notes(stages[0])
        self._sign()

    def _staged(self, folder: Path) -> Path:
        """Return a copy of the commit with what only a release has: the changelog, and a README for everywhere."""
        folder.mkdir()
        archive = folder.with_suffix(".tar")
        run(["git", "archive", "--output", archive, "HEAD"], self.root)
        run(["tar", "--extract", "--file", archive, "--directory", folder])
        made, _ = self._changelog(folder)
        (folder / "CHANGELOG.md").write_text(made, "utf-8")
        page = folder / "README.md"
        page.write_text(
            readme.absolute(page.read_text("utf-8"), self.repository, f"v{self.version}"), "utf-8"
        )
        if self.repository:
            project = folder / "pyproject.toml"
            base = self.repository.rstrip("/")
            urls = (
                f'[project.urls]\nSource = "{base}"\nChangelog = "{base}/blob/v{self.version}/CHANGELOG.md"\n'
                f'Documentation = "{base}/blob/v{self.version}/docs/README.md"\n\n'
            )
            text = project.read_text("utf-8")
            project.write_text(text.replace("[project.scripts]", f"{urls}[project.scripts]", 1), "utf-8")
        return folder

    def _changelog(self, tree: Path) -> tuple[str, str]:
        text = (self.root / "CHANGELOG.md").read_text("utf-8")
        return changes.released(text, self.version, self.date, changes.fragments(tree / "changes"))

    def _built(self, tools: Path, stage: Path) -> Path:
        out = stage.parent / f"{stage.name}-dist"
        words = [tools / "python", "-m", "build", "--no-isolation", "--outdir", out, stage]
        run(words, SOURCE_DATE_EPOCH=self.epoch)
        return out

    def _kept(self, path: Path) -> Path:
        kept = self.folder / path.name
        kept.write_bytes(path.read_bytes())
        return kept

    def _bounds(self, work: Path) -> Path:
        """Return the versions that were tested, without their hashes: the wheel itself has none there."""
        text = (self.root / "constraints.txt").read_text("utf-8")
        bounds = work / "bounds.txt"
        lines = [
            line.rstrip(" \\") for line in text.splitlines() if line and not line.startswith((" ", "-", "#"))
        ]
        bounds.write_text("\n".join(lines) + "\n", "utf-8")
        return bounds

    def _write_of_installed(self, tools: Path, installed: Path, stage: Path) -> None:
        told = run([installed / "magnetar", "--version"]).split()
        if told != ["magnetar", self.version]:
            raise CannotRelease(f"the wheel says that it is {' '.join(told)}")
        python = installed / "python"
        run([python, "-m", "tools.release.manual", self.version, self.date, self.folder], stage)
        page = self.folder / "magnetar.1"
        (self.folder / "magnetar.1.gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
        page.unlink()
        sbom = self.folder / f"magnetar-{self.version}.cdx.json"
        words: list[str | Path] = [
            "environment",
            "--output-reproducible",
            "--pyproject",
            stage / "pyproject.toml",
        ]
        run([tools / "cyclonedx-py", *words, "--output-file", sbom, python])
        words = ["--python", python, "--format=plain-vertical", "--with-license-file", "--with-urls"]
        words += ["--no-license-path", "--ignore-packages", "magnetar", "pip", "setuptools"]
        licences = run([tools / "pip-licenses", *words])
        (self.folder / "THIRD-PARTY-LICENSES.txt").write_text(licences, "utf-8")

    def _write_notes(self, stage: Path) -> None:
        _, section = self._changelog(stage)
        (self.folder / "CHANGELOG.md").write_text((stage / "CHANGELOG.md").read_text("utf-8"), "utf-8")
        highlights, _, by_area = section.partition("\n### ")
        notes = (
            f"# Magnetar {self.version}\n\n{highlights.strip()}\n\n"
            f"Install: `pip install magnetar=={self.version}`. `SHA256SUMS` has the checksums of all files, and "
            f"`SHA256SUMS.sig` signs it where the release is signed.\n\n## All changes\n\n### {by_area}"
        )
        (self.folder / "RELEASE_NOTES.md").write_text(notes, "utf-8")

    def _sign(self) -> None:
        files = sorted(each for each in self.folder.rglob("*") if each.is_file())
        sums = "".join(f"{sha256(each)}  {each.relative_to(self.folder)}\n" for each in files)
        path = self.folder / "SHA256SUMS"
        path.write_text(sums, "utf-8")
        if self.signing_key:
            run(["ssh-keygen", "-Y", "sign", "-q", "-f", self.signing_key, "-n", "file", path])

    def _say_what_is_left(self) -> None:
        where = self.folder.relative_to(self.root)
        for each in sorted(self.folder.rglob("*")):
            if each.is_file():
                print(f"  {each.stat().st_size:>10,}  {each.relative_to(self.root)}")
        if not self.signing_key:
            print("\nNot signed: SIGNING_KEY names no key.")
        if not self.repository:
            print("The README has no links: REPOSITORY names no address.")
        print(
            f"\nLeft to a person:\n"
            f"  cp {where}/CHANGELOG.md . && git rm -q $(git ls-files changes | grep -v README) && git commit -a\n"
            f"  git tag -s v{self.version}\n"
            f"  twine upload {where}/*.whl {where}/*.tar.gz"
        )

    @staticmethod
    def _say(what: str) -> None:
        print(f"\033[1m{what}\033[0m" if sys.stdout.isatty() else what, flush=True)


def version_of(root: Path) -> str:
    """Return the version; raise `CannotRelease` where files differ about it."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    found = re.search(r'__version__ = "([^"]+)"', (root / "src/magnetar/__init__.py").read_text("utf-8"))
    own = found[1] if found else ""
    if own != project:
        raise CannotRelease(f"pyproject.toml says version {project}, magnetar/__init__.py {own}")
    return str(project)


def venv(folder: Path, *wanted: str | Path) -> Path:
    """Return the ``bin`` of a new virtual environment that has what is wanted."""
    run([sys.executable, "-m", "venv", folder])
    run(
        [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    )
    return folder / "bin"


def sha256(path: Path) -> str:
    """Return a file's checksum."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_same(one: Path, two: Path) -> None:
    """Raise `CannotRelease` unless two directories hold the same files, byte for byte."""
    first, second = ({each.name: sha256(each) for each in path.iterdir()} for path in (one, two))
    if first != second:
        raise CannotRelease(f"two builds of one commit differ: {first} and {second}")


if __name__ == "__main__":
    sys.exit(main())
