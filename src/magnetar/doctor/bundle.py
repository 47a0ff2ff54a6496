"""What a maintainer asks for, in one archive and without secrets, whether or not the broker runs.

A broker that does not answer in time is not asked again; what the system knows of its process, its log file and its
directory are there all the same. Whatever is missing has a reason in README.txt, and nothing is asked of the operator.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from magnetar import __version__
from magnetar.admin.broker_state import BrokerState, Inventory
from magnetar.admin.client import ask_within, process_of
from magnetar.admin.errors import AdminError, Invalid, Silent
from magnetar.admin.reasons import Why
from magnetar.admin.shown_settings import secrets_of, shown_settings
from magnetar.auth.redaction import secrets_among
from magnetar.doctor.bounded import bounded
from magnetar.doctor.bundle_archive import FORMS, packed, place, write
from magnetar.doctor.bundle_cleaning import Cleaning
from magnetar.doctor.bundle_layout import layout
from magnetar.doctor.bundle_names import HiddenNames
from magnetar.doctor.bundle_process import last_lines, log_file_of, secrets_of_process, seen_from_outside
from magnetar.doctor.bundle_readme import NAMES, left_out, readme
from magnetar.doctor.checkup import check_up, given_settings
from magnetar.settings.settings import Settings

ANSWER_S = 10.0
"""So long one answer of the broker is waited for."""
WHOLE_S = 60.0
"""So long questions are asked; what is not answered by then is missing."""
_CHECKUP_S = 40.0
MOST_LOG_BYTES = 1 << 20
MOST_METRICS_BYTES = 2 << 20
MOST_GROUPS = 20
_STUCK = re.compile(r'^magnetar_group_stuck\{.*?consumergroup="((?:[^"\\]|\\.)*)"', re.MULTILINE)
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n"}
_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")
_NOT_REDACTED = "the broker's own look for its secrets: it did not answer; those of its start were looked for"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BundledFile:
    """One file of an archive, and what it has."""

    name: str
    bytes: int
    about: str


@dataclass(frozen=True, slots=True)
class SupportBundle:
    """An archive that was made: what it has, what is missing from it, and what is left out of all of them."""

    path: str
    bytes: int
    files: tuple[BundledFile, ...]
    missing: dict[str, str]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WantedBundle:
    """An operator's choices. ``settings`` are given where no broker runs that has its own."""

    data: Path
    settings: Settings
    given: bool = False
    output: Path | None = None
    form: str = FORMS[0]
    names: bool = False
    log_file: Path | None = None
    answer_s: float = ANSWER_S


def wanted_of(
    data: Path | None, config: Path | None, overrides: Sequence[str], find: Callable[[], Path]
) -> WantedBundle:
    """Return what is wanted of the broker with these settings; ``find`` its directory where nothing names it."""
    settings = given_settings(data, config, overrides)
    if data is None:
        data = find() if config is None else Path(settings.node.data_dir)
    return WantedBundle(data.absolute(), settings, given=config is not None or bool(overrides))


def make(wanted: WantedBundle, environment: dict[str, str]) -> SupportBundle:
    """Gather and write it; raise `AdminError` where it cannot be written.

    ``environment`` is that of the command, whose secrets are hidden, too.
    """
    if wanted.form not in FORMS:
        raise Invalid(f"there is no archive {wanted.form!r}", f"There are: {', '.join(FORMS)}.")
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:60].strip(".-") or "host"
    name = f"magnetar-bundle-{host}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    path = place(wanted.output, name, wanted.form)
    gathered = _Gathering(wanted, environment)
    gathered.gather()
    about = {each: NAMES[each] for each in gathered.files}
    texts = {"README.txt": readme(name, about, gathered.missing, gathered.notes, names=wanted.names)}
    files = {each: text.encode("utf-8", "replace") for each, text in (texts | gathered.files).items()}
    content = packed(name, files, wanted.form)
    write(path, content)
    return SupportBundle(
        str(path),
        len(content),
        tuple(BundledFile(each, len(text), NAMES[each]) for each, text in files.items()),
        gathered.missing,
        (*left_out(names=wanted.names), *gathered.notes),
    )


