r"""Texts without secrets: known ones by what they are, unknown ones by what they look like.

Known are the values of settings of the kind PASSWORD, what a JAAS text among them holds, and variables of the
environment whose names say so. They are hidden as they are, and as JSON and URLs write them. All else is found by the
table `RULES`, which rather hides too much: a line that lacks a word still tells what happened.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import quote

from magnetar.auth.jaas import users_of
from magnetar.base.errors import InvalidConfig
from magnetar.base.setting import SettingDef, plain
from magnetar.base.values import Kind
from magnetar.settings.settings import Declared

HIDDEN = "***"
"""Instead of a secret."""
CUT = 1000
"""Texts from this length on may have been cut, and may end amid a secret."""
_SHORTEST = 4
"""Shorter secrets are in every text."""
_SHORTEST_LINE = 8
_NAMED = r"passw(?:or)?d|passphrase|secret|credential|jaas|private.?key|access.?key|api.?key|account.?key"
_SECRET_NAME = re.compile(rf"{_NAMED}|hmac|(?:^|[._-])pwd$|token$|basic.?auth.?conf", re.IGNORECASE)
_LOCATION = re.compile(r"(?:file:|/)[^\s;\"]*")
_VALUE = (
    r"(?:"
    r'"(?:[^"\\]|\\.)*(?:"|\\?$)'
    r"|'(?:[^'\\]|\\.)*(?:'|\\?$)"
    r'|(?P<deep>\\+)"(?:(?!(?<!\\)(?P=deep)").)*(?:(?P=deep)"|$)'
    r'|(?:(?:Basic|Bearer|Digest|Negotiate|SCRAM-SHA-\d+)[ =]+)?[^\s"]+'
    r")"
)
_LINE_OF_A_KEY = 48
_OF_KEYS = [re.compile(each) for each in ("[a-z]", "[A-Z]", "[0-9]")]
Replacement = str | Callable[[re.Match[str]], str]


def _plain_login(found: re.Match[str]) -> str:
    """Return what stands for a word: hidden, if it is base64 of SASL PLAIN's ``authzid NUL user NUL password``."""
    decoded = _decoded(found[0])
    is_login = decoded.count(b"\0") == 2 and decoded.split(b"\0")[1] and _is_text(decoded.replace(b"\0", b""))
    return HIDDEN if is_login else found[0]


def _basic_login(found: re.Match[str]) -> str:
    decoded = _decoded(found[2])
    return f"{found[1]}{HIDDEN}" if b":" in decoded and _is_text(decoded) else found[0]


def _encoded(found: re.Match[str]) -> str:
    """Return what stands for a long word, or the last before a key's end: paths and digests are no keys."""
    word = found[0]
    is_other = len(word) >= _LINE_OF_A_KEY and not all(each.search(word) for each in _OF_KEYS)
    return word if is_other else HIDDEN


def _decoded(word: str) -> bytes:
    bare = word.rstrip("=")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _is_text(content: bytes) -> bool:
    try:
        return content.decode().isprintable()
    except UnicodeDecodeError:
        return False


