"""A checkup of one broker and of the machine below it, with the broker running or not. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

from magnetar import __version__
from magnetar.admin.broker_state import BrokerState
from magnetar.admin.client import TIMEOUT_S, ask, ask_within
from magnetar.admin.errors import AdminError, Invalid, Unreachable
from magnetar.admin.health import Health, Status
from magnetar.admin.shown_settings import without_effect
from magnetar.base.errors import BrokerError
from magnetar.doctor.client_versions import look_at_clients
from magnetar.doctor.directory import look_at_directory
from magnetar.doctor.findings import Checkup, Grade, Looked, whole
from magnetar.doctor.machine import look_at_machine
from magnetar.doctor.reach import look_at_listeners, look_at_ports
from magnetar.node import setting_sources
from magnetar.settings.settings import Settings

CHECKS = (
    "advertised", "certificates", "clients", "clock", "descriptors", "directory", "flush", "format", "health",
    "inodes", "kernel", "ledgers", "memory", "metadata", "ports", "room", "running", "settings",
)  # fmt: skip
_LEVELS = {
    Status.OK: None,
    Status.STARTING: Grade.note,
    Status.DEGRADED: Grade.warning,
    Status.FAILED: Grade.error,
}


def check_up(
    data: Path,
    settings: Settings,
    *,
    given: bool,
    ignoring: Iterable[str] = (),
    within_s: float = TIMEOUT_S,
) -> Checkup:
    """Return what is wrong with the broker of a data directory, or with one that would be started there.

    ``settings`` are those of a broker that is to be started; of a running one, its own are asked. ``given`` says that
    they were given, so that they are looked at, too. Checks in ``ignoring`` are left out; raises `Invalid` for a name
    that is none. A broker that does not answer ``within_s`` seconds is not waited for.
    """
    left_out = set(ignoring)
    if unknown := sorted(left_out - set(CHECKS)):
        raise Invalid(f"there is no check {unknown[0]!r}", f"There are: {', '.join(CHECKS)}.")
    looked = Looked()
    state = running_state(data, looked, within_s)
    if state is not None:
        settings = in_force(settings, state)
    look_at_machine(looked, settings, state)
    look_at_directory(looked, data, settings, running=state is not None)
    if state is None:
        if given:
            _settings(looked, settings.told.ignored, without_effect(settings))
            look_at_ports(looked, settings)
    else:
        _health(looked, state.health)
        _settings(looked, state.ignored, state.without_effect)
        look_at_clients(looked, state.clients)
        look_at_listeners(
            looked, state, lambda software: cast(bool, ask(data, "knows-client", software=software))
        )
    looked.advice = [each for each in looked.advice if each.check not in left_out]
    version = __version__ if state is None else state.version
    return whole(str(data), version, looked, running=state is not None)


def given_settings(data: Path | None, config: Path | None, overrides: Sequence[str]) -> Settings:
    """Return settings as a broker has them that is started so; raise `Invalid`."""
    given = list(overrides)
    if data is not None:
        given.append(f"data.dir={data}")
    try:
        return setting_sources.load(config, given).settings
    except BrokerError as error:
        raise Invalid(str(error), "'magnetar config settings' lists every setting.") from None


def running_state(
    data: Path, looked: Looked | None = None, within_s: float = TIMEOUT_S
) -> BrokerState | None:
    """Return what the broker that serves a directory says, None where none answers."""
    try:
        return cast(BrokerState, ask_within(within_s, data, "state", {}))
    except Unreachable as error:
        if looked is not None:
            looked.not_looked["broker"] = f"{error}: ports, clients and its own figures are not looked at"
    except AdminError as error:
        if looked is not None:
            looked.add(
                Grade.warning, "running", f"the broker that serves {data} does not tell its state: {error}",
                "it may be of another release", "run the doctor of the release that serves",
            )  # fmt: skip
    return None


def in_force(settings: Settings, state: BrokerState) -> Settings:
    """Return settings as the running broker has them, as far as this release knows them."""
    known = {each.name for each in settings.declared.definitions.values()}
    texts = {
        each.name: each.value
        for each in state.settings
        if each.name in known and each.source != "default" and each.value != "***"
    }
    found = settings
    for name, text in texts.items():
        try:
            found = found.with_values({name: text})
        except BrokerError:  # a value that only the other release takes
            continue
    return found


def _health(looked: Looked, health: Health) -> None:
    level = _LEVELS[health.status]
    looked.measured["health"] = str(health.status)
    for reason in health.reasons:
        if level is not None:
            looked.add(
                level, "health", reason, "the broker says so of itself: /health, /ready and its log have it, too",
                "do what it says; 'magnetar health' tells when it is over",
            )  # fmt: skip


def _settings(looked: Looked, ignored: tuple[str, ...], idle: tuple[str, ...]) -> None:
    if ignored:
        looked.add(
            Grade.warning, "settings", f"{len(ignored)} names are no settings here: {', '.join(ignored[:20])}",
            "their author expects something of them", "see 'magnetar config settings', or take them out",
        )  # fmt: skip
    if idle := tuple(each for each in idle if each not in ignored):
        looked.add(
            Grade.note, "settings", f"{len(idle)} settings are taken and have no effect: {', '.join(idle[:20])}",
            "they are for other brokers", "docs/configuration.md says so of each",
        )  # fmt: skip
