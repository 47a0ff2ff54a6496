"""Kafka's ``ssl.principal.mapping.rules``: how the name in a client's certificate becomes a principal's name.

    RULE:^CN=([^,]+),OU=(.*)$/$1@$2/L,DEFAULT

Each rule is a pattern that the whole name must fit, what it becomes (``$1`` is the first group), and L or U for small
or capital letters; DEFAULT leaves a name as it is. The first rule that fits counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)"
)
_JAVAS_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z])")
_IN_REPLACEMENT = re.compile(r"\\(.)|\$(\d)|\$\{(\w+)\}")
_CASES: dict[str, Callable[[str], str]] = {"": str, "L": str.lower, "U": str.upper}


class PrincipalRule(NamedTuple):
    """One rule; ``pattern`` is None for DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        """Return what a name becomes; None if the rule does not fit it."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        return _CASES[self.case](self.pattern.sub(self._replaced, name))

    def _replaced(self, match: re.Match[str]) -> str:
        def of(part: re.Match[str]) -> str:
            if part[1] is not None:
                return str(part[1])
            if part[2] is not None and int(part[2]) > match.re.groups:
                return str(part[0])  # as in Kafka: no such group, so that it means itself
            return match[int(part[2]) if part[2] is not None else part[3]] or ""

        return _IN_REPLACEMENT.sub(of, self.replacement)


def rules_of(text: str) -> tuple[PrincipalRule, ...]:
    """Return the rules of a setting's text; raise ``ValueError`` for what is none."""
    found: list[PrincipalRule] = []
    at = 0
    while at < len(text.rstrip(", \t\n")):
        match = _RULE.match(text, at)
        if match is None:
            raise ValueError(f"no rule at character {at + 1}: {text[at:]}")
        at = match.end()
        if match["default"]:
            found.append(PrincipalRule(None, "", ""))
            continue
        try:
            pattern = re.compile(_JAVAS_NAMED_GROUP.sub("(?P<", match["pattern"]))
        except re.error as error:
            raise ValueError(f"{match['pattern']} is no pattern: {error}") from None
        found.append(PrincipalRule(pattern, match["replacement"], match["case"]))
    return tuple(found)


def are_rules(text: object) -> bool:
    """Whether a setting's text is a list of rules."""
    try:
        rules_of(str(text))
    except ValueError:
        return False
    return True


def principal_of(name: str, rules: tuple[PrincipalRule, ...]) -> str | None:
    """Return what the first rule that fits makes of a name; None if none does."""
    return next((made for each in rules if (made := each.apply(name)) is not None), None)