@dataclass(slots=True)
class _Gathering:
    """Files that were gathered; a part that fails is missing, and the others are not."""

    wanted: WantedBundle
    environment: dict[str, str]
    files: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    cleaning: Cleaning = field(init=False)
    until: float = field(init=False)
    broken: str = ""
    """Why the broker is not asked any more."""

    def gather(self) -> None:
        self.until = time.monotonic() + WHOLE_S
        data, settings = self.wanted.data, self.wanted.settings
        pid = process_of(data, self.wanted.answer_s)
        secrets = [*secrets_of(settings), *secrets_among(self.environment, settings.declared)]
        if pid is not None:
            secrets += secrets_of_process(pid, settings.declared)
        self.cleaning = Cleaning(secrets, None)
        state = self._had("state.json", lambda: cast(BrokerState, self._ask("state")))
        if state is not None:
            self.cleaning = Cleaning(secrets, self._redact)
        elif pid is not None:
            self.notes.append(_NOT_REDACTED)
        metrics = self._had("metrics.txt", lambda: cast(str, self._ask("metrics")))
        inventory = self._had("inventory.json", lambda: cast(Inventory, self._ask("inventory")))
        self._names(inventory)
        self._state(state)
        self._add_json("version.json", _versions)
        self._add_json("doctor.json", self._checkup)
        if metrics is not None:
            self._add("metrics.txt", lambda: self._metrics(metrics))
            self._add_json("why.json", lambda: self._why(metrics))
        else:
            self.missing["why.json"] = "it is known by the metrics which groups are stuck"
        self._add("log.txt", lambda: self.cleaning.lines(cast("tuple[str, ...]", self._ask("recent-log"))))
        self._add("stacks.txt", lambda: self.cleaning.lines(cast(str, self._ask("stacks")).splitlines()))
        self._process(pid)
        self._add("directory.txt", lambda: self.cleaning.lines(layout(data)))
        self.files = {name: self.files[name] for name in NAMES if name in self.files}

    # Parts.

    def _names(self, inventory: Inventory | None) -> None:
        if inventory is None:
            if not self.wanted.names:
                self.cleaning.names = HiddenNames((), ())
                self.notes.append(
                    "names of topics and groups could not be asked for, so log lines may have some"
                )
            return
        if not self.wanted.names:
            self.cleaning.names = HiddenNames(inventory.topics, inventory.groups)
            if inventory.topic_count > len(inventory.topics) or inventory.group_count > len(inventory.groups):
                self.notes.append("of very many topics or groups, log lines may have some names")
            inventory = replace(inventory, topics={}, groups={})
        self._add_json("inventory.json", lambda: inventory)

    def _state(self, state: BrokerState | None) -> None:
        settings = self.wanted.settings
        if state is not None:
            self._add_json("health.json", lambda: state.health)
            self._add_json("settings.json", lambda: state.settings)
            self._add_json("state.json", lambda: replace(state, settings=()))
            return
        self.missing["health.json"] = self.missing["state.json"]
        if self.wanted.given:
            self._add_json("settings.json", lambda: shown_settings(settings))
        else:
            self.missing["settings.json"] = "no broker tells them, and no file is named by --config"

    def _checkup(self) -> object:
        wanted = self.wanted
        seconds = 0.1 if self.broken else wanted.answer_s
        look = partial(check_up, wanted.data, wanted.settings, given=wanted.given, within_s=seconds)
        return bounded(_CHECKUP_S, look)

    def _metrics(self, text: str) -> list[str]:
        lines = text[:MOST_METRICS_BYTES].splitlines()
        if len(text) > MOST_METRICS_BYTES:
            lines[-1] = "# There are more."
        return self.cleaning.lines(lines, figures=True)

    def _why(self, metrics: str) -> list[Why]:
        groups = [
            _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), each)
            for each in _STUCK.findall(metrics)
        ]
        if len(groups) > MOST_GROUPS:
            self.notes.append(f"why of {len(groups) - MOST_GROUPS:,} more groups that are stuck")
        return [cast(Why, self._ask("why-group", group=each)) for each in groups[:MOST_GROUPS]]

    def _process(self, pid: int | None) -> None:
        named = self.wanted.log_file
        if pid is None:
            self.missing["process.txt"] = "no process serves the directory"
        else:
            self._add("process.txt", lambda: self.cleaning.lines(seen_from_outside(pid)))
            named = named or log_file_of(pid)
        if named is None:
            self.missing["log-file.txt"] = (
                "no file is known that the broker logs to; name it with --log-file, or add what "
                "'journalctl -u magnetar' or the container's log has, after looking through it"
            )
            return
        self._add("log-file.txt", lambda: self._log_file(named))

    def _log_file(self, path: Path) -> list[str]:
        lines = last_lines(path, MOST_LOG_BYTES)
        if path.stat().st_size > MOST_LOG_BYTES:
            self.notes.append(f"log lines before the last {MOST_LOG_BYTES >> 20} MB of {path.name}")
        return self.cleaning.lines(lines)

    # Asking.

    def _ask(self, question: str, **given: object) -> object:
        """Return the broker's answer, within the time that is left; raise `AdminError`."""
        if self.broken:
            raise AdminError(self.broken)
        left = min(self.wanted.answer_s, self.until - time.monotonic())
        if left <= 0:
            raise AdminError(f"not asked for: {WHOLE_S:.0f} s were over")
        try:
            return bounded(left + 1, partial(ask_within, left, self.wanted.data, question, given))
        except (Silent, TimeoutError) as error:
            self.broken = str(error)
            raise

    def _redact(self, texts: list[str]) -> Iterable[str]:
        """Return lines without what only the broker knows as secret; as they are, if it cannot be asked any more."""
        try:
            return cast("tuple[str, ...]", self._ask("redact", texts=texts))
        except (AdminError, TimeoutError):
            if _NOT_REDACTED not in self.notes:
                self.notes.append(_NOT_REDACTED)
            return texts

    def _had(self, name: str, get: Callable[[], T]) -> T | None:
        """Return what was gathered, or note why it is missing."""
        try:
            return get()
        except (AdminError, OSError, ValueError) as error:  # a timeout is an OSError
            self.missing[name] = self._clean_reason(error)
            return None

    def _clean_reason(self, error: Exception) -> str:
        return Cleaning((), None).lines([str(error) or type(error).__name__])[0]

    def _add(self, name: str, get: Callable[[], list[str]]) -> None:
        lines = self._had(name, get)
        if lines is not None:
            self.files[name] = "\n".join(lines) + "\n"

    def _add_json(self, name: str, get: Callable[[], Any]) -> None:
        text = self._had(name, lambda: self.cleaning.text(get()))
        if text is not None:
            self.files[name] = text + "\n"


def _versions() -> dict[str, object]:
    return {
        "magnetar": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.platform(),
        "host": socket.gethostname(),
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "packages": dict(_packages()),
    }


def _packages() -> Iterator[tuple[str, str]]:
    for each in importlib.metadata.requires("magnetar") or ():
        found = _REQUIREMENT.match(each)
        try:
            if found is not None:
                yield found[0], importlib.metadata.version(found[0])
        except importlib.metadata.PackageNotFoundError:
            continue
