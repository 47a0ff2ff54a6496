"""Contexts of the command line: named clusters with their addresses and credentials, one of which is in use.

They are stored in ``magnetar/contexts.json`` below ``XDG_CONFIG_HOME`` (``~/.config``)::

    {"current": "prod", "contexts": {"prod": {"bootstrap_servers": "...", "http_url": "...", "schema_registry": "...",
                                              "settings": {"security.protocol": "SASL_SSL", ...}}}}

``settings`` are those of a Kafka client (`magnetar.client.security`). The file is for its owner alone: it may have
passwords and tokens.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from magnetar.admin.errors import Invalid, NotThere

VARIABLE = "MAGNETAR_CONTEXT"
SECRETS = ("password", "secret", "jaas", "token", ".key", ".pem")
"""Parts of the names of settings whose values are secret."""
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CommandContext:
    """One cluster: where it is, and how a client logs in. Empty for what is not set."""

    name: str
    bootstrap_servers: str = ""
    http_url: str = ""
    schema_registry: str = ""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    current: bool = False

    def without_secrets(self) -> CommandContext:
        """Return the same, with ``***`` for what is secret."""
        hidden = {name: "***" if is_secret(name) else text for name, text in self.settings.items()}
        return replace(self, settings=hidden)


def is_secret(name: str) -> bool:
    """Return whether a client setting of that name has a secret; a path of a file is none."""
    return not name.endswith(".location") and any(part in name.lower() for part in SECRETS)


def contexts_file() -> Path:
    """Return where contexts are stored."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    home = Path(given) if os.path.isabs(given) else Path.home() / ".config"
    return home / "magnetar" / "contexts.json"


def read_contexts() -> tuple[CommandContext, ...]:
    """Return all contexts by name; raise `Invalid` for a file that must not be used."""
    file = contexts_file()
    try:
        # Without waiting: what is there might be a pipe.
        number = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}") from None
    with open(number, "rb") as opened:
        _check(file, os.fstat(number))
        content = opened.read(_MAX_BYTES + 1)
    try:
        if len(content) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES} bytes")
        return _parsed(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Invalid(
            f"{file} has no contexts: {error!r}", "Mend it, or remove it and add them again."
        ) from None


def find_context(named: str | None) -> CommandContext | None:
    """Return the context that is named, by an argument or ``MAGNETAR_CONTEXT``, or else the one in use.

    Raises `NotThere` for a name that no context has; None where nothing is named and none is in use.
    """
    named = named or os.environ.get(VARIABLE) or None
    contexts = read_contexts()
    found = next((each for each in contexts if (each.name == named if named else each.current)), None)
    if named and found is None:
        known = ", ".join(each.name for each in contexts) or "none"
        raise NotThere(f"there is no context {named!r}", f"There are: {known}. See 'magnetar context add'.")
    return found


def put_context(context: CommandContext) -> None:
    """Store a context; it replaces the one of its name."""
    if not context.name or not context.name.isprintable() or len(context.name) > 100:
        raise Invalid(f"{context.name!r} is no name of a context", "Choose up to 100 letters and digits.")
    others = [each for each in read_contexts() if each.name != context.name]
    if context.current or not others:
        others = [replace(each, current=False) for each in others]
        context = replace(context, current=True)
    _write([*others, context])


def use_context(name: str) -> CommandContext:
    """Choose the context in use; raise `NotThere`."""
    found = find_context(name)
    assert found is not None
    _write([replace(each, current=each.name == name) for each in read_contexts()])
    return replace(found, current=True)


def remove_context(name: str) -> None:
    """Delete a context; raise `NotThere`."""
    find_context(name)
    _write([each for each in read_contexts() if each.name != name])


def _check(file: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Invalid(f"{file} is no file")
    if found.st_uid != os.geteuid():
        raise Invalid(
            f"{file} belongs to another user, who could send you anywhere",
            "Remove it, or set XDG_CONFIG_HOME to a directory of your own.",
        )
    if found.st_mode & 0o077:
        raise Invalid(
            f"{file} may be read or written by others, and it may have passwords", f"chmod 600 {file}"
        )


def _parsed(content: Mapping[str, object]) -> tuple[CommandContext, ...]:
    found = []
    contexts = content["contexts"]
    if not isinstance(contexts, dict):
        raise TypeError("contexts must be an object")
    for name, each in contexts.items():
        settings = {str(key): str(text) for key, text in dict(each.get("settings", {})).items()}
        places = {key: str(each.get(key, "")) for key in ("bootstrap_servers", "http_url", "schema_registry")}
        found.append(
            CommandContext(name, **places, settings=settings, current=name == content.get("current"))
        )
    return tuple(sorted(found, key=lambda each: each.name))


def _write(contexts: list[CommandContext]) -> None:
    """Store all; a reader finds the old file or the new one, and others never see either."""
    file = contexts_file()
    bodies = {}
    for each in sorted(contexts, key=lambda each: each.name):
        body = {
            name: value
            for name, value in asdict(replace(each, settings=dict(each.settings))).items()
            if value
        }
        bodies[each.name] = {name: value for name, value in body.items() if name not in ("name", "current")}
    current = next((each.name for each in contexts if each.current), None)
    text = json.dumps({"current": current, "contexts": bodies}, indent=2, ensure_ascii=False)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(number, "w", encoding="utf-8") as opened:
            os.fchmod(number, 0o600)
            opened.write(text + "\n")
        os.replace(draft, file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise Invalid(f"{file} cannot be written: {error.strerror}") from None
