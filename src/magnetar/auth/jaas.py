"""Users and passwords of SASL PLAIN in Kafka's own words: a login module of JAAS, with ``user_NAME="PASSWORD"`` each.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="broker" password="secret" user_alice="alice's secret" user_bob="bob's";

``username`` and ``password`` are those that a Kafka broker itself logs in with; no broker logs in so here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from magnetar.base.errors import InvalidConfig

SETTING = "plain.sasl.jaas.config"
_MODULE = "PlainLoginModule"
_FLAGS = ("required", "requisite", "sufficient", "optional")
_USER = "user_"
_PART = re.compile(
    r"""\s*(?:([^\s="';]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))|(;))\s*"""
)
_QUOTED = re.compile(r'["\\]')
_ESCAPE = r"\\\g<0>"
_ESCAPED = re.compile(r"\\(.)")


def text_of(users: Mapping[str, str]) -> str:
    """Return the login module that has these users."""
    words = (f'{_USER}{user}="{_QUOTED.sub(_ESCAPE, password)}"' for user, password in users.items())
    return f"org.apache.kafka.common.security.plain.{_MODULE} required {' '.join(words)};"


def of_all(texts: Iterable[str]) -> str:
    """Return one login module with the users of several, except users that have several passwords."""
    found: dict[str, set[str]] = {}
    for text in texts:
        for user, password in users_of(text).items():
            found.setdefault(user, set()).add(password)
    return text_of({user: next(iter(each)) for user, each in found.items() if len(each) == 1})


def users_of(text: str) -> dict[str, str]:
    """Return the passwords by user; raise `InvalidConfig` for what is no such module, without quoting it."""
    module, flag, options = (*text.split(None, 2), "", "", "")[:3]
    if not module.endswith(_MODULE) or flag.lower() not in _FLAGS:
        raise InvalidConfig(
            f"Invalid value for configuration {SETTING}: expected org.apache.kafka.common.security.plain.{_MODULE} "
            'required user_NAME="PASSWORD" ...;'
        )
    users: dict[str, str] = {}
    at, ended = 0, False
    while at < len(options):
        part = _PART.match(options, at)
        if part is None or ended:
            raise InvalidConfig(
                f'Invalid value for configuration {SETTING}: expected NAME="VALUE" at character {at + 1} of its '
                "options, and one semicolon at their end"
            )
        at, ended = part.end(), part[5] is not None
        if not ended and part[1].startswith(_USER):
            value = next(each for each in part.group(2, 3, 4) if each is not None)
            users[part[1].removeprefix(_USER)] = _ESCAPED.sub(r"\1", value)
    if not ended:
        raise InvalidConfig(f"Invalid value for configuration {SETTING}: a semicolon must end it")
    if "" in users or not all(users.values()):
        raise InvalidConfig(f"Invalid value for configuration {SETTING}: a user without name or password")
    return users
