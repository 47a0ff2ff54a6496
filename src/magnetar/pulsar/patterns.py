"""The expressions of clients over topic names, by RE2 as Pulsar has them (RE2/J).

RE2 never goes back: a match costs at most the size of the program times the length of the name. Both are bounded, the
program before it is used, so that no expression of a client costs more than a millisecond a name; and what is done for
many names goes on in the loop's later turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import re2

from magnetar.pulsar.errors import NotAllowed
from magnetar.pulsar.names import names_of
from magnetar.topics.topic import Topic

_MAX_STEPS = 1000
"""Of a program; 50 dots, each of which is any of UTF-8's forms, are 600."""
_MAX_BYTES = 128 << 10
"""That RE2 may use for one expression, its states included; it remembers the last 128 of them."""
WORK_OF_A_TURN = 200_000
"""Steps of programs times characters; about a millisecond."""
WORK_OF_A_NAME = 500
_SCHEME = "://"


class Pattern:
    """An expression over names without their domain, ``tenant/namespace/topic``, that must match the whole of one."""

    __slots__ = ("_expression", "text")

    def __init__(self, text: str, max_chars: int) -> None:
        """Raise ``NotAllowed`` if it is too long or too large, or not understood.

        It may say which domain its topics have, ``persistent://.*``; that is not looked at.
        """
        if len(text) > max_chars:
            raise NotAllowed(f"Pattern longer than maximum: {max_chars}")
        _, scheme, rest = text.partition(_SCHEME)
        self.text = rest if scheme else text
        if _compiled(self.text).programsize > _MAX_STEPS:
            raise NotAllowed("the pattern is too large")

    def matches(self, name: str) -> bool:
        """Whether it matches a name, with or without its domain."""
        # Compiled anew if RE2's binding has forgotten it: so what clients watch takes no memory for each of them.
        return _compiled(self.text).fullmatch(name.partition(_SCHEME)[2] or name) is not None

    def work(self, name: str) -> int:
        """How much it may be to match a name."""
        return int(_compiled(self.text).programsize) * len(name)


def _compiled(text: str) -> re2._Regexp:
    try:
        return re2.compile(text, _OPTIONS)
    except re2.error as error:
        why = error.args[0] if error.args else ""
        raise NotAllowed(
            f"the pattern is not understood: {why.decode(errors='replace') if isinstance(why, bytes) else why}"
        ) from None
    except UnicodeEncodeError:
        raise NotAllowed("the pattern is not understood: it is no text") from None


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = _MAX_BYTES
    options.log_errors = False
    return options


_OPTIONS = _options()


async def matching(
    topics: Iterable[Topic], namespace: str, pattern: Pattern | None
) -> AsyncIterator[tuple[Topic, str]]:
    """Yield topics of ``tenant/namespace`` and those of their names that match; meanwhile others have their turn."""
    work = 0
    for topic in topics:
        work += WORK_OF_A_NAME // 10
        if topic.name.namespace_name != namespace or topic.internal:
            continue
        for name in names_of(topic):
            if work >= WORK_OF_A_TURN:
                work = 0
                await asyncio.sleep(0)
            work += WORK_OF_A_NAME
            if pattern is not None:
                work += pattern.work(name)
                if not pattern.matches(name):
                    continue
            yield topic, name
