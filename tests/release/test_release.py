"""The parts of a release: changes gathered, links that hold elsewhere, a man page and completions of all commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.release import changes, manual, readme
from tools.release.__main__ import CannotRelease, Release, check_same, version_of

ROOT = Path(__file__).parents[2]
CHANGELOG = "# Changes\n\n## Not released yet\n\n- **Kafka**: much.\n\n## 0.0.1 (2020)\n\nOld.\n"


def test_each_change_is_in_the_changelog_once_below_what_matters_and_older_releases_stay() -> None:
    own = changes.fragments(ROOT / "changes")
    assert len(own) > 100
    text, section = changes.released(CHANGELOG, "0.1.0", "2026-11-29", own)
    for each in own:
        assert text.count(f"- {each.text}\n") == 1, each.name
    before, after = text.split("## 0.1.0 (2026-11-29)\n\n")
    assert before.endswith("## Not released yet\n\n")
    assert after.startswith("- **Kafka**: much.\n\n### ")
    assert after.endswith("\n## 0.0.1 (2020)\n\nOld.\n")
    assert section in after


def test_a_change_without_a_word_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nothing.md").write_text("\n")
    with pytest.raises(ValueError, match=r"nothing\.md"):
        changes.fragments(tmp_path)


def test_a_changelog_without_the_section_is_refused() -> None:
    with pytest.raises(ValueError, match="Not released yet"):
        changes.released("# Changes\n", "0.1.0", "2026-11-29", [])


def test_links_of_the_readme_lead_to_the_tag_and_without_an_address_words_stay() -> None:
    text = (
        "See [the page](docs/cli.md), ![a picture](docs/x.png), [us](https://example.org), [below](#below)."
    )
    assert readme.absolute(text, "https://example.org/m/", "v1") == (
        "See [the page](https://example.org/m/blob/v1/docs/cli.md), "
        "![a picture](https://example.org/m/raw/v1/docs/x.png), [us](https://example.org), [below](#below)."
    )
    assert readme.absolute(text, "", "v1") == "See the page, , [us](https://example.org), [below](#below)."
    own = readme.absolute((ROOT / "README.md").read_text(), "https://example.org/m", "v1")
    assert "](docs/" not in own
    assert "](CONTRIBUTING" not in own


def test_the_man_page_has_every_command_and_is_taken_by_man(tmp_path: Path) -> None:
    page = manual.man_page("0.1.0", "2026-11-29")
    for command in ("topic create", "group describe", "why", "standalone", "ledger verify"):
        assert f".SS magnetar {command} [OPTIONS]" in page
    assert not [line for line in page.splitlines() if line.startswith(("'", ". "))]
    if shutil.which("groff") is not None:
        done = subprocess.run(("groff", "-man", "-Tutf8", "-ww"), input=page, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_completions_are_there_for_three_shells_and_bash_takes_its_own() -> None:
    made = manual.completions()
    assert set(made) == {"magnetar.bash", "_magnetar", "magnetar.fish"}
    subprocess.run(("bash", "-n"), input=made["magnetar.bash"], text=True, check=True)
    assert "_MAGNETAR_COMPLETE" in made["magnetar.fish"]


def test_files_that_differ_about_the_version_or_two_builds_that_differ_are_no_release(tmp_path: Path) -> None:
    (tmp_path / "src/magnetar").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    (tmp_path / "src/magnetar/__init__.py").write_text('__version__ = "0.1.0"\n')
    with pytest.raises(CannotRelease, match=r"0\.2\.0.*0\.1\.0"):
        version_of(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.whl").write_text("same")
    check_same(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two" / "a.whl").write_text("other")
    with pytest.raises(CannotRelease, match="differ"):
        check_same(tmp_path / "one", tmp_path / "two")


def test_a_tree_that_differs_from_its_commit_is_no_release(tmp_path: Path) -> None:
    subprocess.run(("git", "init", "-q", tmp_path), check=True)
    (tmp_path / "src/magnetar").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n')
    (tmp_path / "src/magnetar/__init__.py").write_text('__version__ = "0.1.0"\n')
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(("git", "-C", tmp_path, "add", "."), check=True)
    subprocess.run(("git", "-C", tmp_path, *who, "commit", "-qm", "first"), check=True)
    (tmp_path / "left.txt").write_text("not committed")
    with pytest.raises(CannotRelease, match=r"left\.txt"):
        Release(tmp_path, "", "").make()
    assert not (tmp_path / "dist").exists()


def test_the_version_is_told_without_loading_the_command_line() -> None:
    magnetar = Path(sys.executable).with_name("magnetar")
    done = subprocess.run((magnetar, "--version"), capture_output=True, text=True, check=True)
    assert done.stdout == f"magnetar {version_of(ROOT)}\n"
    script = (
        "import sys; from magnetar.cli.main import run; run(['--version']); print('typer' in sys.modules)"
    )
    told = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1] == "False"
