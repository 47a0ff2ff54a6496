"""The broker's loggers under Kafka's names for levels: shown and changed while it runs, forgotten at its end."""

from __future__ import annotations

import logging

from magnetar.base.errors import InvalidConfig
from magnetar.base.values import Kind
from magnetar.kafka.configs.entries import ConfigEntry
from magnetar.topics.effective import ConfigSource, Origin

ROOT = "root"
_OURS = "magnetar"
# Python knows neither TRACE nor FATAL by these names.
_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}


def logger_entries() -> list[ConfigEntry]:
    """Return every logger with the level in force."""
    return [
        ConfigEntry(
            name,
            [Origin(name, _level_name(_logger(name)), ConfigSource.BROKER_LOGGER)],
            Kind.STRING,
            False,
            "",
        )
        for name in _names()
    ]


def set_level(name: str, level: str, *, validate_only: bool = False) -> None:
    """Set the level of a logger; raise `InvalidConfig` for a name or level that does not exist."""
    _known(name)
    if level not in _LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(_LEVELS))}"
        )
    if not validate_only:
        _logger(name).setLevel(_LEVELS[level])


def unset_level(name: str, *, validate_only: bool = False) -> None:
    """Let a logger follow the one above it again."""
    _known(name)
    if not validate_only:
        _logger(name).setLevel(logging.NOTSET)


def _known(name: str) -> None:
    if name not in _names():
        raise InvalidConfig(f"Logger {name} does not exist!")


def _names() -> list[str]:
    found = logging.Logger.manager.loggerDict
    ours = (name for name in found if name == _OURS or name.startswith(_OURS + "."))
    return [ROOT, *sorted(ours)]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((name for name, number in _LEVELS.items() if number <= level), "TRACE")