RULES: dict[str, tuple[re.Pattern[str], Replacement]] = {
    "PEM": (
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,20}PRIVATE KEY-----"
            r"(?:(?s:.{0,16000}?)-----END [A-Z0-9 ]{0,20}PRIVATE KEY-----|[^\n]*)"
        ),
        f"-----BEGIN PRIVATE KEY----- {HIDDEN}",
    ),
    "lines of base64": (
        re.compile(r"[A-Za-z0-9+/]{48,}+={0,2}|[A-Za-z0-9+/]++={0,2}(?=(?:\n|\\+n|\\+r\\+n)-----END)"),
        _encoded,
    ),
    "JWT": (re.compile(r"\bey[JA][A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,4}"), HIDDEN),
    "login modules": (
        re.compile(r"(LoginModule\s+(?:required|requisite|sufficient|optional)\b).*", re.IGNORECASE),
        rf"\1 {HIDDEN}",
    ),
    "users of JAAS": (
        re.compile(rf"(\buser_[^\s=\"']++\s{{0,4}}=\s{{0,4}}){_VALUE}", re.MULTILINE),
        rf"\g<1>{HIDDEN}",
    ),
    "refused values": (
        re.compile(
            rf"(Invalid value ).*( for configuration \S{{0,100}}(?:{_NAMED}|keystore|truststore|token)\S*)",
            re.IGNORECASE,
        ),
        rf"\g<1>{HIDDEN}\g<2>",
    ),
    "named values": (
        re.compile(
            rf"((?:(?:{_NAMED}|hmac|salt|stored.?key|server.?key|authorization|cookie|signature)[\w.-]{{0,64}}+"
            r"|(?:(?<![a-z0-9])|(?-i:(?=T)))(?:token|sig|pwd))"
            rf"\\{{0,8}}[\"']?\s{{0,4}}(?::|=>?)\s{{0,4}})(?!=){_VALUE}",
            re.IGNORECASE | re.MULTILINE,
        ),
        rf"\g<1>{HIDDEN}",
    ),
    "options": (
        re.compile(rf"(--[\w-]{{0,40}}(?:{_NAMED}|token) ){_VALUE}", re.IGNORECASE | re.MULTILINE),
        rf"\g<1>{HIDDEN}",
    ),
    "bearers": (re.compile(r"\b(Bearer +)[\w.~+/-]{8,}=*", re.IGNORECASE), rf"\g<1>{HIDDEN}"),
    "basic logins": (re.compile(r"\b(Basic +)([A-Za-z0-9+/]{4,}={0,2})", re.IGNORECASE), _basic_login),
    "SASL PLAIN": (
        re.compile(r"(?:\0|\\{1,8}x00|\\{1,8}u0000)[^\s\\\0]++(?:\0|\\{1,8}x00|\\{1,8}u0000)[^\s\"']+"),
        HIDDEN,
    ),
    "SASL PLAIN in base64": (re.compile(r"[A-Za-z0-9+/]{8,}={0,2}"), _plain_login),
    "proofs of SCRAM": (re.compile(r"(\b[psv]=)[A-Za-z0-9+/]{16,}={0,2}"), rf"\g<1>{HIDDEN}"),
    "URLs": (
        re.compile(r"(://)[^\s\"'<>/?#@:]*+(?:@|:(?:[^\s\"'<>@]*+@)++)"),
        rf"\g<1>{HIDDEN}@",
    ),
    "keys of AWS": (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}"), HIDDEN),
}
"""What secrets look like, in the order in which they are looked for."""


def redacted(text: str) -> str:
    """Return a text, of one line or many, without what looks like a secret."""
    for pattern, stands_for in RULES.values():
        text = pattern.sub(stands_for, text)
    return text


def without(text: str, secrets: Iterable[str]) -> str:
    """Return one line without these secrets, which `spellings` returned; nor the beginning of one at its end."""
    for each in secrets:
        if each in text:
            text = text.replace(each, HIDDEN)
    if len(text) >= CUT:
        for each in secrets:
            for length in range(min(len(each), len(text)) - 1, _SHORTEST - 1, -1):
                if text.endswith(each[:length]):
                    return text[:-length] + HIDDEN
    return text


def spellings(values: Iterable[str]) -> tuple[str, ...]:
    """Return secrets in all forms in which a line may have them, the longest first."""
    found: set[str] = set()
    for value in values:
        found |= {
            part for each in _parts(value) for part in (each, json.dumps(each)[1:-1], quote(each, safe=""))
        }
    return tuple(sorted((each for each in found if len(each) >= _SHORTEST), key=len, reverse=True))


def _parts(value: str) -> list[str]:
    """Return what of a setting's value is secret: not the place of a file, but each password of a JAAS text."""
    value = value.strip()
    if _LOCATION.fullmatch(value):
        return []
    found = [value]
    try:
        found += users_of(value).values()
    except InvalidConfig:
        pass
    if value.startswith("data:"):
        found.append(value.partition(",")[2])
    lines = [each.strip() for each in value.replace("\\n", "\n").splitlines()]
    if len(lines) > 1:  # a log has it line by line
        found += [each for each in lines if len(each) >= _SHORTEST_LINE and not each.startswith("-----")]
    return found


def is_secret(name: str, declared: Declared) -> bool:
    """Return whether a setting or a variable of this name holds a secret, by its definition or its name."""
    bare = name.removeprefix("MAGNETAR_")
    own = declared.of_a_listener(bare)
    found: list[SettingDef] = [own[1]] if own is not None else [each for each, _ in declared.find_all(bare)]
    if found:
        return any(each.kind is Kind.PASSWORD for each in found)
    return _SECRET_NAME.search(name) is not None and not plain(name).endswith("file")


def secrets_among(pairs: Mapping[str, str], declared: Declared) -> list[str]:
    """Return the values of these variables or settings that are secrets."""
    return [value for name, value in pairs.items() if value and is_secret(name, declared)]
